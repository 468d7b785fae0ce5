//! Builds programs from source text or cached binaries.

use crate::gate::Gate;
use crate::object::{KernelObject, Program, failed};
use crate::opencl_device::OpenClDevice;
use cl3::info_type::InfoType;
use cl3::kernel::create_kernel;
use cl3::program::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BUILD_LOG, build_program, create_program_with_binary,
    create_program_with_source, get_program_build_data, get_program_info,
};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use vyre_driver::BackendError;
use vyre_driver::pipeline::COMPILER_VERSION;

/// Build options. Warnings are off since they concern the emitter; a build log is shown only if the
/// build failed.
const OPTIONS: &CStr = c"-cl-std=CL1.2 -w";
const EXACT_OPTIONS: &CStr = c"-cl-std=CL1.2 -w -cl-fp32-correctly-rounded-divide-sqrt";

/// A compiled program and its origin.
#[derive(Debug)]
pub(crate) struct BuiltProgram {
    pub(crate) program: Program,
    /// Gate for its launches, if they must be serialised.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Key under which to save its binary, if it was compiled just now.
    unkept: Option<blake3::Hash>,
}

fn options(opencl: &OpenClDevice) -> &'static CStr {
    if opencl.device.exact_division { EXACT_OPTIONS } else { OPTIONS }
}

/// Hash of everything that a binary depends on. Comments are excluded, since drivers ignore them
/// too.
fn key(opencl: &OpenClDevice, source: &str) -> blake3::Hash {
    let profile = &opencl.device.profile;
    let mut hasher = blake3::Hasher::new();
    let code = |line: &str| line.split("//").next().unwrap_or_default().trim_end().to_string() + "\n";
    let code: String = source.lines().map(code).collect();
    let parts = [
        code.as_bytes(),
        options(opencl).to_bytes(),
        profile.device_name.as_bytes(),
        profile.driver_version.as_bytes(),
        COMPILER_VERSION.as_bytes(),
    ];
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}

/// Builds the program from its cached binary or from source.
pub(crate) fn build(opencl: &OpenClDevice, name: &str, source: &str) -> Result<BuiltProgram, BackendError> {
    let key = key(opencl, source);
    let gate = opencl.device.needs_gates.then(|| Gate::of(&key));
    if let Some(binary) = opencl.binaries.load(&key) {
        match from_binary(opencl, &binary) {
            Ok(program) => return Ok(BuiltProgram { program, gate, unkept: None }),
            Err(code) => {
                tracing::warn!(
                    backend = opencl.id,
                    code,
                    "the driver refused a cached binary; compiling it again"
                );
                opencl.binaries.remove(&key);
            }
        }
    }
    let program = create_program_with_source(opencl.context.0, &[source])
        .map(Program)
        .map_err(|code| failed(opencl.id, "making a program", code))?;
    let built = build_program(program.0, &[opencl.device.id], options(opencl), None, std::ptr::null_mut());
    built.map_err(|code| BackendError::KernelCompileFailed {
        backend: opencl.id.into(),
        message: format!(
            "kernel `{name}`: {}\n{}",
            cl3::error_codes::error_text(code),
            log(opencl, &program)
        ),
    })?;
    Ok(BuiltProgram { program, gate, unkept: Some(key) })
}

fn from_binary(opencl: &OpenClDevice, binary: &[u8]) -> Result<Program, i32> {
    // SAFETY: the device belongs to the context.
    let program = unsafe { create_program_with_binary(opencl.context.0, &[opencl.device.id], &[binary]) }?;
    let program = Program(program);
    build_program(program.0, &[opencl.device.id], options(opencl), None, std::ptr::null_mut())?;
    Ok(program)
}

fn log(opencl: &OpenClDevice, program: &Program) -> String {
    let log = get_program_build_data(program.0, opencl.device.id, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
    String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string()
}

impl BuiltProgram {
    /// A kernel of the program, with its arguments unset.
    pub(crate) fn kernel(&self, opencl: &OpenClDevice, entry: &str) -> Result<KernelObject, BackendError> {
        let entry = CString::new(entry).unwrap_or_default();
        create_kernel(self.program.0, &entry)
            .map(KernelObject)
            .map_err(|code| failed(opencl.id, "creating the kernel", code))
    }

    /// Saves the binary to disk for the next process, unless it is already there. The caller must
    /// have no launch running.
    pub(crate) fn keep(&self, opencl: &OpenClDevice) {
        let Some(key) = &self.unkept else { return };
        let _alone = self.gate.as_ref().map(|gate| gate.pass_alone());
        if let Ok(InfoType::VecVecUchar(binaries)) = get_program_info(self.program.0, CL_PROGRAM_BINARIES)
            && let [binary] = binaries.as_slice()
            && !binary.is_empty()
        {
            opencl.binaries.store(key, binary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::opencl;
    use vyre_driver::binaries::Binaries;

    const GOOD: &str = "__kernel void k(__global uint *x) { x[0] = 1u; }";

    #[test]
    fn a_failed_build_shows_the_log() -> Result<(), BackendError> {
        let Some(opencl) = opencl()? else { return Ok(()) };
        let source = "__kernel void k(__global uint *x) { x[0] = missing_name; }";
        let Err(error) = build(&opencl, "bad", source) else { panic!("that text does not compile") };
        assert!(matches!(error, BackendError::KernelCompileFailed { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("`bad`") && text.contains("missing_name"), "{text}");
        Ok(())
    }

    #[test]
    fn comments_do_not_make_another_program() -> Result<(), BackendError> {
        let Some(opencl) = opencl()? else { return Ok(()) };
        assert_eq!(key(&opencl, "{ // region r\n}"), key(&opencl, "{\n}"));
        assert_ne!(key(&opencl, "{ a\n}"), key(&opencl, "{\n}"));
        Ok(())
    }

    #[test]
    fn a_binary_that_the_driver_refuses_is_made_anew() -> Result<(), BackendError> {
        let (Some(mut opencl), Ok(folder)) = (opencl()?, tempfile::tempdir()) else { return Ok(()) };
        opencl.binaries = Binaries::at(folder.path());
        let key = key(&opencl, GOOD);
        opencl.binaries.store(&key, b"whole by its checksum, but nothing that a driver knows");
        build(&opencl, "good", GOOD)?.kernel(&opencl, "k")?;
        assert_eq!(opencl.binaries.load(&key), None, "the refused one is gone");
        let built = build(&opencl, "good", GOOD)?;
        built.kernel(&opencl, "k")?;
        built.keep(&opencl);
        let kept = opencl.binaries.load(&key);
        assert!(kept.is_some_and(|binary| !binary.is_empty()));
        assert!(build(&opencl, "good", GOOD)?.unkept.is_none(), "the kept one is taken");
        Ok(())
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() -> Result<(), BackendError> {
        let (Some(mut opencl), Ok(file)) = (opencl()?, tempfile::NamedTempFile::new()) else { return Ok(()) };
        opencl.binaries = Binaries::at(file.path());
        let built = build(&opencl, "good", GOOD)?;
        built.keep(&opencl);
        assert_eq!(opencl.binaries.load(&key(&opencl, GOOD)), None);
        Ok(())
    }
}
