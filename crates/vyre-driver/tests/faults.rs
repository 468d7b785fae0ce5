//! Misbehaving backends: the driver survives them with a clear error and correct counters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vyre_conform::backends::{FaultyBackend, Misbehaviour};
use vyre_driver::observability::{DispatchTelemetry, snapshot_dispatch_telemetry};
use vyre_driver::{BackendError, Binding, CompiledPipeline, DispatchConfig, pipeline};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

fn program() -> Program {
    let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
    Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), Expr::u32(9))])
}

/// Counters are per process, so the tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn counted<T>(work: impl FnOnce() -> T) -> (T, DispatchTelemetry) {
    let before = snapshot_dispatch_telemetry();
    let result = work();
    (result, snapshot_dispatch_telemetry().since(&before))
}

fn compiled(fault: Misbehaviour) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    pipeline::compile(Arc::new(FaultyBackend::new(fault)), &program(), &DispatchConfig::default())
}

#[test]
fn faults_of_compiling() {
    let _turn = alone();
    for (fault, expected) in
        [(Misbehaviour::FailsToCompile, "as asked"), (Misbehaviour::PanicsCompiling, "it panicked: as asked")]
    {
        let (result, seen) = counted(|| compiled(fault).err());
        let (backend, message) = (String::from("faulty"), expected.into());
        assert_eq!(result, Some(BackendError::KernelCompileFailed { backend, message }));
        assert_eq!((seen.compiles, seen.failed_compiles, seen.pass_through_pipelines), (0, 1, 0));
    }
}

#[test]
fn faults_of_dispatching() {
    let _turn = alone();
    let backend = || String::from("faulty");
    let limit = Duration::from_millis(5);
    let config = DispatchConfig { timeout: Some(limit), ..Default::default() };
    let failed = |message: &str| BackendError::DispatchFailed { backend: backend(), message: message.into() };
    let cases = [
        (Misbehaviour::Fails, failed("as asked")),
        (Misbehaviour::Panics, failed("it panicked: as asked")),
        (
            Misbehaviour::LosesDevice,
            BackendError::DeviceLost { backend: backend(), message: "as asked".into() },
        ),
        (Misbehaviour::Hangs, BackendError::Timeout { backend: backend(), limit }),
    ];
    for (fault, expected) in cases {
        let pipeline = compiled(fault).unwrap();
        let mut slots = vec![vec![1, 2, 3]];
        let (result, seen) = counted(|| pipeline.dispatch_borrowed_into(&[], &config, &mut slots));
        assert_eq!(result, Err(expected.clone()), "{fault:?}");
        assert_eq!(slots, [vec![1, 2, 3]], "{fault:?}");
        assert_eq!((seen.launches, seen.failed_launches, seen.output_slots), (0, 1, 0), "{fault:?}");
        let (result, seen) = counted(|| pipeline.dispatch(&[], &config));
        assert_eq!((result, seen.failed_launches), (Err(expected.clone()), 1), "{fault:?}");
        // A batch of three ends at the first.
        let items: [&[&[u8]]; 3] = [&[]; 3];
        let (result, seen) = counted(|| pipeline.dispatch_borrowed_batched(&items, &config));
        assert_eq!((result, seen.launches, seen.failed_launches), (Err(expected), 0, 1), "{fault:?}");
    }
}

#[test]
fn a_hanging_dispatch_blocks_no_other() {
    let _turn = alone();
    let backend = Arc::new(FaultyBackend::new(Misbehaviour::Hangs));
    let config = DispatchConfig::default();
    let hanging = pipeline::compile(backend.clone(), &program(), &config).unwrap();
    let (result, seen) = counted(|| {
        std::thread::scope(|scope| {
            let stuck = scope.spawn(|| hanging.dispatch_borrowed(&[], &config));
            // Meanwhile, compiling on the same backend and dispatching on another both work.
            assert!(pipeline::compile(backend.clone(), &program(), &config).is_ok());
            assert!(compiled(Misbehaviour::Lies).unwrap().dispatch_borrowed(&[], &config).is_ok());
            backend.release();
            stuck.join().unwrap()
        })
    });
    assert_eq!(result, Ok(vec![vec![0; 4]]));
    assert_eq!((seen.launches, seen.failed_launches), (2, 0));
}

#[test]
fn lies_and_extra_outputs_pass_through_unchecked_but_never_into_bound_memory() {
    let _turn = alone();
    let config = DispatchConfig::default();
    // Judging results is the oracle's job; the driver forwards outputs unchanged.
    let lying = compiled(Misbehaviour::Lies).unwrap();
    assert_eq!(lying.dispatch_borrowed(&[], &config), Ok(vec![vec![0xA5; 4]]));
    let pipeline = compiled(Misbehaviour::WrongOutputCount).unwrap();
    let mut slots = vec![Vec::with_capacity(4)];
    let (result, seen) = counted(|| pipeline.dispatch_borrowed_into(&[], &config, &mut slots));
    assert_eq!((result, slots.len()), (Ok(()), 2));
    assert_eq!((seen.output_slots, seen.output_slots_reused, seen.output_slots_moved), (2, 1, 1));

    let mut memory = [7; 4];
    let (result, seen) = counted(|| pipeline.dispatch_bound(&mut [Binding::Write(&mut memory)], &config));
    let text = result.unwrap_err().to_string();
    assert!(text.contains("1 buffers are bound for writing, but 2 outputs came back"), "{text}");
    assert_eq!((memory, seen.launches, seen.failed_launches), ([7; 4], 0, 1));
}

#[test]
fn every_fault_leaves_the_driver_working() {
    let _turn = alone();
    let config = DispatchConfig { timeout: Some(Duration::from_millis(1)), ..Default::default() };
    for fault in Misbehaviour::ALL {
        if let Ok(pipeline) = compiled(fault) {
            drop(pipeline.dispatch_borrowed(&[], &config));
        }
        let (result, seen) = counted(|| compiled(Misbehaviour::Lies)?.dispatch_borrowed(&[], &config));
        assert_eq!(result, Ok(vec![vec![0xA5; 4]]), "after {fault:?}");
        assert_eq!((seen.compiles, seen.launches), (1, 1), "after {fault:?}");
    }
}
