//! An in-memory cache of compiled pipelines, for backends and the runtime.
//!
//! **One compile per key.** The first request for a key compiles; concurrent requests wait for it.
//! A failure is returned to all of them and is not cached, so that the next request tries again.
//!
//! **Bounded** by entries and by bytes: beyond a limit, the least recently used entries are evicted
//! (holders of such a pipeline keep it). A newly compiled pipeline stays even if it alone exceeds
//! the limit in bytes.
//!
//! **Lookups** take a shared lock and mark the entry as used with one atomic store, so that hits on
//! different threads do not block each other. Only misses take the exclusive lock.

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

/// The key of a cached pipeline. Settings outside the key must come with each call, so a cached
/// pipeline is compiled with [`DispatchConfig::code_policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineKey {
    /// The backend instance, from [`next_backend_instance`]: two instances never share a pipeline.
    pub backend_instance: u64,
    /// Everything that affects the code.
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
    /// Hashes only the program and the instance: few keys differ in the configuration alone, and
    /// hashing everything would cost more than the rest of the lookup.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.code.program;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ self.backend_instance);
    }
}

/// A number that is unique among the backend instances of this process.
pub fn next_backend_instance() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Number of pipelines.
    pub entries: usize,
    /// Total size in bytes, as reported by the compilers.
    pub bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits { entries: 1024, bytes: 256 << 20 }
    }
}

/// The result of a compile, for the cache.
#[derive(Clone)]
pub struct Cached {
    /// The pipeline.
    pub pipeline: Arc<dyn CompiledPipeline>,
    /// Its size in bytes, including code.
    pub bytes: u64,
}

/// Statistics of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// Requests that got a pipeline without compiling: it was cached, or another request was
    /// compiling it.
    pub hits: u64,
    /// Requests that compiled, or waited for a compile that failed.
    pub misses: u64,
    /// Compiles that failed.
    pub failures: u64,
    /// Pipelines evicted to stay within the limits.
    pub evictions: u64,
    /// Pipelines held.
    pub entries: usize,
    /// Bytes held.
    pub bytes: u64,
}

/// An in-memory cache of compiled pipelines; see the module documentation. Shared by reference
/// between threads.
///
/// ```
/// use std::sync::Arc;
/// use vyre_conform::backends::NullBackend;
/// use vyre_driver::{
///     Cached, DispatchConfig, PipelineCache, PipelineKey, VyreBackend, next_backend_instance,
///     pipeline,
/// };
/// use vyre_foundation::ir::Program;
///
/// let backend = Arc::new(NullBackend::default());
/// let (cache, program, config) =
///     (PipelineCache::default(), Program::empty(), DispatchConfig::default());
/// let key =
///     PipelineKey::new(next_backend_instance(), &backend.device_profile(), &program, &config);
/// for _ in 0..3 {
///     let compile = || {
///         Ok(Cached {
///             pipeline: pipeline::compile(backend.clone(), &program, &config)?,
///             bytes: 100,
///         })
///     };
///     cache.get_or_compile(&key, compile)?;
/// }
/// assert_eq!((cache.statistics().hits, cache.statistics().misses), (2, 1));
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Default)]
pub struct PipelineCache {
    limits: CacheLimits,
    entries: RwLock<CacheEntries>,
    clock: AtomicU64,
    audit: PipelineCacheAudit,
    failures: AtomicU64,
    evictions: AtomicU64,
}

#[derive(Default)]
struct CacheEntries {
    all: HashMap<PipelineKey, Arc<CacheEntry>>,
    /// Wide enough that no number of entries overflows it.
    bytes: u128,
}

/// A pipeline, or a compile in progress that others wait for.
struct CacheEntry {
    thread: ThreadId,
    outcome: OnceLock<Result<Cached, BackendError>>,
    last_used: AtomicU64,
}

impl PipelineCache {
    /// An empty cache with these limits.
    pub fn new(limits: CacheLimits) -> PipelineCache {
        PipelineCache { limits, ..PipelineCache::default() }
    }

    /// The pipeline for the key, compiled by `compile` if it is not cached. A panic in `compile` is
    /// a failure.
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
            let entry =
                CacheEntry { thread, outcome: OnceLock::new(), last_used: AtomicU64::new(self.now()) };
            own.insert(Arc::new(entry)).clone()
        };
        let entry = self.write().all.entry(key.clone()).or_insert_with(make).clone();
        if own.is_some() {
            let outcome = contain(compile).unwrap_or_else(|message| {
                Err(BackendError::new(format!("a pipeline could not be compiled: {message}")))
            });
            self.land(key, &entry, outcome);
        } else if entry.thread == thread && entry.outcome.get().is_none() {
            let message = "a pipeline was requested while the same thread was compiling it";
            return Err(BackendError::new(message));
        }
        let outcome = entry.outcome.wait();
        entry.last_used.store(self.now(), Relaxed);
        self.audit.observe(Some(own.is_none() && outcome.is_ok()));
        outcome.clone().map(|cached| cached.pipeline)
    }

    /// The pipeline for the key if it is cached, which counts as a hit. A miss is not counted.
    pub fn get(&self, key: &PipelineKey) -> Option<Arc<dyn CompiledPipeline>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.all.get(key)?;
        let cached = entry.cached()?;
        entry.last_used.store(self.now(), Relaxed);
        self.audit.observe(Some(true));
        Some(cached.pipeline.clone())
    }

    /// Drops every pipeline of a backend instance whose device is lost.
    pub fn forget_backend(&self, backend_instance: u64) {
        let mut guard = self.write();
        let CacheEntries { all, bytes } = &mut *guard;
        let of_backend = |key: &PipelineKey, entry: &mut Arc<CacheEntry>| {
            key.backend_instance == backend_instance && entry.cached().is_some()
        };
        let dropped: Vec<_> = all.extract_if(of_backend).collect();
        *bytes -= dropped.iter().map(|(_, entry)| entry.bytes()).sum::<u128>();
        drop(guard);
        drop(dropped);
    }

    /// The statistics of the cache.
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

    /// Hits and misses, in the form of
    /// [`VyreBackend::pipeline_cache_snapshot`](crate::VyreBackend::pipeline_cache_snapshot).
    pub fn snapshot(&self) -> PipelineCacheSnapshot {
        let seen = self.audit.snapshot(0);
        PipelineCacheSnapshot { hits: seen.hits, misses: seen.misses }
    }

    /// All hits and misses so far, for storage and display.
    pub fn audit(&self) -> &PipelineCacheAudit {
        &self.audit
    }

    fn write(&self) -> RwLockWriteGuard<'_, CacheEntries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A logical time, later than all before.
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    /// Completes a compile: stores the outcome and wakes the waiting requests.
    fn land(&self, key: &PipelineKey, entry: &Arc<CacheEntry>, outcome: Result<Cached, BackendError>) {
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
        // A pipeline's destructor is backend code, so it runs outside the lock.
        drop(dropped);
    }

    /// Evicts the least recently used entries until one more of this size, already in the map,
    /// fits. The scan is linear, which is negligible compared with a compile.
    fn make_room(
        &self,
        CacheEntries { all, bytes: held }: &mut CacheEntries,
        bytes: u64,
    ) -> Vec<Arc<CacheEntry>> {
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

impl CacheEntry {
    /// The compiled pipeline, if it is ready.
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
