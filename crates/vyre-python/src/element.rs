//! Element types as named by the buffer protocol and by NumPy.

use std::ffi::CStr;
use vyre::DataType;

/// Element type of a buffer with this format and item size; `None` if kernels have no such type.
pub(crate) fn of_format(format: &CStr, size: isize) -> Option<DataType> {
    let (order, code) = match *format.to_bytes() {
        [code] => (b'@', code),
        [order @ (b'@' | b'=' | b'<' | b'>' | b'!' | b'|'), code] => (order, code),
        _ => return None,
    };
    // Elements are little-endian, as are all machines that this is built for.
    if size > 1 && matches!(order, b'>' | b'!') {
        return None;
    }
    Some(match (code, size) {
        (b'?', 1) => DataType::Bool,
        (b'B' | b'c', 1) => DataType::U8,
        (b'b', 1) => DataType::I8,
        (b'H', 2) => DataType::U16,
        (b'h', 2) => DataType::I16,
        (b'I' | b'L' | b'N', 4) => DataType::U32,
        (b'i' | b'l' | b'n', 4) => DataType::I32,
        (b'Q' | b'L' | b'N', 8) => DataType::U64,
        (b'q' | b'l' | b'n', 8) => DataType::I64,
        (b'e', 2) => DataType::F16,
        (b'f', 4) => DataType::F32,
        (b'd', 8) => DataType::F64,
        _ => return None,
    })
}

/// Name of NumPy's type for these elements; bf16 is represented by its bits.
pub(crate) fn numpy_name(element: DataType) -> &'static str {
    match element {
        DataType::Bool => "bool",
        DataType::U8 => "uint8",
        DataType::I8 => "int8",
        DataType::U16 | DataType::Bf16 => "uint16",
        DataType::I16 => "int16",
        DataType::U32 => "uint32",
        DataType::I32 => "int32",
        DataType::U64 => "uint64",
        DataType::I64 => "int64",
        DataType::F16 => "float16",
        DataType::F32 => "float32",
        DataType::F64 => "float64",
    }
}

/// Whether elements of one type can be bound where the other is declared: the same type, or the
/// bits of a half float.
pub(crate) fn fits(given: DataType, declared: DataType) -> bool {
    given == declared || (given == DataType::U16 && matches!(declared, DataType::F16 | DataType::Bf16))
}
