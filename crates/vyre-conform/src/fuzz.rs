//! Fuzzes readers of untrusted bytes with mutated inputs: each returns a value or an error, never
//! panics, and uses bounded memory.
//!
//! `VYRE_FUZZ_COUNT` sets the number of inputs; `cargo xtask long fuzz` runs ten million each. The
//! same count gives the same inputs.

use crate::choices::next_random;
use std::time::Instant;

/// Memory limit of the process.
const MOST_KIB: u64 = 1 << 20;
const MOST_BYTES: usize = 1 << 12;

/// Grammar fragments that readers look for.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"\"",
    b"\\",
    b"\n",
    b" = ",
    b"let ",
    b"for ",
    b"0..",
    b"kernel ",
    b"fn ",
    b"u32[",
    b"4294967296",
    b"-1",
    b"1e999",
    b"nan",
    b"\xff",
    b"\0",
    b"[[",
    b"schema",
    b"9223372036854775808",
    b"'",
    b"#",
];

fn count() -> u64 {
    std::env::var("VYRE_FUZZ_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(2000)
}

/// One input: a seed with a few mutations.
fn mutate(seeds: &[Vec<u8>], state: &mut u64) -> Vec<u8> {
    let pick = |state: &mut u64, most: usize| next_random(state) as usize % most.max(1);
    let mut bytes = seeds[pick(state, seeds.len())].clone();
    for _ in 0..1 + pick(state, 6) {
        let at = pick(state, bytes.len() + 1);
        let end = (at + pick(state, 40)).min(bytes.len());
        match pick(state, 6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copy = bytes[at..end].to_vec();
                let to = pick(state, bytes.len() + 1);
                bytes.splice(to..to, copy).for_each(drop);
            }
            3 => bytes.splice(at..at, WORDS[pick(state, WORDS.len())].iter().copied()).for_each(drop),
            4 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << pick(state, 8)),
            _ => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = pick(state, 256) as u8),
        }
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

/// Runs a reader on mutations of the seeds, and prints the throughput.
///
/// # Panics
/// If the reader does, with the input; and if the process used more than a GiB of memory.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    let mut state = name.bytes().fold(7u64, |state, byte| state.rotate_left(9) ^ u64::from(byte));
    let (count, began) = (count(), Instant::now());
    for number in 0..count {
        let input = mutate(seeds, &mut state);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&input)));
        assert!(done.is_ok(), "{name}, input {number}: {:?}", String::from_utf8_lossy(&input));
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / count.max(1) as f64;
    let peak = peak_kib().unwrap_or(0);
    println!("{name}: {count} inputs, {each:.1} µs each, at most {} MiB", peak >> 10);
    assert!(peak < MOST_KIB, "{name} took {peak} KiB");
}

/// Peak memory of this process, if the system reports it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
