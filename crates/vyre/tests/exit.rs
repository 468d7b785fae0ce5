//! A process may end while drivers are being loaded, whichever of its threads uses vyre. Each case
//! is a process: this test binary, whose harness runs tests on threads other than the first.

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use vyre::Runtime;

/// Milliseconds for which a process continues after its drivers began to load.
const DELAY: &str = "VYRE_TEST_DELAY";

#[test]
fn drivers_load_while_the_process_ends() {
    let Some(delay) = std::env::var(DELAY).ok().and_then(|delay| delay.parse().ok()) else { return };
    let tables = tempfile::tempdir().expect("a folder");
    // Nothing is known about the drivers and there is no helper: the background opens them here.
    let builder = Runtime::builder().tables_in(tables.path()).helper(None);
    let runtime = builder.build().expect("cpu is there");
    let (_sender, receiver) = channel::<()>();
    let _ = receiver.recv_timeout(Duration::from_millis(delay));
    drop(runtime);
}

#[test]
fn a_process_ends_while_other_threads_load_drivers() {
    let own = std::env::current_exe().expect("its path");
    for delay in (0..240).step_by(12) {
        let mut process = Command::new(&own);
        process.args(["--exact", "drivers_load_while_the_process_ends"]).env(DELAY, delay.to_string());
        let output = process.output().expect("started");
        assert!(output.status.success(), "after {delay} ms: {output:?}");
    }
}
