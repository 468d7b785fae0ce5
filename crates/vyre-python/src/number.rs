//! Python numbers as single values.

use crate::errors;
use crate::parameter::Parameter;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use vyre::DataType;
use vyre::ir::Value;

/// Bytes of a single value, and their number.
pub(crate) type Bytes = ([u8; 8], usize);

/// Converts a Python number to the bytes of a parameter.
pub(crate) fn bytes(value: &Bound<'_, PyAny>, parameter: &Parameter, of: &str) -> PyResult<Bytes> {
    if parameter.element == DataType::F32
        && let Ok(number) = value.cast_exact::<PyFloat>()
    {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&(number.value() as f32).to_le_bytes());
        return Ok((bytes, 4));
    }
    let number = read(value, parameter.element)
        .ok_or_else(|| errors::argument(value.py(), misfit(value, parameter, of)))?;
    let (mut bytes, size) = ([0; 8], parameter.element.size());
    if !parameter.element.store(number, &mut bytes[..size]) {
        return Err(errors::argument(value.py(), misfit(value, parameter, of)));
    }
    Ok((bytes, size))
}

/// Converts a number to this type: integers are accepted as floats, but floats not as integers.
fn read(value: &Bound<'_, PyAny>, element: DataType) -> Option<Value> {
    match element {
        DataType::Bool => truth(value).map(Value::Bool),
        DataType::F16 | DataType::Bf16 | DataType::F32 => {
            float(value).map(|number| Value::F32(number as f32))
        }
        DataType::F64 => float(value).map(Value::F64),
        DataType::U8 => whole(value, 0..=u8::MAX.into()).map(|number| Value::U32(number as u32)),
        DataType::U16 => whole(value, 0..=u16::MAX.into()).map(|number| Value::U32(number as u32)),
        DataType::U32 => whole(value, 0..=u32::MAX.into()).map(|number| Value::U32(number as u32)),
        DataType::U64 => whole(value, 0..=u64::MAX.into()).map(|number| Value::U64(number as u64)),
        DataType::I8 => whole(value, i8::MIN.into()..=i8::MAX.into()).map(|number| Value::I32(number as i32)),
        DataType::I16 => {
            whole(value, i16::MIN.into()..=i16::MAX.into()).map(|number| Value::I32(number as i32))
        }
        DataType::I32 => {
            whole(value, i32::MIN.into()..=i32::MAX.into()).map(|number| Value::I32(number as i32))
        }
        DataType::I64 => {
            whole(value, i64::MIN.into()..=i64::MAX.into()).map(|number| Value::I64(number as i64))
        }
    }
}

fn truth(value: &Bound<'_, PyAny>) -> Option<bool> {
    let is_numpy = || value.get_type().name().is_ok_and(|name| name == "bool_" || name == "bool");
    if value.is_instance_of::<PyBool>() || is_numpy() { value.is_truthy().ok() } else { None }
}

fn float(value: &Bound<'_, PyAny>) -> Option<f64> {
    let is_number = value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || is_scalar(value);
    if is_number && !value.is_instance_of::<PyBool>() { value.extract().ok() } else { None }
}

fn whole(value: &Bound<'_, PyAny>, range: std::ops::RangeInclusive<i128>) -> Option<i128> {
    let is_number = value.is_instance_of::<PyInt>() || is_scalar(value);
    if !is_number || value.is_instance_of::<PyBool>() {
        return None;
    }
    // Values without `__index__`, such as floats, are rejected, and so are those beyond 64 bits.
    let signed = value.extract::<i64>().map(i128::from);
    signed.or_else(|_| value.extract::<u64>().map(i128::from)).ok().filter(|number| range.contains(number))
}

/// Whether it is a NumPy scalar or a zero-dimensional array.
fn is_scalar(value: &Bound<'_, PyAny>) -> bool {
    let axes = value.getattr("ndim").and_then(|axes| axes.extract::<usize>());
    axes.is_ok_and(|axes| axes == 0)
}

fn misfit(value: &Bound<'_, PyAny>, parameter: &Parameter, of: &str) -> String {
    let Parameter { name, element, .. } = parameter;
    let shown = value.repr().map_or_else(|_| "this value".into(), |shown| shown.to_string());
    let short = if shown.chars().count() > 60 { errors::type_name(value) } else { shown };
    let takes = match element {
        DataType::Bool => "True or False",
        _ if element.value_type().is_float() => "a number",
        _ => "a whole number that it can hold",
    };
    format!("`{name}` of {of} is a single {element}, and {short} is not; pass {takes}")
}
