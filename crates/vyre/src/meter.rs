//! Cost of each region of a routine, counted on every dispatch.
//!
//! A dispatch is timed as a whole; [`Meters::drain`] splits the sums over the regions, by an
//! estimate of their costs, and adds them to the hints. The sums live in stripes, of which a thread
//! always uses the same one, so that threads seldom contend. Counting takes no lock and allocates
//! nothing. The number of calls is exact; of two times added to a stripe at once, one can be lost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vyre_driver::observability::stripe_of_thread;
use vyre_foundation::hints::{HotPathHints, RegionRecord};
use vyre_foundation::kernel::{Def, KernelBody, Stmt, StmtKind};

/// Each stripe has its own cache line. More stripes would cost memory per routine and gain nothing
/// on machines with up to 8 threads in calls.
const STRIPES: usize = 8;
/// Shares of a dispatch are in units of 1/`WHOLE`.
const WHOLE: u64 = 1 << 16;

/// The meters of a routine.
pub(crate) struct Meters {
    regions: Vec<Region>,
    stripes: [Stripe; STRIPES],
}

struct Region {
    /// `<generator>@<16 hex digits of the program's fingerprint>`, so that unnamed programs are not
    /// pooled.
    key: String,
    share: u64,
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    all: Sums,
    /// The part of the sums that the hints have.
    drained: Sums,
    /// The longest call since the last drain.
    slowest: AtomicU64,
}

#[derive(Default)]
struct Sums {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
}

/// Counts of a stripe.
#[derive(Clone, Copy, Default)]
pub(crate) struct StripeCounts {
    pub(crate) calls: u64,
    /// Time since the last drain.
    pub(crate) nanoseconds: u64,
}

impl Meters {
    pub(crate) fn new(kernel: &KernelBody) -> Meters {
        let mut costs: Vec<(String, u64)> = Vec::new();
        for stmt in &kernel.body {
            if let StmtKind::Region { generator, body } = &stmt.kind {
                let (key, cost) = (key(generator, &kernel.fingerprint), block_cost(body).max(1));
                match costs.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, sum)) => *sum = sum.saturating_add(cost),
                    None => costs.push((key, cost)),
                }
            }
        }
        let total = costs.iter().fold(0u64, |sum, (_, cost)| sum.saturating_add(*cost));
        let share = |cost: u64| u128::from(cost) * u128::from(WHOLE) / u128::from(total.max(1));
        let region = |(key, cost)| Region { key, share: share(cost) as u64 };
        Meters { regions: costs.into_iter().map(region).collect(), stripes: Default::default() }
    }

    /// The meters of an op, whose programs vary by device: one region, named after the op.
    pub(crate) fn of_op(name: &str, fingerprint: &[u8; 32]) -> Meters {
        let region = Region { key: key(name, fingerprint), share: WHOLE };
        Meters { regions: vec![region], stripes: Default::default() }
    }

    /// The keys of the regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &str> {
        self.regions.iter().map(|region| region.key.as_str())
    }

    #[inline]
    fn stripe(&self) -> &Stripe {
        &self.stripes[stripe_of_thread() % STRIPES]
    }

    /// Counts one dispatch. Returns the counts of this thread's stripe.
    #[inline]
    pub(crate) fn record(&self, nanoseconds: u64, bytes: u64) -> StripeCounts {
        let Stripe { all, drained, slowest } = self.stripe();
        if slowest.load(Relaxed) < nanoseconds {
            slowest.fetch_max(nanoseconds, Relaxed);
        }
        // Only the number of calls has to be exact where threads share a stripe. A locked
        // instruction takes about 5 ns, a load and a store less than one.
        let calls = all.calls.fetch_add(1, Relaxed) + 1;
        let total = add(&all.nanoseconds, nanoseconds);
        add(&all.bytes, bytes);
        StripeCounts { calls, nanoseconds: total.saturating_sub(drained.nanoseconds.load(Relaxed)) }
    }

    /// Whether the next call of this thread is due: one in every `period`, starting with the first.
    #[inline]
    pub(crate) fn is_due(&self, period: u64) -> bool {
        self.stripe().all.calls.load(Relaxed).is_multiple_of(period)
    }

    /// Adds what was counted since the last drain to the hints.
    pub(crate) fn drain(&self, hints: &HotPathHints) {
        for Stripe { all, drained, slowest } in &self.stripes {
            let [calls, nanoseconds, bytes] = [
                (&all.calls, &drained.calls),
                (&all.nanoseconds, &drained.nanoseconds),
                (&all.bytes, &drained.bytes),
            ]
            .map(|(all, drained)| {
                let all = all.load(Relaxed);
                all.saturating_sub(drained.fetch_max(all, Relaxed))
            });
            let slowest = slowest.swap(0, Relaxed);
            for Region { key, share } in &self.regions {
                let part = |whole: u64| (u128::from(whole) * u128::from(*share) / u128::from(WHOLE)) as u64;
                let record = RegionRecord {
                    dispatch_count: calls,
                    kernel_ns_total: part(nanoseconds),
                    kernel_ns_max: part(slowest),
                    bytes_total: part(bytes),
                };
                hints.absorb(key, record);
            }
        }
    }
}

/// Adds to a sum, and returns it; of two additions at once, one can be lost.
#[inline]
fn add(sum: &AtomicU64, amount: u64) -> u64 {
    let total = sum.load(Relaxed).wrapping_add(amount);
    sum.store(total, Relaxed);
    total
}

/// `<generator>@<16 hex digits of the fingerprint>`.
fn key(generator: &str, fingerprint: &[u8; 32]) -> String {
    let digits: String = fingerprint[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{generator}@{digits}")
}

/// Estimated cost of a block per invocation, in arbitrary units; a loop counts as eight rounds.
fn block_cost(block: &[Stmt]) -> u64 {
    let cost = |stmt: &Stmt| match &stmt.kind {
        StmtKind::Def(_, def) => match def {
            Def::Const(_) | Def::Get(_) | Def::Len(_) | Def::Builtin(..) => 0,
            Def::Op(..) => 1,
            Def::Load { .. } => 4,
            Def::Subgroup(..) => 16,
            Def::Atomic { .. } => 64,
        },
        StmtKind::Store { .. } => 4,
        StmtKind::If { then, otherwise, .. } => block_cost(then).saturating_add(block_cost(otherwise)),
        StmtKind::For { body, .. } | StmtKind::Loop(body) => block_cost(body).saturating_mul(8),
        StmtKind::Region { body, .. } => block_cost(body),
        StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Trap(_) => 1,
    };
    block.iter().map(cost).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vyre_foundation::text;

    #[test]
    fn time_is_split_by_cost_and_equal_generators_pool() {
        let source = "kernel k(x: read_write u32[]) {\n\
             region \"light\" { x[0] = 1 }\n\
             region \"heavy\" { for i in 0..100 { x[i] = x[i] * 3 + x[i + 1] } }\n\
             region \"light\" { x[1] = 2 }\n}";
        let kernel = text::parse(source).and_then(|program| program.validate()).expect("valid");
        let meters = Meters::new(&kernel);
        let hints = HotPathHints::default();
        (1..=10).for_each(|count| assert_eq!(meters.record(1_000, 64).calls, count));
        meters.drain(&hints);
        let records = hints.ranked();
        let digits: String = kernel.fingerprint[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let names: Vec<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [format!("heavy@{digits}"), format!("light@{digits}")]);
        assert!(records.iter().all(|(_, record)| record.dispatch_count == 10));
        let total: u64 = records.iter().map(|(_, record)| record.kernel_ns_total).sum();
        assert!((9_900..=10_000).contains(&total), "{records:?}");
        meters.drain(&hints);
        assert_eq!(hints.ranked(), records);
    }
}
