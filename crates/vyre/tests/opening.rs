//! First contact with drivers, through helpers that are scripts: calls do not wait for it, and how
//! the helper ends decides whether the driver is used.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vyre::ir::Program;
use vyre::{RefusedBackend, Runtime};
use vyre_driver::registry::{BackendCapability, BackendDevices, BackendRegistration};
use vyre_driver::{
    BackendError, DeviceProfile, DispatchConfig, VyreBackend, default_supported_ops, inventory, registry,
};

/// The interpreter, posing as a backend with a driver.
struct Driven;

static OPENED: AtomicU32 = AtomicU32::new(0);
/// Opening the driver waits for this lock.
static DOOR: Mutex<()> = Mutex::new(());

fn open() -> Result<Box<dyn VyreBackend>, BackendError> {
    let _door = DOOR.lock().unwrap_or_else(PoisonError::into_inner);
    OPENED.fetch_add(1, SeqCst);
    Ok(Box::new(Driven))
}

inventory::submit! {
    BackendRegistration { id: "driven", factory: open, supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: "driven", dispatches: true, oracle: false } }
inventory::submit! {
    BackendDevices {
        id: "driven",
        names: || Ok(vec!["driven".into()]),
        open: |_| open(),
        stamp: || std::fs::read_to_string(std::env::temp_dir().join(STAMP)).unwrap_or_default(),
    }
}

/// A file whose contents identify the installed driver.
const STAMP: &str = concat!("vyre-driven-stamp-", env!("CARGO_PKG_VERSION"));

impl VyreBackend for Driven {
    fn id(&self) -> &'static str {
        "driven"
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { strict_float: true, ..DeviceProfile::conservative("driven") }
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        registry::acquire("cpu-ref")?.dispatch(program, inputs, config)
    }
}

/// Writes an executable script to a folder.
fn script(folder: &Path, text: &str) -> PathBuf {
    let helper = folder.join("helper");
    std::fs::write(&helper, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).expect("executable");
    helper
}

fn built(folder: &Path, helper: PathBuf, limit: Duration) -> Runtime {
    let builder = Runtime::builder().backends(["cpu", "driven"]).tables_in(folder.join("tables"));
    builder.helper(Some(helper)).helper_limit(limit).build().expect("cpu is there")
}

/// Builds a runtime, waits for first contact, and returns its backends and the refusal of `driven`.
fn contact(folder: &Path, text: &str, limit: Duration) -> (Vec<&'static str>, Vec<RefusedBackend>) {
    let runtime = built(folder, script(folder, text), limit);
    runtime.settle();
    let refused = runtime.refused();
    (
        runtime.backends().collect(),
        refused.into_iter().filter(|refused| refused.backend == "driven").collect(),
    )
}

const LONG: Duration = Duration::from_secs(60);

/// The driver is per process, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn calls_run_while_a_new_driver_is_probed() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let gate = folder.path().join("gate");
    // The helper gives no usable answer, and exits only when the gate opens.
    let text = format!("while [ ! -e {} ]; do sleep 0.01; done; exit 2", gate.display());
    let runtime = built(folder.path(), script(folder.path(), &text), LONG);
    assert_eq!(runtime.backends().collect::<Vec<_>>(), ["cpu"]);
    assert!(runtime.refused().iter().any(|refused| refused.reason.contains("being checked")), "{runtime:?}");
    let double = runtime.load("kernel double(x: read_write u32[]) { x[invocation.x] *= 2 }").expect("loads");
    let run = |routine: &vyre::Routine| {
        let mut x = [21u32; 64];
        let report = routine.call().bind("x", &mut x).run().expect("runs");
        assert_eq!(x, [42; 64]);
        report.backend
    };
    assert_eq!(run(&double), "cpu");
    std::fs::write(gate, "").expect("written");
    runtime.settle();
    assert_eq!(runtime.backends().collect::<Vec<_>>(), ["cpu", "driven"]);
    // A backend met late is verified and used like any other.
    for _ in 0..40 {
        run(&double);
        runtime.settle();
    }
    let standing = double.explain(64).route.candidates.iter().map(|one| one.standing).collect::<Vec<_>>();
    assert_eq!(standing, ["verified", "verified"], "{}", double.explain(64));
    let mut x = [1u32; 4];
    let named = double.call().bind("x", &mut x).on("driven").run().expect("runs");
    assert_eq!((named.backend, x), ("driven", [2; 4]));
}

#[test]
fn calls_run_while_a_known_driver_is_opened() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(contact(folder.path(), "exit 2", LONG).0, ["cpu", "driven"]);
    let tables = folder.path().join("tables");
    let builder = || Runtime::builder().backends(["cpu", "driven"]).tables_in(tables.clone());
    let door = DOOR.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = builder().open_drivers_later().build().expect("cpu is there");
    assert_eq!(runtime.backends().collect::<Vec<_>>(), ["cpu"]);
    assert!(runtime.refused().iter().any(|refused| refused.reason.contains("being opened")), "{runtime:?}");
    let double = runtime.load("kernel double(x: read_write u32[]) { x[invocation.x] *= 2 }").expect("loads");
    let mut x = [21u32; 64];
    assert_eq!(double.call().bind("x", &mut x).run().expect("runs").backend, "cpu");
    drop(door);
    let named = double.call().bind("x", &mut x).on("driven").run().expect("runs");
    assert_eq!((named.backend, x), ("driven", [84; 64]));
    assert_eq!(runtime.backends().collect::<Vec<_>>(), ["cpu", "driven"]);
    let frozen = builder().open_drivers_later().frozen().build().expect("cpu is there");
    assert_eq!(
        frozen.backends().collect::<Vec<_>>(),
        ["cpu", "driven"],
        "its tables decide from the first call on"
    );
}

#[test]
fn a_driver_that_ends_its_helper_is_refused_and_the_refusal_remembered() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    let text = format!("echo x >> {}\nkill -9 $$", asked.display());
    for _ in 0..2 {
        let (backends, refused) = contact(folder.path(), &text, LONG);
        assert_eq!(backends, ["cpu"]);
        let reason = &refused[0].reason;
        assert!(reason.contains("ended a helper process") && reason.contains("vyre cache clear"), "{reason}");
    }
    assert_eq!(std::fs::read_to_string(asked).expect("asked"), "x\n");
}

#[test]
fn a_helper_that_gives_no_answer_is_asked_again_the_next_time() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    let text = format!("echo x >> {}\nexec sleep 600", asked.display());
    for _ in 0..2 {
        let began = Instant::now();
        let (backends, refused) = contact(folder.path(), &text, Duration::from_millis(300));
        assert!(began.elapsed() < LONG);
        assert_eq!(backends, ["cpu"], "the embedded backend needs no helper");
        assert!(refused[0].reason.contains("did not answer"), "{refused:?}");
    }
    assert_eq!(std::fs::read_to_string(asked).expect("asked"), "x\nx\n");
    let (backends, _) = contact(folder.path(), "exit 2", LONG);
    assert_eq!(backends, ["cpu", "driven"], "nothing of it was kept");
}

#[test]
fn something_that_is_no_helper_is_as_good_as_none() {
    let _turn = turn();
    for text in ["exit 2", "exit 1", "echo hello"] {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(contact(folder.path(), text, LONG).0, ["cpu", "driven"], "{text}");
    }
}

#[test]
fn a_changed_driver_is_probed_by_a_helper_first() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let stamp = std::env::temp_dir().join(STAMP);
    std::fs::write(&stamp, "driver 1").expect("written");
    assert_eq!(contact(folder.path(), "exit 2", LONG).0, ["cpu", "driven"]);
    std::fs::write(&stamp, "driver 2").expect("written");
    let opened = OPENED.load(SeqCst);
    let (backends, refused) = contact(folder.path(), "kill -9 $$", LONG);
    std::fs::remove_file(&stamp).expect("removed");
    assert_eq!(backends, ["cpu"]);
    assert!(refused[0].reason.contains("ended a helper process"), "{refused:?}");
    assert_eq!(OPENED.load(SeqCst), opened, "this process never opened the new driver");
}
