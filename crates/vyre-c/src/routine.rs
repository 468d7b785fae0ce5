//! Programs loaded into a runtime, and calls of them.

use crate::argument::{self, ArraysInUse, vyre_argument};
use crate::handles::{self, Use};
use crate::report::{self, vyre_report};
use crate::runtime::{self, vyre_runtime};
use crate::status::{FunctionError, VYRE_ARGUMENT, guarded, vyre_status};
use crate::text;
use std::ffi::{c_char, c_void};
use std::time::Duration;
use vyre::unstable::foundation::wire;
use vyre::{Call, Constants, Fallback, Program, Routine};

/// A program loaded into a runtime. Call it from any number of threads.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct vyre_routine(pub *mut c_void);

/// A new value for a constant of a program's text.
#[repr(C)]
pub struct vyre_constant {
    /// The constant's name.
    pub name: *const c_char,
    /// Its value as text, such as "16" or "0.5".
    pub value: *const c_char,
}

/// Whether another backend may run the call if the selected one cannot.
pub type vyre_fallback = u32;
/// The default: yes for a routed call, no for a call on a named backend.
pub const VYRE_FALLBACK_USUAL: vyre_fallback = 0;
/// No: the caller gets the error.
pub const VYRE_FALLBACK_FORBID: vyre_fallback = 1;
/// Yes, with a warning in the log.
pub const VYRE_FALLBACK_WARN: vyre_fallback = 2;
/// Yes; memory that is read and written is saved before each launch.
pub const VYRE_FALLBACK_ALLOW: vyre_fallback = 3;

/// Options for a call. Set all to zero first (`vyre_options options = {0};`): zero selects the
/// default.
#[repr(C)]
pub struct vyre_options {
    /// The only backend to run on; null routes the call.
    pub backend: *const c_char,
    /// The time limit of the call in nanoseconds; 0 for no limit.
    pub timeout_ns: u64,
    /// The number of invocations on each axis, where 0 means 1; all 0 for the program's own domain.
    pub domain: [u32; 3],
    /// Whether another backend may run the call.
    pub fallback: vyre_fallback,
    /// Nonzero disables the program's asserts.
    pub without_asserts: u32,
}

struct HeldRoutine {
    routine: Routine,
}

fn found(routine: vyre_routine) -> Result<Use, FunctionError> {
    if routine.0.is_null() {
        return Err(FunctionError::null("the routine"));
    }
    handles::find(routine.0 as usize).ok_or_else(|| FunctionError::handle("routine"))
}

fn held(used: &Use) -> Result<&HeldRoutine, FunctionError> {
    used.get().ok_or_else(|| FunctionError::handle("routine"))
}

/// Loads a program and stores its handle in `place`.
///
/// # Safety
/// `place` is null or can be written.
unsafe fn load(
    runtime: vyre_runtime,
    place: *mut vyre_routine,
    program: impl FnOnce() -> Result<Program, FunctionError>,
) -> Result<(), FunctionError> {
    if place.is_null() {
        return Err(FunctionError::null("`routine`"));
    }
    let used = runtime::found(runtime)?;
    let routine = runtime::held(&used)?.runtime.load(program()?)?;
    let handle = handles::insert(HeldRoutine { routine })?;
    // SAFETY: by contract.
    unsafe { *place = vyre_routine(handle as *mut c_void) };
    Ok(())
}

/// Loads a program from its text.
///
/// # Safety
/// `text` is null or ends with a zero byte; `routine` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_load(
    runtime: vyre_runtime,
    text: *const c_char,
    routine: *mut vyre_routine,
) -> vyre_status {
    // SAFETY: by contract.
    unsafe { vyre_load_with(runtime, text, std::ptr::null(), 0, routine) }
}

/// Loads a program from its text, with new values for its constants.
///
/// # Safety
/// As for `vyre_load`; `constants` points to that many constants, whose strings end with a zero
/// byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_load_with(
    runtime: vyre_runtime,
    text: *const c_char,
    constants: *const vyre_constant,
    count: usize,
    routine: *mut vyre_routine,
) -> vyre_status {
    let program = || {
        // SAFETY: by contract.
        let text = unsafe { text::taken(text, "`text`") }?;
        let mut set = Constants::new();
        if constants.is_null() && count > 0 {
            return Err(FunctionError::null("`constants`"));
        }
        if count > text.len() {
            let message = format!("{count} constants are more than this text can have");
            return Err(FunctionError::new(VYRE_ARGUMENT, message));
        }
        for k in 0..count {
            // SAFETY: by contract.
            let vyre_constant { name, value } = unsafe { &*constants.add(k) };
            // SAFETY: by contract.
            let name = unsafe { text::taken(*name, "the name of a constant") }?;
            // SAFETY: by contract.
            set = set.set(name, unsafe { text::taken(*value, "the value of a constant") }?);
        }
        vyre::unstable::foundation::text::parse_with(text, &set)
            .map_err(|faults| vyre::BackendError::from(faults).into())
    };
    // SAFETY: by contract.
    guarded(|| unsafe { load(runtime, routine, program) })
}

/// Loads a program from bytes in the wire format, as `vyre emit --target wire` writes them.
///
/// # Safety
/// `bytes` is null or points to that many bytes; `routine` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_load_wire(
    runtime: vyre_runtime,
    bytes: *const c_void,
    length: usize,
    routine: *mut vyre_routine,
) -> vyre_status {
    let program = || {
        if bytes.is_null() {
            return Err(FunctionError::null("`bytes`"));
        }
        if length > isize::MAX as usize {
            return Err(FunctionError::new(
                VYRE_ARGUMENT,
                format!("{length} bytes are more than memory can hold"),
            ));
        }
        // SAFETY: by contract.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        wire::decode(bytes)
            .map_err(|error| FunctionError::new(crate::status::VYRE_INVALID_PROGRAM, error.to_string()))
    };
    // SAFETY: by contract.
    guarded(|| unsafe { load(runtime, routine, program) })
}

/// Frees a routine. A call of it on another thread completes first. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_routine_free(routine: vyre_routine) -> vyre_status {
    guarded(|| {
        if routine.0.is_null() {
            return Ok(());
        }
        held(&found(routine)?)?;
        if handles::free(routine.0 as usize) { Ok(()) } else { Err(FunctionError::handle("routine")) }
    })
}

/// Runs a program once and waits for it. Each argument names a buffer of the kernel; any order
/// works, the kernel's order is fastest. `options` and `report` may be null. Memory is used in
/// place, not copied: until this returns, nothing else may write it or read what the call writes.
///
/// # Safety
/// `arguments` points to that many arguments, whose names end with a zero byte and whose memory is
/// valid; `options` is null or points to options; `report` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_run(
    routine: vyre_routine,
    arguments: *const vyre_argument,
    count: usize,
    options: *const vyre_options,
    report: *mut vyre_report,
) -> vyre_status {
    guarded(|| {
        let used = found(routine)?;
        let routine = &held(&used)?.routine;
        // SAFETY: by contract.
        unsafe { run(routine.call(), argument::given(arguments, count)?, options, report) }
    })
}

/// Runs a call with these arguments.
///
/// # Safety
/// As for `vyre_run`.
#[inline]
pub(crate) unsafe fn run(
    mut call: Call<'_>,
    arguments: &[vyre_argument],
    options: *const vyre_options,
    report: *mut vyre_report,
) -> Result<(), FunctionError> {
    let mut bound = ArraysInUse::default();
    // SAFETY: by contract; the call is consumed before `bound` is dropped.
    unsafe {
        bound.bind(&mut call, arguments)?;
        if let Some(options) = options.as_ref() {
            call = set(call, options)?;
        }
    }
    let outcome = call.run()?;
    if report.is_null() {
        return Ok(());
    }
    // SAFETY: by contract.
    unsafe { report::give(report, outcome) }
}

/// Applies the options to a call.
///
/// # Safety
/// The strings of the options are C strings and do not change while the call exists.
unsafe fn set<'a>(mut call: Call<'a>, options: &vyre_options) -> Result<Call<'a>, FunctionError> {
    if !options.backend.is_null() {
        // SAFETY: by contract.
        call = call.on(unsafe { text::taken(options.backend, "`backend`") }?);
    }
    if options.timeout_ns > 0 {
        call = call.timeout(Duration::from_nanos(options.timeout_ns));
    }
    if options.domain != [0; 3] {
        call = call.domain(options.domain.map(|count| count.max(1) as usize));
    }
    match options.fallback {
        VYRE_FALLBACK_USUAL => {}
        VYRE_FALLBACK_FORBID => call = call.fallback(Fallback::Forbid),
        VYRE_FALLBACK_WARN => call = call.fallback(Fallback::Warn),
        VYRE_FALLBACK_ALLOW => call = call.fallback(Fallback::Allow),
        other => return Err(FunctionError::new(VYRE_ARGUMENT, format!("{other} is not a fallback policy"))),
    }
    if options.without_asserts != 0 {
        call = call.asserts(false);
    }
    Ok(call)
}

/// Stores an explanation's text in `text`.
///
/// # Safety
/// `text` is null or can be written.
unsafe fn explained(
    routine: vyre_routine,
    elements: u64,
    text: *mut *mut c_char,
    show: impl FnOnce(vyre::Explanation) -> String,
) -> Result<(), FunctionError> {
    let used = found(routine)?;
    let routine = &held(&used)?.routine;
    if text.is_null() {
        return Err(FunctionError::null("`text`"));
    }
    // SAFETY: by contract.
    unsafe { text::give(text, &show(routine.explain(usize::try_from(elements).unwrap_or(usize::MAX)))) }
}

/// Explains which backend would run a call over this many elements, and why. Free the text with
/// `vyre_text_free`.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_explain(
    routine: vyre_routine,
    elements: u64,
    text: *mut *mut c_char,
) -> vyre_status {
    // SAFETY: by contract.
    guarded(|| unsafe { explained(routine, elements, text, |explanation| explanation.to_string()) })
}

/// Returns the same explanation as JSON.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_explain_json(
    routine: vyre_routine,
    elements: u64,
    text: *mut *mut c_char,
) -> vyre_status {
    // SAFETY: by contract.
    guarded(|| unsafe { explained(routine, elements, text, |explanation| explanation.to_json()) })
}
