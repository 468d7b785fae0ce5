//! Device memory: allocations with gaps between them, so that accesses outside any of them are
//! detected.
//!
//! Every access is atomic per word, since kernels and copies on several streams run concurrently.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Address of the first allocation.
const FIRST: u64 = 0x10_0000_0000;
/// Alignment of allocations, as in CUDA, and the minimum gap between them.
const ALIGNMENT: u64 = 256;

/// All allocations of a device.
#[derive(Debug, Default)]
pub struct SimulatedMemory {
    blocks: RwLock<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    all: BTreeMap<u64, Block>,
    next: u64,
    bytes: u64,
}

/// Allocation.
#[derive(Clone, Debug)]
pub struct Block {
    start: u64,
    bytes: u64,
    words: Arc<[AtomicU32]>,
}

impl SimulatedMemory {
    /// Allocates memory, filled with a pattern that no kernel should rely on.
    pub fn allocate(&self, bytes: u64) -> u64 {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let start = blocks.next.max(FIRST);
        let words = (0..bytes.div_ceil(4)).map(|_| AtomicU32::new(0xcdcd_cdcd)).collect();
        blocks.next = (start + bytes).next_multiple_of(ALIGNMENT) + ALIGNMENT;
        blocks.bytes += bytes;
        blocks.all.insert(start, Block { start, bytes, words });
        start
    }

    /// Frees an allocation; returns whether there was one.
    pub fn free(&self, start: u64) -> bool {
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        let freed = blocks.all.remove(&start);
        blocks.bytes -= freed.as_ref().map_or(0, |block| block.bytes);
        freed.is_some()
    }

    /// Number of allocated bytes, and of allocations.
    pub fn in_use(&self) -> (u64, usize) {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        (blocks.bytes, blocks.all.len())
    }

    /// All allocations, in which a launch looks up its accesses.
    pub fn blocks(&self) -> Vec<Block> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner).all.values().cloned().collect()
    }

    fn block(&self, at: u64) -> Option<Block> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        blocks.all.range(..=at).next_back().map(|(_, block)| block.clone())
    }

    /// Copies to the device; returns whether the range is inside an allocation.
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        self.block(at).is_some_and(|block| block.write(at, bytes))
    }

    /// Copies from the device; returns whether the range is inside an allocation.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.block(at).is_some_and(|block| block.read(at, bytes))
    }
}

impl Block {
    /// Whether the range is inside this allocation.
    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        at >= self.start && at.checked_add(bytes).is_some_and(|end| end <= self.start + self.bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> bool {
        if !self.holds(at, bytes.len() as u64) {
            return false;
        }
        let mut k = 0;
        while k < bytes.len() {
            let place = at + k as u64;
            if place.is_multiple_of(4)
                && let Some(word) = bytes[k..].first_chunk()
            {
                self.words[(place - self.start) as usize / 4].store(u32::from_le_bytes(*word), Relaxed);
                k += 4;
            } else {
                self.store(place, 1, bytes[k].into());
                k += 1;
            }
        }
        true
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        if !self.holds(at, bytes.len() as u64) {
            return false;
        }
        for (k, byte) in bytes.iter_mut().enumerate() {
            *byte = self.load(at + k as u64, 1) as u8;
        }
        true
    }

    fn word(&self, at: u64) -> (&AtomicU32, u32) {
        let offset = at - self.start;
        (&self.words[offset as usize / 4], (offset % 4) as u32 * 8)
    }

    /// Loads a naturally aligned number of 1, 2, 4 or 8 bytes.
    pub fn load(&self, at: u64, bytes: usize) -> u64 {
        let (word, shift) = self.word(at);
        match bytes {
            8 => u64::from(word.load(Relaxed)) | u64::from(self.word(at + 4).0.load(Relaxed)) << 32,
            4 => word.load(Relaxed).into(),
            _ => u64::from(word.load(Relaxed) >> shift) & ((1 << (8 * bytes)) - 1),
        }
    }

    /// Stores a naturally aligned number of 1, 2, 4 or 8 bytes.
    pub fn store(&self, at: u64, bytes: usize, value: u64) {
        let (word, shift) = self.word(at);
        match bytes {
            8 => {
                word.store(value as u32, Relaxed);
                self.word(at + 4).0.store((value >> 32) as u32, Relaxed);
            }
            4 => word.store(value as u32, Relaxed),
            _ => {
                let mask = ((1_u32 << (8 * bytes)) - 1) << shift;
                let put = |old: u32| Some(old & !mask | (value as u32) << shift & mask);
                let _ = word.fetch_update(Relaxed, Relaxed, put);
            }
        }
    }

    /// Updates a word atomically and returns the previous value. Pairs of words are atomic only
    /// among the invocations of a launch, which run on one thread.
    pub fn update(&self, at: u64, bytes: usize, change: impl Fn(u64) -> u64) -> u64 {
        if bytes == 8 {
            let old = self.load(at, 8);
            self.store(at, 8, change(old));
            return old;
        }
        let (word, _) = self.word(at);
        let old = word.fetch_update(Relaxed, Relaxed, |old| Some(change(old.into()) as u32));
        old.unwrap_or_else(|old| old).into()
    }
}
