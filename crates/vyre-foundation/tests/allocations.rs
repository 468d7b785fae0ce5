//! Memory guarantees, measured with an allocator that counts per thread.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vyre_foundation::hints::HotPathHints;
use vyre_foundation::wire;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(allocations: usize, bytes: isize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call is forwarded to the system allocator unchanged; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        // SAFETY: the caller upholds the contract of `dealloc`, and `pointer` came from the system
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Usage {
    allocations: usize,
    peak: usize,
}

fn usage_of(work: impl FnOnce()) -> Usage {
    let (allocations, live) = (ALLOCATIONS.get(), LIVE.get());
    PEAK.set(live);
    work();
    Usage { allocations: ALLOCATIONS.get() - allocations, peak: (PEAK.get() - live) as usize }
}

/// Encodes arbitrary content as a program with a valid checksum.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = [b"VYRE\x01", content].concat();
    let checksum = blake3::hash(&bytes);
    bytes.extend_from_slice(&checksum.as_bytes()[..8]);
    bytes
}

#[test]
fn decoding_takes_a_bounded_multiple_of_the_input() {
    let number = |mut number: u64| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let header = [0, 1, 1, 1, 0];
    let check = |what: &str, content: Vec<u8>| {
        let bytes = sealed(&content);
        let usage = usage_of(|| drop(wire::decode(&bytes)));
        assert!(usage.peak <= 256 * bytes.len(), "{what}: {} of {} bytes", usage.peak, bytes.len());
    };
    let claims = [1 << 10, 1 << 20, 1 << 32, 1 << 62, u64::MAX];
    for claim in claims {
        check("buffers", [&header[..], &number(claim), &[0; 4096]].concat());
        check("functions", [&header[..], &[0], &number(claim), &[0; 4096]].concat());
        check("statements", [&header[..], &[0, 0], &number(claim), &[0; 4096]].concat());
        check("a name", [&[1, 0][..], &number(claim), &[0; 4096]].concat());
        let blocks = [&number(claim)[..], &[13]].concat().repeat(120);
        check("nested blocks", [&header[..], &[0, 0], &blocks, &[0; 4096]].concat());
    }
    check("statements of one byte", [&header[..], &[0, 0], &number(4097), &[9; 4096]].concat());
    let mut nested = [&header[..], &[0, 0]].concat();
    for _ in 0..127 {
        nested.extend_from_slice(&[&number(4000)[..], &[13]].concat());
    }
    check("nested blocks that claim all", [nested, vec![1; 4000]].concat());
    let names: Vec<u8> =
        (0..2000u32).flat_map(|k| [&[5, 2, 0, 4][..], format!("{k:04}").as_bytes()].concat()).collect();
    check("many names", [&header[..], &[0, 0], &number(2001), &names].concat());
}

#[test]
fn a_hint_that_hits_allocates_nothing() {
    for capacity in [1, 256, 65_536] {
        let hints = HotPathHints::with_capacity(capacity);
        let regions: Vec<String> = (0..capacity).map(|k| format!("region.{k}@0123456789abcdef")).collect();
        for region in &regions {
            hints.record(region, 1, 1);
        }
        let usage = usage_of(|| {
            for region in &regions {
                hints.record(region, 1, 1);
                hints.is_hot(region);
            }
        });
        assert_eq!(usage.allocations, 0, "{capacity} regions");
        assert_eq!(hints.dispatch_count(&regions[0]), 2);
    }
}
