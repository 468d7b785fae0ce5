//! A warm call allocates nothing on the caller's thread, measured with an allocator that counts per
//! thread.

#![allow(unsafe_code)]

mod quiet;

use quiet::{PROGRAM, Quiet};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use vyre::prelude::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system allocator unchanged; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, and `pointer` came from the system
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_call_allocates_nothing() {
    let built = Runtime::builder().backends::<String>([]).backend(Arc::new(Quiet)).without_tables();
    let runtime = built.build().expect("it conforms");
    let routine = runtime.load(PROGRAM).expect("loads");
    let (a, mut x, mut y) = ([1u32; 64], [1u32; 64], [1u32; 64]);
    let mut call = |fallback: Option<Fallback>| {
        let call = routine.call().bind("n", 3u32).bind("a", &a).bind("x", &mut x);
        let call = fallback.into_iter().fold(call, |call, fallback| call.fallback(fallback));
        call.run().expect("runs").backend
    };
    for _ in 0..200 {
        call(None);
        call(Some(Fallback::Allow));
        runtime.settle();
    }
    let mut typed = || quiet::quiet(3, &a, &mut y).run(&runtime).expect("runs").backend;
    for _ in 0..200 {
        typed();
        runtime.settle();
    }
    // At most one call in sixteen requests a background check, which allocates; all others allocate
    // nothing.
    for call in [&mut || call(None), &mut typed as &mut dyn FnMut() -> &'static str] {
        let mut allocating = 0;
        for _ in 0..1_000 {
            let before = ALLOCATIONS.get();
            assert_eq!(call(), "quiet");
            allocating += usize::from(ALLOCATIONS.get() > before);
        }
        assert!(allocating <= 1_000 / 16, "{allocating} of 1,000 calls allocated");
    }
}
