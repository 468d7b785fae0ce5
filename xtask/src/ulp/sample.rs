//! Sample inputs for binary functions, stratified to cover every regime.

use vyre_foundation::ops::Op;

/// Operands of the sample with this number, for a binary function.
pub(super) fn pair(op: Op, number: u64) -> (f32, f32) {
    let mut random = Random::numbered(number);
    match op {
        Op::Pow => power(&mut random, number % 8),
        _ => plane(&mut random, number % 4),
    }
}

/// For x^y: a few pairs of arbitrary bits, and many where y * log2(x) spans the range of f32.
fn power(random: &mut Random, stratum: u64) -> (f32, f32) {
    let x = match stratum {
        0 | 1 => random.bits(),
        2 => random.bits().abs(),
        3 => random.between(0.5, 2.0),
        4 => 1.0 + random.between(-1.0, 1.0) * random.power_of_two(-22, 0),
        5 => -random.bits().abs(),
        6 => random.between(0.0, 16.0),
        _ => random.between(0.8, 1.8),
    };
    let spanning = random.between(-152.0, 152.0) / x.abs().log2();
    let y = match stratum {
        0 => random.bits(),
        1 | 5 => spanning.round_ties_even(),
        6 => random.between(-32.0, 32.0),
        _ => spanning,
    };
    (x, y)
}

/// For atan2: pairs of arbitrary bits, and points near the axes and near the diagonals.
fn plane(random: &mut Random, stratum: u64) -> (f32, f32) {
    let (x, y) = (random.bits(), random.bits());
    match stratum {
        0 => (y, x),
        1 => (x * random.between(-2.0, 2.0), x),
        2 => (x * random.power_of_two(-40, 40) * random.between(-1.0, 1.0), x),
        _ => (random.between(-4.0, 4.0), random.between(-4.0, 4.0)),
    }
}

/// SplitMix64 generator with 64 bits of state: any starting number gives an independent sequence.
pub(super) struct Random(u64);

impl Random {
    /// Generator for the point with this number.
    pub(super) fn numbered(number: u64) -> Random {
        Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Number in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Any of the 2^32 floats.
    fn bits(&mut self) -> f32 {
        f32::from_bits(self.next() as u32)
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        let unit = self.unit();
        (f64::from(low) + (f64::from(high) - f64::from(low)) * unit) as f32
    }

    fn power_of_two(&mut self, low: i32, high: i32) -> f32 {
        let span = (high - low + 1) as u64;
        f32::powi(2.0, low + (self.next() % span) as i32)
    }
}
