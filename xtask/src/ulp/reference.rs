//! The true values to which results are compared, and the comparison.
//!
//! The references are `f64` functions whose own error is a few units in the last place of `f64`, below 10^-8 of one of
//! `f32`.

use vyre_foundation::ops::Op;

/// The true function, by number of operands.
#[derive(Clone, Copy)]
pub(super) enum Reference {
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
}

/// The true function of an op that has an expansion.
pub(super) fn reference(op: Op) -> Option<Reference> {
    use Reference::{Binary, Unary};
    op.row().expansion_error?;
    Some(match op.row().name {
        "exp" => Unary(f64::exp),
        "exp2" => Unary(f64::exp2),
        "log" => Unary(f64::ln),
        "log2" => Unary(f64::log2),
        "pow" => Binary(power),
        "sin" => Unary(f64::sin),
        "cos" => Unary(f64::cos),
        "tan" => Unary(f64::tan),
        "asin" => Unary(f64::asin),
        "acos" => Unary(f64::acos),
        "atan" => Unary(f64::atan),
        "atan2" => Binary(f64::atan2),
        "sinh" => Unary(f64::sinh),
        "cosh" => Unary(f64::cosh),
        "tanh" => Unary(f64::tanh),
        "erf" => Unary(libm::erf),
        "cbrt" => Unary(f64::cbrt),
        name => unreachable!("{name} has an expansion and no reference"),
    })
}

/// `f64::powf` may or may not be 1 where an operand is NaN; Annex F says when it is.
fn power(x: f64, y: f64) -> f64 {
    if x == 1.0 || y == 0.0 { 1.0 } else { x.powf(y) }
}

/// The distance of `got` from `exact` in units in the last place of `f32` at `exact`; infinite if the result is of the wrong
/// kind: a NaN or none, a zero of the wrong sign, a number for an infinity. Overflow counts as 2^128.
pub(super) fn error_in_ulp(got: f32, exact: f64) -> f64 {
    let exponent = (exact.to_bits() >> 52) & 0x7FF;
    // The common case, away from overflow and subnormal numbers, must be fast: it runs 2^32 times per function.
    if (1023 - 126..1023 + 127).contains(&exponent) && got.is_finite() && got != 0.0 {
        return (f64::from(got) - exact).abs() * f64::from_bits((2 * 1023 + 23 - exponent) << 52);
    }
    error_at_the_limits(got, exact)
}

#[cold]
fn error_at_the_limits(got: f32, exact: f64) -> f64 {
    const OVERFLOW: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;
    let same_sign = got.is_sign_negative() == exact.is_sign_negative();
    if got.is_nan() || exact.is_nan() {
        return if got.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if exact == 0.0 || exact.is_infinite() {
        return if same_sign && f64::from(got) == exact { 0.0 } else { f64::INFINITY };
    }
    if got == 0.0 && !same_sign {
        return f64::INFINITY;
    }
    let limited = |value: f64| value.clamp(-OVERFLOW, OVERFLOW);
    let exponent = (((exact.to_bits() >> 52) & 0x7FF) as i64 - 1023).clamp(-126, 127);
    let unit = f64::from_bits(((exponent - 23 + 1023) as u64) << 52);
    (limited(f64::from(got)) - limited(exact)).abs() / unit
}
