//! Double-double arithmetic: numbers of about 106 bits as sums of two `f64`, and the reference
//! functions for those of `f64`.
//!
//! Sums and products are exact to the last bit or two of 106; functions use series and Newton
//! steps, slow and simple. Their relative error is below 2^-90, which the tests check against known
//! digits, so that an error measured with them is right to 2^-37 of a unit in the last place.

use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::LazyLock;

/// Number as `high + low`, with `low` at most half a unit in the last place of `high`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Double {
    pub(super) high: f64,
    pub(super) low: f64,
}

const fn double(high: f64, low: f64) -> Double {
    Double { high, low }
}

const LN_2: Double = double(std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
const LN_10: Double = double(std::f64::consts::LN_10, -2.170_756_223_382_249_4e-16);
const HALF_PI: Double = double(std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17);
const TWO_OVER_ROOT_PI: Double = double(std::f64::consts::FRAC_2_SQRT_PI, 1.533_545_961_316_588e-17);

/// Binary digits of 2/pi after the point.
const TWO_OVER_PI: [u64; 20] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
    0xf0cf_bc20_9af4_361d,
];

/// 1/k, for the terms of series: a product takes a fifth of the time of a quotient.
static RECIPROCALS: LazyLock<[Double; 1024]> =
    LazyLock::new(|| std::array::from_fn(|k| Double::ONE / (k as f64).into()));

fn reciprocal(k: usize) -> Double {
    RECIPROCALS[k]
}

/// `x + y` for |x| >= |y|, or x = 0.
fn quick_sum(x: f64, y: f64) -> Double {
    let sum = x + y;
    double(sum, y - (sum - x))
}

fn sum(x: f64, y: f64) -> Double {
    let total = x + y;
    let part = total - x;
    double(total, (x - (total - part)) + (y - part))
}

fn product(x: f64, y: f64) -> Double {
    let total = x * y;
    double(total, x.mul_add(y, -total))
}

impl Add for Double {
    type Output = Double;
    fn add(self, other: Double) -> Double {
        let (high, low) = (sum(self.high, other.high), sum(self.low, other.low));
        let first = quick_sum(high.high, high.low + low.high);
        quick_sum(first.high, first.low + low.low)
    }
}

impl Neg for Double {
    type Output = Double;
    fn neg(self) -> Double {
        double(-self.high, -self.low)
    }
}

impl Sub for Double {
    type Output = Double;
    fn sub(self, other: Double) -> Double {
        self + -other
    }
}

impl Mul for Double {
    type Output = Double;
    fn mul(self, other: Double) -> Double {
        let total = product(self.high, other.high);
        quick_sum(total.high, total.low + (self.high * other.low + self.low * other.high))
    }
}

impl Div for Double {
    type Output = Double;
    fn div(self, other: Double) -> Double {
        let first = self.high / other.high;
        let rest = self - other * first.into();
        let second = rest.high / other.high;
        let rest = rest - other * second.into();
        Double::from(first) + second.into() + (rest.high / other.high).into()
    }
}

impl From<f64> for Double {
    fn from(x: f64) -> Double {
        double(x, 0.0)
    }
}

/// Power of two, possibly subnormal.
fn power_of_two(exponent: i32) -> f64 {
    let half = exponent.div_euclid(2);
    let factor = |exponent: i32| f64::from_bits(((exponent + 1023).clamp(1, 2046) as u64) << 52);
    factor(half) * factor(exponent - half)
}

impl Double {
    pub(super) const ONE: Double = double(1.0, 0.0);

    /// Multiplies by 2^exponent; bits below the range of `f64` are lost.
    fn scaled(self, exponent: i32) -> Double {
        let half = exponent / 2;
        let [first, second] = [half, exponent - half].map(power_of_two);
        double(self.high * first * second, self.low * first * second)
    }

    pub(super) fn sqrt(self) -> Double {
        if self.high <= 0.0 {
            return Double::from(self.high.sqrt());
        }
        let root = Double::from(self.high.sqrt());
        root + (self - root * root) / (root + root)
    }

    /// e^x - 1 by its series, for |x| below 1/100.
    fn exp_m1_series(self) -> Double {
        let (mut term, mut total) = (self, self);
        for k in 2..16 {
            term = term * self * reciprocal(k);
            total = total + term;
        }
        total
    }

    /// e^x as a number near 1 and a power of two; e^x - 1 of the remainder is computed at 1/64 and
    /// squared up.
    fn exp_parts(self) -> (Double, i32) {
        let n = (self.high / LN_2.high).round();
        let rest = self - LN_2 * n.into();
        let mut less_one = rest.scaled(-6).exp_m1_series();
        for _ in 0..6 {
            less_one = less_one * less_one + less_one + less_one;
        }
        (less_one + Double::ONE, n as i32)
    }

    pub(super) fn exp(self) -> Double {
        let (fraction, n) = self.exp_parts();
        fraction.scaled(n)
    }

    pub(super) fn exp_m1(self) -> Double {
        if self.high.abs() < 0.01 { self.exp_m1_series() } else { self.exp() - Double::ONE }
    }

    /// Newton's method on e^y, from the standard library's logarithm; the second step makes up for
    /// a poor first one.
    pub(super) fn ln(self) -> Double {
        if (self.high - 1.0).abs() < 0.3 {
            return (self - Double::ONE).ln_1p_small();
        }
        let exponent = ((self.high.to_bits() >> 52) & 0x7FF) as i32 - 1023;
        let fraction = self.scaled(-exponent);
        let mut y = Double::from(fraction.high.ln());
        for _ in 0..2 {
            y = y + (fraction * (-y).exp() - Double::ONE);
        }
        y + LN_2 * f64::from(exponent).into()
    }

    pub(super) fn ln_1p(self) -> Double {
        if self.high.abs() > 0.3 {
            return (Double::ONE + self).ln();
        }
        self.ln_1p_small()
    }

    /// log(1+x) for |x| up to 0.3, where the logarithm of the sum would lose digits.
    fn ln_1p_small(self) -> Double {
        let mut y = Double::from(self.high.ln_1p());
        for _ in 0..2 {
            let less_one = y.exp_m1();
            y = y - (less_one - self) / (less_one + Double::ONE);
        }
        y
    }

    /// Sine and cosine by their series, for |x| below 1; the argument is halved repeatedly and the
    /// angle doubled.
    fn sin_cos_series(self) -> (Double, Double) {
        let x = self.scaled(-5);
        let square = x * x;
        // 1 - cos(x), which keeps its relative accuracy when the angle is doubled.
        let (mut sine, mut versine) = (Double::from(0.0), Double::from(0.0));
        let (mut term, mut k) = (Double::ONE, 1);
        while k < 24 {
            term = term * reciprocal(k);
            sine = if k % 4 == 1 { sine + term } else { sine - term };
            term = term * square * reciprocal(k + 1);
            versine = if k % 4 == 1 { versine + term } else { versine - term };
            k += 2;
        }
        let mut sine = sine * x;
        for _ in 0..5 {
            let cosine = Double::ONE - versine;
            versine = (sine * sine) + (sine * sine);
            sine = sine * cosine + sine * cosine;
        }
        (sine, Double::ONE - versine)
    }

    fn atan(self) -> Double {
        // Newton's method on the tangent: y + (x - tan y) / (1 + tan² y), in sines and cosines.
        let mut y = Double::from(self.high.atan());
        for _ in 0..2 {
            let (sine, cosine) = y.sin_cos_series_wide();
            y = y + (self * cosine - sine) / (cosine + self * sine);
        }
        y
    }

    /// Sine and cosine up to pi/2.
    fn sin_cos_series_wide(self) -> (Double, Double) {
        if self.high.abs() < 0.9 {
            return self.sin_cos_series();
        }
        let sign = self.high.signum();
        let (sine, cosine) = (HALF_PI * sign.into() - self).sin_cos_series();
        (cosine * sign.into(), sine * sign.into())
    }
}

/// Reduces x modulo pi/2: the quadrant and the remainder in [-pi/4, pi/4], with the bits of 2/pi
/// that x reaches.
fn reduced(x: f64) -> (u32, Double) {
    if x.abs() < 0.7 {
        return (0, x.into());
    }
    let bits = x.to_bits();
    let mantissa = u128::from((bits & ((1 << 52) - 1)) | (1 << 52));
    let exponent = ((bits >> 52) & 0x7FF) as i32 - 1075;
    // Bits of the product, from two places before the point: the quadrant, then the fraction.
    let mut words = [0u64; 5];
    let mut carry = 0u128;
    for k in (0..5).rev() {
        let total = mantissa * u128::from(window(exponent - 2 + 64 * k as i32)) + carry;
        words[k] = total as u64;
        carry = total >> 64;
    }
    let negative_rest = words[0] >> 61 & 1 == 1;
    let quadrant = ((words[0] >> 62) + u64::from(negative_rest)) as u32;
    let mut rest =
        [words[0] << 2 | words[1] >> 62, words[1] << 2 | words[2] >> 62, words[2] << 2 | words[3] >> 62];
    if negative_rest {
        rest = rest.map(|word| !word);
    }
    let part = |word: u64, place: i32| {
        Double::from((word >> 32) as f64 * power_of_two(place + 32))
            + ((word as u32) as f64 * power_of_two(place)).into()
    };
    let fraction = part(rest[0], -64) + part(rest[1], -128) + part(rest[2], -192);
    let signed = if negative_rest { -fraction } else { fraction };
    let angle = signed * HALF_PI;
    if x < 0.0 { (quadrant.wrapping_neg() & 3, -angle) } else { (quadrant & 3, angle) }
}

/// 64 bits of 2/pi, starting `at` places after the point.
fn window(at: i32) -> u64 {
    let word = |k: i32| usize::try_from(k).ok().and_then(|k| TWO_OVER_PI.get(k)).copied().unwrap_or(0);
    let (first, offset) = (at.div_euclid(64), at.rem_euclid(64) as u32);
    if offset == 0 { word(first) } else { word(first) << offset | word(first + 1) >> (64 - offset) }
}

fn sin_cos(x: f64) -> (Double, Double) {
    let (quadrant, rest) = reduced(x);
    let (sine, cosine) = rest.sin_cos_series();
    match quadrant {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// 2/sqrt(pi) * e^(-x²) * (x + 2/3 x³ + 4/15 x⁵ + …), whose terms all have the same sign.
fn erf(x: f64) -> Double {
    // Beyond this it differs from 1 by less than 2^-120.
    if x.abs() > 9.0 {
        return x.signum().into();
    }
    let (x, square) = (Double::from(x), product(x, x));
    let (mut term, mut total) = (x, x);
    let mut k = 1;
    while term.high.abs() > total.high.abs() * 1e-34 {
        term = term * (square + square) * reciprocal(2 * k + 1);
        total = total + term;
        k += 1;
    }
    total * TWO_OVER_ROOT_PI * (-square).exp()
}

/// True value of a unary function at a finite operand; `None` where it has no value or only a
/// limit.
pub(super) fn unary(name: &str, x: f64) -> Option<Double> {
    let exact = Double::from(x);
    let positive = x > 0.0;
    // Computed for |x|: for a negative x the sum t + 1 would cancel.
    let sign = Double::from(x.signum());
    let hyperbolic = || {
        let t = (exact * sign).exp_m1();
        (t, t / (t + Double::ONE))
    };
    Some(match name {
        "exp" if x.abs() < 700.0 => exact.exp(),
        "exp2" if x.abs() < 1000.0 => (exact * LN_2).exp(),
        "exp_m1" if x.abs() < 700.0 => exact.exp_m1(),
        "log" if positive => exact.ln(),
        "log2" if positive => exact.ln() / LN_2,
        "log10" if positive => exact.ln() / LN_10,
        "log_1p" if x > -1.0 => exact.ln_1p(),
        "sin" => sin_cos(x).0,
        "cos" => sin_cos(x).1,
        "tan" => {
            let (sine, cosine) = sin_cos(x);
            sine / cosine
        }
        "asin" if x.abs() < 1.0 => (exact / ((Double::ONE - exact) * (Double::ONE + exact)).sqrt()).atan(),
        "acos" if x.abs() < 1.0 => {
            let half = ((Double::ONE - exact) / (Double::ONE + exact)).sqrt().atan();
            half + half
        }
        "atan" if x.abs() < 1e100 => exact.atan(),
        "sinh" if x.abs() < 700.0 => {
            let (t, quotient) = hyperbolic();
            (t + quotient).scaled(-1) * sign
        }
        "cosh" if x.abs() < 700.0 => (exact.exp() + (-exact).exp()).scaled(-1),
        "tanh" if x.abs() < 300.0 => {
            let (t, quotient) = hyperbolic();
            (t + quotient) / (t - quotient + Double::from(2.0)) * sign
        }
        "asinh" if x.abs() < 1e100 => {
            let size = if positive { exact } else { -exact };
            let square = size * size;
            let y = (size + square / (Double::ONE + (square + Double::ONE).sqrt())).ln_1p();
            if positive { y } else { -y }
        }
        "acosh" if x > 1.0 && x < 1e100 => {
            let t = exact - Double::ONE;
            (t + (t + t + t * t).sqrt()).ln_1p()
        }
        "atanh" if x.abs() < 1.0 => ((exact + exact) / (Double::ONE - exact)).ln_1p().scaled(-1),
        "cbrt" => {
            // Scaled near 1, so that no part of a product underflows.
            let thirds = (((x.to_bits() >> 52) & 0x7FF) as i32 - 1023).div_euclid(3);
            let near = exact.scaled(-3 * thirds);
            let root = Double::from(near.high.cbrt());
            (root - (root * root - near / root) / (Double::from(3.0) * root)).scaled(thirds)
        }
        "erf" => erf(x),
        _ => return None,
    })
}

/// True value of a binary function at finite operands; `None` where it has no value or only a
/// limit.
pub(super) fn binary(name: &str, x: f64, y: f64) -> Option<Double> {
    let regular = |x: f64| x.abs() < 1e100 && x.abs() > 1e-100;
    Some(match name {
        "pow" if x > 0.0 => {
            let exponent = Double::from(x).ln() * y.into();
            if exponent.high.abs() > 700.0 {
                return None;
            }
            exponent.exp()
        }
        "atan2" if y > 0.0 && regular(x) && regular(y) => (Double::from(x) / y.into()).atan(),
        "hypot" if regular(x) && regular(y) => (product(x, x) + product(y, y)).sqrt(),
        _ => return None,
    })
}
