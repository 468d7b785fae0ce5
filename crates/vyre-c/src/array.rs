//! Device arrays: memory that stays on a backend between calls.

use crate::argument::{data_type, number_of, vyre_type};
use crate::handles::{self, Use};
use crate::runtime::{self, vyre_runtime};
use crate::status::{FunctionError, VYRE_ARGUMENT, guarded, vyre_status};
use std::ffi::c_void;
use vyre::unstable::aliased;
use vyre::{DataType, Resident};

/// Memory that stays on a backend between calls. It belongs to the runtime that it was made with.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct vyre_array(pub *mut c_void);

impl vyre_array {
    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

pub(crate) struct HeldArray {
    pub(crate) element: DataType,
    /// Elements as bytes.
    pub(crate) buffer: Resident<u8>,
}

impl HeldArray {
    fn count(&self) -> usize {
        self.buffer.len() / self.element.size()
    }
}

fn found(array: vyre_array) -> Result<Use, FunctionError> {
    if array.is_null() {
        return Err(FunctionError::null("the array"));
    }
    handles::find(array.0 as usize).ok_or_else(|| FunctionError::handle("array"))
}

fn held(used: &Use) -> Result<&HeldArray, FunctionError> {
    used.get().ok_or_else(|| FunctionError::handle("array"))
}

/// Size of `count` elements in bytes.
fn length(element: DataType, count: usize) -> Result<usize, FunctionError> {
    let length = count.checked_mul(element.size()).filter(|&length| length <= isize::MAX as usize);
    length.ok_or_else(|| {
        FunctionError::new(VYRE_ARGUMENT, format!("{count} elements are more than memory can hold"))
    })
}

/// Creates a device array with these contents; all zeros if `contents` is null.
///
/// # Safety
/// `contents` is null or points to that many elements; `array` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_array_new(
    runtime: vyre_runtime,
    type_: vyre_type,
    count: usize,
    contents: *const c_void,
    array: *mut vyre_array,
) -> vyre_status {
    guarded(|| {
        if array.is_null() {
            return Err(FunctionError::null("`array`"));
        }
        let element = data_type(type_)?;
        let length = length(element, count)?;
        let used = runtime::found(runtime)?;
        let runtime = &runtime::held(&used)?.runtime;
        let buffer = if contents.is_null() || length == 0 {
            let mut zeros = Vec::new();
            let room = zeros.try_reserve_exact(length);
            room.map_err(|_| {
                FunctionError::new(VYRE_ARGUMENT, format!("there is no memory for {count} elements"))
            })?;
            zeros.resize(length, 0);
            runtime.resident(&zeros)
        } else {
            // SAFETY: by contract.
            runtime.resident(unsafe { std::slice::from_raw_parts(contents.cast::<u8>(), length) })
        };
        let handle = handles::insert(HeldArray { element, buffer })?;
        // SAFETY: by contract.
        unsafe { *array = vyre_array(handle as *mut c_void) };
        Ok(())
    })
}

/// Frees a device array. A call that uses it on another thread completes first. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_array_free(array: vyre_array) -> vyre_status {
    guarded(|| {
        if array.is_null() {
            return Ok(());
        }
        held(&found(array)?)?;
        if handles::free(array.0 as usize) { Ok(()) } else { Err(FunctionError::handle("array")) }
    })
}

/// Copies elements out of a device array, starting at index `first`.
///
/// # Safety
/// `to` is null or has room for that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_array_read(
    array: vyre_array,
    first: usize,
    count: usize,
    to: *mut c_void,
) -> vyre_status {
    guarded(|| {
        let used = found(array)?;
        let held = held(&used)?;
        let (start, length) = stretch(held, first, count, to)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: by contract.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
        Ok(held.buffer.read_into(start, to)?)
    })
}

/// Replaces elements of a device array, starting at index `first`.
///
/// # Safety
/// `from` is null or points to that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_array_write(
    array: vyre_array,
    first: usize,
    count: usize,
    from: *const c_void,
) -> vyre_status {
    guarded(|| {
        let used = found(array)?;
        let held = held(&used)?;
        let (start, length) = stretch(held, first, count, from)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: by contract.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
        Ok(aliased(&held.buffer).write(start, from)?)
    })
}

/// Byte offset and length of a range of elements, after checking the range and the pointer.
fn stretch(
    held: &HeldArray,
    first: usize,
    count: usize,
    memory: *const c_void,
) -> Result<(usize, usize), FunctionError> {
    let has = held.count();
    if first.checked_add(count).is_none_or(|end| end > has) {
        let message = format!("{count} elements from {first} on, of an array that has {has}");
        return Err(FunctionError::new(VYRE_ARGUMENT, message));
    }
    if memory.is_null() && count > 0 {
        return Err(FunctionError::null("the memory to copy"));
    }
    Ok((first * held.element.size(), count * held.element.size()))
}

/// Returns the number of elements of a device array, and their type. Either pointer may be null.
///
/// # Safety
/// `count` and `type` are null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_array_shape(
    array: vyre_array,
    count: *mut usize,
    type_: *mut vyre_type,
) -> vyre_status {
    guarded(|| {
        let used = found(array)?;
        let held = held(&used)?;
        // SAFETY: by contract.
        unsafe {
            if let Some(count) = count.as_mut() {
                *count = held.count();
            }
            if let Some(type_) = type_.as_mut() {
                *type_ = number_of(held.element);
            }
        }
        Ok(())
    })
}
