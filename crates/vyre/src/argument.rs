//! Arguments that a call can bind to a buffer: numbers, slices of numbers, and resident buffers.
//!
//! A Rust type represents the element types with the same bits: `f32` for f32, `u8` for u8 and
//! bool, `u16` for u16 and for the bits of f16 and bf16. Slices are viewed as bytes in place;
//! nothing is copied.

use crate::resident::{Resident, ResidentBuffer, ResidentCell};
use bytemuck::{NoUninit, Pod, bytes_of, cast_slice, cast_slice_mut};
use vyre_driver::BackendError;
use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics};
use vyre_foundation::ir::DataType;
use vyre_foundation::launch;

/// A number whose slices can serve as a buffer's memory.
pub trait Element: NoUninit + Send + Sync + sealed::Sealed {
    /// The type's name in messages.
    const NAME: &'static str;
    /// The element types that it represents.
    const STANDS_FOR: &'static [DataType];
}

mod sealed {
    pub trait Sealed {}
}

/// An argument for one buffer, made from numbers, slices, vectors, arrays or [`Resident`] buffers.
pub struct Argument<'a> {
    pub(crate) memory: Bound<'a>,
    pub(crate) kind: &'static ElementKind,
}

/// What a call binds to a buffer.
pub(crate) enum Bound<'a> {
    /// Not bound yet.
    Nothing,
    /// A single number, and its length in bytes.
    Number([u8; 8], usize),
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    /// On a device, for reading.
    Resident(&'a ResidentBuffer),
    /// On a device, for writing.
    ResidentMut(&'a ResidentBuffer),
}

impl<'a> Bound<'a> {
    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Bound::Nothing => 0,
            Bound::Number(_, length) => *length,
            Bound::Read(bytes) => bytes.len(),
            Bound::Write(bytes) => bytes.len(),
            Bound::Resident(buffer) | Bound::ResidentMut(buffer) => buffer.bytes(),
        }
    }

    /// The argument as a launch sees it.
    #[inline]
    pub(crate) fn argument(&self) -> launch::LaunchArgument<'_> {
        launch::LaunchArgument { length: self.len(), contents: self.bytes() }
    }

    /// The contents, if they are in host memory.
    #[inline]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Bound::Number(bytes, length) => bytes.get(..*length),
            Bound::Read(bytes) => Some(bytes),
            Bound::Write(bytes) => Some(bytes),
            Bound::Nothing | Bound::Resident(_) | Bound::ResidentMut(_) => None,
        }
    }

    /// The resident buffer, if it is one.
    #[inline]
    pub(crate) fn resident(&self) -> Option<&'a ResidentBuffer> {
        match self {
            Bound::Resident(buffer) | Bound::ResidentMut(buffer) => Some(*buffer),
            Bound::Nothing | Bound::Number(..) | Bound::Read(_) | Bound::Write(_) => None,
        }
    }
}

/// The type of an argument's elements.
pub(crate) struct ElementKind {
    pub(crate) name: &'static str,
    /// Empty for raw bytes, which fit any type.
    pub(crate) stands_for: &'static [DataType],
}

/// One row per element type, for arguments whose type is known only at run time.
macro_rules! kinds {
    ($($data:ident $name:literal;)*) => {
        fn kind_of(element: DataType) -> &'static ElementKind {
            match element {
                $(DataType::$data => const { &ElementKind { name: $name, stands_for: &[DataType::$data] } },)*
            }
        }
    };
}

kinds! {
    Bool "bool"; U8 "u8"; I8 "i8"; U16 "u16"; I16 "i16"; U32 "u32"; I32 "i32"; U64 "u64"; I64 "i64";
    F16 "f16"; Bf16 "bf16"; F32 "f32"; F64 "f64";
}

impl ElementKind {
    pub(crate) const BYTES: ElementKind = ElementKind { name: "bytes", stands_for: &[] };

    #[inline]
    pub(crate) fn fits(&self, element: DataType) -> bool {
        self.stands_for.is_empty() || self.stands_for.contains(&element)
    }
}

impl<'a> Argument<'a> {
    #[inline]
    fn new<T: Element>(memory: Bound<'a>) -> Argument<'a> {
        Argument { memory, kind: const { &ElementKind { name: T::NAME, stands_for: T::STANDS_FOR } } }
    }

    /// Raw little-endian elements of whatever type the buffer has.
    pub fn bytes(bytes: &'a [u8]) -> Argument<'a> {
        Argument { memory: Bound::Read(bytes), kind: &ElementKind::BYTES }
    }

    /// As [`bytes`](Self::bytes), for writing.
    pub fn bytes_mut(bytes: &'a mut [u8]) -> Argument<'a> {
        Argument { memory: Bound::Write(bytes), kind: &ElementKind::BYTES }
    }

    /// Little-endian elements of a type that is known only at run time.
    ///
    /// ```
    /// use vyre::{Argument, DataType};
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let copy = runtime.load("kernel copy(x: read u16[], y: output u16[] len_of x) { y[invocation.x] = x[invocation.x] }")?;
    /// let (x, mut y) = ([1, 0, 2, 1], [0; 4]);
    /// let call = copy.call().bind("x", Argument::elements(DataType::U16, &x));
    /// call.bind("y", Argument::elements_mut(DataType::U16, &mut y)).run()?;
    /// assert_eq!(x, y);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    #[inline]
    pub fn elements(element: DataType, bytes: &'a [u8]) -> Argument<'a> {
        Argument { memory: Bound::Read(bytes), kind: kind_of(element) }
    }

    /// As [`elements`](Self::elements), for writing.
    #[inline]
    pub fn elements_mut(element: DataType, bytes: &'a mut [u8]) -> Argument<'a> {
        Argument { memory: Bound::Write(bytes), kind: kind_of(element) }
    }

    /// A resident buffer of bytes that hold elements of a type known only at run time.
    #[inline]
    pub fn resident(element: DataType, buffer: &'a Resident<u8>) -> Argument<'a> {
        Argument { memory: Bound::Resident(buffer.buffer()), kind: kind_of(element) }
    }

    /// As [`resident`](Self::resident), for writing.
    #[inline]
    pub fn resident_cell(element: DataType, buffer: ResidentCell<'a, u8>) -> Argument<'a> {
        Argument { memory: Bound::ResidentMut(buffer.buffer()), kind: kind_of(element) }
    }
}

macro_rules! elements {
    ($($rust:ident $($data:ident)+;)*) => { $(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const NAME: &'static str = stringify!($rust);
            const STANDS_FOR: &'static [DataType] = &[$(DataType::$data),+];
        }
        impl From<$rust> for Argument<'_> {
            #[inline]
            fn from(number: $rust) -> Self {
                let bytes = bytes_of(&number);
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                Argument::new::<$rust>(Bound::Number(padded, bytes.len()))
            }
        }
    )* };
}

elements! {
    bool Bool;
    u8 U8 Bool;
    i8 I8;
    u16 U16 F16 Bf16;
    i16 I16;
    u32 U32;
    i32 I32;
    u64 U64;
    i64 I64;
    f32 F32;
    f64 F64;
}

macro_rules! slices {
    ($(($($count:tt)*) $slice:ty: $bound:path => $memory:ident($cast:ident);)*) => { $(
        impl<'a, T: Element + $bound, $($count)*> From<$slice> for Argument<'a> {
            #[inline]
            fn from(slice: $slice) -> Argument<'a> {
                Argument::new::<T>(Bound::$memory($cast(slice)))
            }
        }
    )* };
}

// A kernel can write any bits, and not all of them are a valid `bool`: write bools as `u8`.
slices! {
    () &'a [T]: NoUninit => Read(cast_slice);
    () &'a Vec<T>: NoUninit => Read(cast_slice);
    (const N: usize) &'a [T; N]: NoUninit => Read(cast_slice);
    () &'a mut [T]: Pod => Write(cast_slice_mut);
    () &'a mut Vec<T>: Pod => Write(cast_slice_mut);
    (const N: usize) &'a mut [T; N]: Pod => Write(cast_slice_mut);
}

impl<'a, T: Element> From<&'a Resident<T>> for Argument<'a> {
    #[inline]
    fn from(resident: &'a Resident<T>) -> Argument<'a> {
        Argument::new::<T>(Bound::Resident(resident.buffer()))
    }
}

impl<'a, T: Element> From<&'a mut Resident<T>> for Argument<'a> {
    #[inline]
    fn from(resident: &'a mut Resident<T>) -> Argument<'a> {
        resident.cell().into()
    }
}

impl<'a, T: Element> From<ResidentCell<'a, T>> for Argument<'a> {
    #[inline]
    fn from(cell: ResidentCell<'a, T>) -> Argument<'a> {
        Argument::new::<T>(Bound::ResidentMut(cell.buffer()))
    }
}

/// The error of a call with one fault in its arguments.
pub(crate) fn argument_error(message: String) -> BackendError {
    Diagnostics::from(vec![argument_fault(message)]).into()
}

/// A fault in the caller's arguments.
pub(crate) fn argument_fault(message: String) -> Diagnostic {
    Diagnostic::new(Code::Argument, message)
}
