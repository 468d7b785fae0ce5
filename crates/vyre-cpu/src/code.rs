//! Compiled kernels: machine code in memory of its own, and what running it needs.

use crate::emit::{Entry, Layout, caller_signature, emit};
use crate::lower::lower;
use crate::pressure::fits_registers;
use crate::schedule::interleave;
use crate::vector::{Frame, VectorCode};
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, InstBuilder};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::sync::LazyLock;
use vyre_foundation::kernel::{KernelBody, Stmt, StmtKind};

/// Lanes of a vector where nothing allows more, and so the subgroup size: two pieces of four 32-bit lanes, which keeps both of a core's vector
/// units busy and fits the registers of a core.
pub(crate) const LANES: u32 = 8;

/// Machine code of one kernel at one workgroup size. The memory is executable and never writable at the same time, and
/// is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Code {
    memory: memmap2::Mmap,
    pub(crate) layout: Layout,
    pub(crate) by_rows: bool,
    length: usize,
}

impl Code {
    /// The machine code.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// The compiled function.
    pub(crate) fn entry(&self) -> Entry {
        // SAFETY: the memory holds a function that `emit` made with this signature, from its first byte on, and lives as
        // long as `self`; callers use the pointer only while they hold the code.
        unsafe { std::mem::transmute::<*const u8, Entry>(self.memory.as_ptr()) }
    }
}

/// How much time code is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Compiles several times as fast: one copy of everything, and registers given out in one pass.
    Quick,
    /// Runs as fast as can be.
    Full,
}

/// What code is made with.
pub(crate) struct Host {
    quick: OwnedTargetIsa,
    full: OwnedTargetIsa,
    /// The code through which kernels call routines.
    caller: memmap2::Mmap,
}

/// The machine that code is made for, or why there is none.
pub(crate) fn host() -> Result<&'static Host, String> {
    static HOST: LazyLock<Result<Host, String>> = LazyLock::new(|| {
        let (quick, full) = (isa(Effort::Quick)?, isa(Effort::Full)?);
        let caller =
            executable(&caller_code(&*full)?).map_err(|error| format!("no memory for code: {error}"))?;
        Ok(Host { quick, full, caller })
    });
    HOST.as_ref().map_err(Clone::clone)
}

fn isa(effort: Effort) -> Result<OwnedTargetIsa, String> {
    let registers = match effort {
        Effort::Quick => "single_pass",
        Effort::Full => "backtracking",
    };
    let set = [
        // The kernel is optimized already, and the emitter's order is the best one: all pieces of a vector go through an op
        // before the next op, so that a core has independent work. Cranelift's optimizer would put what a store needs
        // together piece by piece, and compute again in each branch what several use: prices of options took twice the
        // time.
        ("opt_level", "none"),
        ("regalloc_algorithm", registers),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ("unwind_info", "false"),
        ("enable_probestack", "false"),
        ("is_pic", "false"),
    ];
    let mut flags = settings::builder();
    for (name, value) in set {
        flags.set(name, value).map_err(|error| format!("setting {name}: {error}"))?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}

/// The address of the code through which kernels call routines; see [`caller_code`].
pub(crate) fn caller() -> usize {
    match host() {
        Ok(host) => host.caller.as_ptr() as usize,
        Err(reason) => unreachable!("code is made only where there is a host: {reason}"),
    }
}

/// A function that calls its first argument with the others and leaves every register as it was. A routine is compiled as any
/// other function and may change most of them; a kernel that called it directly would keep none of its vectors in registers
/// across the place, even where the call is hardly ever made.
fn caller_code(isa: &dyn TargetIsa) -> Result<Vec<u8>, String> {
    let mut context = cranelift_codegen::Context::for_function(Function::new());
    context.func.signature = caller_signature();
    let mut frontend = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut frontend);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let arguments = builder.block_params(entry).to_vec();
    let mut signature = caller_signature();
    signature.params.remove(0);
    signature.call_conv = isa.default_call_conv();
    let signature = builder.import_signature(signature);
    builder.ins().call_indirect(signature, arguments[0], &arguments[1..]);
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize(isa.frontend_config());
    let compiled =
        context.compile(isa, &mut ControlPlane::default()).map_err(|error| format!("{:?}", error.inner))?;
    Ok(compiled.code_buffer().to_vec())
}

/// Compiles a kernel for a workgroup size.
pub(crate) fn compile(kernel: &KernelBody, workgroup: [u32; 3], effort: Effort) -> Result<Code, String> {
    let host = host()?;
    let isa = match effort {
        Effort::Quick => &host.quick,
        Effort::Full => &host.full,
    };
    let vector_code = vector_form(kernel, workgroup, effort);
    let Some(layout) = Layout::new(kernel, &vector_code, workgroup) else {
        return Err("the workgroup's private memory takes more than 1 GiB".into());
    };
    let machine_code = assemble(isa, kernel, &vector_code, &layout)?;
    let memory = executable(&machine_code).map_err(|error| format!("no memory for code: {error}"))?;
    let by_rows = matches!(vector_code.frame, Frame::Rows { .. });
    Ok(Code { memory, layout, by_rows, length: machine_code.len() })
}

/// The vector form of a kernel, as text.
pub(crate) fn listing(kernel: &KernelBody, workgroup: [u32; 3], effort: Effort) -> String {
    vector_form(kernel, workgroup, effort).to_string()
}

/// The kernel in vector form, in an order that keeps a core busy.
fn vector_form(kernel: &KernelBody, workgroup: [u32; 3], effort: Effort) -> VectorCode {
    let mut code = in_lanes(kernel, workgroup, effort);
    if effort == Effort::Full {
        interleave(&mut code, kernel);
    }
    code
}

/// The kernel in vectors of twice the usual lanes if that pays: all values fit the registers, no lane can tell (a subgroup
/// is `LANES` wide), none would stand idle, and lanes do not leave loops one by one. A workgroup of one invocation is scalar
/// code.
fn in_lanes(kernel: &KernelBody, workgroup: [u32; 3], effort: Effort) -> VectorCode {
    let count: u64 = workgroup.iter().map(|&n| u64::from(n)).product();
    if count == 1 && !kernel.shape_free && !kernel.needs.subgroups && kernel.arrays.is_empty() {
        return lower(&alone(kernel), 1, workgroup, effort);
    }
    let fills = kernel.shape_free || count.is_multiple_of(u64::from(2 * LANES));
    let may_pay = effort == Effort::Full && fills && !kernel.needs.subgroups;
    if may_pay && statements(&kernel.body) <= LONG && !has_open_loops(&kernel.body) {
        let wide = lower(kernel, 2 * LANES, workgroup, effort);
        if fits_registers(&wide) {
            return wide;
        }
    }
    lower(kernel, LANES, workgroup, effort)
}

/// A kernel of more statements has enough independent work in vectors of the usual lanes, and the time to try more is not
/// spent.
const LONG: usize = 250;

fn statements(block: &[Stmt]) -> usize {
    block.iter().map(|stmt| 1 + stmt.kind.blocks().map(statements).iter().sum::<usize>()).sum()
}

/// The kernel as it is for workgroups of one invocation, which has no other to differ from.
fn alone(kernel: &KernelBody) -> KernelBody {
    let mut kernel = kernel.clone();
    kernel.values.iter_mut().for_each(|value| value.uniform = true);
    kernel
}

/// Whether there is a loop that only a `break` ends.
fn has_open_loops(block: &[Stmt]) -> bool {
    let is_open = |kind: &StmtKind| matches!(kind, StmtKind::Loop(_));
    block.iter().any(|stmt| is_open(&stmt.kind) || stmt.kind.blocks().into_iter().any(has_open_loops))
}

fn assemble(
    isa: &OwnedTargetIsa,
    kernel: &KernelBody,
    code: &VectorCode,
    layout: &Layout,
) -> Result<Vec<u8>, String> {
    let mut context = cranelift_codegen::Context::for_function(Function::new());
    emit(&mut context.func, &mut FunctionBuilderContext::new(), &**isa, kernel, code, layout);
    let compiled = context
        .compile(&**isa, &mut ControlPlane::default())
        .map_err(|error| format!("{:?}", error.inner))?;
    if let Some(relocation) = compiled.buffer.relocs().first() {
        // A call out of the kernel; the host lacks an instruction that the kernel's ops need.
        return Err(format!(
            "this processor lacks an instruction the kernel needs ({:?})",
            relocation.target
        ));
    }
    Ok(compiled.code_buffer().to_vec())
}

fn executable(machine_code: &[u8]) -> std::io::Result<memmap2::Mmap> {
    let mut memory = memmap2::MmapMut::map_anon(machine_code.len())?;
    memory.copy_from_slice(machine_code);
    let memory = memory.make_exec()?;
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: the range is the mapping that was just written.
        unsafe { wasmtime_internal_jit_icache_coherence::clear_cache(memory.as_ptr().cast(), memory.len()) }
            .map_err(std::io::Error::other)?;
        wasmtime_internal_jit_icache_coherence::pipeline_flush_mt().map_err(std::io::Error::other)?;
    }
    Ok(memory)
}
