//! Compiled pipelines kept in memory, for backends and the runtime.
//!
//! **One compile per key.** The first who asks for a key compiles; others who ask meanwhile wait for that one. A failure goes
//! to all who waited and is not kept, so that the next request tries again.
//!
//! **Bounded** by entries and by bytes: past a limit, the entries used longest ago are dropped (whoever holds such a pipeline
//! keeps it). What was just compiled stays even if it alone is over the limit in bytes.
//!
//! **Reading** takes a shared lock and marks the entry as used with one atomic store, so that threads that find what
//! they ask for do not wait for each other. Only what follows a compile takes the exclusive lock.

use crate::containment::contain;
use crate::key::CodeKey;
use crate::pipeline::{PipelineCacheAudit, PipelineCacheSnapshot};
use crate::{BackendError, CompiledPipeline, DeviceProfile, DispatchConfig};
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::{self, ThreadId};
use vyre_foundation::ir::Program;

/// What a pipeline is kept under. What a configuration holds beyond it must come with each call, so a pipeline that is
/// cached under the key is compiled with [`DispatchConfig::code_policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineKey {
    /// The backend instance, from [`next_backend_instance`]: two instances never share a pipeline.
    pub backend_instance: u64,
    /// Everything that changes the code.
    pub code: CodeKey,
}

impl PipelineKey {
    /// The key of a program on one backend instance.
    pub fn new(
        backend_instance: u64,
        profile: &DeviceProfile,
        program: &Program,
        config: &DispatchConfig,
    ) -> PipelineKey {
        PipelineKey { backend_instance, code: CodeKey::new(profile, program, config) }
    }
}

impl Hash for PipelineKey {
    /// Keys that differ in nothing else than the configuration are few, so the rest alone spreads them well; hashing
    /// all of it would cost more than the whole lookup.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.code.program;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ self.backend_instance);
    }
}

/// A number that no other backend instance in this process has.
pub fn next_backend_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// How much a cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Pipelines.
    pub entries: usize,
    /// Bytes, as those who compile count them.
    pub bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits { entries: 1024, bytes: 256 << 20 }
    }
}

/// What a compile gives to the cache.
#[derive(Clone)]
pub struct Cached {
    /// The pipeline.
    pub pipeline: Arc<dyn CompiledPipeline>,
    /// How many bytes it takes, code and all.
    pub bytes: u64,
}

/// What a cache has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Requests that got a pipeline without compiling: it was there, or another request was compiling it.
    pub hits: u64,
    /// Requests that compiled, or waited for a compile that failed.
    pub misses: u64,
    /// Compiles that failed.
    pub failures: u64,
    /// Pipelines dropped to stay within the limits.
    pub evictions: u64,
    /// Pipelines held.
    pub entries: usize,
    /// Bytes held.
    pub bytes: u64,
}

/// Compiled pipelines in memory; see the module's text. Shared by reference between threads.
///
/// ```
/// use std::sync::Arc;
/// use vyre_conform::backends::NullBackend;
/// use vyre_driver::{Cached, DispatchConfig, PipelineCache, PipelineKey, VyreBackend, next_backend_instance, pipeline};
/// use vyre_foundation::ir::Program;
///
/// let backend = Arc::new(NullBackend::default());
/// let (cache, program, config) = (PipelineCache::default(), Program::empty(), DispatchConfig::default());
/// let key = PipelineKey::new(next_backend_instance(), &backend.device_profile(), &program, &config);
/// for _ in 0..3 {
///     let compile = || Ok(Cached { pipeline: pipeline::compile(backend.clone(), &program, &config)?, bytes: 100 });
///     cache.get_or_compile(&key, compile)?;
/// }
/// assert_eq!((cache.statistics().hits, cache.statistics().misses), (2, 1));
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Default)]
pub struct PipelineCache {
    limits: CacheLimits,
    entries: RwLock<Entries>,
    clock: AtomicU64,
    audit: PipelineCacheAudit,
    failures: AtomicU64,
    evictions: AtomicU64,
}

#[derive(Default)]
struct Entries {
    all: HashMap<PipelineKey, Arc<Entry>>,
    /// Wide enough that no number of entries overflows it.
    bytes: u128,
}

/// A pipeline, or one that a thread is compiling for all who wait.
struct Entry {
    thread: ThreadId,
    outcome: OnceLock<Result<Cached, BackendError>>,
    last_used: AtomicU64,
}

impl PipelineCache {
    /// An empty cache with these limits.
    pub fn new(limits: CacheLimits) -> PipelineCache {
        PipelineCache { limits, ..PipelineCache::default() }
    }

    /// The pipeline under the key; where there is none, the one that `compile` makes. A panic in `compile` is a
    /// failure.
    pub fn get_or_compile(
        &self,
        key: &PipelineKey,
        compile: impl FnOnce() -> Result<Cached, BackendError>,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        if let Some(pipeline) = self.get(key) {
            return Ok(pipeline);
        }
        let (mut own, thread) = (None, thread::current().id());
        let make = || {
            let entry = Entry { thread, outcome: OnceLock::new(), last_used: AtomicU64::new(self.now()) };
            own.insert(Arc::new(entry)).clone()
        };
        let entry = self.write().all.entry(key.clone()).or_insert_with(make).clone();
        if own.is_some() {
            let outcome = contain(compile).unwrap_or_else(|message| {
                Err(BackendError::new(format!("a pipeline could not be compiled: {message}")))
            });
            self.land(key, &entry, outcome);
        } else if entry.thread == thread && entry.outcome.get().is_none() {
            let message = "a pipeline was asked for while the same thread was compiling it";
            return Err(BackendError::new(message));
        }
        let outcome = entry.outcome.wait();
        entry.last_used.store(self.now(), Relaxed);
        self.audit.observe(Some(own.is_none() && outcome.is_ok()));
        outcome.clone().map(|cached| cached.pipeline)
    }

    /// The pipeline under the key, if it is there: a hit. Anything else is not counted.
    pub fn get(&self, key: &PipelineKey) -> Option<Arc<dyn CompiledPipeline>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.all.get(key)?;
        let cached = entry.cached()?;
        entry.last_used.store(self.now(), Relaxed);
        self.audit.observe(Some(true));
        Some(cached.pipeline.clone())
    }

    /// Drops every pipeline of a backend instance, for one whose device is lost.
    pub fn forget_backend(&self, backend_instance: u64) {
        let mut guard = self.write();
        let Entries { all, bytes } = &mut *guard;
        let of_backend = |key: &PipelineKey, entry: &mut Arc<Entry>| {
            key.backend_instance == backend_instance && entry.cached().is_some()
        };
        let dropped: Vec<_> = all.extract_if(of_backend).collect();
        *bytes -= dropped.iter().map(|(_, entry)| entry.bytes()).sum::<u128>();
        drop(guard);
        drop(dropped);
    }

    /// What the cache has done and holds.
    pub fn statistics(&self) -> CacheStatistics {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let PipelineCacheSnapshot { hits, misses } = self.snapshot();
        CacheStatistics {
            hits,
            misses,
            failures: self.failures.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            entries: entries.all.values().filter(|entry| entry.cached().is_some()).count(),
            bytes: u64::try_from(entries.bytes).unwrap_or(u64::MAX),
        }
    }

    /// Hits and misses, as [`VyreBackend::pipeline_cache_snapshot`](crate::VyreBackend::pipeline_cache_snapshot) gives
    /// them.
    pub fn snapshot(&self) -> PipelineCacheSnapshot {
        let seen = self.audit.snapshot(0);
        PipelineCacheSnapshot { hits: seen.hits, misses: seen.misses }
    }

    /// Every hit and miss so far, to be kept and shown.
    pub fn audit(&self) -> &PipelineCacheAudit {
        &self.audit
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A time later than all before.
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Ends a compile: keeps what it gave and tells all who wait.
    fn land(&self, key: &PipelineKey, entry: &Arc<Entry>, outcome: Result<Cached, BackendError>) {
        let mut dropped = Vec::new();
        let mut guard = self.write();
        if let Ok(cached) = &outcome {
            dropped = self.make_room(&mut guard, cached.bytes);
            guard.bytes += u128::from(cached.bytes);
        } else {
            guard.all.remove(key);
            self.failures.fetch_add(1, Relaxed);
        }
        let _ = entry.outcome.set(outcome);
        drop(guard);
        // A pipeline's destructor is the backend's code: it runs outside the lock.
        drop(dropped);
    }

    /// Drops the entries used longest ago until one more of this size fits, which is in the list already. The scan is linear
    /// in the entries, which a compile outweighs by far.
    fn make_room(&self, Entries { all, bytes: held }: &mut Entries, bytes: u64) -> Vec<Arc<Entry>> {
        let mut dropped = Vec::new();
        while all.len() > self.limits.entries.max(1) || *held + u128::from(bytes) > self.limits.bytes.into() {
            let ready = all.iter().filter(|(_, entry)| entry.cached().is_some());
            let Some((oldest, _)) = ready.min_by_key(|(_, entry)| entry.last_used.load(Relaxed)) else {
                break;
            };
            let oldest = oldest.clone();
            if let Some(entry) = all.remove(&oldest) {
                *held -= entry.bytes();
                self.evictions.fetch_add(1, Relaxed);
                dropped.push(entry);
            }
        }
        dropped
    }
}

impl Entry {
    /// What was compiled, if it is there.
    fn cached(&self) -> Option<&Cached> {
        self.outcome.get()?.as_ref().ok()
    }

    fn bytes(&self) -> u128 {
        self.cached().map_or(0, |cached| cached.bytes.into())
    }
}

impl fmt::Debug for PipelineCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineCache")
            .field("limits", &self.limits)
            .field("statistics", &self.statistics())
            .finish()
    }
}
