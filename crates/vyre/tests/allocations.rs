//! A warm call allocates nothing on the caller's thread, measured with an allocator that counts per
//! thread.

#![allow(unsafe_code)]

mod quiet;

use quiet::{PROGRAM, Quiet};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use vyre::Device;
use vyre::catalogue::scan::{ScanKind, scan};
use vyre::catalogue::sort::{self, Key};
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
    let budget =
        DispatchConfig { ulp_budget: Some(2), schedule: Some(vyre::Schedule::Cheap), ..Default::default() };
    let configured = runtime.load_with(PROGRAM, &budget).expect("loads");
    let mut z = [1u32; 64];
    let mut own = || {
        let call = configured.call().bind("n", 3u32).bind("a", &a).bind("x", &mut z);
        call.run().expect("runs").backend
    };
    for _ in 0..200 {
        own();
        runtime.settle();
    }
    for call in [&mut || call(None), &mut typed as &mut dyn FnMut() -> &'static str, &mut own] {
        few_allocate("quiet", call);
    }
}

/// At most one call in sixteen requests a background check, which allocates; all others allocate
/// nothing.
fn few_allocate(backend: &str, call: &mut dyn FnMut() -> &'static str) {
    let mut allocating = 0;
    for _ in 0..1_000 {
        let before = ALLOCATIONS.get();
        assert_eq!(call(), backend);
        allocating += usize::from(ALLOCATIONS.get() > before);
    }
    assert!(allocating <= 1_000 / 16, "{allocating} of 1,000 calls allocated");
}

#[test]
fn a_warm_call_of_an_op_allocates_nothing() {
    let built = Runtime::builder().backends(["cpu"]).without_tables().helper(None);
    let runtime = built.build().expect("cpu is there");
    let sort = runtime.load_op(|size, device| sort::keys(Key::U32, size, device)).expect("loads");
    let sums = |size, device: &Device<'_>| scan(ScanKind::Inclusive, DataType::U32, size, device);
    let sums = runtime.load_op(sums).expect("loads");
    let keys: Vec<u32> = (0..3_000_u32).map(|number| number.wrapping_mul(2_654_435_761)).collect();
    let (mut sorted, mut y) = (keys.clone(), keys.clone());
    let mut sort = || {
        let call = sort.call(keys.len()).bind("keys", &keys).bind("sorted", &mut sorted);
        call.run().expect("runs").backend
    };
    let mut sums = || sums.call(keys.len()).bind("x", &keys).bind("y", &mut y).run().expect("runs").backend;
    for call in [&mut sort as &mut dyn FnMut() -> &'static str, &mut sums] {
        for _ in 0..200 {
            call();
            runtime.settle();
        }
        few_allocate("cpu", call);
    }
}
