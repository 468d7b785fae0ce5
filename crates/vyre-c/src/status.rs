//! Error reporting: a status, and a message kept per thread.

use crate::text::{self, visible};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr::null;
use vyre::BackendError;

/// What a function came to: `VYRE_OK`, or what kept it from being done. Numbers never change their
/// meaning.
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
    /// Anything that no other status describes.
    VYRE_OTHER = 1;
    /// The device has no memory left for a buffer or a kernel.
    VYRE_DEVICE_OUT_OF_MEMORY = 2;
    /// The backend or its device lacks something that was asked of it.
    VYRE_UNSUPPORTED_FEATURE = 3;
    /// The device's own compiler refused the kernel.
    VYRE_KERNEL_COMPILE_FAILED = 4;
    /// A launch did not complete. Memory given for writing has unspecified contents.
    VYRE_DISPATCH_FAILED = 5;
    /// The program or the arguments of a call break a rule; the text names every fault.
    VYRE_INVALID_PROGRAM = 6;
    /// The kernel reached a `trap`.
    VYRE_TRAPPED = 7;
    /// The call ran past its timeout and was ended.
    VYRE_TIMEOUT = 8;
    /// The device was reset, removed or taken away.
    VYRE_DEVICE_LOST = 9;
    /// No backend of this name is part of the library.
    VYRE_NOT_LINKED = 10;
    /// Two backends have one name.
    VYRE_DUPLICATE_BACKEND = 11;
    /// No backend can be used.
    VYRE_NO_USABLE_BACKEND = 12;
    /// An `assert` of the kernel did not hold.
    VYRE_ASSERT_FAILED = 13;
    /// The call was cancelled.
    VYRE_CANCELLED = 14;
    /// A table of what was learnt could not be written.
    VYRE_TABLE_FAILED = 15;
    /// A pointer is null that must not be.
    VYRE_NULL = 101;
    /// A handle was freed before, is of another kind, or never was one.
    VYRE_HANDLE = 102;
    /// An argument is no text in UTF-8, no element type, too long, or overlaps another one.
    VYRE_ARGUMENT = 103;
    /// The header and the library are of different versions of the interface.
    VYRE_ABI = 104;
    /// A fault of the library itself, which it survived. Please report it.
    VYRE_PANIC = 105;
}

/// Failure of a function.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: vyre_status,
    pub(crate) text: String,
    pub(crate) fix: Option<String>,
}

impl Fault {
    #[cold]
    pub(crate) fn new(status: vyre_status, text: impl Into<String>) -> Fault {
        Fault { status, text: text.into(), fix: None }
    }

    pub(crate) fn null(what: &str) -> Fault {
        Fault::new(VYRE_NULL, format!("{what} is a null pointer"))
    }

    pub(crate) fn handle(what: &str) -> Fault {
        Fault::new(VYRE_HANDLE, format!("this is not a valid {what}: it was freed, or never was one"))
    }
}

impl From<BackendError> for Fault {
    #[cold]
    fn from(error: BackendError) -> Fault {
        // The codes are the same numbers, which a test checks.
        Fault {
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
pub(crate) fn guarded(inside: impl FnOnce() -> Result<(), Fault>) -> vyre_status {
    match vyre::unstable::driver::contain(inside) {
        Ok(Ok(())) => VYRE_OK,
        Ok(Err(fault)) => fail(fault),
        Err(message) => fail(Fault::new(VYRE_PANIC, format!("internal error: {message}; please report it"))),
    }
}

#[cold]
fn fail(fault: Fault) -> vyre_status {
    let last = Last { text: visible(&fault.text), fix: fault.fix.as_deref().map(visible) };
    // A thread that is exiting has no storage left for it; the status still identifies the kind of
    // failure.
    let _ = LAST.try_with(|place| place.replace(last));
    fault.status
}

/// What went wrong in the last function that failed on this thread, as a text; empty if none has.
/// It is valid until another function fails on this thread, and not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_error_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// What to do about the last failure on this thread, as a text; null where that is not known. It is
/// valid as long as `vyre_error_text`.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_error_fix() -> *const c_char {
    LAST.try_with(|last| last.borrow().fix.as_ref().map_or(null(), |fix| fix.as_ptr())).unwrap_or(null())
}

/// The name of a status, such as "VYRE_TIMEOUT". It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_status_name(status: vyre_status) -> *const c_char {
    let row = STATUSES.iter().find(|row| row.0 == status);
    row.map_or(c"unknown status".as_ptr(), |row| row.1.as_ptr())
}

/// Frees a text that a function gave through a `char **`. Null is ignored; a text that was freed
/// before, or any other pointer, is an error.
///
/// # Safety
/// Nobody reads the text any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_text_free(text: *mut c_char) -> vyre_status {
    guarded(|| if text::free(text) { Ok(()) } else { Err(Fault::handle("text")) })
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
