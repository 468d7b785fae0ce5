//! Kernels as text, preceded by constants that hold the family's parameters.

use super::plan::PlanError;
use vyre_driver::DeviceProfile;
use vyre_foundation::ir::{DataType, Program, Value};
use vyre_foundation::text::parse;

/// Parses a kernel preceded by these constants.
pub(super) fn program(constants: &[(&str, Value)], kernel: &str) -> Program {
    let constant =
        |(name, value): &(&str, Value)| format!("const {name}: {} = {}\n", value.ty(), literal(*value));
    let mut text: String = constants.iter().map(constant).collect();
    text += kernel;
    match parse(&text) {
        Ok(program) => program,
        Err(faults) => unreachable!("a text of the catalogue is not a program: {faults}\n{text}"),
    }
}

/// A value as a literal of the text form.
fn literal(value: Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::U32(value) => format!("{value}u32"),
        Value::I32(value) => format!("{value}i32"),
        Value::U64(value) => format!("{value}u64"),
        Value::I64(value) => format!("{value}i64"),
        Value::F32(value) => format!("f32_bits(0x{:08x})", value.to_bits()),
        Value::F64(value) => format!("f64_bits(0x{:016x}u64)", value.to_bits()),
    }
}

/// The type of a loaded element, as an element type.
pub(super) fn widened(element: DataType) -> DataType {
    element.value_type().data_type()
}

/// Refuses elements that are not numbers.
pub(super) fn number(op: &'static str, element: DataType, lacks: &str) -> Result<(), PlanError> {
    match element.value_type().is_float() || element.value_type().is_integer() {
        true => Ok(()),
        false => Err(PlanError::new(op, format!("{} has no {lacks}", element.name()))),
    }
}

/// The number of elements of a grid with these sides.
pub(super) fn area(op: &'static str, width: u32, height: u32) -> Result<u32, PlanError> {
    width.checked_mul(height).ok_or_else(|| PlanError {
        op,
        message: format!("{width} by {height} elements are too many; a buffer has fewer than 2^32"),
    })
}

/// A grid of at least this many workgroups: one row, or several where the device's rows are short.
/// Kernels number them with `workgroup.y * grid_size.x + workgroup.x` and skip those beyond the
/// last.
pub(super) fn grid_of(groups: u32, device: &DeviceProfile) -> [u32; 3] {
    let most = match device.max_workgroups_per_dimension {
        0 => 32_768,
        most => most.min(32_768),
    };
    let width = groups.clamp(1, most);
    [width, groups.div_ceil(width), 1]
}

/// Parses a kernel preceded by constants of these names and values.
macro_rules! kernel {
    ($text:expr; $($name:ident: $value:expr,)*) => {
        $crate::catalogue::text::program(
            &[$((stringify!($name), vyre_foundation::ir::Value::from($value))),*],
            $text,
        )
    };
}

pub(super) use kernel;

/// Statements, one per item.
pub(super) fn lines<T>(each: impl IntoIterator<Item = T>, line: impl FnMut(T) -> String) -> String {
    each.into_iter().map(line).collect::<Vec<String>>().join("\n")
}

/// The pairs in which strands are combined: (s, s + half) for each s below half, then with half of
/// that, and so on.
pub(super) fn joins(strands: u32) -> impl Iterator<Item = (u32, u32)> {
    let halves = std::iter::successors(Some(strands / 2), |half| Some(half / 2)).take_while(|&half| half > 0);
    halves.flat_map(|half| (0..half).map(move |strand| (strand, strand + half)))
}
