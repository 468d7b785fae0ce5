//! Adds an environment variable while other threads read the environment.
//!
//! PoCL sets `HWLOC_PLUGINS_PATH` when it first lists its devices. The C library adds a variable by
//! moving its list of variables, and a thread that is reading the list at that moment crashes: the
//! Vulkan loader and Mesa's threads read dozens of variables while PoCL opens. Setting a variable
//! that exists moves nothing, so vyre adds it first, in a new list, and leaves the old one as it is
//! for the threads that are reading it.
//!
//! The other variable is an option of PoCL, which has no other way to set it.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    /// The C library's list of variables, which ends with a null pointer. Programs may replace it.
    static mut environ: *mut *mut c_char;
}

/// Adds these variables, unless they exist: the one that PoCL sets, with PoCL's value, and an
/// option for its compiler. By default, PoCL (3.1) copies the code of a workgroup of one or two
/// invocations for each of them, and aborts the process at some loops with a barrier, such as those
/// of `filetests/semantics/barrier_in_small_groups.vyre`. Larger workgroups become loops, which do
/// not have this fault; with 0, all do.
pub(crate) fn prepare_for_pocl() {
    add(c"HWLOC_PLUGINS_PATH=/dev/null");
    add(c"POCL_FULL_REPLICATION_THRESHOLD=0");
}

/// Adds a variable, given as `name=value`, unless one with its name exists. A variable that another
/// thread sets or removes meanwhile can stay as it was.
fn add(variable: &'static CStr) {
    let name = variable.to_bytes().split_inclusive(|&byte| byte == b'=').next().unwrap_or_default();
    let list = list();
    let old = list.load(Ordering::Acquire);
    if old.is_null() {
        return;
    }
    // SAFETY: a list ends with a null pointer.
    let entry = |index| unsafe { *old.add(index) };
    let mut copy: Vec<*mut c_char> = (0..).map(entry).take_while(|entry| !entry.is_null()).collect();
    // SAFETY: entries are C strings, and the C library frees none of them.
    let exists = |&entry: &*mut c_char| unsafe { CStr::from_ptr(entry) }.to_bytes().starts_with(name);
    if copy.iter().any(exists) {
        return;
    }
    copy.extend([variable.as_ptr().cast_mut(), std::ptr::null_mut()]);
    // If another thread has replaced the list, its variables matter more than this one.
    let _ = list.compare_exchange(old, copy.leak().as_mut_ptr(), Ordering::AcqRel, Ordering::Relaxed);
}

fn list() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: the variable is aligned and lives as long as the process.
    unsafe { AtomicPtr::from_ptr(&raw mut environ) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env::var;

    fn entries(list: *mut *mut c_char) -> Vec<Vec<u8>> {
        // SAFETY: the tests' lists end with a null pointer and hold C strings.
        let entry = |index| unsafe {
            let entry = *list.add(index);
            (!entry.is_null()).then(|| CStr::from_ptr(entry).to_bytes().to_vec())
        };
        (0..).map_while(entry).collect()
    }

    #[test]
    fn the_list_that_others_read_stays_as_it_is() {
        let old = list().load(Ordering::Acquire);
        let before = entries(old);
        add(c"VYRE_TEST_ADDED=1");
        let new = list().load(Ordering::Acquire);
        assert_ne!(old, new);
        assert_eq!(entries(old), before);
        assert_eq!(var("VYRE_TEST_ADDED").as_deref(), Ok("1"));
        assert_eq!(entries(new).len(), before.len() + 1);
        // What exists is neither added nor changed.
        add(c"VYRE_TEST_ADDED=2");
        assert_eq!((list().load(Ordering::Acquire), var("VYRE_TEST_ADDED").as_deref()), (new, Ok("1")));
        // Nor does the C library move the list when the driver sets it.
        // SAFETY: both arguments are C strings, and the list is not moved.
        unsafe { libc::setenv(c"VYRE_TEST_ADDED".as_ptr(), c"3".as_ptr(), 1) };
        assert_eq!((list().load(Ordering::Acquire), var("VYRE_TEST_ADDED").as_deref()), (new, Ok("3")));
    }
}
