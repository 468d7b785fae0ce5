//! Lost and reopened devices: what was on the lost instance stays lost, and none of it reaches the
//! new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vyre::ir::Program;
use vyre::prelude::*;
use vyre_driver::registry::{BackendCapability, BackendPrecedence, BackendRegistration};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend,
    default_supported_ops, inventory, registry,
};

const DOUBLE: &str = "kernel double(x: read_write u32[]) { x[invocation.x] = x[invocation.x] * 2 }";

/// The interpreter with its own memory, which can be lost. Every instance numbers its buffers from
/// 1.
struct Phoenix(Arc<Instance>);

#[derive(Default)]
struct Instance {
    lost: AtomicBool,
    buffers: Mutex<HashMap<u64, Vec<u8>>>,
}

static INSTANCES: Mutex<Vec<Arc<Instance>>> = Mutex::new(Vec::new());
/// Whether dropping a lost device panics.
static FRAIL: AtomicBool = AtomicBool::new(false);
static OPENED: AtomicU64 = AtomicU64::new(0);
/// While this is true, opening blocks.
static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

inventory::submit! {
    BackendRegistration {
        id: "phoenix",
        factory: || {
            let closed = GATE.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(GATE.1.wait_while(closed, |closed| *closed));
            OPENED.fetch_add(1, SeqCst);
            let instance = Arc::new(Instance::default());
            lock(&INSTANCES).push(instance.clone());
            Ok(Box::new(Phoenix(instance)))
        },
        supported_ops: default_supported_ops,
    }
}
inventory::submit! { BackendCapability { id: "phoenix", dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: "phoenix", rank: 1 } }

/// The instances are per process, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loses the device that was opened last.
fn lose_newest() {
    lock(&INSTANCES).last().expect("one was opened").lost.store(true, SeqCst);
}

impl Instance {
    fn check(&self) -> Result<(), BackendError> {
        match self.lost.load(SeqCst) {
            true => Err(BackendError::DeviceLost { backend: "phoenix".into(), message: "as told".into() }),
            false => Ok(()),
        }
    }
}

impl Drop for Phoenix {
    fn drop(&mut self) {
        assert!(!(FRAIL.load(SeqCst) && self.0.lost.load(SeqCst)), "the end of a lost device, as told");
    }
}

impl VyreBackend for Phoenix {
    fn id(&self) -> &'static str {
        "phoenix"
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile {
            strict_float: true,
            max_storage_buffer_binding_size: 1 << 40,
            ..DeviceProfile::conservative("phoenix")
        }
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.0.check()?;
        registry::acquire("cpu-ref")?.dispatch(program, inputs, config)
    }

    fn compile_native(
        &self,
        program: &Program,
        _: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        self.0.check()?;
        Ok(Some(Arc::new(Compiled { instance: self.0.clone(), program: program.clone() })))
    }

    fn allocate_resident(&self, bytes: usize) -> Result<u64, BackendError> {
        self.0.check()?;
        let mut buffers = lock(&self.0.buffers);
        let handle = buffers.len() as u64 + 1;
        buffers.insert(handle, vec![0; bytes]);
        Ok(handle)
    }

    fn upload_resident(&self, handle: u64, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.0.check()?;
        let mut buffers = lock(&self.0.buffers);
        let buffer = buffers.get_mut(&handle).ok_or_else(|| BackendError::new("no such buffer"))?;
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn download_resident(&self, handle: u64, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.0.check()?;
        let buffers = lock(&self.0.buffers);
        let buffer = buffers.get(&handle).ok_or_else(|| BackendError::new("no such buffer"))?;
        bytes.copy_from_slice(&buffer[offset..offset + bytes.len()]);
        Ok(())
    }

    fn free_resident(&self, _: u64) -> Result<(), BackendError> {
        self.0.check()
    }
}

struct Compiled {
    instance: Arc<Instance>,
    program: Program,
}

impl CompiledPipeline for Compiled {
    fn id(&self) -> &str {
        "phoenix:compiled"
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        self.instance.check()?;
        registry::acquire("cpu-ref")?.dispatch(&self.program, inputs, config)
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let inputs = bindings.iter().filter_map(|binding| match binding {
            Binding::Read(bytes) => Some(bytes.to_vec()),
            Binding::ReadWrite(bytes) => Some(bytes.to_vec()),
            Binding::Write(_) => None,
            Binding::Resident(handle) => lock(&self.instance.buffers).get(handle).cloned(),
        });
        let outputs = self.dispatch(&inputs.collect::<Vec<_>>(), config)?;
        let mut outputs = outputs.into_iter();
        for (decl, binding) in self.program.buffers().iter().zip(bindings) {
            if !decl.access.is_output() {
                continue;
            }
            let output = outputs.next().expect("an output");
            match binding {
                Binding::Read(_) => unreachable!("it is written"),
                Binding::ReadWrite(bytes) | Binding::Write(bytes) => bytes.copy_from_slice(&output),
                Binding::Resident(handle) => drop(lock(&self.instance.buffers).insert(*handle, output)),
            }
        }
        Ok(())
    }
}

fn runtime(backends: &[&str]) -> Runtime {
    let builder = Runtime::builder().backends(backends.iter().copied()).helper(None).without_tables();
    builder.build().expect("builds")
}

/// Calls until the device is open again: it is in quarantine for a second after the loss.
fn call_until_it_runs(double: &Routine) {
    let began = Instant::now();
    let mut x = [21u32];
    while let Err(error) = double.call().bind("x", &mut x).on("phoenix").run() {
        assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60), "it is not opened again: {error}");
    }
    assert_eq!(x, [42]);
}

#[test]
fn a_driver_whose_end_panics_is_opened_again_every_time() {
    let _turn = lock(&TURN);
    let runtime = runtime(&["phoenix"]);
    let double = runtime.load(DOUBLE).expect("loads");
    FRAIL.store(true, SeqCst);
    for _ in 0..3 {
        lose_newest();
        double.call().bind("x", &mut [1u32]).on("phoenix").run().expect_err("the device is gone");
        call_until_it_runs(&double);
    }
    FRAIL.store(false, SeqCst);
}

#[test]
fn what_was_in_a_lost_buffer_is_gone_and_nothing_else_is_read() {
    let _turn = lock(&TURN);
    let runtime = runtime(&["phoenix"]);
    let double = runtime.load(DOUBLE).expect("loads");
    let mut old = runtime.resident(&[1u32, 2, 3]);
    double.call().bind("x", &mut old).run().expect("runs");
    assert_eq!(old.read().expect("reads"), [2, 4, 6]);
    lose_newest();
    let mut x = [1u32];
    double.call().bind("x", &mut x).run().expect_err("the device is gone");
    call_until_it_runs(&double);
    // The first buffer of the new instance has the same number as that of the old one.
    let mut new = runtime.resident(&[100u32, 200, 300]);
    double.call().bind("x", &mut new).on("phoenix").run().expect("runs");
    let opened = OPENED.load(SeqCst);
    let faults = [
        old.read().map(drop).expect_err("gone"),
        old.write(0, &[7]).expect_err("gone"),
        double.call().bind("x", &mut old).on("phoenix").run().map(drop).expect_err("gone"),
        double.call().bind("x", &mut old).run().map(drop).expect_err("gone"),
    ];
    for fault in faults {
        assert!(fault.to_string().contains("`phoenix` was lost"), "{fault}");
    }
    // None of this counts against the new instance, nor did it reach its memory.
    double.call().bind("x", &mut new).run().expect("runs");
    assert_eq!(new.read().expect("reads"), [400, 800, 1200]);
    assert_eq!(OPENED.load(SeqCst), opened, "the new instance was not lost");
}

#[test]
fn a_late_report_of_an_old_instance_does_not_touch_the_new_one() {
    let _turn = lock(&TURN);
    let runtime = runtime(&["phoenix"]);
    let (double, other) = (runtime.load(DOUBLE).expect("loads"), runtime.load(DOUBLE).expect("loads"));
    let mut x = [1u32];
    double.call().bind("x", &mut x).run().expect("runs");
    other.call().bind("x", &mut x).run().expect("runs");
    lose_newest();
    let late = std::thread::scope(|scope| {
        // Eight calls notice the same loss, some of them after another one has reopened the device.
        let callers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| double.call().bind("x", &mut [1u32]).on("phoenix").run().is_err()))
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert!(late.iter().any(|failed| *failed));
    call_until_it_runs(&double);
    let opened = OPENED.load(SeqCst);
    for _ in 0..20 {
        other.call().bind("x", &mut x).on("phoenix").run().expect("the new instance is well");
    }
    assert_eq!(OPENED.load(SeqCst), opened);
}

#[test]
fn opening_a_lost_device_blocks_no_other_call() {
    let _turn = lock(&TURN);
    let runtime = runtime(&["phoenix", "cpu"]);
    let double = runtime.load(DOUBLE).expect("loads");
    let mut x = [1u32];
    double.call().bind("x", &mut x).on("phoenix").run().expect("runs");
    lose_newest();
    *lock(&GATE.0) = true;
    double.call().bind("x", &mut x).on("phoenix").run().expect_err("the device is gone");
    std::thread::scope(|scope| {
        // One call waits for the device, which does not open; all others proceed.
        let waiting = scope.spawn(|| double.call().bind("x", &mut [1u32]).on("phoenix").run());
        for _ in 0..100 {
            let mut x = [4u32];
            let report = double.call().bind("x", &mut x).fallback(Fallback::Allow).run().expect("runs");
            assert_eq!((report.backend, x), ("cpu", [8]));
        }
        *lock(&GATE.0) = false;
        GATE.1.notify_all();
        waiting.join().expect("no panic").expect("the device opened in the end");
    });
}

#[test]
fn calls_that_bind_buffers_in_opposite_order_do_not_wait_for_each_other() {
    let _turn = lock(&TURN);
    let runtime = runtime(&["phoenix", "cpu"]);
    let add = "kernel add(x: read u32[], y: read_write u32[]) { y[invocation.x] += x[invocation.x] & 0 }";
    let add = runtime.load(add).expect("loads");
    let (mut a, mut b) = (runtime.resident(&[1u32]), runtime.resident(&[2u32]));
    let cells = (a.cell(), b.cell());
    // Each round moves both buffers away from where the other thread needs them.
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                add.call().bind("x", cells.0).bind("y", cells.1).on("cpu").run().expect("runs");
            }
        });
        for _ in 0..rounds {
            add.call().bind("x", cells.1).bind("y", cells.0).on("phoenix").run().expect("runs");
        }
    });
    assert_eq!((a.read().expect("reads"), b.read().expect("reads")), (vec![1], vec![2]));
}
