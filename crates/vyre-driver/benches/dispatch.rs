//! Overhead of the driver itself: `cargo bench -p vyre-driver --bench dispatch`.

use divan::Bencher;
use std::sync::Arc;
use std::time::Instant;
use vyre_conform::backends::NullBackend;
use vyre_driver::observability::{LaunchRecord, record_launch, snapshot_dispatch_telemetry};
use vyre_driver::pgo::PgoTable;
use vyre_driver::router::{
    BackendIndex, Candidate, Conformance, Policy, ProgramRoutes, RouteRequest, Router, Timing,
};
use vyre_driver::{
    Cached, CompiledPipeline, DeviceProfile, DispatchConfig, PipelineCache, PipelineKey, VyreBackend,
    next_backend_instance, pipeline,
};
use vyre_foundation::hints::HotPathHints;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

fn main() {
    divan::main();
}

fn program() -> Program {
    let x = BufferDecl::read("x", 0, DataType::U32);
    let y = BufferDecl::output("y", 1, DataType::U32).with_count(16);
    let body = vec![Node::store("y", Expr::invocation_id(0), Expr::load("x", Expr::invocation_id(0)))];
    Program::wrapped(vec![x, y], [64, 1, 1], body)
}

fn compiled(backend: Arc<dyn VyreBackend>) -> Arc<dyn CompiledPipeline> {
    pipeline::compile(backend, &program(), &DispatchConfig::default()).unwrap()
}

/// The null backend's pipeline, which leaves only the driver's overhead.
#[divan::bench(threads = [1, 2], sample_size = 1000)]
fn dispatch_borrowed_into(bencher: Bencher) {
    let (pipeline, config) = (compiled(Arc::new(NullBackend::default())), DispatchConfig::default());
    bencher.with_inputs(|| vec![vec![0; 64]]).bench_refs(|slots| {
        pipeline.dispatch_borrowed_into(&[&[1; 64]], &config, slots).unwrap();
    });
}

/// The same, preceded by a pipeline cache lookup.
#[divan::bench(threads = [1, 2], sample_size = 1000)]
fn cached_dispatch_borrowed_into(bencher: Bencher) {
    let backend = Arc::new(NullBackend::default());
    let (cache, config, program) = (PipelineCache::default(), DispatchConfig::default(), program());
    let (instance, profile) = (next_backend_instance(), backend.device_profile());
    bencher.with_inputs(|| vec![vec![0; 64]]).bench_refs(|slots| {
        let key = PipelineKey::new(instance, &profile, &program, &config);
        let compile =
            || Ok(Cached { pipeline: pipeline::compile(backend.clone(), &program, &config)?, bytes: 1 });
        let pipeline = cache.get_or_compile(&key, compile).unwrap();
        pipeline.dispatch_borrowed_into(&[&[1; 64]], &config, slots).unwrap();
    });
}

/// Counting alone.
#[divan::bench(threads = [1, 2])]
fn count_one_launch() {
    record_launch(LaunchRecord {
        input_bytes: 64,
        output_bytes: 64,
        output_slots: 1,
        output_slots_reused: 1,
        output_slots_moved: 0,
    });
}

/// Summing the counters.
#[divan::bench]
fn snapshot() -> u64 {
    snapshot_dispatch_telemetry().launches
}

/// Admission and the rest of a compile, on a backend that compiles instantly.
#[divan::bench]
fn compile(bencher: Bencher) {
    let (backend, program): (Arc<dyn VyreBackend>, _) = (Arc::new(NullBackend::default()), program());
    bencher.bench(|| pipeline::compile(backend.clone(), &program, &DispatchConfig::default()).unwrap());
}

/// A warm call's route and report: the cost that routing adds to a pipeline call.
#[divan::bench(threads = [1, 2], sample_size = 1000)]
fn route_and_report(bencher: Bencher) {
    let program = routed_program();
    let call = RouteRequest::new(1 << 20, 1);
    bencher.bench(|| {
        let route = program.route(&call).unwrap();
        program.finished(&route, 1_000);
    });
}

/// Routing, hints, the clock, and a dispatch on the null backend; compare with
/// `dispatch_borrowed_into`.
#[divan::bench(threads = [1, 2], sample_size = 1000)]
fn routed_dispatch_borrowed_into(bencher: Bencher) {
    let (pipeline, config) = (compiled(Arc::new(NullBackend::default())), DispatchConfig::default());
    let (program, hints, start) = (routed_program(), HotPathHints::default(), Instant::now());
    bencher.with_inputs(|| vec![vec![0; 64]]).bench_refs(|slots| {
        let before = start.elapsed().as_nanos() as u64;
        let route = program.route(&RouteRequest::new(1 << 20, before)).unwrap();
        pipeline.dispatch_borrowed_into(&[&[1; 64]], &config, slots).unwrap();
        let elapsed = start.elapsed().as_nanos() as u64 - before;
        program.finished(&route, elapsed);
        hints.record("bench.copy@0123456789abcdef", elapsed, 128);
    });
}

fn routed_program() -> Arc<ProgramRoutes> {
    let candidates = ["a", "b", "c"];
    let candidate = |id: &&'static str| Candidate::new(&DeviceProfile::conservative(id), Conformance::Passed);
    let candidates = candidates.iter().map(candidate).collect();
    let program = Router::new(candidates, &PgoTable::default(), Policy::default()).program(None, [7; 32]);
    for backend in 0..3 {
        program.verified(BackendIndex(backend), Ok(&[Timing { elements: 4096, elapsed_ns: 100_000 }]), 0);
    }
    program
}
