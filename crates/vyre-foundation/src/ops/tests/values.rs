//! Precomputed results of every op.

use super::*;

/// A table of `op(operands) = result;` entries.
macro_rules! worked_out {
    ($($op:ident($($arg:expr),*) = $result:expr;)*) => {
        vec![$((Op::$op, vec![$(Value::from($arg)),*], Value::from($result))),*]
    };
}

#[test]
fn ops_give_what_was_worked_out_by_hand() {
    let mut seen = HashSet::new();
    for (op, args, expected) in worked_out_values() {
        assert_eq!(eval(op, &args), Some(expected), "{op:?} of {args:?}");
        seen.insert(op);
    }
    for op in Op::ALL {
        assert!(seen.contains(op), "{op:?} has no worked-out value");
    }
}

fn worked_out_values() -> Vec<Worked> {
    [arithmetic(), rounding(), transcendentals(), bits(), comparisons(), conversions()].concat()
}

type Worked = (Op, Vec<Value>, Value);

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn arithmetic() -> Vec<Worked> {
    worked_out! {
        Add(u32::MAX, 1u32) = 0u32;
        Add(i32::MAX, 1i32) = i32::MIN;
        Add(u64::MAX, 2u64) = 1u64;
        Add(i64::MIN, -1i64) = i64::MAX;
        Add(0.1f64, 0.2f64) = 0.300_000_000_000_000_04_f64;
        Add(16_777_216.0f32, 1.0f32) = 16_777_216.0f32;
        Add(16_777_218.0f32, 1.0f32) = 16_777_220.0f32;
        Add(-0.0f32, 0.0f32) = 0.0f32;
        Add(-0.0f32, -0.0f32) = -0.0f32;
        Add(INF, -INF) = NAN;
        Sub(0u32, 1u32) = u32::MAX;
        Sub(i32::MIN, 1i32) = i32::MAX;
        Sub(0u64, 1u64) = u64::MAX;
        Sub(i64::MIN, 1i64) = i64::MAX;
        Sub(1.0f32, 1.0f32) = 0.0f32;
        Sub(-0.0f64, 0.0f64) = -0.0f64;
        Mul(0x1_0000u32, 0x1_0000u32) = 0u32;
        Mul(i32::MIN, -1i32) = i32::MIN;
        Mul(u64::MAX, u64::MAX) = 1u64;
        Mul(-3i64, 5i64) = -15i64;
        Mul(0.0f32, INF) = NAN;
        Mul(-0.0f32, 1.0f32) = -0.0f32;
        Mul(f32::MAX, 2.0f32) = INF;
        Mul(f32::MIN_POSITIVE, 0.5f32) = f32::from_bits(0x0040_0000);
        Div(7u32, 0u32) = 7u32;
        Div(-7i32, 2i32) = -3i32;
        Div(i32::MIN, -1i32) = i32::MIN;
        Div(i64::MIN, -1i64) = i64::MIN;
        Div(7i64, -2i64) = -3i64;
        Div(u64::MAX, 2u64) = (1u64 << 63) - 1;
        Div(1.0f32, 0.0f32) = INF;
        Div(-1.0f32, 0.0f32) = -INF;
        Div(0.0f32, 0.0f32) = NAN;
        Div(1.0f32, 3.0f32) = f32::from_bits(0x3EAA_AAAB);
        Rem(7u32, 0u32) = 0u32;
        Rem(7u32, 4u32) = 3u32;
        Rem(-7i32, 3i32) = -1i32;
        Rem(7i32, -3i32) = 1i32;
        Rem(i32::MIN, -1i32) = 0i32;
        Rem(i64::MIN, -1i64) = 0i64;
        Neg(1u32) = u32::MAX;
        Neg(i32::MIN) = i32::MIN;
        Neg(5i64) = -5i64;
        Neg(0.0f32) = -0.0f32;
        Neg(f64::NAN) = f64::NAN;
        Abs(i32::MIN) = i32::MIN;
        Abs(-5i64) = 5i64;
        Abs(u32::MAX) = u32::MAX;
        Abs(-0.0f32) = 0.0f32;
        Abs(-f64::INFINITY) = f64::INFINITY;
        Sign(-7i32) = -1i32;
        Sign(0i64) = 0i64;
        Sign(9u32) = 1u32;
        Sign(0u64) = 0u64;
        Sign(-0.0f32) = -0.0f32;
        Sign(0.0f64) = 0.0f64;
        Sign(NAN) = 1.0f32;
        Sign(-NAN) = 1.0f32;
        Sign(-f64::INFINITY) = -1.0f64;
        Sign(f32::from_bits(1)) = 1.0f32;
        Min(-1i32, 1i32) = -1i32;
        Min(u32::MAX, 1u32) = 1u32;
        Min(0.0f32, -0.0f32) = -0.0f32;
        Min(-0.0f32, 0.0f32) = -0.0f32;
        Min(NAN, 3.0f32) = 3.0f32;
        Min(3.0f32, NAN) = 3.0f32;
        Min(-NAN, NAN) = NAN;
        Max(-1i64, 1i64) = 1i64;
        Max(u64::MAX, 1u64) = u64::MAX;
        Max(0.0f64, -0.0f64) = 0.0f64;
        Max(-0.0f64, 0.0f64) = 0.0f64;
        Max(NAN, -INF) = -INF;
        Max(-3.0f32, NAN) = -3.0f32;
        Max(NAN, NAN) = NAN;
        Clamp(5i32, 0i32, 3i32) = 3i32;
        Clamp(-5i32, 0i32, 3i32) = 0i32;
        Clamp(5u32, 9u32, 3u32) = 3u32;
        Clamp(NAN, 0.5f32, 1.0f32) = 0.5f32;
        Clamp(2.0f32, NAN, NAN) = 2.0f32;
        SatAdd(u32::MAX, 1u32) = u32::MAX;
        SatAdd(i32::MIN, -1i32) = i32::MIN;
        SatAdd(i64::MAX, 1i64) = i64::MAX;
        SatAdd(3u64, 4u64) = 7u64;
        SatSub(0u32, 1u32) = 0u32;
        SatSub(i32::MIN, 1i32) = i32::MIN;
        SatSub(i64::MAX, -1i64) = i64::MAX;
        SatSub(9u64, 4u64) = 5u64;
        AbsDiff(i32::MIN, i32::MAX) = u32::MAX;
        AbsDiff(3u64, 5u64) = 2u64;
        AbsDiff(i64::MIN, 0i64) = 1u64 << 63;
        AbsDiff(0u32, u32::MAX) = u32::MAX;
        MulHi(u32::MAX, u32::MAX) = u32::MAX - 1;
        MulHi(-1i32, 1i32) = -1i32;
        MulHi(i32::MIN, i32::MIN) = 1i32 << 30;
        MulHi(u64::MAX, 2u64) = 1u64;
        MulHi(i64::MIN, i64::MIN) = 1i64 << 62;
        MulHi(i64::MIN, 2i64) = -1i64;
    }
}

fn rounding() -> Vec<Worked> {
    worked_out! {
        // (1 + e)² - (1 + 2e) = e², which rounding twice would lose.
        Fma(f32::from_bits(0x3F80_0001), f32::from_bits(0x3F80_0001), f32::from_bits(0xBF80_0002)) = f32::from_bits(0x2880_0000);
        Fma(f64::from_bits(0x3FF0_0000_0000_0001), f64::from_bits(0x3FF0_0000_0000_0001), f64::from_bits(0xBFF0_0000_0000_0002)) =
            f64::from_bits(0x3970_0000_0000_0000);
        Fma(INF, 0.0f32, 1.0f32) = NAN;
        Sqrt(2.0f32) = f32::from_bits(0x3FB5_04F3);
        Sqrt(2.0f64) = f64::from_bits(0x3FF6_A09E_667F_3BCD);
        Sqrt(-1.0f32) = NAN;
        Sqrt(-0.0f32) = -0.0f32;
        Sqrt(INF) = INF;
        Rsqrt(4.0f32) = 0.5f32;
        Rsqrt(2.0f32) = f32::from_bits(0x3F35_04F3);
        Rsqrt(0.0f32) = INF;
        Rsqrt(-0.0f64) = -f64::INFINITY;
        Rsqrt(INF) = 0.0f32;
        Rsqrt(-1.0f64) = f64::NAN;
        Floor(-0.5f32) = -1.0f32;
        Floor(-0.0f64) = -0.0f64;
        Floor(1.9f64) = 1.0f64;
        Floor(-INF) = -INF;
        Ceil(-0.5f32) = -0.0f32;
        Ceil(0.1f64) = 1.0f64;
        Ceil(NAN) = NAN;
        Trunc(-1.9f32) = -1.0f32;
        Trunc(-0.9f64) = -0.0f64;
        Trunc(16_777_217.0f64) = 16_777_217.0f64;
        Round(0.5f32) = 0.0f32;
        Round(1.5f32) = 2.0f32;
        Round(2.5f64) = 2.0f64;
        Round(-0.5f32) = -0.0f32;
        Round(-2.5f32) = -2.0f32;
        Round(-3.5f64) = -4.0f64;
        Round(0.499_999_97f32) = 0.0f32;
        Round(8_388_609.0f32) = 8_388_609.0f32;
        Round(4_503_599_627_370_495.5f64) = 4_503_599_627_370_496.0f64;
        Round(NAN) = NAN;
        Copysign(1.0f32, -0.0f32) = -1.0f32;
        Copysign(-3.0f64, 2.0f64) = 3.0f64;
        Copysign(-1.0f32, NAN) = 1.0f32;
        Copysign(-1.0f32, -NAN) = 1.0f32;
        Copysign(NAN, -1.0f32) = NAN;
        Fract(2.75f32) = 0.75f32;
        Fract(-0.25f64) = 0.75f64;
        Fract(-0.0f32) = 0.0f32;
        Fract(-1e-30f32) = 1.0f32;
        Fract(f64::INFINITY) = f64::NAN;
        Modf(-2.75f32) = -0.75f32;
        Modf(-3.0f64) = -0.0f64;
        Modf(-INF) = -0.0f32;
        Modf(NAN) = NAN;
        Frexp(8.0f32) = 0.5f32;
        Frexp(-3.0f64) = -0.75f64;
        Frexp(f32::from_bits(3)) = 0.75f32;
        Frexp(5e-324f64) = 0.5f64;
        Frexp(-0.0f32) = -0.0f32;
        Frexp(-INF) = -INF;
        Frexp(f64::NAN) = f64::NAN;
        FrexpExponent(8.0f32) = 4i32;
        FrexpExponent(-3.0f64) = 2i32;
        FrexpExponent(f32::from_bits(3)) = -147i32;
        FrexpExponent(5e-324f64) = -1073i32;
        FrexpExponent(f64::MAX) = 1024i32;
        FrexpExponent(0.0f32) = 0i32;
        FrexpExponent(INF) = 0i32;
        FrexpExponent(NAN) = 0i32;
        Ldexp(0.75f32, 4i32) = 12.0f32;
        Ldexp(f32::from_bits(1), 276i32) = f32::from_bits(0x7F00_0000);
        Ldexp(f32::MAX, -277i32) = f32::from_bits(1);
        // The lowest bit is lost to the tie, then nothing is left to round.
        Ldexp(f32::from_bits(0x3F80_0001), -149i32) = f32::from_bits(1);
        Ldexp(f32::from_bits(0x3FC0_0001), -150i32) = f32::from_bits(1);
        Ldexp(1.0f32, -150i32) = 0.0f32;
        Ldexp(1.5f32, i32::MAX) = INF;
        Ldexp(-1.5f64, i32::MIN) = -0.0f64;
        Ldexp(5e-324f64, 2097i32) = f64::from_bits(0x7FE0_0000_0000_0000);
        Ldexp(f64::MAX, -2098i32) = 5e-324f64;
        Ldexp(-INF, -500i32) = -INF;
        Ldexp(NAN, 3i32) = NAN;
        IsNan(-NAN) = true;
        IsNan(INF) = false;
        IsInf(-INF) = true;
        IsInf(f32::MAX) = false;
        IsInf(f64::NAN) = false;
        IsFinite(f64::MAX) = true;
        IsFinite(INF) = false;
        IsFinite(NAN) = false;
    }
}

/// Results that are exact, or that the specification fixes; `cargo xtask ulp` measures the error of
/// the others.
fn transcendentals() -> Vec<Worked> {
    worked_out! {
        Exp(0.0f32) = 1.0f32;
        Exp(-INF) = 0.0f32;
        Exp2(-149.0f32) = f32::from_bits(1);
        Exp2(10.0f32) = 1024.0f32;
        Log(1.0f32) = 0.0f32;
        Log(-0.0f32) = -INF;
        Log2(f32::from_bits(1)) = -149.0f32;
        Log2(-1.0f32) = NAN;
        Pow(-2.0f32, 3.0f32) = -8.0f32;
        Pow(NAN, 0.0f32) = 1.0f32;
        Sin(-0.0f32) = -0.0f32;
        Sin(INF) = NAN;
        Cos(0.0f32) = 1.0f32;
        Tan(f32::from_bits(1)) = f32::from_bits(1);
        Asin(1.5f32) = NAN;
        Acos(1.0f32) = 0.0f32;
        Atan(-INF) = -std::f32::consts::FRAC_PI_2;
        Atan2(0.0f32, -0.0f32) = std::f32::consts::PI;
        Atan2(-0.0f32, 1.0f32) = -0.0f32;
        Sinh(-INF) = -INF;
        Cosh(-INF) = INF;
        Tanh(20.0f32) = 1.0f32;
        Erf(-5.0f32) = -1.0f32;
        Cbrt(-0.0f32) = -0.0f32;
        Cbrt(8.0f32) = 2.0f32;
        ExpM1(-INF) = -1.0f32;
        ExpM1(INF) = INF;
        ExpM1(-0.0f32) = -0.0f32;
        ExpM1(f32::from_bits(1)) = f32::from_bits(1);
        Log10(1.0f32) = 0.0f32;
        Log10(0.0f32) = -INF;
        Log10(-1.0f32) = NAN;
        Log1p(-1.0f32) = -INF;
        Log1p(-1.5f32) = NAN;
        Log1p(-0.0f32) = -0.0f32;
        Log1p(INF) = INF;
        Asinh(-INF) = -INF;
        Asinh(-0.0f32) = -0.0f32;
        Acosh(1.0f32) = 0.0f32;
        Acosh(0.5f32) = NAN;
        Acosh(INF) = INF;
        Atanh(-1.0f32) = -INF;
        Atanh(1.5f32) = NAN;
        Atanh(-0.0f32) = -0.0f32;
        Hypot(3.0f32, -4.0f32) = 5.0f32;
        Hypot(-INF, NAN) = INF;
        Hypot(NAN, 1.0f32) = NAN;
        Hypot(f32::MAX, f32::MAX) = INF;
        Hypot(f32::from_bits(3), f32::from_bits(4)) = f32::from_bits(5);
        Exp(0.0f64) = 1.0f64;
        Exp(709.782_712_893_384f64) = 1.797_693_134_862_273_2e308f64;
        Exp(710.0f64) = f64::INFINITY;
        Exp(-746.0f64) = 0.0f64;
        Exp(f64::NEG_INFINITY) = 0.0f64;
        Exp2(-1074.0f64) = 5e-324f64;
        Exp2(1023.0f64) = f64::from_bits(0x7FE0_0000_0000_0000);
        Exp2(1024.0f64) = f64::INFINITY;
        ExpM1(5e-324f64) = 5e-324f64;
        ExpM1(-50.0f64) = -1.0f64;
        ExpM1(f64::INFINITY) = f64::INFINITY;
        Log(1.0f64) = 0.0f64;
        Log(-0.0f64) = f64::NEG_INFINITY;
        Log(-1.0f64) = f64::NAN;
        Log(f64::INFINITY) = f64::INFINITY;
        Log2(5e-324f64) = -1074.0f64;
        Log2(f64::NAN) = f64::NAN;
        Log10(1000.0f64) = 3.0f64;
        Log1p(-1.0f64) = f64::NEG_INFINITY;
        Log1p(f64::INFINITY) = f64::INFINITY;
        Log1p(-1.5f64) = f64::NAN;
        Pow(2.0f64, 10.0f64) = 1024.0f64;
        Pow(2.0f64, -1074.0f64) = 5e-324f64;
        Pow(-2.0f64, 3.0f64) = -8.0f64;
        Pow(-2.0f64, 0.5f64) = f64::NAN;
        Pow(f64::NAN, 0.0f64) = 1.0f64;
        Pow(1.0f64, f64::NAN) = 1.0f64;
        Pow(-1.0f64, f64::INFINITY) = 1.0f64;
        Pow(-0.0f64, -3.0f64) = f64::NEG_INFINITY;
        Pow(-0.0f64, 4.0f64) = 0.0f64;
        Pow(f64::NEG_INFINITY, 3.0f64) = f64::NEG_INFINITY;
        Pow(0.5f64, f64::NEG_INFINITY) = f64::INFINITY;
        Pow(1.000_000_000_000_000_2f64, f64::MAX) = f64::INFINITY;
        Sin(-0.0f64) = -0.0f64;
        Sin(5e-324f64) = 5e-324f64;
        Sin(f64::INFINITY) = f64::NAN;
        // Published hard cases of argument reduction.
        Sin(6_381_956_970_095_103.0f64 * f64::from_bits((1023 + 797) << 52)) = 1.0f64;
        Cos(6_381_956_970_095_103.0f64 * f64::from_bits((1023 + 797) << 52)) = -4.687_165_924_254_628e-19f64;
        Sin(1e22f64) = -0.852_200_849_767_188_8f64;
        Cos(1e22f64) = 0.523_214_785_395_139f64;
        Cos(0.0f64) = 1.0f64;
        Tan(-0.0f64) = -0.0f64;
        Tan(f64::NEG_INFINITY) = f64::NAN;
        Asin(1.0f64) = std::f64::consts::FRAC_PI_2;
        Asin(-1.5f64) = f64::NAN;
        Acos(1.0f64) = 0.0f64;
        Acos(-1.0f64) = std::f64::consts::PI;
        Atan(f64::INFINITY) = std::f64::consts::FRAC_PI_2;
        Atan(-0.0f64) = -0.0f64;
        Atan2(0.0f64, -0.0f64) = std::f64::consts::PI;
        Atan2(-0.0f64, 0.0f64) = -0.0f64;
        Atan2(f64::INFINITY, f64::NEG_INFINITY) = 3.0 * std::f64::consts::FRAC_PI_4;
        Atan2(1.0f64, f64::NAN) = f64::NAN;
        Sinh(f64::NEG_INFINITY) = f64::NEG_INFINITY;
        Sinh(-0.0f64) = -0.0f64;
        Cosh(0.0f64) = 1.0f64;
        Cosh(f64::NEG_INFINITY) = f64::INFINITY;
        Tanh(30.0f64) = 1.0f64;
        Tanh(-0.0f64) = -0.0f64;
        Asinh(f64::NEG_INFINITY) = f64::NEG_INFINITY;
        Acosh(1.0f64) = 0.0f64;
        Acosh(-1e300f64) = f64::NAN;
        Atanh(1.0f64) = f64::INFINITY;
        Atanh(-2.0f64) = f64::NAN;
        Cbrt(-27.0f64) = -3.0f64;
        Cbrt(5e-324f64) = 1.703_183_936_003_260_3e-108f64;
        Cbrt(f64::NEG_INFINITY) = f64::NEG_INFINITY;
        Cbrt(-0.0f64) = -0.0f64;
        Hypot(3e300f64, 4e300f64) = 5e300f64;
        Hypot(f64::INFINITY, f64::NAN) = f64::INFINITY;
        Erf(-7.0f64) = -1.0f64;
        Erf(-0.0f64) = -0.0f64;
        Erf(f64::NAN) = f64::NAN;
    }
}

fn bits() -> Vec<Worked> {
    worked_out! {
        And(0b1100u32, 0b1010u32) = 0b1000u32;
        And(-1i64, 7i64) = 7i64;
        And(true, false) = false;
        Or(0b1100u32, 0b1010u32) = 0b1110u32;
        Or(true, false) = true;
        Xor(0b1100u64, 0b1010u64) = 0b0110u64;
        Xor(true, true) = false;
        Not(0u32) = u32::MAX;
        Not(0i64) = -1i64;
        Not(true) = false;
        Shl(1u32, 33u32) = 2u32;
        Shl(1u64, 33u32) = 1u64 << 33;
        Shl(1u64, 64u32) = 1u64;
        Shl(-1i32, 31u32) = i32::MIN;
        Shl(1u32, u32::MAX) = 1u32 << 31;
        Shr(-8i32, 1u32) = -4i32;
        Shr(0x8000_0000u32, 31u32) = 1u32;
        Shr(u64::MAX, 65u32) = u64::MAX >> 1;
        Shr(i64::MIN, 63u32) = -1i64;
        Shr(7u32, 32u32) = 7u32;
        RotateLeft(0x8000_0001u32, 1u32) = 3u32;
        RotateLeft(1u64, 64u32) = 1u64;
        RotateLeft(i64::MIN, 1u32) = 1i64;
        RotateRight(1u32, 1u32) = 0x8000_0000u32;
        RotateRight(1i32, 33u32) = i32::MIN;
        Popcount(-1i64) = 64u32;
        Popcount(0u32) = 0u32;
        Popcount(0x8000_0001u32) = 2u32;
        Clz(0u32) = 32u32;
        Clz(1u64) = 63u32;
        Clz(-1i32) = 0u32;
        Ctz(0u64) = 64u32;
        Ctz(0i32) = 32u32;
        Ctz(8i32) = 3u32;
        ExtractBits(0xABCD_1234u32, 8u32, 12u32) = 0xD12u32;
        ExtractBits(0xABCD_1234u32, 0u32, 32u32) = 0xABCD_1234u32;
        ExtractBits(u32::MAX, 28u32, 9u32) = 15u32;
        ExtractBits(u32::MAX, 32u32, 1u32) = 0u32;
        ExtractBits(u32::MAX, u32::MAX, u32::MAX) = 0u32;
        ExtractBits(u32::MAX, 3u32, 0u32) = 0u32;
        ExtractBits(0xF0i32, 4u32, 4u32) = -1i32;
        ExtractBits(0x70i32, 4u32, 4u32) = 7i32;
        ExtractBits(i32::MIN, 31u32, 5u32) = -1i32;
        ExtractBits(0xABu64 << 40, 40u32, 8u32) = 0xABu64;
        ExtractBits(i64::MIN, 60u32, 4u32) = -8i64;
        InsertBits(0u32, u32::MAX, 4u32, 8u32) = 0xFF0u32;
        InsertBits(u32::MAX, 0u32, 4u32, 8u32) = 0xFFFF_F00Fu32;
        InsertBits(1u32, 2u32, 0u32, 32u32) = 2u32;
        InsertBits(1u32, 2u32, 0u32, 99u32) = 2u32;
        InsertBits(5u32, u32::MAX, 32u32, 4u32) = 5u32;
        InsertBits(5u32, u32::MAX, 1u32, 0u32) = 5u32;
        InsertBits(0i32, -1i32, 31u32, 1u32) = i32::MIN;
        InsertBits(0u64, 0x1FFu64, 60u32, 8u32) = 15u64 << 60;
        InsertBits(-1i64, 0i64, 0u32, 63u32) = i64::MIN;
        ReverseBits(1u32) = 0x8000_0000u32;
        ReverseBits(1i64) = i64::MIN;
    }
}

fn comparisons() -> Vec<Worked> {
    worked_out! {
        Eq(1u32, 1u32) = true;
        Eq(NAN, NAN) = false;
        Eq(0.0f32, -0.0f32) = true;
        Eq(true, true) = true;
        Ne(NAN, NAN) = true;
        Ne(0.0f64, -0.0f64) = false;
        Ne(i64::MIN, i64::MAX) = true;
        Lt(-1i32, 0i32) = true;
        Lt(u32::MAX, 0u32) = false;
        Lt(NAN, 1.0f32) = false;
        Lt(-0.0f32, 0.0f32) = false;
        Le(NAN, NAN) = false;
        Le(-0.0f64, 0.0f64) = true;
        Le(u64::MAX, 0u64) = false;
        Gt(INF, f32::MAX) = true;
        Gt(1.0f64, f64::NAN) = false;
        Gt(0i64, -1i64) = true;
        Ge(1u64, 1u64) = true;
        Ge(NAN, NAN) = false;
        Select(true, 1u32, 2u32) = 1u32;
        Select(false, 1.0f32, -NAN) = NAN;
        Select(true, false, true) = false;
    }
}

fn conversions() -> Vec<Worked> {
    worked_out! {
        ToBool(0u32) = false;
        ToBool(-3i64) = true;
        ToBool(-0.0f32) = false;
        ToBool(f32::from_bits(1)) = true;
        ToBool(f64::NAN) = true;
        ToU32(true) = 1u32;
        ToU32(-1i32) = u32::MAX;
        ToU32(0x1_0000_0005u64) = 5u32;
        ToU32(-1.0f32) = 0u32;
        ToU32(3.99f64) = 3u32;
        ToU32(4_294_967_296.0f32) = u32::MAX;
        ToU32(NAN) = 0u32;
        ToI32(3_000_000_000u32) = -1_294_967_296i32;
        ToI32(i64::MIN) = 0i32;
        ToI32(2_147_483_648.0f32) = i32::MAX;
        ToI32(-2_147_483_904.0f32) = i32::MIN;
        ToI32(-1.9f64) = -1i32;
        ToI32(f64::NAN) = 0i32;
        ToU64(-1i32) = u64::MAX;
        ToU64(u32::MAX) = 4_294_967_295u64;
        ToU64(18_446_744_073_709_551_616.0f32) = u64::MAX;
        ToU64(1e19f64) = 10_000_000_000_000_000_000u64;
        ToU64(-INF) = 0u64;
        ToI64(u32::MAX) = 4_294_967_295i64;
        ToI64(-1i32) = -1i64;
        ToI64(u64::MAX) = -1i64;
        ToI64(9.3e18f64) = i64::MAX;
        ToI64(-INF) = i64::MIN;
        ToF32(true) = 1.0f32;
        ToF32(16_777_217u32) = 16_777_216.0f32;
        ToF32(16_777_219u32) = 16_777_220.0f32;
        ToF32(u32::MAX) = 4_294_967_296.0f32;
        // Just above a tie: a detour through f64 would round to the tie, and then down.
        ToF32(0x8000_0080_0000_0001u64) = f32::from_bits(0x5F00_0001);
        ToF32(0x4000_0040_0000_0001i64) = f32::from_bits(0x5E80_0001);
        ToF32(-0x4000_0040_0000_0001i64) = f32::from_bits(0xDE80_0001);
        ToF32(0x8000_0080_0000_0000u64) = f32::from_bits(0x5F00_0000);
        ToF32(u64::MAX) = 18_446_744_073_709_551_616.0f32;
        ToF32(i64::MIN) = -9_223_372_036_854_775_808.0f32;
        ToF32(f64::from_bits(0x3FF0_0000_1000_0000)) = 1.0f32;
        ToF32(f64::from_bits(0x3FF0_0000_1000_0001)) = f32::from_bits(0x3F80_0001);
        ToF32(f64::MAX) = INF;
        ToF32(f64::from_bits(0x3690_0000_0000_0000)) = 0.0f32;
        ToF32(f64::from_bits(0x3690_0000_0000_0001)) = f32::from_bits(1);
        ToF32(-1e-60f64) = -0.0f32;
        ToF32(-f64::NAN) = NAN;
        ToF64(u64::MAX) = 18_446_744_073_709_551_616.0f64;
        ToF64(9_007_199_254_740_993u64) = 9_007_199_254_740_992.0f64;
        ToF64(-9_007_199_254_740_995i64) = -9_007_199_254_740_996.0f64;
        ToF64(0.1f32) = 0.100_000_001_490_116_12f64;
        ToF64(f32::from_bits(1)) = f64::from_bits(0x36A0_0000_0000_0000);
        ToF64(-NAN) = f64::NAN;
        BitsU32(1.0f32) = 0x3F80_0000u32;
        BitsU32(f32::from_bits(0xFFC0_0001)) = 0x7FC0_0000u32;
        BitsU32(-1i32) = u32::MAX;
        BitsI32(u32::MAX) = -1i32;
        BitsI32(-0.0f32) = i32::MIN;
        BitsU64(1.0f64) = 0x3FF0_0000_0000_0000u64;
        BitsU64(f64::from_bits(u64::MAX)) = 0x7FF8_0000_0000_0000u64;
        BitsI64(u64::MAX) = -1i64;
        BitsI64(-0.0f64) = i64::MIN;
        BitsF32(0x7F80_0000u32) = INF;
        BitsF32(u32::MAX) = NAN;
        BitsF32(i32::MIN) = -0.0f32;
        BitsF64(0u64) = 0.0f64;
        BitsF64(i64::MIN) = -0.0f64;
        F16Bits(1.0f32) = 0x3C00u32;
        F16Bits(65_519.99f32) = 0x7BFFu32;
        F16Bits(65_520.0f32) = 0x7C00u32;
        F16Bits(-5.960_464_5e-8f32) = 0x8001u32;
        F16Bits(2.980_232_2e-8f32) = 0u32;
        F16Bits(-NAN) = 0x7E00u32;
        BitsF16(0x3555u32) = 0.333_251_95f32;
        BitsF16(0xFC00u32) = -INF;
        BitsF16(0x0001u32) = 5.960_464_5e-8f32;
        BitsF16(0x1234_8000u32) = -0.0f32;
        BitsF16(0x7C01u32) = NAN;
        Bf16Bits(1.0f32) = 0x3F80u32;
        Bf16Bits(f32::from_bits(0x3F80_8000)) = 0x3F80u32;
        Bf16Bits(f32::from_bits(0x3F81_8000)) = 0x3F82u32;
        Bf16Bits(f32::MAX) = 0x7F80u32;
        Bf16Bits(NAN) = 0x7FC0u32;
        BitsBf16(0xC040u32) = -3.0f32;
        BitsBf16(0xFFFF_0001u32) = f32::from_bits(0x0001_0000);
        BitsBf16(0x7F81u32) = NAN;
    }
}
