//! Compares two results of a shader: integers by bits, floats within a relative tolerance of 1e-5.

use vyre_foundation::ir::{DataType, Value};
use vyre_import::Layout;

/// Differences found so far.
#[derive(Default)]
pub(crate) struct Difference {
    /// Number of elements with different bits.
    pub(crate) bits: usize,
    /// Greatest relative difference of floats.
    pub(crate) greatest: f64,
    /// First element outside the tolerance.
    pub(crate) first: Option<String>,
}

const RELATIVE: f64 = 1e-5;
/// One step of an f16, which has 11 bits of precision.
const RELATIVE_F16: f64 = 1.0 / 1024.0;

/// Compares the memory of one buffer.
pub(crate) fn compare(layout: &Layout, a: &[u8], b: &[u8], at: usize, found: &mut Difference) {
    match layout {
        Layout::Scalar(ty) => {
            if a.len() >= ty.size() && b.len() >= ty.size() {
                scalar(*ty, a, b, at, found);
            }
        }
        Layout::Struct(members) => {
            for (offset, member) in members {
                let offset = *offset as usize;
                if let (Some(a), Some(b)) = (a.get(offset..), b.get(offset..)) {
                    compare(member, a, b, at + offset, found);
                }
            }
        }
        Layout::Array { stride, count, element } => {
            let stride = (*stride).max(1) as usize;
            let count = count.map_or(usize::MAX, |count| count as usize);
            for (index, (a, b)) in a.chunks(stride).zip(b.chunks(stride)).take(count).enumerate() {
                compare(element, a, b, at + index * stride, found);
            }
        }
    }
}

fn scalar(ty: DataType, a: &[u8], b: &[u8], at: usize, found: &mut Difference) {
    let size = ty.size();
    if a[..size] == b[..size] {
        return;
    }
    found.bits += 1;
    let (Some(x), Some(y)) = (ty.load(&a[..size]), ty.load(&b[..size])) else { return };
    let (allowed, x_number, y_number) = match (x, y) {
        (Value::F32(x), Value::F32(y)) => {
            let is_half = ty == DataType::F16 || ty == DataType::Bf16;
            (if is_half { RELATIVE_F16 } else { RELATIVE }, f64::from(x), f64::from(y))
        }
        (Value::F64(x), Value::F64(y)) => (RELATIVE, x, y),
        _ => (0.0, 0.0, 1.0),
    };
    if x_number.is_nan() && y_number.is_nan() {
        return;
    }
    let distance = (x_number - y_number).abs();
    let relative = distance / x_number.abs().max(y_number.abs());
    let is_near = relative <= allowed || (allowed > 0.0 && distance <= 1e-6);
    if allowed > 0.0 && !is_near {
        found.greatest = found.greatest.max(relative);
    }
    if !is_near && found.first.is_none() {
        found.first = Some(format!("byte {at}: {x:?} and {y:?}"));
    }
}
