//! Calls of a sequence that a device runs as one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vyre::Runtime;
use vyre_driver::{
    BackendError, CompiledPipeline, DeviceProfile, DispatchConfig, Failed, Fallback, SequenceStep,
    VyreBackend, registry,
};
use vyre_foundation::ir::Program;

const ID: &str = "joining";

/// The `cpu` backend, taking up to eight dispatches at once and recording how many it was given.
struct Joining {
    cpu: Box<dyn VyreBackend>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    joined: Vec<usize>,
    /// Error of the next sequence, and the number of dispatches before it.
    fails: Option<(usize, BackendError)>,
}

impl VyreBackend for Joining {
    fn id(&self) -> &'static str {
        ID
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.cpu.dispatch(program, inputs, config)
    }

    fn compile_native(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        self.cpu.compile_native(program, config)
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { backend: ID, ..self.cpu.device_profile() }
    }

    fn allocate_resident(&self, bytes: usize) -> Result<u64, BackendError> {
        self.cpu.allocate_resident(bytes)
    }

    fn upload_resident(&self, handle: u64, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.cpu.upload_resident(handle, offset, bytes)
    }

    fn download_resident(&self, handle: u64, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.cpu.download_resident(handle, offset, bytes)
    }

    fn free_resident(&self, handle: u64) -> Result<(), BackendError> {
        self.cpu.free_resident(handle)
    }

    fn dispatch_sequence(&self, steps: &mut [SequenceStep<'_, '_>]) -> Result<(), Failed> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.joined.push(steps.len());
        match state.fails.take() {
            None => self.cpu.dispatch_sequence(steps),
            Some((done, error)) => {
                self.cpu.dispatch_sequence(&mut steps[..done])?;
                Err(Failed { done, error })
            }
        }
    }

    fn sequence_steps(&self) -> usize {
        8
    }
}

fn joining() -> (Runtime, Arc<Joining>) {
    let cpu = registry::acquire("cpu").expect("it is embedded");
    let backend = Arc::new(Joining { cpu, state: Mutex::default() });
    let runtime = Runtime::builder().backends::<String>([]).backend(backend.clone()).without_tables().build();
    (runtime.expect("it passes"), backend)
}

impl Joining {
    /// Number of dispatches in each sequence since the last call.
    fn joined(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).joined)
    }

    fn fail(&self, done: usize, error: BackendError) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fails = Some((done, error));
    }
}

const ADD: &str = "kernel add(n: u32 uniform, x: read_write u32[]) { x[invocation.x] += n }";

#[test]
fn neighbours_run_as_one_where_the_device_can() {
    let (runtime, backend) = joining();
    let add = runtime.load(ADD).expect("loads");
    let mut resident = runtime.resident(&[1_u32, 2]);
    let x = resident.cell();
    let run = |count: u32| {
        let calls = (0..count).map(|n| add.call().bind("n", n).bind("x", x).on(ID));
        let mut sequence = runtime.sequence();
        sequence.extend(calls);
        sequence.run().expect("runs")
    };
    let reports = run(20);
    assert_eq!(backend.joined(), [8, 8, 4]);
    assert!(reports.len() == 20 && reports.iter().all(|report| report.backend == ID && report.elements == 2));
    assert_eq!(x.read().expect("reads"), [191, 192]);
    run(1);
    assert_eq!(backend.joined(), [0; 0]);
    // Routed calls run alone when the router probes, and together otherwise.
    let mut together = 0;
    for _ in 0..40 {
        let mut sequence = runtime.sequence();
        sequence.extend((0..3).map(|_| add.call().bind("n", 0_u32).bind("x", x)));
        assert_eq!(sequence.run().expect("runs").len(), 3);
        together += backend.joined().iter().sum::<usize>();
    }
    assert!((60..120).contains(&together), "{together} of 120");
    assert_eq!(x.read().expect("reads"), [191, 192]);
}

#[test]
fn what_must_be_known_of_a_call_alone_keeps_it_apart() {
    let (runtime, backend) = joining();
    let add = runtime.load(ADD).expect("loads");
    let speaks = runtime.load("kernel hello(x: read u32[]) over 1 { print(\"{}\", x[0]) }").expect("loads");
    let mut resident = runtime.resident(&[1_u32, 2]);
    let x = resident.cell();
    let plain = || add.call().bind("n", 1_u32).bind("x", x).on(ID);
    let check = |call| {
        let mut sequence = runtime.sequence();
        sequence.extend([plain(), plain(), call, plain(), plain()]);
        let reports = sequence.run().expect("runs");
        assert_eq!((reports.len(), backend.joined()), (5, vec![2, 2]));
        reports
    };
    check(plain().timeout(Duration::from_secs(60)));
    check(plain().device_time());
    check(plain().fallback(Fallback::Allow));
    let reports = check(speaks.call().bind("x", x).on(ID));
    assert_eq!(reports[2].prints().messages[0].text, "18");
}

#[test]
fn what_fails_as_one_runs_alone_only_if_its_memory_is_as_it_was() {
    let (runtime, backend) = joining();
    let add = runtime.load(ADD).expect("loads");
    let copy =
        runtime.load("kernel copy(x: read u32[], y: output u32[]) { y[invocation.x] = x[invocation.x] }");
    let copy = copy.expect("loads");
    let mut resident = runtime.resident(&[1_u32, 2]);
    let x = resident.cell();
    let run = || {
        let mut sequence = runtime.sequence();
        sequence.extend((0..4).map(|_| add.call().bind("n", 1_u32).bind("x", x).on(ID)));
        sequence.run().map(|reports| reports.len())
    };
    let no_memory = || BackendError::DeviceOutOfMemory { backend: ID.into(), requested_bytes: 1 };
    backend.fail(1, no_memory());
    assert_eq!(run().expect("each alone has the memory"), 4);
    assert_eq!((x.read().expect("reads"), backend.joined()), (vec![5, 6], vec![4, 2]));
    let trapped = BackendError::Trapped { kernel: "add".into(), code: 3 };
    backend.fail(2, trapped);
    assert!(matches!(run(), Err(BackendError::Trapped { code: 3, .. })));
    assert_eq!((x.read().expect("reads"), backend.joined()), (vec![7, 8], vec![4]));
    // A failed launch can have written to the buffer.
    backend.fail(0, BackendError::failed(ID, "as asked"));
    assert!(run().expect_err("told").to_string().contains("as asked"));
    assert_eq!(backend.joined(), [4]);

    let (given, mut outputs) = ([3_u32, 4], [[0_u32; 2]; 4]);
    let routed = |outputs: &mut [[u32; 2]; 4]| {
        let mut sequence = runtime.sequence();
        sequence.extend(outputs.iter_mut().map(|y| copy.call().bind("x", &given).bind("y", y)));
        sequence.run().map(|reports| reports.len())
    };
    // Repeats until the router knows the kernel.
    while backend.joined().is_empty() {
        assert_eq!(routed(&mut outputs).expect("runs"), 4);
    }
    outputs = [[0; 2]; 4];
    backend.fail(1, BackendError::failed(ID, "as asked"));
    while backend.state.lock().unwrap_or_else(PoisonError::into_inner).fails.is_some() {
        assert_eq!(routed(&mut outputs).expect("nothing was lost"), 4);
    }
    assert_eq!(outputs, [given; 4]);
}
