//! Compiles source text to device code with NVRTC, or loads the code from disk.

use crate::device::UsableDevice;
use crate::library::LoadedNvrtc;
use std::ffi::{CString, c_char};
use vyre_driver::BackendError;
use vyre_driver::binaries::Binaries;
use vyre_driver::pipeline::COMPILER_VERSION;

/// Options that keep floats strict, spelled out in full. Warnings are off since they concern the
/// emitter.
const OPTIONS: [&str; 5] = ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-w"];

fn arch(device: &UsableDevice) -> String {
    format!("--gpu-architecture=sm_{}", device.arch)
}

/// Hash of everything that the code depends on; comments are excluded.
fn key(device: &UsableDevice, text: &str) -> blake3::Hash {
    let code = |line: &str| line.split("//").next().unwrap_or_default().trim_end().to_string() + "\n";
    let code: String = text.lines().map(code).collect();
    let versions = format!("{:?} {}", device.nvrtc.version, device.driver.version);
    let mut hasher = blake3::Hasher::new();
    for part in [&code, &OPTIONS.join(" "), &arch(device), &versions, COMPILER_VERSION] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize()
}

/// The code of a text: the cached code if `load` accepts it, otherwise compiled by NVRTC.
pub(crate) fn compile<T>(
    device: &UsableDevice,
    binaries: &Binaries,
    (id, name, text): (&str, &str, &str),
    load: impl Fn(&[u8]) -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let key = key(device, text);
    if let Some(kept) = binaries.load(&key) {
        match load(&kept) {
            Ok(loaded) => return Ok(loaded),
            Err(error) if device.lost.get().is_some() => return Err(error),
            Err(error) => {
                tracing::warn!(backend = id, %error, "the driver refused cached code; compiling it again");
                binaries.remove(&key);
            }
        }
    }
    let cubin = Program::new(device.nvrtc, text).and_then(|program| program.cubin(&arch(device)));
    let cubin = cubin.map_err(|message| BackendError::KernelCompileFailed {
        backend: id.into(),
        message: format!("kernel `{name}`: {message}"),
    })?;
    let loaded = load(&cubin)?;
    binaries.store(&key, &cubin);
    Ok(loaded)
}

/// An NVRTC program.
struct Program<'a> {
    nvrtc: &'a LoadedNvrtc,
    handle: crate::api::Handle,
}

impl Program<'_> {
    fn new<'a>(nvrtc: &'a LoadedNvrtc, text: &str) -> Result<Program<'a>, String> {
        let text = CString::new(text).map_err(|_| "the text contains a zero byte")?;
        let mut handle = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: both texts are zero-terminated and copied by the call, and there are no headers.
        let made =
            unsafe { (nvrtc.api.create)(&mut handle, text.as_ptr(), c"kernel.cu".as_ptr(), 0, none, none) };
        if made == 0 {
            Ok(Program { nvrtc, handle })
        } else {
            Err(format!("NVRTC did not create a program ({made})"))
        }
    }

    /// Compiles the program and returns its code.
    fn cubin(&self, arch: &str) -> Result<Vec<u8>, String> {
        let words: Vec<CString> =
            OPTIONS.iter().chain([&arch]).filter_map(|word| CString::new(*word).ok()).collect();
        let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        let api = &self.nvrtc.api;
        // SAFETY: the program is alive, and the list has that many zero-terminated options.
        let compiled = unsafe { (api.compile)(self.handle, pointers.len() as i32, pointers.as_ptr()) };
        if compiled != 0 {
            return Err(format!("NVRTC refused it ({compiled})\n{}", self.log()));
        }
        let mut size = 0;
        // SAFETY: the function writes a number.
        let asked = unsafe { (api.cubin_size)(self.handle, &mut size) };
        if asked != 0 || size == 0 {
            return Err(format!("NVRTC returned no code ({asked})"));
        }
        let mut cubin = vec![0_u8; size];
        // SAFETY: the function writes as many bytes as it reported.
        let given = unsafe { (api.cubin)(self.handle, cubin.as_mut_ptr().cast()) };
        if given == 0 { Ok(cubin) } else { Err(format!("NVRTC returned no code ({given})")) }
    }

    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the functions write a number, and that many bytes.
        unsafe {
            if (self.nvrtc.api.log_size)(self.handle, &mut size) != 0 || size == 0 {
                return String::new();
            }
            let mut log = vec![0_u8; size];
            let _ = (self.nvrtc.api.log)(self.handle, log.as_mut_ptr().cast());
            String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string()
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `new`, and this is its only owner.
        let _ = unsafe { (self.nvrtc.api.destroy)(&mut self.handle) };
    }
}
