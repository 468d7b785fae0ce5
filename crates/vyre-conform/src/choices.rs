//! Decisions read from bytes, so that a fuzzer, a seed or a stored failure can each drive the
//! generator.
//!
//! Once the bytes are used up, every decision is 0. Callers put the alternative that terminates
//! first, so any byte string leads to a finished result.

/// A source of decisions.
#[derive(Debug)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions taken from `bytes` in order.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { bytes }
    }

    /// Whether all further decisions are 0.
    pub fn is_exhausted(&self) -> bool {
        self.bytes.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let raw = if bound > 256 {
            usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
        } else {
            usize::from(self.byte())
        };
        raw.checked_rem(bound).unwrap_or(0)
    }

    /// True once in `n` times on average; false once the bytes are used up.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) + 1 == n.max(2)
    }

    /// One of the items; `None` if there are none.
    pub fn pick<'t, T>(&mut self, items: &'t [T]) -> Option<&'t T> {
        let at = self.below(items.len());
        items.get(at)
    }

    /// One item of a list that is never empty.
    pub fn pick_from<T: Copy, const N: usize>(&mut self, items: [T; N]) -> T {
        const { assert!(N > 0) };
        items[self.below(N)]
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// `length` pseudo-random bytes that depend on `seed` alone (splitmix64).
pub fn bytes_from_seed(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(next_random(&mut state).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The next number of a splitmix64 sequence.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
