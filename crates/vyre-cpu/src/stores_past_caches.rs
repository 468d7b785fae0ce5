//! Stores past the caches: which buffers and which dispatches use them.
//!
//! A cache line that is only written is first read from memory, unless the store bypasses the
//! caches. That can pay for buffers that the kernel does not read, in dispatches that write more
//! than the last-level cache holds: the data would be evicted before it is used anyway. Whether it
//! does depends on the processor: on Cascade Lake, murmur3 on 64 MiB took 1.1 times as long past
//! the caches, and a Jacobi step 1.16 times; on Zen 4, murmur3 took 0.66 of the time of C, which
//! stores plainly. So each program's dispatches are compared ([`Comparison`]).

use crate::machine::cache_bytes;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vyre_foundation::kernel::{BufferId, Def, KernelBody, Place, Stmt, StmtKind};

/// When stores bypass the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Where that is faster, in dispatches that write more bytes than this to buffers that they do
    /// not read.
    Beyond(u64),
    Always,
    Never,
}

/// `VYRE_CPU_PAST_CACHES=always` or `never` overrides the choice, for tests and comparisons.
fn when() -> When {
    static WHEN: LazyLock<When> = LazyLock::new(|| match std::env::var("VYRE_CPU_PAST_CACHES").as_deref() {
        Ok("always") => When::Always,
        Ok("never") => When::Never,
        Ok(_) | Err(_) => When::Beyond(cache_bytes().unwrap_or(USUAL_CACHE)),
    });
    *WHEN
}

/// Assumed size of the last-level cache if the system does not report it: that of a Zen 4 core
/// complex. The comparison of both ways decides in either case.
const USUAL_CACHE: u64 = 32 << 20;

/// How a dispatch stores to buffers that it does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Past,
}

/// Compares both ways on the large dispatches of a program.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    dispatches: AtomicU32,
    /// Per way: the shortest time, in nanoseconds per MiB written.
    shortest: [AtomicU64; 2],
}

/// A dispatch to be timed for a [`Comparison`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    way: Way,
    bytes: u64,
}

impl Comparison {
    /// Dispatches that are timed with each way before one is chosen. One alone may be disturbed; of
    /// four, the shortest seldom is.
    const SAMPLES: u32 = 4;

    /// Dispatches after which the comparison starts again: what it costs is then below 1% where
    /// one way takes half as long again as the other.
    const PERIOD: u32 = 256;

    /// Decides how a dispatch stores that writes this many bytes to write-only buffers.
    pub(crate) fn way(&self, bytes: u64) -> (Way, Option<Timed>) {
        match when() {
            When::Always if bytes > 0 => (Way::Past, None),
            When::Beyond(most) if bytes > most => {
                let way = self.next();
                (way, Some(Timed { way, bytes }))
            }
            When::Always | When::Never | When::Beyond(_) => (Way::Plain, None),
        }
    }

    fn next(&self) -> Way {
        let number = self.dispatches.fetch_add(1, Relaxed) % Comparison::PERIOD;
        if number == 0 {
            self.shortest.iter().for_each(|time| time.store(u64::MAX, Relaxed));
        }
        let [plain, past] = [Way::Plain, Way::Past].map(|way| self.shortest[way as usize].load(Relaxed));
        let is_past = match number < 2 * Comparison::SAMPLES {
            // Past, plain, plain, past, …: a machine that becomes slower meanwhile favours neither.
            true => number.div_ceil(2).is_multiple_of(2),
            false => past <= plain,
        };
        if is_past { Way::Past } else { Way::Plain }
    }

    /// Records how long a dispatch took.
    pub(crate) fn took(&self, Timed { way, bytes }: Timed, time: Duration) {
        let nanoseconds = (time.as_nanos() << 20) / u128::from(bytes.max(1));
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        self.shortest[way as usize].fetch_min(nanoseconds, Relaxed);
    }
}

/// Per buffer: whether the kernel writes whole lanes to it and never reads it.
pub(crate) fn only_written(kernel: &KernelBody) -> Vec<bool> {
    let mut read = vec![false; kernel.buffers.len()];
    note_reads(&kernel.body, &mut read);
    let is_only_written = |(number, read): (usize, bool)| {
        let buffer = kernel.buffer(BufferId(number as u32));
        buffer.decl.access.is_output() && buffer.decl.element.size() >= 4 && !buffer.atomic && !read
    };
    read.into_iter().enumerate().map(is_only_written).collect()
}

/// Whether an invocation may run twice: it reads nothing that the kernel writes, and no two
/// invocations work together.
pub(crate) fn may_repeat(kernel: &KernelBody, past_caches: &[bool]) -> bool {
    fn only_stores_past(block: &[Stmt], past_caches: &[bool]) -> bool {
        block.iter().all(|stmt| match &stmt.kind {
            StmtKind::Store { place: Place::Buffer(buffer), .. } => {
                past_caches.get(buffer.index()) == Some(&true)
            }
            StmtKind::Store { place: Place::Array(_), .. }
            | StmtKind::Clear(_)
            | StmtKind::Barrier
            | StmtKind::Def(_, Def::Atomic { .. } | Def::Subgroup(..)) => false,
            kind => kind.blocks().into_iter().all(|inner| only_stores_past(inner, past_caches)),
        })
    }
    past_caches.contains(&true) && kernel.arrays.is_empty() && only_stores_past(&kernel.body, past_caches)
}

fn note_reads(block: &[Stmt], read: &mut [bool]) {
    for stmt in block {
        if let StmtKind::Def(_, Def::Load { place: Place::Buffer(buffer), .. }) = &stmt.kind {
            read[buffer.index()] = true;
        }
        stmt.kind.blocks().into_iter().for_each(|inner| note_reads(inner, read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the dispatches past the caches among those of a period that are not timed samples.
    fn chosen(plain: u64, past: u64) -> usize {
        let comparison = Comparison::default();
        let ways = (0..Comparison::PERIOD).map(|number| {
            let way = comparison.next();
            let time = if way == Way::Past { past } else { plain };
            // Every other dispatch is disturbed.
            let time = Duration::from_micros(time * (1 + u64::from(number % 4 / 2)));
            comparison.took(Timed { way, bytes: 64 << 20 }, time);
            way
        });
        ways.skip(2 * Comparison::SAMPLES as usize).filter(|way| *way == Way::Past).count()
    }

    #[test]
    fn the_faster_way_to_store_is_chosen() {
        let rest = (Comparison::PERIOD - 2 * Comparison::SAMPLES) as usize;
        assert_eq!([chosen(7_000, 5_000), chosen(5_000, 6_000)], [rest, 0]);
    }

    #[test]
    fn the_comparison_follows_a_change() {
        let comparison = Comparison::default();
        for (plain, past, expected) in [(5, 6, Way::Plain), (7, 6, Way::Past)] {
            for _ in 0..Comparison::PERIOD - 1 {
                let way = comparison.next();
                let time = if way == Way::Past { past } else { plain };
                comparison.took(Timed { way, bytes: 1 << 26 }, Duration::from_millis(time));
            }
            assert_eq!(comparison.next(), expected);
        }
    }
}
