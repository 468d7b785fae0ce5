//! How far a device's results may be from the oracle's and still count as the same.

use crate::DeviceProfile;
use vyre_foundation::ir::{BufferDecl, DataType, Program, ValueType};

/// How far outputs may differ and still count as equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Units in the last place that a float may be off.
    pub ulps: u64,
    /// Whether a subnormal may be zero.
    pub subnormals: bool,
    /// Whether the sign of a zero may differ.
    pub zero_sign: bool,
    /// Whether anything goes where the exact result is infinite or NaN.
    pub non_finite: bool,
}

impl Tolerance {
    /// What the device promises for a program: equality by bits if it is strict, else the bounds declared in the
    /// rows of the ops that the program uses, added up.
    pub fn of(profile: &DeviceProfile, program: &Program) -> Tolerance {
        let Ok(kernel) = program.validate() else { return Tolerance::default() };
        if profile.strict_float {
            return Tolerance::default();
        }
        let departs = profile.float_departures;
        let rows = vyre_foundation::ops::Op::ALL.iter().filter(|op| kernel.needs.ops.contains(&op.id()));
        let declared: u64 = rows.map(|op| u64::from(op.row().loose_ulp)).sum();
        Tolerance {
            ulps: declared + u64::from(departs.contracts),
            subnormals: departs.flushes_subnormals,
            zero_sign: departs.ignores_zero_sign,
            non_finite: departs.ignores_non_finite,
        }
    }

    /// Whether an element may stand for the one expected.
    pub fn accepts(self, element: DataType, expected: &[u8], found: &[u8]) -> bool {
        if expected == found {
            return true;
        }
        let (Some(a), Some(b)) = (ordered(element, expected), ordered(element, found)) else { return false };
        let small = |x: i128| x.abs() < smallest_normal(element);
        let huge = infinity(element);
        // Bits that differ at equal places are the two zeros, whose sign has a flag of its own.
        let close = a != b && (a - b).unsigned_abs() <= u128::from(self.ulps);
        (self.non_finite && a.abs() >= huge)
            || (self.subnormals && small(a) && small(b))
            || (self.zero_sign && a == 0 && b == 0)
            || (a.abs() < huge && b.abs() < huge && close)
    }
}

/// A float's place among all floats of its type: neighbours differ by one, both zeros are 0. `None` for other types.
fn ordered(element: DataType, bytes: &[u8]) -> Option<i128> {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = i128::from(u64::from_le_bytes(word));
    let sign = 1i128 << (8 * element.size() - 1);
    match element.value_type() {
        ValueType::F32 | ValueType::F64 if bits >= sign => Some(sign - bits),
        ValueType::F32 | ValueType::F64 => Some(bits),
        ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => None,
    }
}

fn mantissa_bits(element: DataType) -> u32 {
    match element {
        DataType::F16 => 10,
        DataType::Bf16 => 7,
        DataType::F64 => 52,
        DataType::F32
        | DataType::Bool
        | DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64 => 23,
    }
}

fn smallest_normal(element: DataType) -> i128 {
    1 << mantissa_bits(element)
}

fn infinity(element: DataType) -> i128 {
    let all = (1i128 << (8 * element.size() - 1)) - 1;
    all - (smallest_normal(element) - 1)
}

/// Where a backend's outputs first differ from the oracle's by more than the tolerance, in words; `None` if nowhere. Both
/// are in binding order.
pub fn output_difference(
    program: &Program,
    expected: &[Vec<u8>],
    found: &[Vec<u8>],
    tolerance: Tolerance,
) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("it returned {} outputs, the oracle {}", found.len(), expected.len()));
    }
    let mut decls: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_output()).collect();
    decls.sort_by_key(|decl| decl.binding);
    let mut outputs = decls.into_iter().zip(expected.iter().zip(found));
    outputs.find_map(|(decl, (expected, found))| buffer_difference(decl, expected, found, tolerance))
}

fn buffer_difference(
    decl: &BufferDecl,
    expected: &[u8],
    found: &[u8],
    tolerance: Tolerance,
) -> Option<String> {
    // By far the commonest case, and a comparison of whole slices is the fastest.
    if expected == found {
        return None;
    }
    let name = &decl.name;
    if expected.len() != found.len() {
        return Some(format!("`{name}` has {} bytes, the oracle's {}", found.len(), expected.len()));
    }
    let size = decl.element.size();
    let elements = expected.chunks(size).zip(found.chunks(size)).enumerate();
    let wrong =
        |(_, (expected, found)): &(usize, (&[u8], &[u8]))| !tolerance.accepts(decl.element, expected, found);
    let (index, (expected, found)) = { elements }.find(wrong)?;
    let bits = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
    Some(format!("`{name}[{index}]` has bits 0x{}, the oracle's 0x{}", bits(found), bits(expected)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_counts_units_in_the_last_place() {
        let check = |element: DataType, a: &[u8], b: &[u8], tolerance: Tolerance, expected: bool| {
            assert_eq!(tolerance.accepts(element, a, b), expected, "{a:?} {b:?} {tolerance:?}");
        };
        let f32 = |x: f32| x.to_le_bytes();
        let (one, next) = (f32(1.0), f32(f32::from_bits(1.0f32.to_bits() + 1)));
        let strict = Tolerance::default();
        let loose = Tolerance { ulps: 1, ..strict };
        check(DataType::F32, &one, &next, strict, false);
        check(DataType::F32, &one, &next, loose, true);
        check(DataType::U32, &one, &next, loose, false);
        check(DataType::F32, &f32(0.0), &f32(-0.0), strict, false);
        check(DataType::F32, &f32(0.0), &f32(-0.0), Tolerance { zero_sign: true, ..strict }, true);
        check(DataType::F32, &f32(1e-45), &f32(0.0), Tolerance { subnormals: true, ..strict }, true);
        check(
            DataType::F32,
            &f32(f32::MIN_POSITIVE),
            &f32(0.0),
            Tolerance { subnormals: true, ..strict },
            false,
        );
        check(DataType::F32, &f32(f32::MAX), &f32(f32::INFINITY), loose, false);
        check(DataType::F32, &f32(f32::NAN), &one, Tolerance { non_finite: true, ..strict }, true);
        check(DataType::F16, &[0, 0x3C], &[1, 0x3C], loose, true);
    }
}
