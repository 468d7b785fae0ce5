//! The in-memory pipeline cache: one compile per key, exact counters, bounded size.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use vyre_conform::backends::NullBackend;
use vyre_driver::observability::snapshot_dispatch_telemetry;
use vyre_driver::{
    BackendError, CacheLimits, Cached, CodeKey, CompiledPipeline, DeviceKey, DeviceProfile, DispatchConfig,
    Fallback, OutputBuffers, PipelineCache, PipelineKey, Schedule, VyreBackend, next_backend_instance,
    pipeline,
};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

fn program(value: u32) -> Program {
    let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
    Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), Expr::u32(value))])
}

fn key(value: u32) -> PipelineKey {
    let profile = DeviceProfile::conservative("named");
    PipelineKey::new(0, &profile, &program(value), &DispatchConfig::default())
}

struct Named(String);

impl CompiledPipeline for Named {
    fn id(&self) -> &str {
        &self.0
    }
    fn dispatch(&self, _: &[Vec<u8>], _: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        Ok(Vec::new())
    }
}

fn named(name: u32, bytes: u64) -> Result<Cached, BackendError> {
    Ok(Cached { pipeline: Arc::new(Named(name.to_string())), bytes })
}

#[test]
fn sixteen_threads_compile_each_program_once() {
    const THREADS: u64 = 16;
    const PROGRAMS: u32 = 8;
    const ROUNDS: u64 = 50;
    let backend = Arc::new(NullBackend::default());
    let (cache, config) = (PipelineCache::default(), DispatchConfig::default());
    let instance = next_backend_instance();
    let programs: Vec<Program> = (0..PROGRAMS).map(program).collect();
    let before = snapshot_dispatch_telemetry();
    let together = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (backend, cache, config, programs, together) =
                (&backend, &cache, &config, &programs, &together);
            scope.spawn(move || {
                let mut slots = Vec::new();
                together.wait();
                for _ in 0..ROUNDS {
                    // Half the threads visit the programs in reverse order.
                    for k in 0..programs.len() {
                        let program = &programs[if thread % 2 == 0 { k } else { programs.len() - 1 - k }];
                        let key = PipelineKey::new(instance, &backend.device_profile(), program, config);
                        let compile = || {
                            let pipeline = pipeline::compile(backend.clone(), program, config)?;
                            Ok(Cached { pipeline, bytes: 1 })
                        };
                        let pipeline = cache.get_or_compile(&key, compile).unwrap();
                        pipeline.dispatch_borrowed_into(&[b"four"], config, &mut slots).unwrap();
                        assert_eq!(slots, [[0; 4]]);
                    }
                }
            });
        }
    });
    let requests = THREADS * ROUNDS * u64::from(PROGRAMS);
    let statistics = cache.statistics();
    assert_eq!(backend.compiles(), u64::from(PROGRAMS));
    assert_eq!((statistics.misses, statistics.hits), (u64::from(PROGRAMS), requests - u64::from(PROGRAMS)));
    assert_eq!((statistics.entries, statistics.bytes), (PROGRAMS as usize, u64::from(PROGRAMS)));
    assert_eq!((statistics.failures, statistics.evictions), (0, 0));
    let seen = snapshot_dispatch_telemetry().since(&before);
    assert_eq!((backend.dispatches(), seen.launches), (requests, requests));
    assert_eq!(
        (seen.input_bytes, seen.output_bytes, seen.output_slots),
        (requests * 4, requests * 4, requests)
    );
    assert_eq!((seen.output_slots_moved, seen.output_slots_reused), (THREADS, requests - THREADS));
    assert_eq!((seen.compiles, seen.failed_compiles), (u64::from(PROGRAMS), 0));
}

#[test]
fn a_failure_goes_to_all_who_wait_and_is_not_kept() {
    let cache = PipelineCache::default();
    let attempts = AtomicU64::new(0);
    let (started, release) = (Barrier::new(2), Mutex::new(()));
    let held = release.lock().unwrap();
    let waiting = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let compiling = scope.spawn(|| {
            cache.get_or_compile(&key(1), || {
                attempts.fetch_add(1, SeqCst);
                started.wait();
                drop(release.lock().unwrap());
                Err(BackendError::new("no luck"))
            })
        });
        started.wait();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    waiting.fetch_add(1, SeqCst);
                    cache.get_or_compile(&key(1), || {
                        attempts.fetch_add(1, SeqCst);
                        Err(BackendError::new("no luck"))
                    })
                })
            })
            .collect();
        while waiting.load(SeqCst) < 4 {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(compiling.join().unwrap().err(), Some(BackendError::new("no luck")));
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().err(), Some(BackendError::new("no luck")));
        }
    });
    // Callers that arrive after a failure retry; none receives a pipeline, and none hangs.
    let statistics = cache.statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.entries), (0, 5, 0));
    assert_eq!(statistics.failures, attempts.load(SeqCst));

    assert_eq!(cache.get_or_compile(&key(1), || named(1, 1)).unwrap().id(), "1");
    assert_eq!(cache.statistics().entries, 1);
}

#[test]
fn a_panic_is_a_failure() {
    let cache = PipelineCache::default();
    let error = cache.get_or_compile(&key(1), || panic!("as asked")).err().unwrap();
    assert!(error.to_string().contains("it panicked: as asked"), "{error}");
    assert!(cache.get_or_compile(&key(1), || named(1, 1)).is_ok());
    assert_eq!((cache.statistics().failures, cache.statistics().misses), (1, 2));
}

#[test]
fn asking_for_what_one_is_compiling_is_an_error() {
    let cache = PipelineCache::default();
    let outer = cache.get_or_compile(&key(1), || {
        let inner = cache.get_or_compile(&key(1), || named(1, 1)).err().unwrap();
        assert!(inner.to_string().contains("the same thread was compiling it"), "{inner}");
        // Another key does not deadlock.
        cache.get_or_compile(&key(2), || named(2, 1))?;
        named(1, 1)
    });
    assert!(outer.is_ok());
    assert_eq!(cache.statistics().entries, 2);
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let cache = PipelineCache::new(CacheLimits { entries: 3, bytes: u64::MAX });
    for name in 1..=3 {
        cache.get_or_compile(&key(name), || named(name, 1)).unwrap();
    }
    assert!(cache.get(&key(1)).is_some());
    cache.get_or_compile(&key(4), || named(4, 1)).unwrap();
    let present = |name| cache.get(&key(name)).is_some();
    assert_eq!([1, 2, 3, 4].map(present), [true, false, true, true]);
    let statistics = cache.statistics();
    assert_eq!((statistics.evictions, statistics.entries, statistics.bytes), (1, 3, 3));
    assert_eq!(cache.snapshot().misses, 4);
}

#[test]
fn bytes_are_bounded_too() {
    let cache = PipelineCache::new(CacheLimits { entries: 100, bytes: 10 });
    for name in 1..=3 {
        cache.get_or_compile(&key(name), || named(name, 4)).unwrap();
    }
    assert_eq!((cache.statistics().entries, cache.statistics().bytes), (2, 8));
    // An entry larger than the limit evicts all others and stays until the next one.
    cache.get_or_compile(&key(9), || named(9, u64::MAX)).unwrap();
    assert_eq!((cache.statistics().entries, cache.statistics().bytes), (1, u64::MAX));
    cache.get_or_compile(&key(1), || named(1, 4)).unwrap();
    assert_eq!((cache.statistics().entries, cache.statistics().bytes), (1, 4));
    // A cache with zero capacity still works, and keeps the last entry.
    let none = PipelineCache::new(CacheLimits { entries: 0, bytes: 0 });
    none.get_or_compile(&key(1), || named(1, 4)).unwrap();
    none.get_or_compile(&key(2), || named(2, 4)).unwrap();
    assert_eq!((none.statistics().entries, none.statistics().evictions), (1, 1));
}

#[test]
fn a_lost_backend_is_forgotten() {
    let cache = PipelineCache::default();
    let of = |instance, name| PipelineKey { backend_instance: instance, ..key(name) };
    for (instance, name) in [(1, 1), (1, 2), (2, 1)] {
        cache.get_or_compile(&of(instance, name), || named(name, 5)).unwrap();
    }
    cache.forget_backend(1);
    assert!(cache.get(&of(1, 1)).is_none() && cache.get(&of(2, 1)).is_some());
    assert_eq!((cache.statistics().entries, cache.statistics().bytes), (1, 5));
}

#[test]
fn keys_hold_what_changes_the_code_and_nothing_else() {
    let unset = DispatchConfig::default();
    let profile = DeviceProfile::conservative("named");
    let of = |config: &DispatchConfig| PipelineKey::new(1, &profile, &program(1), config);
    let changes = [
        DispatchConfig { workgroup_override: Some([2, 1, 1]), ..unset.clone() },
        DispatchConfig { schedule: Some(Schedule::Expensive), ..unset.clone() },
        DispatchConfig { elements_per_invocation: Some(1), ..unset.clone() },
        DispatchConfig { subgroup_size: Some(32), ..unset.clone() },
        DispatchConfig { ulp_budget: Some(0), ..unset.clone() },
        DispatchConfig { native_math: Some(false), ..unset.clone() },
    ];
    for config in &changes {
        assert_ne!(of(config), of(&unset), "{config:?}");
        assert_eq!(config.code_policy(), *config);
    }
    let keeps = DispatchConfig {
        profile: Some("p".into()),
        timeout: Some(Duration::from_secs(1)),
        label: Some("l".into()),
        max_output_bytes: Some(1),
        grid_override: Some([1, 1, 1]),
        fallback: Some(Fallback::Allow),
        ..unset.clone()
    };
    assert_eq!(of(&keeps), of(&unset));
    assert!(keeps.code_policy().is_unset());
    // The program's own workgroup size and an override to the same size share a key.
    assert_eq!(of(&DispatchConfig { workgroup_override: Some([1, 1, 1]), ..unset.clone() }), of(&unset));

    let base = of(&unset);
    let others = [
        PipelineKey::new(2, &profile, &program(1), &unset),
        PipelineKey::new(1, &profile, &program(2), &unset),
        PipelineKey::new(1, &DeviceProfile { device_name: "other", ..profile }, &program(1), &unset),
        PipelineKey::new(1, &DeviceProfile { driver_version: "2", ..profile }, &program(1), &unset),
        PipelineKey {
            code: CodeKey { device: DeviceKey { build: "0.0.0", ..base.code.device }, ..base.code.clone() },
            ..base.clone()
        },
    ];
    for other in others {
        assert_ne!(other, base);
    }
    assert_ne!(next_backend_instance(), next_backend_instance());
}
