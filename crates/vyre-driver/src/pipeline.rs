//! To come in part.

/// How often a cache of compiled programs had what was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineCacheSnapshot {
    /// Requests that were served from the cache.
    pub hits: u64,
    /// Requests that had to compile.
    pub misses: u64,
}
