//! Properties of the processor: its name, its caches, and its memory bandwidth.
//!
//! The bandwidth is measured once per process, on a separate thread and after a delay, so that no
//! first result waits for it; until then it is unknown.

use crate::host::vectors;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// Name of the processor, the width of the vectors in use, and its caches where the system reports
/// them.
pub(crate) fn name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let mut name = processor().unwrap_or_else(|| "host processor".into());
        // If a part cannot be written, the name omits it.
        let _ = write!(name, ", {}", vectors());
        for level in 1..=3 {
            if let Some(size) = cache(level) {
                let _ = write!(name, ", L{level} {size}");
            }
        }
        name
    });
    &NAME
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_string())
}

/// Size of the first core's data cache of a level, as the system formats it.
fn cache(level: u32) -> Option<String> {
    let folder = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
    let read = |index: u32, file: &str| {
        std::fs::read_to_string(folder.join(format!("index{index}")).join(file)).ok()
    };
    (0..8).find_map(|index| {
        let here = read(index, "level")?.trim().parse::<u32>().ok()? == level;
        let data = read(index, "type")?.trim() != "Instruction";
        if here && data { Some(read(index, "size")?.trim().to_string()) } else { None }
    })
}

/// Bytes of the largest cache, if the system reports it.
pub(crate) fn cache_bytes() -> Option<u64> {
    let size = (1..=4).rev().find_map(cache)?;
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
/// measured.
pub(crate) fn bandwidth() -> u32 {
    static MEASURED: OnceLock<u32> = OnceLock::new();
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let measure = || {
            std::thread::sleep(WHILE);
            let _ = MEASURED.set(measured());
        };
        // If the thread cannot be started, it stays unknown.
        let _ = std::thread::Builder::new().name("vyre-cpu-memory".into()).spawn(measure);
    });
    MEASURED.get().copied().unwrap_or(0)
}

/// Delay that covers the first results of a process.
const WHILE: Duration = Duration::from_millis(500);

/// Larger than the caches of most machines.
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
