//! NVRTC wrapper that forwards everything to the real library, checks its PTX, and packages it as
//! code for the fake driver.
//!
//! The real library must also compile for the device; only the format and size of that code are
//! checked. PTX that is not strict about floats, or that the interpreter does not support, is a
//! failed compilation with the reason in its log.

use crate::ptx::{lint, parse};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// First bytes of the fake driver's code; the PTX's length as a `u64` and the PTX follow.
pub const MARK: &[u8; 8] = b"VYRE-PTX";

/// `NVRTC_ERROR_COMPILATION`, `NVRTC_ERROR_INTERNAL_ERROR`.
const REFUSED: c_int = 6;
const INTERNAL: c_int = 11;

/// `EM_CUDA`, and the offset in an ELF file where the machine is specified.
const CUDA_MACHINE: [u8; 2] = [190, 0];
const MACHINE_AT: usize = 18;

/// Statistics of the real device code: number of programs, total bytes, and bytes of the largest.
static PROGRAMS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LARGEST: AtomicU64 = AtomicU64::new(0);

/// Returns the statistics of the real device code; for tests.
///
/// # Safety
/// All three pointers can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyreFakeCode(programs: *mut u64, bytes: *mut u64, largest: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe {
        *programs = PROGRAMS.load(SeqCst);
        *bytes = BYTES.load(SeqCst);
        *largest = LARGEST.load(SeqCst);
    }
}

/// Wrapped program.
struct Program {
    real: *mut c_void,
    /// Whether the source has an explicit fused multiply-add.
    fma: bool,
    code: Vec<u8>,
    log: Vec<u8>,
}

fn real() -> Option<&'static Library> {
    static REAL: OnceLock<Option<Library>> = OnceLock::new();
    let load = || {
        let path = std::env::var_os("VYRE_REAL_NVRTC")?;
        // SAFETY: the real NVRTC can be loaded at any time.
        unsafe { Library::new(path) }.ok()
    };
    REAL.get_or_init(load).as_ref()
}

/// Calls a function of the real library.
macro_rules! real {
    ($symbol:literal: fn($($ty:ty),*), $($argument:expr),*) => {{
        match real().map(|library| library.get::<unsafe extern "C" fn($($ty),*) -> c_int>($symbol)) {
            Some(Ok(function)) => function($($argument),*),
            _ => INTERNAL,
        }
    }};
}

/// # Safety
/// As the real one: both pointers can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { real!(b"nvrtcVersion\0": fn(*mut c_int, *mut c_int), major, minor) }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { real!(b"nvrtcGetNumSupportedArchs\0": fn(*mut c_int), count) }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetSupportedArchs(archs: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { real!(b"nvrtcGetSupportedArchs\0": fn(*mut c_int), archs) }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut c_void,
    text: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    let mut handle = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe {
        let fma = CStr::from_ptr(text).to_bytes().windows(5).any(|word| word == b"__fma");
        let made = real!(
            b"nvrtcCreateProgram\0":
                fn(*mut *mut c_void, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char),
            &mut handle, text, name, count, headers, names
        );
        let wrapped = Program { real: handle, fma, code: Vec::new(), log: Vec::new() };
        *program = Box::into_raw(Box::new(wrapped)).cast();
        made
    }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut c_void) -> c_int {
    // SAFETY: the program was created by `nvrtcCreateProgram` and is not used afterwards.
    unsafe {
        let mut wrapped = Box::from_raw((*program).cast::<Program>());
        real!(b"nvrtcDestroyProgram\0": fn(*mut *mut c_void), &mut wrapped.real)
    }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise; a program is used by one thread at a time.
    unsafe {
        let program = &mut *program.cast::<Program>();
        let compiled = real!(
            b"nvrtcCompileProgram\0": fn(*mut c_void, c_int, *const *const c_char),
            program.real, count, options
        );
        let mut size = 0_usize;
        if real!(b"nvrtcGetProgramLogSize\0": fn(*mut c_void, *mut usize), program.real, &mut size) == 0 {
            program.log = vec![0; size.max(1)];
            real!(b"nvrtcGetProgramLog\0": fn(*mut c_void, *mut u8), program.real, program.log.as_mut_ptr());
        }
        if compiled != 0 {
            return compiled;
        }
        match taken(program) {
            Ok(code) => {
                program.code = code;
                0
            }
            Err(reason) => {
                program.log = reason.into_bytes();
                program.log.push(0);
                REFUSED
            }
        }
    }
}

/// Checks the PTX of a compiled program and packages it.
///
/// # Safety
/// The program was compiled.
unsafe fn taken(program: &Program) -> Result<Vec<u8>, String> {
    let (mut size, mut cubin_size) = (0_usize, 0_usize);
    // SAFETY: the caller's promise; the functions write sizes, and as many bytes as these state.
    let (text, cubin) = unsafe {
        real!(b"nvrtcGetPTXSize\0": fn(*mut c_void, *mut usize), program.real, &mut size);
        let mut text = vec![0_u8; size];
        real!(b"nvrtcGetPTX\0": fn(*mut c_void, *mut u8), program.real, text.as_mut_ptr());
        real!(b"nvrtcGetCUBINSize\0": fn(*mut c_void, *mut usize), program.real, &mut cubin_size);
        let mut cubin = vec![0_u8; cubin_size];
        real!(b"nvrtcGetCUBIN\0": fn(*mut c_void, *mut u8), program.real, cubin.as_mut_ptr());
        (text, cubin)
    };
    if !cubin.starts_with(b"\x7fELF") || cubin.get(MACHINE_AT..MACHINE_AT + 2) != Some(&CUDA_MACHINE) {
        return Err("the real NVRTC made no code for the device".into());
    }
    PROGRAMS.fetch_add(1, SeqCst);
    BYTES.fetch_add(cubin.len() as u64, SeqCst);
    LARGEST.fetch_max(cubin.len() as u64, SeqCst);
    let text = String::from_utf8_lossy(&text).trim_end_matches('\0').to_string();
    let faults = lint(&text, program.fma);
    if !faults.is_empty() {
        return Err(format!("{text}\nthe PTX is not strict: {}", faults.join("; ")));
    }
    parse(&text).map_err(|message| format!("{text}\nthe interpreter does not know it: {message}"))?;
    let mut code = MARK.to_vec();
    code.extend((text.len() as u64).to_le_bytes());
    code.extend(text.as_bytes());
    Ok(code)
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut c_void, size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *size = (*program.cast::<Program>()).log.len() };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: *mut c_void, log: *mut c_char) -> c_int {
    // SAFETY: the caller's memory has the reported size.
    unsafe {
        let text = &(*program.cast::<Program>()).log;
        log.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
    }
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: *mut c_void, size: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *size = (*program.cast::<Program>()).code.len() };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: *mut c_void, code: *mut c_char) -> c_int {
    // SAFETY: the caller's memory has the reported size.
    unsafe {
        let kept = &(*program.cast::<Program>()).code;
        code.cast::<u8>().copy_from_nonoverlapping(kept.as_ptr(), kept.len());
    }
    0
}
