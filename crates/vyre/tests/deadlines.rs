//! Calls with a deadline on a driver that compiles for an unbounded time, and on one that crashes
//! its process.
//!
//! This executable is also its own helper process, so that the driver that crashes there is the one
//! under test.

use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::HashSet;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vyre::catalogue::sort::{self, Key};
use vyre::ir::OpId;
use vyre::prelude::*;
use vyre::unstable::opening::{HELPER_SUBCOMMAND, HELPER_VARIABLE, helper_answer, try_program};
use vyre_driver::native::{Built, Form, Job, Native, NativeBackend, NativeDevice};
use vyre_driver::registry::{BackendCapability, BackendDevices, BackendRegistration};
use vyre_driver::{
    BackendError, CompiledPipeline, DeviceProfile, DispatchConfig, VyreBackend, default_supported_ops,
    inventory, pipeline, registry,
};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::{ir::Program, text};

/// Deadline of calls that must time out: it expires before a closed gate opens.
const SHORT: Duration = Duration::from_millis(30);
const FATAL: &str = "fatal";

/// Compilers wait here while the gate is closed.
struct Gate(Mutex<bool>, Condvar);

static GATE: Gate = Gate(Mutex::new(false), Condvar::new());

impl Gate {
    fn pass(&self) {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.1.wait_while(closed, |closed| *closed));
    }

    fn set(&self, closed: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = closed;
        self.1.notify_all();
    }
}

/// The `cpu` backend behind a driver that compiles slowly and crashes the process on one program.
struct Brittle(Box<dyn VyreBackend>);

fn open() -> Result<Box<dyn VyreBackend>, BackendError> {
    Ok(Box::new(Brittle(registry::acquire("cpu")?)))
}

inventory::submit! {
    BackendRegistration { id: "brittle", factory: open, supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: "brittle", dispatches: true, oracle: false } }
inventory::submit! {
    BackendDevices {
        id: "brittle",
        names: || Ok(vec!["brittle".into()]),
        open: |_| open(),
        stamp: String::new,
    }
}

impl VyreBackend for Brittle {
    fn id(&self) -> &'static str {
        "brittle"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.0.dispatch(program, inputs, config)
    }

    fn compile_native(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        if program.name().is_some_and(|name| &**name == FATAL) {
            std::process::abort();
        }
        GATE.pass();
        self.0.compile_native(program, config)
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { backend: "brittle", ..self.0.device_profile() }
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        self.0.supported_ops()
    }

    fn allocate_resident(&self, bytes: usize) -> Result<u64, BackendError> {
        self.0.allocate_resident(bytes)
    }

    fn upload_resident(&self, handle: u64, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.0.upload_resident(handle, offset, bytes)
    }

    fn download_resident(&self, handle: u64, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.0.download_resident(handle, offset, bytes)
    }

    fn free_resident(&self, handle: u64) -> Result<(), BackendError> {
        self.0.free_resident(handle)
    }
}

/// The gate is per process, so the tests that use it take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime that has already met the driver.
fn runtime() -> Result<Runtime, BackendError> {
    let builder = Runtime::builder().backends(["cpu", "brittle"]).without_tables().meet_drivers_first();
    let runtime = builder.build()?;
    assert_eq!(runtime.backends().count(), 2, "{:?}", runtime.refused());
    Ok(runtime)
}

fn check_late<T: std::fmt::Debug>(what: &str, outcome: Result<T, BackendError>) {
    match outcome {
        Err(BackendError::Timeout { limit, .. }) => assert_eq!(limit, SHORT, "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

/// Calls of every kind while the driver compiles: each returns by its deadline. Once the driver is
/// done, the same routines run.
fn every_kind_of_call_keeps_its_deadline() -> Result<(), Failed> {
    let _turn = turn();
    let runtime = runtime()?;
    let kernel = |name: &str| {
        runtime
            .load(&*format!("kernel {name}(x: read_write u32[]) {{ x[invocation.x] = x[invocation.x] * 2 }}"))
    };
    let (single, batched, first, second, resident) =
        (kernel("single")?, kernel("batched")?, kernel("first")?, kernel("second")?, kernel("resident")?);
    let op = runtime.load_op(|size, device| sort::keys(Key::I32, size, device))?;
    let (mut a, mut b, mut c) = ([1u32, 2], [3u32, 4], [5u32, 6]);
    let (mut held, keys) = (runtime.resident(&[7u32, 8]), [3i32, -7]);
    let mut sorted = [0i32; 2];
    for closed in [true, false] {
        GATE.set(closed);
        let limit = if closed { SHORT } else { Duration::from_secs(600) };
        let check = |what: &str, outcome: Result<(), BackendError>| match closed {
            true => check_late(what, outcome),
            false => assert_eq!(outcome, Ok(()), "{what}"),
        };
        let call = |routine: &'_ Routine, x: &mut [u32; 2]| {
            routine.call().bind("x", x).on("brittle").timeout(limit).run().map(drop)
        };
        check("a call", call(&single, &mut a));
        let mut rows = [[1u32, 2], [3, 4]];
        let mut batch = batched.batch();
        batch.extend(rows.iter_mut().map(|row| batched.call().bind("x", row).on("brittle").timeout(limit)));
        check("a batch", batch.run().map(drop));
        let sequence = runtime.sequence().then(first.call().bind("x", &mut b).on("brittle").timeout(limit));
        let sequence = sequence.then(second.call().bind("x", &mut c).on("brittle").timeout(limit));
        check("a sequence", sequence.run().map(drop));
        let on_device = resident.call().bind("x", &mut held).on("brittle").timeout(limit);
        check("a call on resident buffers", on_device.run().map(drop));
        let ready = op.call(2).bind("keys", &keys).bind("sorted", &mut sorted);
        check("an op", ready.on("brittle").timeout(limit).run().map(drop));
    }
    assert_eq!((a, b, c, sorted), ([2, 4], [6, 8], [10, 12], [-7, 3]));
    assert_eq!(held.read()?, [14, 16]);
    Ok(())
}

/// A program that crashes the driver is refused by name, this process survives, and other programs
/// run.
fn a_crash_is_the_helpers() -> Result<(), Failed> {
    let _turn = turn();
    GATE.set(false);
    let runtime = runtime()?;
    // Larger than any program that the driver has been seen to survive.
    let nested = |name: &str| {
        let open: String = (0..70).map(|k| format!("if x[0] > {k} {{ ")).collect();
        format!("kernel {name}(x: read_write u32[]) {{ {open} x[invocation.x] += 1 {} }}", "}".repeat(70))
    };
    let (fatal, sound) = (runtime.load(&*nested(FATAL))?, runtime.load(&*nested("sound"))?);
    let limit = Duration::from_secs(600);
    for _ in 0..2 {
        let mut x = [99u32];
        let refused = fatal.call().bind("x", &mut x).on("brittle").timeout(limit).run();
        let Err(BackendError::UnsupportedFeature { name, .. }) = &refused else { panic!("{refused:?}") };
        assert!(name.contains("`fatal`") && name.contains("ended a helper process"), "{name}");
        assert_eq!(x, [99]);
    }
    let mut x = [99u32];
    let report = sound.call().bind("x", &mut x).on("brittle").timeout(limit).run()?;
    assert_eq!((report.backend, x), ("brittle", [100]));
    // A routed call goes to another backend.
    let report = fatal.call().bind("x", &mut x).timeout(limit).run()?;
    assert_eq!((report.backend, x), ("cpu", [101]));
    Ok(())
}

/// A device whose compiler waits at the gate.
struct Slow;

struct SlowBackend(Native<Slow>);

impl NativeBackend for SlowBackend {
    type Device = Slow;

    fn native(&self) -> &Native<Slow> {
        &self.0
    }
}

impl NativeDevice for Slow {
    type Code = ();
    type Memory = ();

    fn id(&self) -> &'static str {
        "slow"
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile::conservative("slow")
    }

    fn build(&self, kernel: &Kernel, _form: Form) -> Result<Built<()>, BackendError> {
        GATE.pass();
        Ok(Built { kernel: kernel.clone(), code: (), bytes: 0 })
    }

    fn run(&self, _job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        Ok(None)
    }
}

/// Calls directly on a backend: the first form of a program, and a form that a later call requires.
fn a_backend_that_compiles_keeps_deadlines() -> Result<(), Failed> {
    let _turn = turn();
    let backend = Arc::new(SlowBackend(Native::new(Slow)));
    let program = text::parse("kernel k(y: output u32[64]) { region \"r\" { y[invocation.x] = 1 } }")?;
    let config = |timeout| DispatchConfig { timeout, ..DispatchConfig::default() };
    GATE.set(true);
    check_late("a dispatch", backend.dispatch(&program, &[], &config(Some(SHORT))));
    let compiled = pipeline::compile(backend.clone(), &program, &config(Some(SHORT)));
    check_late("a compilation", compiled.map(drop));
    GATE.set(false);
    let compiled = pipeline::compile(backend, &program, &config(None))?;
    GATE.set(true);
    let other = DispatchConfig { workgroup_override: Some([32, 1, 1]), ..config(Some(SHORT)) };
    for _ in 0..3 {
        check_late("another form", compiled.dispatch(&[], &other));
    }
    check_late("another form in place", {
        let mut y = [0u8; 256];
        compiled.dispatch_bound(&mut [vyre_driver::Binding::Write(&mut y)], &other)
    });
    GATE.set(false);
    let unlimited = DispatchConfig { timeout: None, ..other };
    assert!(compiled.dispatch(&[], &unlimited).is_ok());
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1..).unwrap_or_default() {
        [subcommand, backend, rest @ ..] if subcommand == HELPER_SUBCOMMAND => {
            help(backend, !rest.is_empty())
        }
        _ if std::env::var_os(HELPER_VARIABLE).is_none() => {
            let own = std::env::current_exe().expect("this executable");
            let mut again = Command::new(&own);
            again.args(&arguments[1..]).env(HELPER_VARIABLE, &own);
            let status = again.status().expect("it starts again");
            ExitCode::from(u8::try_from(status.code().unwrap_or(101)).unwrap_or(101))
        }
        _ => {
            let tests = vec![
                Trial::test("every_kind_of_call_keeps_its_deadline", every_kind_of_call_keeps_its_deadline),
                Trial::test("a_crash_is_the_helpers", a_crash_is_the_helpers),
                Trial::test(
                    "a_backend_that_compiles_keeps_deadlines",
                    a_backend_that_compiles_keeps_deadlines,
                ),
            ];
            libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
        }
    }
}

/// The helper process.
fn help(backend: &str, with_program: bool) -> ExitCode {
    let answer = if with_program { try_program(backend) } else { Ok(helper_answer(backend)) };
    match answer {
        Ok(answer) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}
