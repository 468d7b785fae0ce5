//! Properties of the processor: its name, its caches, and its memory bandwidth.
//!
//! The first result of a process waits for the name, so the system's files are read once, and no
//! further than needed. The bandwidth is unknown at first; it is measured on a separate thread if
//! somebody asks for it later.

use crate::host::vectors;
use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// Name of the processor, the width of the vectors in use, and its caches where the system reports
/// them.
pub(crate) fn name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let mut name = processor().unwrap_or_else(|| "host processor".into());
        // If a part cannot be written, the name omits it.
        let _ = write!(name, ", {}", vectors());
        for Cache { level, size } in CACHES.iter().filter(|cache| cache.level <= 3) {
            let _ = write!(name, ", L{level} {size}");
        }
        name
    });
    &NAME
}

fn processor() -> Option<String> {
    let text = start_of("/proc/cpuinfo")?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_string())
}

/// The first 4 KiB of a file. The system composes these files as they are read, and some have an
/// entry per processor.
fn start_of(path: &str) -> Option<String> {
    let mut bytes = [0; 4096];
    let length = File::open(path).ok()?.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// A data cache of the first core.
struct Cache {
    level: u32,
    /// As the system formats it.
    size: String,
}

/// The first data cache of each level, smallest level first.
static CACHES: LazyLock<Vec<Cache>> = LazyLock::new(|| {
    let read = |index: u32, file: &str| {
        let text = start_of(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}"))?;
        Some(text.trim().to_string())
    };
    let cache = |index: u32| {
        let level = read(index, "level")?.parse().ok()?;
        let is_data = read(index, "type")? != "Instruction";
        Some((is_data, Cache { level, size: read(index, "size")? }))
    };
    let found = (0..8).map_while(cache).filter(|(is_data, _)| *is_data);
    let mut caches: Vec<Cache> = found.map(|(_, cache)| cache).collect();
    caches.sort_by_key(|cache| cache.level);
    caches.dedup_by_key(|cache| cache.level);
    caches
});

/// Bytes of the largest cache, if the system reports it.
pub(crate) fn cache_bytes() -> Option<u64> {
    let size = &CACHES.last()?.size;
    let digits = size.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let unit = match &size[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Copy bandwidth of one thread in gigabytes per second, reads and writes together; 0 until
/// measured. The first question after [`STARTUP`] starts the measurement.
pub(crate) fn bandwidth() -> u32 {
    static MEASURED: OnceLock<u32> = OnceLock::new();
    static FIRST_ASKED: LazyLock<Instant> = LazyLock::new(Instant::now);
    static STARTED: OnceLock<()> = OnceLock::new();
    if FIRST_ASKED.elapsed() >= STARTUP {
        STARTED.get_or_init(|| {
            let measure = || {
                let _ = MEASURED.set(measured());
            };
            // If the thread cannot be started, it stays unknown.
            let _ = std::thread::Builder::new().name("vyre-cpu-memory".into()).spawn(measure);
        });
    }
    MEASURED.get().copied().unwrap_or(0)
}

/// Time that covers the first results of a process, the first of which takes 3 ms (`vyre bench`),
/// and the start of a program around them.
const STARTUP: Duration = Duration::from_millis(500);

/// Larger than the caches of most machines. On one with larger caches, the bandwidth is that of the
/// cache.
const BYTES: usize = 32 << 20;

fn measured() -> u32 {
    let source = vec![1_u8; BYTES];
    let mut target = vec![2_u8; BYTES];
    let best = (0..3)
        .map(|_| {
            let begun = Instant::now();
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
            begun.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanoseconds = best.as_nanos().max(1);
    u32::try_from(2 * BYTES as u128 / nanoseconds).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_name_and_a_bandwidth() {
        assert!(name().contains("-bit vectors"));
        assert!(measured() > 0);
    }
}
