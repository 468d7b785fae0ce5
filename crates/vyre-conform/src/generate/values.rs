//! Literals and input bytes, mostly edge cases of each type, where backends tend to differ.

use crate::choices::Choices;
use vyre_foundation::types::{DataType, Value, ValueType};

const INTEGERS: [u64; 20] = [
    0,
    1,
    2,
    3,
    5,
    7,
    31,
    32,
    33,
    63,
    64,
    0xFF,
    0x8000,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    0xFFFF_FFFF_FFFF_FFFF,
];

/// Zeros, halves and ties, subnormals, limits of conversions, infinities and NaN; all exact in
/// `f32`.
const FLOATS: [f64; 36] = [
    0.0,
    0.0,
    0.0,
    -0.0,
    -0.0,
    1.0,
    -1.0,
    -0.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    0.1f32 as f64,
    1e-3f32 as f64,
    100.75,
    65504.0,
    65520.0,
    2049.0,
    8_388_609.0,
    16_777_216.0,
    2_147_483_648.0,
    -2_147_483_904.0,
    4_294_967_296.0,
    9.223_372_036_854_776e18,
    1.8446744073709552e19,
    f32::MAX as f64,
    f32::MIN as f64,
    f32::MIN_POSITIVE as f64,
    1.401_298_464_324_817e-45,
    -1.401_298_464_324_817e-45,
    5.960_464_477_539_063e-8,
    2.980_232_238_769_531_3e-8,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Numbers that only `f64` can represent.
const WIDE_FLOATS: [f64; 6] =
    [f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.1, 4_503_599_627_370_497.5, 9_007_199_254_740_993.0];

/// A value of type `ty`: an edge case, a small number or arbitrary bits. NaNs are canonical.
pub(crate) fn value(choices: &mut Choices<'_>, ty: ValueType) -> Value {
    match ty {
        ValueType::Bool => Value::Bool(choices.below(2) == 1),
        ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => {
            let bits = match choices.below(4) {
                0 => choices.below(16) as u64,
                1 => choices.word(),
                _ => choices.pick_from(INTEGERS),
            };
            Value::from_bits(ty, bits)
        }
        ValueType::F32 => match choices.below(4) {
            0 => Value::F32(small_float(choices)),
            1 => Value::from_bits(ty, choices.word()).canonical(),
            _ => Value::F32(choices.pick_from(FLOATS) as f32).canonical(),
        },
        ValueType::F64 => match choices.below(5) {
            0 => Value::F64(small_float(choices).into()),
            1 => Value::from_bits(ty, choices.word()).canonical(),
            2 => Value::F64(choices.pick_from(WIDE_FLOATS)),
            _ => Value::F64(choices.pick_from(FLOATS)).canonical(),
        },
    }
}

fn small_float(choices: &mut Choices<'_>) -> f32 {
    (choices.below(64) as f32 - 16.0) / 4.0
}

/// The bytes of `count` elements. Some are bit patterns that no store produces: NaNs with payloads,
/// a `bool` of 7.
pub(crate) fn elements(choices: &mut Choices<'_>, element: DataType, count: u32) -> Vec<u8> {
    // One choice seeds all elements, so that long buffers do not use up the bytes.
    let mut state = choices.word();
    let stretched =
        crate::choices::bytes_from_seed(crate::choices::next_random(&mut state), 24 * count as usize);
    let mut source = Choices::new(&stretched);
    let mut bytes = Vec::with_capacity(count as usize * element.size());
    for _ in 0..count {
        let bits = match source.below(8) {
            0 => source.word(),
            _ => element.narrow(value(&mut source, element.value_type())),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..element.size()]);
    }
    bytes
}
