//! Generated buffer contents: ordinary numbers with awkward ones among them.

use vyre_foundation::ir::{DataType, Value, ValueType};

/// Generates `count` elements of a type, seeded by the name: equal names give equal contents.
pub(crate) fn example_bytes(element: DataType, count: usize, name: &str) -> Vec<u8> {
    let mut state =
        name.bytes().fold(0x9E37_79B9_7F4A_7C15, |state: u64, byte| state.rotate_left(8) ^ u64::from(byte));
    let mut bytes = Vec::with_capacity(count * element.size());
    for _ in 0..count {
        let bits = element.narrow(example(element.value_type(), next(&mut state), next(&mut state)));
        bytes.extend_from_slice(&bits.to_le_bytes()[..element.size()]);
    }
    bytes
}

/// A quarter of the numbers are awkward, the others small: programs index, divide and loop with
/// their inputs.
fn example(ty: ValueType, choice: u64, random: u64) -> Value {
    let awkward = choice.is_multiple_of(4).then_some((choice >> 8) as usize);
    let unit = (random >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match (ty, awkward) {
        (ValueType::Bool, _) => Value::Bool(random & 1 == 1),
        (ValueType::F32, Some(k)) => Value::F32(AWKWARD_F32[k % AWKWARD_F32.len()]),
        (ValueType::F32, None) => Value::F32((unit * 8.0) as f32),
        (ValueType::F64, Some(k)) => Value::F64(f64::from(AWKWARD_F32[k % AWKWARD_F32.len()])),
        (ValueType::F64, None) => Value::F64(unit * 8.0),
        (ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64, Some(k)) => {
            Value::from_bits(ty, AWKWARD_INTEGERS[k % AWKWARD_INTEGERS.len()])
        }
        (ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64, None) => {
            Value::from_bits(ty, random % 64)
        }
    }
}

const AWKWARD_F32: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e-40,
    3e9,
    0.5,
];
const AWKWARD_INTEGERS: [u64; 8] =
    [0, u64::MAX, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1, 0xFFFF_FFFE, 0x8000_0000_8000_0001];

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
