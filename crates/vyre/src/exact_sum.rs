//! Exact sums of floats, rounded once: the same bits whatever the order, the parts and the threads.
//!
//! **The accumulator** is the exact sum as one wide integer in units of 2⁻¹⁰⁷⁴, the smallest
//! positive `f64`: digits of 32 bits in limbs of 64, so that about a billion additions fit before
//! carries are propagated. A number is a mantissa at a position, spread over three limbs. The sum
//! of 2⁶⁴ numbers fits.
//!
//! **Blocks.** Most numbers never reach the limbs one by one. A block of 256 with close exponents
//! is added in `f64` without rounding: `f32`s within 2²¹ of each other leave room for all carries
//! in 53 bits. Otherwise, and for `f64`, each number is split at two fixed positions below the
//! block's largest (by adding and subtracting 1.5 times a power of two, which rounds it exactly
//! there), and the parts are added; this covers numbers within 2³⁸. A wider block goes to the
//! limbs.
//!
//! **Special numbers.** A NaN, or infinities of both signs, give the canonical NaN; infinities of
//! one sign give that infinity. An empty sum is `0.0`, and so is a sum that is zero, except that of
//! `-0.0` alone, which is `-0.0`. A result too large for its type rounds to an infinity, at the end
//! only: a sum that leaves the range and returns is correct.

use bytemuck::Pod;
use std::fmt;

/// Digits of 32 bits: 2,098 bits from 2⁻¹⁰⁷⁴ to 2¹⁰²⁴, 64 for carries, and a sign.
const DIGITS: usize = 68;
/// Carries are propagated after this many additions to a limb; each adds less than 2³².
const ADDITIONS: u32 = 1 << 30;
/// Numbers added at a time: as many as `BLOCK_BITS` bits can carry.
const BLOCK: usize = 256;
/// Bits for the carries in a block.
const BLOCK_BITS: i32 = 8;
/// Lanes in which a block is added: the f64 of an AVX-512 register.
const LANES: usize = 8;
/// Minimum elements per thread when a slice is split among threads: 0.9 ms of f32 or 3.3 ms of f64,
/// compared with 23 µs to start a thread.
const SHARED: usize = 1 << 20;

/// The version of [`ExactSum::to_bytes`].
const VERSION: u8 = 1;

/// Number of threads for work on the host: as many as for a dispatch on `cpu`, which `VYRE_THREADS`
/// limits.
pub fn thread_count() -> usize {
    #[cfg(feature = "cpu")]
    let count = vyre_cpu::thread_count();
    #[cfg(not(feature = "cpu"))]
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    count
}

/// An exact sum of `f32`s or `f64`s, to be rounded once.
///
/// Sums of parts combine to the same bytes in any order:
///
/// ```
/// use vyre::ExactSum;
/// let numbers = [1e30_f32, 1.0, -1e30, 0.5];
/// let whole = ExactSum::of(&numbers);
/// let mut parts = ExactSum::of(&numbers[3..]);
/// parts.combine(&ExactSum::of(&numbers[..3]));
/// assert_eq!(parts.to_bytes(), whole.to_bytes());
/// assert_eq!((whole.to_f32(), numbers.iter().sum::<f32>()), (1.5, 0.5));
/// assert_eq!(ExactSum::from_bytes(&whole.to_bytes())?, whole);
/// # Ok::<(), vyre::NotASum>(())
/// ```
#[derive(Clone)]
pub struct ExactSum {
    /// Lowest digit first. Between carries a limb can hold any number; the last one has the sign.
    digits: [i64; DIGITS],
    additions: u32,
    seen: Seen,
}

/// The kinds of numbers seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen(u8);

impl Seen {
    const NOTHING: Seen = Seen(0);
    /// Any number.
    const ANY: Seen = Seen(1);
    const NAN: Seen = Seen(4);
    const INFINITY: Seen = Seen(8);
    const NEGATIVE_INFINITY: Seen = Seen(16);
    /// Any number other than `-0.0`.
    const FINITE: Seen = Seen(1 | 2);
    const ALL: u8 = 31;

    fn add(&mut self, other: Seen) {
        self.0 |= other.0;
    }

    fn has(self, other: Seen) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A float that sums exactly: `f32` or `f64`.
pub trait ExactFloat: sealed::Sealed + Pod + Send + Sync {
    #[doc(hidden)]
    fn add_block(sum: &mut ExactSum, block: &[Self]);
    #[doc(hidden)]
    fn rounded(sum: &ExactSum) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl ExactFloat for f32 {
    fn add_block(sum: &mut ExactSum, block: &[f32]) {
        if let Some(exact) = close_f32(block) {
            let is_other = |x: &f32| x.to_bits() != (-0.0_f32).to_bits();
            sum.add_close([exact, 0.0], || block.iter().any(is_other));
            return;
        }
        let mut wide = [0.0_f64; BLOCK];
        let wide = &mut wide[..block.len()];
        wide.iter_mut().zip(block).for_each(|(wide, narrow)| *wide = f64::from(*narrow));
        f64::add_block(sum, wide);
    }

    fn rounded(sum: &ExactSum) -> f32 {
        sum.to_f32()
    }
}

impl ExactFloat for f64 {
    fn add_block(sum: &mut ExactSum, block: &[f64]) {
        match close_f64(block) {
            Some(parts) => {
                let is_other = |x: &f64| x.to_bits() != (-0.0_f64).to_bits();
                sum.add_close(parts, || block.iter().any(is_other));
            }
            None => block.iter().for_each(|x| sum.add_one(*x)),
        }
    }

    fn rounded(sum: &ExactSum) -> f64 {
        sum.to_f64()
    }
}

impl ExactSum {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 2 + 4 * DIGITS;

    /// The empty sum.
    pub fn new() -> ExactSum {
        ExactSum { digits: [0; DIGITS], additions: 0, seen: Seen::NOTHING }
    }

    /// The sum of these numbers.
    pub fn of<T: ExactFloat>(numbers: &[T]) -> ExactSum {
        let mut sum = ExactSum::new();
        sum.add(numbers);
        sum
    }

    /// The sum of these numbers, by up to `threads` threads with about a million numbers or more
    /// each.
    pub fn of_shared<T: ExactFloat>(numbers: &[T], threads: usize) -> ExactSum {
        let threads = threads.min(numbers.len() / SHARED);
        if threads < 2 {
            return ExactSum::of(numbers);
        }
        let part = numbers.len().div_ceil(threads).next_multiple_of(BLOCK);
        let mut sum = ExactSum::new();
        std::thread::scope(|scope| {
            let mut parts = numbers.chunks(part);
            let own = parts.next().unwrap_or_default();
            let start = |part| {
                let builder = std::thread::Builder::new().name("vyre-sum".into());
                (part, builder.spawn_scoped(scope, move || ExactSum::of(part)))
            };
            let others: Vec<_> = parts.map(start).collect();
            sum.add(own);
            for (part, started) in others {
                match started.map(|thread| thread.join()) {
                    Ok(Ok(other)) => sum.combine(&other),
                    // The thread panicked or could not be started.
                    Ok(Err(_)) | Err(_) => sum.add(part),
                }
            }
        });
        sum
    }

    /// Adds these numbers.
    pub fn add<T: ExactFloat>(&mut self, numbers: &[T]) {
        numbers.chunks(BLOCK).for_each(|block| T::add_block(self, block));
    }

    /// Adds another sum. Any order of combining gives the same bytes.
    pub fn combine(&mut self, other: &ExactSum) {
        self.propagate();
        let other = other.carried();
        // Both have their carries propagated, so a limb holds the sum of two digits.
        self.digits.iter_mut().zip(other.digits).for_each(|(digit, more)| *digit = digit.wrapping_add(more));
        self.additions = 2;
        self.seen.add(other.seen);
    }

    /// The sum, rounded to the nearest `f32`, ties to even.
    pub fn to_f32(&self) -> f32 {
        match self.special() {
            Some(special) if special.is_nan() => f32::from_bits(0x7fc0_0000),
            Some(special) => special as f32,
            None => {
                let (negative, bits) = self.round(24, 1074 - 149);
                let magnitude = f32::from_bits(bits.min(f32::INFINITY.to_bits().into()) as u32);
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The sum, rounded to the nearest `f64`, ties to even.
    pub fn to_f64(&self) -> f64 {
        match self.special() {
            Some(special) => special,
            None => {
                let (negative, bits) = self.round(53, 0);
                let magnitude = f64::from_bits(bits.min(f64::INFINITY.to_bits()));
                if negative { -magnitude } else { magnitude }
            }
        }
    }

    /// The sum as bytes: equal sums give equal bytes.
    pub fn to_bytes(&self) -> [u8; ExactSum::BYTES] {
        let carried = self.carried();
        let mut bytes = [0; ExactSum::BYTES];
        (bytes[0], bytes[1]) = (VERSION, carried.seen.0);
        for (to, digit) in bytes[2..].chunks_exact_mut(4).zip(carried.digits) {
            // The last digit fits too: no process adds 2⁶⁴ numbers.
            to.copy_from_slice(&(digit as u32).to_le_bytes());
        }
        bytes
    }

    /// The sum that [`to_bytes`](Self::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<ExactSum, NotASum> {
        let (&[version, seen], rest) = bytes.split_first_chunk().ok_or(NotASum)?;
        if version != VERSION || seen & !Seen::ALL != 0 || bytes.len() != ExactSum::BYTES {
            return Err(NotASum);
        }
        let mut sum = ExactSum { seen: Seen(seen), ..ExactSum::new() };
        for (digit, from) in sum.digits.iter_mut().zip(rest.chunks_exact(4)) {
            *digit = u32::from_le_bytes([from[0], from[1], from[2], from[3]]).into();
        }
        let last = &mut sum.digits[DIGITS - 1];
        *last = i64::from(*last as u32 as i32);
        Ok(sum)
    }

    /// The result if NaNs, infinities or negative zeros alone determine it.
    fn special(&self) -> Option<f64> {
        let (up, down) = (self.seen.has(Seen::INFINITY), self.seen.has(Seen::NEGATIVE_INFINITY));
        match (self.seen.has(Seen::NAN), up, down) {
            // Not `f64::NAN`, whose bits are not guaranteed.
            (true, _, _) | (_, true, true) => Some(f64::from_bits(0x7ff8_0000_0000_0000)),
            (false, true, false) => Some(f64::INFINITY),
            (false, false, true) => Some(f64::NEG_INFINITY),
            (false, false, false) if self.seen == Seen::ANY => Some(-0.0),
            (false, false, false) => None,
        }
    }

    /// Adds finite parts with the same sum as a block; `has_other` says whether the block has
    /// anything but `-0.0`.
    fn add_close(&mut self, parts: [f64; 2], has_other: impl FnOnce() -> bool) {
        let nonzero = parts.into_iter().filter(|part| *part != 0.0);
        let count = nonzero.map(|part| self.add_finite(part)).count();
        self.seen.add(if count > 0 || has_other() { Seen::FINITE } else { Seen::ANY });
    }

    /// Adds a number of any kind.
    fn add_one(&mut self, x: f64) {
        self.seen.add(if x.is_finite() {
            if x.to_bits() == (-0.0_f64).to_bits() { Seen::ANY } else { Seen::FINITE }
        } else if x.is_nan() {
            Seen(Seen::NAN.0 | Seen::FINITE.0)
        } else if x > 0.0 {
            Seen(Seen::INFINITY.0 | Seen::FINITE.0)
        } else {
            Seen(Seen::NEGATIVE_INFINITY.0 | Seen::FINITE.0)
        });
        if x.is_finite() {
            self.add_finite(x);
        }
    }

    fn add_finite(&mut self, x: f64) {
        let bits = x.to_bits();
        let field = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        // A subnormal has the lowest exponent, and no hidden bit.
        let (mantissa, position) = if field == 0 { (fraction, 0) } else { (fraction | 1 << 52, field - 1) };
        let wide = u128::from(mantissa) << (position % 32);
        let limbs = &mut self.digits[position / 32..][..3];
        let parts = [wide as u32, (wide >> 32) as u32, (wide >> 64) as u32];
        if x.is_sign_negative() {
            limbs.iter_mut().zip(parts).for_each(|(limb, part)| *limb -= i64::from(part));
        } else {
            limbs.iter_mut().zip(parts).for_each(|(limb, part)| *limb += i64::from(part));
        }
        self.additions += 1;
        if self.additions == ADDITIONS {
            self.propagate();
        }
    }

    /// Propagates carries until every digit but the last has 32 bits and no sign: a unique form for
    /// each sum.
    fn propagate(&mut self) {
        let mut carry = 0;
        for digit in &mut self.digits[..DIGITS - 1] {
            let whole = *digit + carry;
            *digit = whole & 0xffff_ffff;
            carry = whole >> 32;
        }
        self.digits[DIGITS - 1] = self.digits[DIGITS - 1].wrapping_add(carry);
        self.additions = 1;
    }

    fn carried(&self) -> ExactSum {
        let mut sum = self.clone();
        sum.propagate();
        sum
    }

    /// Whether the sum is negative, and the bits of its magnitude in a format with `precision`
    /// mantissa digits, whose lowest possible digit is at position `lowest`. Overflow gives at
    /// least the bits of infinity.
    fn round(&self, precision: usize, lowest: usize) -> (bool, u64) {
        let mut sum = self.carried();
        let negative = sum.digits[DIGITS - 1] < 0;
        if negative {
            sum.digits.iter_mut().for_each(|digit| *digit = digit.wrapping_neg());
            sum.propagate();
        }
        let digits = sum.digits;
        let Some(top) = digits.iter().rposition(|digit| *digit != 0) else { return (false, 0) };
        let length = top * 32 + (64 - digits[top].leading_zeros() as usize);
        let cut = length.saturating_sub(precision).max(lowest);
        let bit = |position: usize| digits.get(position / 32).is_some_and(|d| d >> (position % 32) & 1 == 1);
        let kept = (cut..length).rev().fold(0_u64, |kept, position| kept << 1 | u64::from(bit(position)));
        let half = cut > 0 && bit(cut - 1);
        let beyond = cut > 0 && {
            let (limb, within) = ((cut - 1) / 32, (cut - 1) % 32);
            digits[..limb.min(DIGITS)].iter().any(|digit| *digit != 0)
                || digits.get(limb).is_some_and(|digit| digit & ((1 << within) - 1) != 0)
        };
        let up = half && (beyond || kept & 1 == 1);
        // The hidden bit of `kept` adds to the exponent field, as does the carry of rounding up.
        let bits = (((cut - lowest) as u64) << (precision - 1)) + kept + u64::from(up);
        (negative, bits)
    }
}

impl Default for ExactSum {
    fn default() -> ExactSum {
        ExactSum::new()
    }
}

impl PartialEq for ExactSum {
    fn eq(&self, other: &ExactSum) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl Eq for ExactSum {}

impl fmt::Debug for ExactSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExactSum").field(&self.to_f64()).finish()
    }
}

/// Error for bytes that no [`ExactSum`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASum;

impl fmt::Display for NotASum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these are not the bytes of an exact sum")
    }
}

impl std::error::Error for NotASum {}

/// The exact sum of a block, if its numbers are close enough for `f64` to hold it and every
/// intermediate sum.
fn close_f32(block: &[f32]) -> Option<f64> {
    let (mut high, mut low) = ([0.0_f32; LANES], [f32::INFINITY; LANES]);
    let mut sums = [0.0_f64; LANES];
    let mut add = |lane: usize, x: f32| {
        let size = x.abs();
        let nonzero = if size == 0.0 { f32::INFINITY } else { size };
        high[lane] = if size > high[lane] { size } else { high[lane] };
        low[lane] = if nonzero < low[lane] { nonzero } else { low[lane] };
        sums[lane] += f64::from(x);
    };
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        chunk.iter().enumerate().for_each(|(lane, x)| add(lane, *x));
    }
    rest.iter().enumerate().for_each(|(lane, x)| add(lane, *x));
    let high = high.into_iter().fold(0.0, f32::max);
    let low = low.into_iter().fold(f32::INFINITY, f32::min);
    let sum: f64 = sums.into_iter().sum();
    // All are multiples of the least number's last digit, and no intermediate sum is larger than
    // 256 times the largest number. A NaN or infinity shows in the sum.
    let close = high == 0.0 || exponent(high.into()) - exponent(low.into()) + BLOCK_BITS + 24 <= 53;
    (close && sum.is_finite()).then_some(sum)
}

/// Two numbers with the exact sum of a block; `None` if its exponents differ too much.
fn close_f64(block: &[f64]) -> Option<[f64; 2]> {
    let mut high = [0.0_f64; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for (high, x) in high.iter_mut().zip(chunk) {
            // A NaN is skipped here, and shows in the rests below.
            *high = if x.abs() > *high { x.abs() } else { *high };
        }
    }
    let high = high.into_iter().chain(rest.iter().map(|x| x.abs())).fold(0.0, f64::max);
    if high == 0.0 {
        return block.iter().all(|x| *x == 0.0).then_some([0.0; 2]);
    }
    let top = exponent(high) + 1;
    // All magnitudes are below 2^top. A part that is a multiple of 2^(top - 45) has 45 digits, and
    // the carries of 256 have 8.
    let (first, second) = (top + BLOCK_BITS - 53, 2 * (top + BLOCK_BITS - 53) - 1 - top);
    if !high.is_finite() || first + 53 > 1023 || second < -1074 {
        return None;
    }
    let [first, second] = [first, second].map(|unit| 1.5 * power(unit + 52));
    let (mut sums, mut more, mut rests) = ([0.0_f64; LANES], [0.0_f64; LANES], [0.0_f64; LANES]);
    let mut add = |lane: usize, x: f64| {
        let upper = (x + first) - first;
        let below = x - upper;
        let lower = (below + second) - second;
        sums[lane] += upper;
        more[lane] += lower;
        // Absolute values, so that rests cannot cancel; a NaN stays.
        rests[lane] += (below - lower).abs();
    };
    for chunk in chunks {
        chunk.iter().enumerate().for_each(|(lane, x)| add(lane, *x));
    }
    rest.iter().enumerate().for_each(|(lane, x)| add(lane, *x));
    let left: f64 = rests.into_iter().sum();
    (left == 0.0).then(|| [sums.into_iter().sum(), more.into_iter().sum()])
}

/// The exponent of a positive number; a subnormal counts as having the lowest.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(-1022)
}

/// A power of two that is a normal number.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
