//! A small dispatch through a compiled pipeline allocates nothing.

#![allow(unsafe_code)] // For the counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, Binding, DispatchConfig, pipeline};
use vyre_foundation::text::parse;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations in the second and later dispatches on this thread.
fn allocations(source: &str, count: usize) -> Result<u64, BackendError> {
    let program = parse(source)?;
    let config = DispatchConfig::default();
    let compiled = pipeline::compile(Arc::new(Cpu::new()?), &program, &config)?;
    let (a, x) = (2.0_f32.to_le_bytes(), vec![1; 4 * count]);
    let mut y = vec![0; 4 * count];
    let mut bindings = [Binding::Read(&a), Binding::Read(&x), Binding::ReadWrite(&mut y)];
    compiled.dispatch_bound(&mut bindings, &config)?;
    let before = COUNT.get();
    for _ in 0..10 {
        compiled.dispatch_bound(&mut bindings, &config)?;
    }
    Ok(COUNT.get() - before)
}

#[test]
fn small_dispatches_allocate_nothing() -> Result<(), BackendError> {
    let sources = [
        "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
           region \"r\" { let i = invocation.x
             if i < len(y) { y[i] = a * x[i] + y[i] } } }",
        "kernel pairs(a: f32 uniform, x: read f32[], y: read_write f32[], tile: workgroup f32[64])
           over y workgroup 64 {
           region \"r\" {
             tile[local.x] = x[invocation.x] * a
             barrier
             y[invocation.x] = tile[local.x] + tile[local.x ^ 1] } }",
    ];
    // On a busy machine a small dispatch can take so long that the next one is shared between
    // threads, which are started by the first that is. A large one starts them here.
    for source in sources {
        allocations(source, 1 << 22)?;
    }
    for source in sources {
        for count in [0, 1, 1024, 1027] {
            assert_eq!(allocations(source, count)?, 0, "{count} elements of {source}");
        }
    }
    Ok(())
}
