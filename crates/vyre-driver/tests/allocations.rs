//! Memory cost of a dispatch, measured with an allocator that counts per thread.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use vyre_conform::backends::NullBackend;
use vyre_driver::pgo::PgoTable;
use vyre_driver::router::{
    BackendIndex, Candidate, Conformance, Placement, Policy, RouteRequest, Router, Timing,
};
use vyre_driver::{
    Cached, DeviceProfile, DispatchConfig, PipelineCache, PipelineKey, VyreBackend, next_backend_instance,
    pipeline,
};
use vyre_foundation::hints::HotPathHints;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

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

fn allocations_of(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_dispatch_through_a_cached_pipeline_allocates_nothing() {
    let x = BufferDecl::read("x", 0, DataType::U32);
    let y = BufferDecl::output("y", 1, DataType::U32).with_count(256);
    let body = vec![Node::store("y", Expr::invocation_id(0), Expr::load("x", Expr::invocation_id(0)))];
    let program = Program::wrapped(vec![x, y], [64, 1, 1], body);
    let backend = Arc::new(NullBackend::default());
    let (cache, config) = (PipelineCache::default(), DispatchConfig::default());
    let labelled = DispatchConfig { label: Some("call".into()), ..Default::default() };
    let profile = backend.device_profile();
    let instance = next_backend_instance();
    let input = [1u8; 1024];
    let mut slots = Vec::new();
    let mut dispatch = |config: &DispatchConfig| {
        let key = PipelineKey::new(instance, &profile, &program, config);
        let compile =
            || Ok(Cached { pipeline: pipeline::compile(backend.clone(), &program, config)?, bytes: 1 });
        let pipeline = cache.get_or_compile(&key, compile).unwrap();
        pipeline.dispatch_borrowed_into(&[&input], config, &mut slots).unwrap();
    };
    assert_ne!(allocations_of(|| dispatch(&config)), 0, "the first one compiles and makes its slots");
    assert_eq!(allocations_of(|| (0..100).for_each(|_| dispatch(&config))), 0);
    assert_eq!(allocations_of(|| dispatch(&labelled)), 0);
    assert_eq!(backend.compiles(), 1);
}

#[test]
fn a_warm_call_is_routed_and_recorded_without_allocating() {
    let candidate = |id| Candidate::new(&DeviceProfile::conservative(id), Conformance::Passed);
    let router = Router::new(["a", "b"].map(candidate).to_vec(), &PgoTable::default(), Policy::default());
    let program = router.program(Some("op"), [7; 32]);
    let hints = HotPathHints::default();
    let call = |now_ns| {
        let route = program.route(&RouteRequest::new(1 << 20, now_ns)).unwrap();
        program.finished(&route, 1_000);
        hints.record("op@0123456789abcdef", 1_000, 64);
    };
    assert_ne!(allocations_of(|| call(0)), 0, "the first one makes its cell");
    // Nothing allocates, including probes and re-measurements of other backends.
    program.verified(BackendIndex(1), Ok(&[Timing { elements: 4096, elapsed_ns: 2 }]), 0);
    assert_eq!(allocations_of(|| (1..10_000).for_each(call)), 0);
    let explained = program.explain(1 << 20, Placement::Host, 0);
    assert_eq!(explained.candidates[0].calls + explained.candidates[1].calls, 10_000);
    assert_ne!(explained.candidates[1].calls, 0, "it was probed");
}
