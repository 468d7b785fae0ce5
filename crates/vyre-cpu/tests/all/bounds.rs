//! No kernel reaches memory outside its buffers: generated programs, most with arbitrary indices,
//! run on buffers placed against inaccessible guard pages, once at their end and once at their
//! start.

#![cfg(unix)]
#![allow(unsafe_code)] // Pages are mapped and protected here.
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;
use vyre_conform::filetest::doubts;
use vyre_conform::generate::{Generator, Options};
use vyre_conform::seeds::Seeds;
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, Binding, CompiledPipeline, DispatchConfig, Schedule, VyreBackend};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{Doubts, Kernel};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::optimize::{self, Assume, optimize};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;

const PAGE: usize = 65_536;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn mprotect(at: *mut c_void, bytes: usize, access: c_int) -> c_int;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
}

/// The guard page that a buffer is placed against.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Against {
    Start,
    End,
}

/// Memory between two inaccessible guard pages.
struct Guarded {
    base: *mut u8,
    mapped: usize,
    offset: usize,
    length: usize,
}

impl Guarded {
    fn new(bytes: &[u8], against: Against) -> Guarded {
        let inner = bytes.len().next_multiple_of(PAGE).max(PAGE);
        let mapped = inner + 2 * PAGE;
        let (private_anonymous, read_write) = (if cfg!(target_os = "linux") { 0x22 } else { 0x1002 }, 3);
        let offset = match against {
            Against::Start => PAGE,
            Against::End => PAGE + inner - bytes.len(),
        };
        // SAFETY: a new mapping of anonymous memory, whose first and last page are then protected.
        unsafe {
            let base = mmap(std::ptr::null_mut(), mapped, read_write, private_anonymous, -1, 0);
            assert!(!base.is_null() && base as isize != -1, "no memory for the test");
            let last = base.cast::<u8>().add(PAGE + inner).cast();
            assert_eq!((mprotect(base, PAGE, 0), mprotect(last, PAGE, 0)), (0, 0));
            let base = base.cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(offset), bytes.len());
            Guarded { base, mapped, offset, length: bytes.len() }
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the range is within the accessible pages, and `self` is borrowed for as long as
        // the slice.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(self.offset), self.length) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping.
        unsafe { munmap(self.base.cast(), self.mapped) };
    }
}

/// Runs on guarded copies of the inputs and returns the outputs.
pub(crate) fn run_guarded(
    pipeline: &dyn CompiledPipeline,
    kernel: &Kernel,
    inputs: &[Vec<u8>],
    against: Against,
) -> Result<Vec<Vec<u8>>, BackendError> {
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let launch = Launch::from_inputs(kernel, &borrowed, Overrides::default())?;
    let mut given = inputs.iter();
    let mut memory = Vec::new();
    for id in kernel.bound_buffers() {
        let access = kernel.buffer(id).decl.access;
        let junk = vec![0xAB; launch.bytes(kernel, id)];
        let bytes = if access.is_input() { given.next().unwrap_or(&junk) } else { &junk };
        memory.push((access, Guarded::new(bytes, against)));
    }
    let mut bindings: Vec<Binding<'_>> = memory
        .iter_mut()
        .map(|(access, guarded)| match access {
            Access::ReadWrite => Binding::ReadWrite(guarded.bytes()),
            Access::Output => Binding::Write(guarded.bytes()),
            Access::Read | Access::Uniform | Access::Workgroup => Binding::Read(guarded.bytes()),
        })
        .collect();
    pipeline.dispatch_bound(&mut bindings, &DispatchConfig::default())?;
    drop(bindings);
    let outputs = memory.iter_mut().filter(|(access, _)| access.is_output());
    Ok(outputs.map(|(_, guarded)| guarded.bytes().to_vec()).collect())
}

#[test]
fn generated_programs_stay_in_their_buffers() -> Result<(), BackendError> {
    let cpu = Cpu::new()?;
    let options = Options { subgroup_size: Some(cpu.device_profile().subgroup_size), ..Options::default() };
    let generator = Generator::new(options);
    let (mut compared, mut cases) = (0, 0);
    for seed in Seeds::new(50, 150, Duration::from_secs(20)) {
        cases += 1;
        let case = generator.from_seed(0x6000_0000 + seed);
        let kernel = case.program.validate()?;
        for schedule in [Schedule::Off, Schedule::Expensive] {
            let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
            let Some(pipeline) = cpu.compile_native(&case.program, &config)? else {
                unreachable!("the backend compiles")
            };
            let Ok(expected) = pipeline.dispatch(&case.inputs, &DispatchConfig::default()) else { continue };
            for against in [Against::Start, Against::End] {
                let given = run_guarded(&*pipeline, &kernel, &case.inputs, against)?;
                assert_eq!(given, expected, "seed {seed}\n{}", case.program);
                compared += 1;
            }
        }
    }
    assert!(compared > cases, "most generated programs run");
    Ok(())
}

/// Programs about indices, with hostile parameters: code that a launch proved safe stays in the
/// buffers and gives the interpreter's bits.
#[test]
fn programs_proved_at_launch_stay_in_their_buffers() -> Result<(), BackendError> {
    let cpu = Cpu::new()?;
    let generator = Generator::new(Options { indices: true, ..Options::default() });
    let mut proved = 0;
    for (number, seed) in Seeds::new(40, 400, Duration::from_secs(20)).enumerate() {
        let case = generator.from_seed(0x7000_0000 + seed);
        let kernel = case.program.validate()?;
        let config = DispatchConfig::default();
        let Some(pipeline) = cpu.compile_native(&case.program, &config)? else {
            unreachable!("the backend compiles")
        };
        let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
        let expected = CpuRef.dispatch_borrowed(&case.program, &inputs, &config)?;
        let against = if seed % 2 == 0 { Against::Start } else { Against::End };
        let given = run_guarded(&*pipeline, &kernel, &case.inputs, against)?;
        assert_eq!(given, expected, "seed {seed}\n{}", case.program);
        // Those that always run, however slow the machine is.
        if number < 40 {
            let assume = Assume { dispatch_checks: true, ..Assume::no_overrides(&kernel) };
            let optimized = optimize(kernel, &optimize::Schedule::full().with_assumptions(assume));
            let holds = doubts(&optimized, &case.inputs).is_ok_and(|doubts| doubts == Doubts::NONE);
            proved += u64::from(holds && !optimized.proof.is_empty());
        }
    }
    assert!(proved >= 5, "{proved} of 40 programs are proved as a whole");
    Ok(())
}

/// Every kind of access at arbitrary indices, for every element size and awkward lengths.
#[test]
fn wild_indices_stay_in_their_buffers() -> Result<(), BackendError> {
    let cpu = Arc::new(Cpu::new()?);
    for element in ["u8", "i16", "u32", "f32", "u64", "f64", "f16", "bool"] {
        let source = format!(
            "kernel wild(at: read u32[], x: read {element}[], y: read_write {element}[], h: read_write u32[],
                         own: workgroup u32[5])
             over at workgroup 24 {{
               region \"r\" {{
                 let i = invocation.x
                 let j = at[i] + at[i + 1] * 3
                 array t: u32[3]
                 t[j] = i
                 y[j] = x[j / 2]
                 if (j & 1) == 0 {{ y[i - 3] = x[i + 5] }} else {{ y[i + 1000000] = x[at[j]] }}
                 for k in (i - 2)..(at[j] & 15) step 3 {{ y[k * 7 + j] = x[k + j] }}
                 for k in local.x..len(at) step 24 {{ y[k + 1] = x[k - 1] }}
                 atomic_add(h, j, 1)
                 atomic_max(own, j, t[j & 3])
                 barrier
                 h[j ^ 5] = own[j] + own[local.x] + u32(x[4294967295 - i])
               }} }}"
        );
        let program = parse(&source)?;
        let kernel = program.validate()?;
        let Some(pipeline) = cpu.compile_native(&program, &DispatchConfig::default())? else {
            unreachable!("the backend compiles")
        };
        let size = kernel.buffers[1].decl.element.size();
        for (count, elements) in [(64, 64), (63, 1), (100, 7), (24, 0), (1, 9), (40, 4096)] {
            let mut state = 88_172_645_463_325_252_u64;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u32 >> (state >> 59)
            };
            let at: Vec<u8> = (0..count).flat_map(|_| next().to_le_bytes()).collect();
            let inputs = [at, vec![1; elements * size], vec![1; elements * size], vec![7; 4 * elements]];
            for against in [Against::Start, Against::End] {
                run_guarded(&*pipeline, &kernel, &inputs, against)?;
            }
        }
    }
    Ok(())
}

/// Strided lanes, forwards and backwards, read and written, in buffers that end with the last lane
/// or just before it. Compared with the interpreter bit for bit.
#[test]
fn strides_stay_in_their_buffers() -> Result<(), BackendError> {
    let cpu = Cpu::new()?;
    for (element, number) in [
        ("u8", "u32"),
        ("i8", "i32"),
        ("u16", "u32"),
        ("i16", "i32"),
        ("u32", "u32"),
        ("f32", "f32"),
        ("u64", "u64"),
        ("f64", "f64"),
        ("f16", "f32"),
    ] {
        for stride in [2, 3, 4, 5, 7] {
            let fields: String =
                (0..stride).map(|k| format!("y[i * {stride} + {k}] = a[i] + {number}({k})\n")).collect();
            let sources = [
                format!("y[i] = a[i * {stride} + 1] + a[i * {stride}]"),
                format!("y[i] = a[len(a) - 1 - {stride} * i] + a[len(a) - 1 - i]"),
                "y[len(y) - 1 - i] = a[i]".to_string(),
                format!("y[len(y) - 1 - {stride} * i] = a[i]"),
                fields,
            ];
            for source in sources {
                let program = parse(&format!(
                    "kernel strides(a: read {element}[], y: read_write {element}[], n: u32 uniform) over 200 workgroup 64 {{
                       region \"r\" {{ let i = invocation.x
                         if i < n {{ {source} }} }} }}"
                ))?;
                check_strides(&cpu, &program, stride)?;
            }
        }
    }
    Ok(())
}

/// Lengths that exactly fit the invocations, are one element short, and are far too short.
fn check_strides(cpu: &Cpu, program: &Program, stride: usize) -> Result<(), BackendError> {
    let kernel = program.validate()?;
    let size = kernel.buffers[0].decl.element.size();
    for schedule in [Schedule::Off, Schedule::Expensive] {
        let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
        let Some(pipeline) = cpu.compile_native(program, &config)? else {
            unreachable!("the backend compiles")
        };
        for (elements, count) in
            [(200 * stride, 200), (97 * stride - 1, 97), (32 * stride - stride + 2, 32), (40, 160)]
        {
            let bytes = |from: usize| (0..elements * size).map(|k| ((from + k * 37) % 61) as u8).collect();
            let inputs: [Vec<u8>; 3] = [bytes(3), bytes(9), (count as u32).to_le_bytes().to_vec()];
            let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let expected = CpuRef.dispatch_borrowed(program, &borrowed, &DispatchConfig::default())?;
            for against in [Against::Start, Against::End] {
                let given = run_guarded(&*pipeline, &kernel, &inputs, against)?;
                assert_eq!(given, expected, "{elements} elements, {count} of them\n{program}");
            }
        }
    }
    Ok(())
}
