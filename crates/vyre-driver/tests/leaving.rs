//! The end of a process waits for threads that are inside a driver, and lets none in again. One test: it ends the process as
//! far as this module is concerned.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use vyre_driver::leaving::{Inside, rest, wait_outside};

#[test]
fn the_end_waits_for_steps_and_not_for_loops() {
    static CAME_OUT: AtomicBool = AtomicBool::new(false);
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let (sender, receiver) = channel();
    let entered = sender.clone();
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = entered.send(());
        thread::sleep(Duration::from_millis(200));
        CAME_OUT.store(true, SeqCst);
    });
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = sender.send(());
        loop {
            rest();
            STEPS.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(receiver.iter().take(2).count(), 2);
    let _own = Inside::enter();
    let began = Instant::now();
    wait_outside();
    assert!(CAME_OUT.load(SeqCst), "the end did not wait for a step of {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "the end waited for a loop that rests");
    let steps = STEPS.load(SeqCst);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(STEPS.load(SeqCst), steps, "a thread went on inside");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = sender.send(());
    });
    assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "a thread was let in at the end");
}
