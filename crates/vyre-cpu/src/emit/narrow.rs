//! Elements narrower than a lane.

use crate::piece::Narrow;
use vyre_foundation::types::DataType;

/// Width of the lanes that narrow elements are loaded into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Width {
    Full,
    Half,
}

/// Memory layout of an element narrower than a lane.
pub(super) fn narrow(element: DataType) -> Option<Narrow> {
    match element {
        DataType::U8 => Some(Narrow { bytes: 1, signed: false }),
        DataType::I8 => Some(Narrow { bytes: 1, signed: true }),
        DataType::U16 => Some(Narrow { bytes: 2, signed: false }),
        DataType::I16 => Some(Narrow { bytes: 2, signed: true }),
        DataType::Bool
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64
        | DataType::F16
        | DataType::Bf16
        | DataType::F32
        | DataType::F64 => None,
    }
}
