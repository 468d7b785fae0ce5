//! Error reporting: a status, and a message kept per thread.

use crate::text::{self, visible};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr::null;
use vyre::BackendError;

/// The result of a function: `VYRE_OK` or an error. A number never changes its meaning.
pub type vyre_status = i32;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal;)*) => {
        $($(#[doc = $doc])* pub const $name: vyre_status = $value;)*

        /// Every status and its name.
        pub const STATUSES: &[(vyre_status, &std::ffi::CStr)] = &[$(($name, {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte"),
            };
            NAME
        }),)*];
    };
}

statuses! {
    /// Done.
    VYRE_OK = 0;
    /// An error that no other status describes.
    VYRE_OTHER = 1;
    /// The device has no memory left for a buffer or a kernel.
    VYRE_DEVICE_OUT_OF_MEMORY = 2;
    /// The backend or its device lacks a feature that the program or the call needs.
    VYRE_UNSUPPORTED_FEATURE = 3;
    /// The device's own compiler refused the kernel.
    VYRE_KERNEL_COMPILE_FAILED = 4;
    /// A launch did not complete. The contents of memory that it writes are unspecified.
    VYRE_DISPATCH_FAILED = 5;
    /// The program or the arguments of a call break a rule; `vyre_error_text` lists every fault.
    VYRE_INVALID_PROGRAM = 6;
    /// The kernel reached a `trap`.
    VYRE_TRAPPED = 7;
    /// The call ran past its timeout and was ended.
    VYRE_TIMEOUT = 8;
    /// The device was reset or removed.
    VYRE_DEVICE_LOST = 9;
    /// The library has no backend of this name.
    VYRE_NOT_LINKED = 10;
    /// Two backends have the same name.
    VYRE_DUPLICATE_BACKEND = 11;
    /// No backend can be used.
    VYRE_NO_USABLE_BACKEND = 12;
    /// An `assert` of the kernel did not hold.
    VYRE_ASSERT_FAILED = 13;
    /// The call was cancelled.
    VYRE_CANCELLED = 14;
    /// A table could not be written.
    VYRE_TABLE_FAILED = 15;
    /// A pointer that must not be null is null.
    VYRE_NULL = 101;
    /// A handle was already freed, is of another kind, or was never valid.
    VYRE_HANDLE = 102;
    /// An argument is not UTF-8, is not an element type, is too long, or overlaps another argument.
    VYRE_ARGUMENT = 103;
    /// The header and the library have different versions of the interface.
    VYRE_ABI = 104;
    /// An internal error of the library, which remains usable. Please report it.
    VYRE_PANIC = 105;
}

/// Failure of a function.
#[derive(Debug)]
pub(crate) struct FunctionError {
    pub(crate) status: vyre_status,
    pub(crate) text: String,
    pub(crate) fix: Option<String>,
}

impl FunctionError {
    #[cold]
    pub(crate) fn new(status: vyre_status, text: impl Into<String>) -> FunctionError {
        FunctionError { status, text: text.into(), fix: None }
    }

    pub(crate) fn null(what: &str) -> FunctionError {
        FunctionError::new(VYRE_NULL, format!("{what} is a null pointer"))
    }

    pub(crate) fn handle(what: &str) -> FunctionError {
        FunctionError::new(VYRE_HANDLE, format!("this is not a valid {what}: it was freed, or never was one"))
    }
}

impl From<BackendError> for FunctionError {
    #[cold]
    fn from(error: BackendError) -> FunctionError {
        // The codes are the same numbers, which a test checks.
        FunctionError {
            status: error.code() as vyre_status,
            fix: error.fix().map(str::to_owned),
            text: error.to_string(),
        }
    }
}

#[derive(Default)]
struct Last {
    text: CString,
    fix: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs the body of a function: a failure or panic becomes a status, and its message is kept for
/// the thread.
#[inline]
pub(crate) fn guarded(inside: impl FnOnce() -> Result<(), FunctionError>) -> vyre_status {
    match vyre::unstable::driver::contain(inside) {
        Ok(Ok(())) => VYRE_OK,
        Ok(Err(fault)) => fail(fault),
        Err(message) => {
            fail(FunctionError::new(VYRE_PANIC, format!("internal error: {message}; please report it")))
        }
    }
}

#[cold]
fn fail(fault: FunctionError) -> vyre_status {
    let last = Last { text: visible(&fault.text), fix: fault.fix.as_deref().map(visible) };
    // A thread that is exiting has no storage left for it; the status still identifies the kind of
    // failure.
    let _ = LAST.try_with(|place| place.replace(last));
    fault.status
}

/// The error message of the last function that failed on this thread; empty if none failed. It is
/// valid until another function fails on this thread; do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// A suggested fix for the last failure on this thread; null if none is known. It is valid as long
/// as `vyre_error_text`.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_error_fix() -> *const c_char {
    LAST.try_with(|last| last.borrow().fix.as_ref().map_or(null(), |fix| fix.as_ptr())).unwrap_or(null())
}

/// The name of a status, such as "VYRE_TIMEOUT". Do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_status_name(status: vyre_status) -> *const c_char {
    let row = STATUSES.iter().find(|row| row.0 == status);
    row.map_or(c"unknown status".as_ptr(), |row| row.1.as_ptr())
}

/// Frees a string that a function returned through a `char **`. Null is ignored; a string that was
/// already freed, or any other pointer, is an error.
///
/// # Safety
/// Nothing reads the string any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_text_free(text: *mut c_char) -> vyre_status {
    guarded(|| if text::free(text) { Ok(()) } else { Err(FunctionError::handle("text")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_the_codes_of_errors() {
        for kind in vyre::unstable::driver::ERROR_KINDS {
            let constant: String = kind
                .name
                .chars()
                .flat_map(|c| [c.is_uppercase().then_some('_'), Some(c.to_ascii_uppercase())])
                .flatten()
                .collect();
            let row = STATUSES.iter().find(|row| row.0 == kind.code as vyre_status);
            assert_eq!(row.map(|row| row.1.to_str().unwrap()), Some(&*format!("VYRE{constant}")));
        }
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_message() {
        let status = guarded(|| panic!("a bug\0 with a zero byte"));
        assert_eq!(status, VYRE_PANIC);
        // SAFETY: the message of the failure above.
        let text = unsafe { std::ffi::CStr::from_ptr(vyre_error_text()) }.to_str().unwrap();
        assert!(text.contains("a bug"), "{text}");
    }
}
