//! What running a program came to, in one form for the interpreter and for every backend.

use crate::data;
use std::fmt;
use vyre_driver::{BackendError, DeviceProfile};
use vyre_foundation::diagnostics::Diagnostics;
use vyre_foundation::ir::{BufferDecl, Program};
use vyre_foundation::types::{DataType, ValueType};
use vyre_reference::RunError;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// One per output and read_write buffer, in binding order.
    Outputs(Vec<Vec<u8>>),
    /// The program trapped with this code.
    Trapped(u32),
    /// The time was up.
    Timeout,
    /// The program, its inputs or its configuration are wrong on every backend.
    Invalid(Diagnostics),
    /// This backend lacks something that the program needs.
    Unsupported(String),
    /// Anything else: a fault of the backend.
    Failed(String),
}

impl From<Result<vyre_reference::Run, RunError>> for Outcome {
    fn from(result: Result<vyre_reference::Run, RunError>) -> Outcome {
        match result {
            Ok(run) => Outcome::Outputs(run.outputs),
            Err(RunError::Trapped { code }) => Outcome::Trapped(code),
            Err(RunError::Timeout) => Outcome::Timeout,
            Err(RunError::Launch(diagnostics)) => Outcome::Invalid(diagnostics),
            Err(
                error @ (RunError::NotWritable { .. }
                | RunError::SubgroupSize(_)
                | RunError::Memory { .. }
                | RunError::Diverged(_)),
            ) => Outcome::Failed(error.to_string()),
        }
    }
}

impl From<Result<Vec<Vec<u8>>, BackendError>> for Outcome {
    fn from(result: Result<Vec<Vec<u8>>, BackendError>) -> Outcome {
        match result {
            Ok(outputs) => Outcome::Outputs(outputs),
            Err(BackendError::Trapped { code, .. }) => Outcome::Trapped(code),
            Err(BackendError::Timeout { .. }) => Outcome::Timeout,
            Err(BackendError::InvalidProgram { diagnostics }) => Outcome::Invalid(diagnostics),
            Err(error @ BackendError::UnsupportedFeature { .. }) => Outcome::Unsupported(error.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Outputs(outputs) => write!(f, "{} outputs", outputs.len()),
            Outcome::Trapped(code) => write!(f, "trap {code}"),
            Outcome::Timeout => f.write_str("timeout"),
            Outcome::Invalid(diagnostics) => write!(f, "refused: {diagnostics}"),
            Outcome::Unsupported(what) => write!(f, "unsupported: {what}"),
            Outcome::Failed(message) => write!(f, "failed: {message}"),
        }
    }
}

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

    fn accepts(self, element: DataType, expected: &[u8], found: &[u8]) -> bool {
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

/// The buffers that a dispatch returns, in binding order.
pub fn returned_buffers(program: &Program) -> Vec<&BufferDecl> {
    let mut decls: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_output()).collect();
    decls.sort_by_key(|decl| decl.binding);
    decls
}

/// The buffers that a dispatch takes, in binding order.
pub fn given_buffers(program: &Program) -> Vec<&BufferDecl> {
    let mut decls: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_input()).collect();
    decls.sort_by_key(|decl| decl.binding);
    decls
}

/// What distinguishes `found` from `expected`, in one line; `None` if they are equal within the tolerance.
pub fn difference(
    program: &Program,
    expected: &Outcome,
    found: &Outcome,
    tolerance: Tolerance,
) -> Option<String> {
    let (Outcome::Outputs(expected), Outcome::Outputs(found)) = (expected, found) else {
        let same = match (expected, found) {
            // Who refuses first may word it differently.
            (Outcome::Invalid(expected), Outcome::Invalid(found)) => {
                expected.iter().map(|item| item.code).eq(found.iter().map(|item| item.code))
            }
            _ => expected == found,
        };
        return (!same).then(|| format!("expected {expected}, found {found}"));
    };
    let decls = returned_buffers(program);
    if expected.len() != found.len() || expected.len() != decls.len() {
        return Some(format!("expected {} outputs, found {}", expected.len(), found.len()));
    }
    for ((decl, expected), found) in decls.into_iter().zip(expected).zip(found) {
        if expected.len() != found.len() {
            let (expected, found) = (expected.len(), found.len());
            return Some(format!("`{}` has {found} bytes, expected {expected}", decl.name));
        }
        let elements = expected.chunks(decl.element.size()).zip(found.chunks(decl.element.size()));
        for (k, (expected, found)) in elements.enumerate() {
            if !tolerance.accepts(decl.element, expected, found) {
                let show = |bytes: &[u8]| data::show_element(decl.element, bytes);
                let (name, expected, found) = (&decl.name, show(expected), show(found));
                return Some(format!("`{name}[{k}]` is {found}, expected {expected}"));
            }
        }
    }
    None
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
