//! Process exit waits for threads that are inside a driver, and lets no thread enter again. There
//! is only one test, because it puts this module into its exiting state for the whole process.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use vyre_driver::process_exit::{Inside, outside, rest, wait_outside};

/// Whether nothing arrives while the sender is alive.
fn stays_silent(receiver: &Receiver<()>) -> bool {
    receiver.recv_timeout(Duration::from_millis(50)) == Err(RecvTimeoutError::Timeout)
}

#[test]
fn the_end_waits_for_steps_and_not_for_loops() {
    static CAME_OUT: AtomicBool = AtomicBool::new(false);
    let (entered, both) = channel();
    let (let_out, step) = channel::<()>();
    let (rounds, counted) = channel();
    let (looping, waiter) = (entered.clone(), entered.clone());
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = entered.send(());
        let _ = step.recv();
        CAME_OUT.store(true, SeqCst);
    });
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = looping.send(());
        loop {
            rest();
            let _ = rounds.send(());
        }
    });
    // Waits outside for a message that only comes after the exit, which must not wait for it.
    let (waits, waiting) = channel::<()>();
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = waiter.send(());
        outside(|| waiting.recv())
    });
    assert_eq!(both.iter().take(3).count(), 3);
    let _own = Inside::enter();
    let began = Instant::now();
    // Only the exit stops the loop, so its silence shows that the exit has begun; then the step is
    // released.
    let end = thread::spawn(move || {
        while !stays_silent(&counted) {}
        let _ = let_out.send(());
        counted
    });
    wait_outside();
    assert!(CAME_OUT.load(SeqCst), "the end did not wait for a step, only {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(4), "the end waited for a loop that rests");
    let counted = end.join().expect("it only listens");
    assert!(stays_silent(&counted), "a thread went on inside");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let _inside = Inside::enter();
        let _ = sender.send(());
    });
    assert!(stays_silent(&receiver), "a thread was let in at the end");
    drop(waits);
}
