//! Strings exchanged with C.

use crate::status::{FunctionError, VYRE_ARGUMENT};
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

/// Strings currently owned by callers; only these are freed.
static GIVEN: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

/// Converts a string for C, with zero bytes escaped.
pub(crate) fn visible(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// Gives the caller a string.
///
/// # Safety
/// `place` can be written.
pub(crate) unsafe fn give(place: *mut *mut c_char, text: &str) -> Result<(), FunctionError> {
    let text = visible(text).into_raw();
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(text as usize);
    // SAFETY: by contract.
    unsafe { *place = text };
    Ok(())
}

/// Frees a string that was given out; null is ignored. `false` if it is not one.
pub(crate) fn free(text: *mut c_char) -> bool {
    if text.is_null() {
        return true;
    }
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_ours = given.get_or_insert_default().remove(&(text as usize));
    drop(given);
    if is_ours {
        // SAFETY: `give` created it with `into_raw`, and it has not been freed since.
        drop(unsafe { CString::from_raw(text) });
    }
    is_ours
}

/// Whether the string behind a pointer equals `known`; faster than measuring its length first.
///
/// # Safety
/// As for [`taken`].
#[inline]
pub(crate) unsafe fn is(text: *const c_char, known: &str) -> bool {
    // SAFETY: by contract; nothing after the terminating zero is read, since no matched byte of
    // `known` is zero.
    let byte = |k: usize| unsafe { *text.add(k) } as u8;
    !text.is_null()
        && known.bytes().enumerate().all(|(k, wanted)| wanted != 0 && byte(k) == wanted)
        && byte(known.len()) == 0
}

/// String behind a pointer that must not be null.
///
/// # Safety
/// Null, or a C string that does not change while it is used.
pub(crate) unsafe fn taken<'a>(text: *const c_char, what: &str) -> Result<&'a str, FunctionError> {
    if text.is_null() {
        return Err(FunctionError::null(what));
    }
    // SAFETY: by contract.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    if bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        return Ok(unsafe { str::from_utf8_unchecked(bytes) });
    }
    str::from_utf8(bytes).map_err(|_| FunctionError::new(VYRE_ARGUMENT, format!("{what} is not UTF-8")))
}
