//! Arguments of calls: pointers with a length and an element type, or device arrays.

use crate::array;
use crate::handles::{self, Use};
use crate::status::{FunctionError, VYRE_ARGUMENT};
use crate::text;
use smallvec::SmallVec;
use std::ffi::{c_char, c_void};
use vyre::unstable::{aliased, bind_in_place, next_name};
use vyre::{Argument, Call, DataType};

/// The type of an element.
pub type vyre_type = u32;

macro_rules! types {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal $data:ident;)*) => {
        $($(#[doc = $doc])* pub const $name: vyre_type = $value;)*

        /// Converts a type number from C to an element type.
        #[inline]
        pub(crate) fn data_type(ty: vyre_type) -> Result<DataType, FunctionError> {
            match ty {
                $($name => Ok(DataType::$data),)*
                _ => Err(FunctionError::new(VYRE_ARGUMENT, format!("{ty} is not an element type"))),
            }
        }

        /// Converts an element type to its number in C.
        pub(crate) fn number_of(ty: DataType) -> vyre_type {
            match ty {
                $(DataType::$data => $name,)*
            }
        }
    };
}

types! {
    /// One byte, 0 or 1.
    VYRE_BOOL = 1 Bool;
    /// 8-bit unsigned integer.
    VYRE_U8 = 2 U8;
    /// 8-bit signed integer.
    VYRE_I8 = 3 I8;
    /// 16-bit unsigned integer.
    VYRE_U16 = 4 U16;
    /// 16-bit signed integer.
    VYRE_I16 = 5 I16;
    /// 32-bit unsigned integer.
    VYRE_U32 = 6 U32;
    /// 32-bit signed integer.
    VYRE_I32 = 7 I32;
    /// 64-bit unsigned integer.
    VYRE_U64 = 8 U64;
    /// 64-bit signed integer.
    VYRE_I64 = 9 I64;
    /// The 16 bits of an IEEE-754 half.
    VYRE_F16 = 10 F16;
    /// The upper 16 bits of a float.
    VYRE_BF16 = 11 Bf16;
    /// float.
    VYRE_F32 = 12 F32;
    /// double.
    VYRE_F64 = 13 F64;
}

/// What a call may do with the memory of an argument.
pub type vyre_access = u32;
/// The call only reads it.
pub const VYRE_READ: vyre_access = 0;
/// The call may read and write it.
pub const VYRE_WRITE: vyre_access = 1;

/// An argument of a call: memory for the buffer of that name. Made by `vyre_in`, `vyre_out` and
/// `vyre_on_device`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vyre_argument {
    /// The buffer's name in the kernel.
    pub name: *const c_char,
    /// The elements, in native byte order; null only if there are none or `array` is set.
    pub data: *mut c_void,
    /// The number of elements.
    pub count: usize,
    /// The type of an element.
    pub type_: vyre_type,
    /// Whether the call may write them.
    pub access: vyre_access,
    /// A device array, used instead of memory; null for none.
    pub array: array::vyre_array,
}

/// Upper limit on arguments; more than any kernel has.
const MAX_ARGUMENTS: usize = 1024;

/// The arguments at a pointer.
///
/// # Safety
/// The pointer is null, or points to `count` arguments.
#[inline]
pub(crate) unsafe fn given<'a>(
    arguments: *const vyre_argument,
    count: usize,
) -> Result<&'a [vyre_argument], FunctionError> {
    if count == 0 {
        return Ok(&[]);
    }
    if arguments.is_null() {
        return Err(FunctionError::null("`arguments`"));
    }
    if count > MAX_ARGUMENTS {
        return Err(FunctionError::new(
            VYRE_ARGUMENT,
            format!("{count} arguments are more than a kernel can have"),
        ));
    }
    // SAFETY: by contract.
    Ok(unsafe { std::slice::from_raw_parts(arguments, count) })
}

/// Device arrays among a call's arguments, held in use while the call runs.
#[derive(Default)]
pub(crate) struct ArraysInUse {
    arrays: SmallVec<[Use; 4]>,
}

impl ArraysInUse {
    /// Binds the arguments to a call.
    ///
    /// # Safety
    /// The memory of each argument is valid for its stated length; until the call has run, nothing
    /// else writes it or reads what the call writes. The call is dropped before `self`.
    #[inline]
    pub(crate) unsafe fn bind<'a>(
        &mut self,
        call: &mut Call<'a>,
        arguments: &[vyre_argument],
    ) -> Result<(), FunctionError> {
        check_overlaps(arguments)?;
        for argument in arguments {
            // SAFETY: by contract.
            let name = match next_name(call).filter(|next| unsafe { text::is(argument.name, next) }) {
                Some(next) => next,
                // SAFETY: by contract.
                None => unsafe { text::taken(argument.name, "the name of an argument") }?,
            };
            let bound = if argument.array.is_null() {
                // SAFETY: by contract.
                unsafe { memory(name, argument) }?
            } else {
                // SAFETY: by contract; arrays stay in use as long as `self`.
                unsafe { self.array(name, argument) }?
            };
            bind_in_place(call, name, bound);
        }
        Ok(())
    }

    /// # Safety
    /// The returned argument is dropped before `self`.
    unsafe fn array<'a>(
        &mut self,
        name: &str,
        argument: &vyre_argument,
    ) -> Result<Argument<'a>, FunctionError> {
        let used = handles::find(argument.array.0 as usize);
        let used = used.ok_or_else(|| FunctionError::handle(&format!("array to bind to `{name}`")))?;
        self.arrays.push(used);
        let held = self.arrays.last().and_then(Use::get::<array::HeldArray>);
        let held = held.ok_or_else(|| FunctionError::handle(&format!("array to bind to `{name}`")))?;
        // SAFETY: the object does not move while it is in use, which is as long as `self` lives, by
        // contract.
        let held: &'a array::HeldArray = unsafe { &*std::ptr::from_ref(held) };
        Ok(Argument::resident_cell(held.element, aliased(&held.buffer)))
    }
}

/// # Safety
/// As for [`ArraysInUse::bind`].
#[inline]
unsafe fn memory<'a>(name: &str, argument: &vyre_argument) -> Result<Argument<'a>, FunctionError> {
    let element = data_type(argument.type_)?;
    let length = length_of(argument, element).ok_or_else(|| {
        FunctionError::new(
            VYRE_ARGUMENT,
            format!("`{name}` has {} elements, more than memory can hold", argument.count),
        )
    })?;
    let data = if length > 0 { argument.data.cast::<u8>() } else { std::ptr::NonNull::dangling().as_ptr() };
    if data.is_null() {
        return Err(FunctionError::null(&format!(
            "`data` of `{name}`, which has {} elements,",
            argument.count
        )));
    }
    match argument.access {
        // SAFETY: by contract; `check_overlaps` has ruled out that another argument overlaps what
        // is written.
        VYRE_READ => Ok(Argument::elements(element, unsafe { std::slice::from_raw_parts(data, length) })),
        VYRE_WRITE => {
            // SAFETY: the same.
            let bytes = unsafe { std::slice::from_raw_parts_mut(data, length) };
            Ok(Argument::elements_mut(element, bytes))
        }
        other => Err(FunctionError::new(VYRE_ARGUMENT, format!("{other} is not an access for `{name}`"))),
    }
}

/// Size of an argument in bytes; `None` if that exceeds what memory can hold.
#[inline]
fn length_of(argument: &vyre_argument, element: DataType) -> Option<usize> {
    argument.count.checked_mul(element.size()).filter(|&length| length <= isize::MAX as usize)
}

/// Fails if memory that is written is bound twice.
#[inline]
fn check_overlaps(arguments: &[vyre_argument]) -> Result<(), FunctionError> {
    for (k, written) in arguments.iter().enumerate() {
        if written.access != VYRE_WRITE || !written.array.is_null() {
            continue;
        }
        let others = arguments.iter().enumerate().filter(|(other, _)| *other != k);
        for (_, other) in others {
            if other.array.is_null() && overlap(written, other) {
                // SAFETY: a name is a C string or null, as `bind` requires.
                let names = [written, other].map(|argument| unsafe { text::taken(argument.name, "a name") });
                let names = names.map(|name| name.unwrap_or("?"));
                return Err(FunctionError::new(
                    VYRE_ARGUMENT,
                    format!(
                        "the memory of `{}`, which is written, overlaps that of `{}`",
                        names[0], names[1]
                    ),
                ));
            }
        }
    }
    Ok(())
}

#[inline]
fn overlap(a: &vyre_argument, b: &vyre_argument) -> bool {
    let stretch = |argument: &vyre_argument| {
        let length =
            data_type(argument.type_).ok().and_then(|element| length_of(argument, element)).unwrap_or(0);
        let start = argument.data as usize;
        (start, start.saturating_add(length))
    };
    let ((a_start, a_end), (b_start, b_end)) = (stretch(a), stretch(b));
    a_start < b_end && b_start < a_end && a_start < a_end && b_start < b_end
}
