//! Cost of recording a hint: `cargo bench -p vyre-foundation --bench hints`.
//!
//! Both costs must be independent of the capacity, apart from processor cache effects: each round
//! takes the next region of a shuffled order, so that nothing is near the memory touched before.

use divan::Bencher;
use std::sync::atomic::{AtomicUsize, Ordering};
use vyre_foundation::hints::HotPathHints;

const CAPACITIES: [usize; 5] = [256, 1024, 4096, 16_384, 65_536];

fn main() {
    divan::main();
}

/// Names of regions, in a fixed permutation.
fn regions(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("region.{}@0123456789abcdef", k.wrapping_mul(40_503) % count)).collect()
}

fn next<'a>(regions: &'a [String], round: &AtomicUsize) -> &'a str {
    &regions[round.fetch_add(1, Ordering::Relaxed) % regions.len()]
}

/// One region recorded repeatedly, like that of a busy kernel.
#[divan::bench]
fn hit_same(bencher: Bencher<'_, '_>) {
    let hints = HotPathHints::default();
    bencher.bench(|| hints.record(divan::black_box("blas.saxpy@0123456789abcdef"), 1_000, 64));
}

/// A region that is present, but not recently recorded.
#[divan::bench(args = CAPACITIES)]
fn hit(bencher: Bencher<'_, '_>, capacity: usize) {
    let hints = HotPathHints::with_capacity(capacity);
    let regions = regions(capacity);
    regions.iter().for_each(|region| hints.record(region, 1, 1));
    let round = AtomicUsize::new(0);
    bencher.bench(|| hints.record(next(&regions, &round), 1_000, 64));
}

/// A region that is absent, at capacity.
#[divan::bench(args = CAPACITIES)]
fn evict(bencher: Bencher<'_, '_>, capacity: usize) {
    let hints = HotPathHints::with_capacity(capacity);
    let regions = regions(2 * capacity);
    regions.iter().for_each(|region| hints.record(region, 1, 1));
    let round = AtomicUsize::new(0);
    bencher.bench(|| hints.record(next(&regions, &round), 1_000, 64));
}

/// Eight threads that record the same region.
#[divan::bench(threads = 8)]
fn hit_contended(bencher: Bencher<'_, '_>) {
    let hints = HotPathHints::default();
    bencher.bench(|| hints.record(divan::black_box("blas.saxpy@0123456789abcdef"), 1_000, 64));
}
