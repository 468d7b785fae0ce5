//! A child of `fork` that continues without `exec`: its calls work or fail with an error, and never
//! hang.
#![cfg(unix)]
#![allow(unsafe_code)]

use std::time::{Duration, Instant};
use vyre::prelude::*;
use vyre_driver::process_exit::{Inside, is_anyone_inside};

/// Runs a check in a child process and returns its exit code; `None` if it hangs.
fn in_child(check: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the child only calls vyre, which is under test, and exits without running the
    // parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or(101);
        // SAFETY: ends this process.
        unsafe { libc::_exit(code) };
    }
    let began = Instant::now();
    let mut status = 0;
    while began.elapsed() < Duration::from_secs(60) {
        // SAFETY: waits for the child created above and writes to a local variable.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            return Some(libc::WEXITSTATUS(status));
        }
        std::thread::yield_now();
    }
    // SAFETY: the child was created above and has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    None
}

#[test]
fn a_child_of_fork_runs_calls_on_new_threads() {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
    let steps = "kernel steps(x: read_write u32[]) {
        let value = x[invocation.x]
        for k in 0..64 { value = value * 1664525 + k }
        x[invocation.x] = value
    }";
    let steps = runtime.load(steps).expect("loads");
    let run = |timeout: Option<Duration>| {
        // Large enough to be split among threads.
        let mut x: Vec<u32> = (0..1 << 20).collect();
        let call = steps.call().bind("x", &mut x);
        timeout.into_iter().fold(call, vyre::Call::timeout).run().expect("runs");
        x
    };
    let expected = run(Some(Duration::from_secs(600)));
    (0..20).for_each(|_| drop(run(None)));
    for _ in 0..5 {
        let code = in_child(|| {
            let right =
                (0..10).all(|_| run(None) == expected && run(Some(Duration::from_secs(600))) == expected);
            runtime.settle();
            i32::from(!right)
        });
        assert_eq!(code, Some(0));
    }
    assert!(run(None) == expected, "the parent goes on as before");
}

/// The parent's threads do not exist in the child, so its exit does not wait for them.
#[test]
fn a_child_of_fork_has_no_thread_in_a_driver() {
    let (entered, is_inside) = std::sync::mpsc::channel();
    let (leave, stay) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = entered.send(());
        let _ = stay.recv();
    });
    is_inside.recv().expect("it enters");
    assert!(is_anyone_inside(Duration::ZERO));
    assert_eq!(in_child(|| i32::from(is_anyone_inside(Duration::ZERO))), Some(0));
    drop(leave);
    thread.join().expect("it leaves");
}
