//! True values for `f32` results, and the comparison.
//!
//! The references are `f64` functions with an error of a few units in the last place of `f64`,
//! which is below 10^-8 of one of `f32`.

use vyre_foundation::ops::Op;

/// Reference function, by number of operands and symmetry. A symmetric one is computed for only
/// half of the inputs.
#[derive(Clone, Copy)]
pub(super) enum Reference {
    Unary(fn(f64) -> f64),
    /// f(-x) = f(x).
    Even(fn(f64) -> f64),
    /// f(-x) = -f(x).
    Odd(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
}

/// Reference function of an op with an expansion. Cases where the result is undefined, constant or
/// beyond `f64` are handled here when the library is slow to detect them.
pub(super) fn reference(op: Op) -> Option<Reference> {
    use Reference::{Binary, Even, Odd, Unary};
    op.row().expansion_error?;
    Some(match op.row().name {
        "exp" => Unary(|x| within(x, f64::exp, 0.0, f64::INFINITY)),
        "exp2" => Unary(|x| within(x, f64::exp2, 0.0, f64::INFINITY)),
        "log" => Unary(|x| if x < 0.0 { f64::NAN } else { x.ln() }),
        "log2" => Unary(|x| if x < 0.0 { f64::NAN } else { x.log2() }),
        "pow" => Binary(power),
        "sin" => Odd(f64::sin),
        "cos" => Even(f64::cos),
        "tan" => Odd(f64::tan),
        "asin" => Odd(|x| if x.abs() > 1.0 { f64::NAN } else { x.asin() }),
        "acos" => Unary(|x| if x.abs() > 1.0 { f64::NAN } else { x.acos() }),
        "atan" => Odd(f64::atan),
        "atan2" => Binary(f64::atan2),
        "sinh" => Odd(|x| within(x, f64::sinh, f64::NEG_INFINITY, f64::INFINITY)),
        "cosh" => Even(|x| within(x, f64::cosh, f64::INFINITY, f64::INFINITY)),
        "tanh" => Odd(|x| within(x, f64::tanh, -1.0, 1.0)),
        "erf" => Odd(libm::erf),
        "cbrt" => Odd(f64::cbrt),
        "exp_m1" => Unary(|x| within(x, f64::exp_m1, -1.0, f64::INFINITY)),
        "log10" => Unary(|x| if x < 0.0 { f64::NAN } else { x.log10() }),
        "log_1p" => Unary(|x| if x < -1.0 { f64::NAN } else { x.ln_1p() }),
        "asinh" => Odd(libm::asinh),
        "acosh" => Unary(|x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }),
        "atanh" => Odd(|x| if x.abs() > 1.0 { f64::NAN } else { libm::atanh(x) }),
        "hypot" => Binary(f64::hypot),
        name => unreachable!("{name} has an expansion and no reference"),
    })
}

/// Calls a function that is constant or beyond `f64` outside -2000 to 2000, with the results there.
fn within(x: f64, function: fn(f64) -> f64, below: f64, above: f64) -> f64 {
    if x > 2000.0 {
        above
    } else if x < -2000.0 {
        below
    } else {
        function(x)
    }
}

/// Power with Annex F's results of 1 for NaN operands, which `f64::powf` does not guarantee.
fn power(x: f64, y: f64) -> f64 {
    if x == 1.0 || y == 0.0 { 1.0 } else { x.powf(y) }
}

/// Errors of `got` against `exact`, lane by lane; see [`error_in_ulp`]. Most blocks have no
/// overflow, subnormal numbers or special values, and take a single loop without branches.
pub(super) fn errors_in_ulp<const N: usize>(got: &[u32; N], exact: &[f64; N]) -> [f64; N] {
    let mut errors = [0.0; N];
    let mut regular = true;
    for ((error, got), exact) in errors.iter_mut().zip(got).zip(exact) {
        let exponent = (exact.to_bits() >> 52) & 0x7FF;
        let magnitude = got & 0x7FFF_FFFF;
        regular &= exponent.wrapping_sub(1023 - 126) < 2 * 126 && magnitude.wrapping_sub(1) < 0x7F7F_FFFF;
        let units = f64::from_bits(((2 * 1023 + 23) - exponent) << 52);
        *error = (f64::from(f32::from_bits(*got)) - exact).abs() * units;
    }
    if !regular {
        for ((error, got), exact) in errors.iter_mut().zip(got).zip(exact) {
            *error = error_in_ulp(f32::from_bits(*got), *exact);
        }
    }
    errors
}

/// Error of `got` in units in the last place of `f32` at `exact`. It is infinite if only one of
/// them is a NaN, if a zero has the wrong sign, or if a number is returned for an infinity.
/// Overflow counts as 2^128.
fn error_in_ulp(got: f32, exact: f64) -> f64 {
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
