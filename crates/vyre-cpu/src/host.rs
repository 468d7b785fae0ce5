//! The host machine: its compiler, and executable memory.

use crate::compiler::Compiler;
use std::sync::LazyLock;

/// Code generation for the host.
pub(crate) struct Host {
    pub(crate) compiler: Compiler,
    /// Trampolines through which kernels call routines.
    callers: memmap2::Mmap,
    /// Offset of the one that preserves upper registers, too.
    upper_caller: usize,
}

/// Returns the host, or the reason why code cannot be generated for it.
pub(crate) fn host() -> Result<&'static Host, String> {
    static HOST: LazyLock<Result<Host, String>> = LazyLock::new(|| {
        let compiler = Compiler::new()?;
        let codes = compiler.caller_code()?;
        let callers = executable(&codes.concat()).map_err(|error| format!("no memory for code: {error}"))?;
        Ok(Host { compiler, callers, upper_caller: codes[0].len() })
    });
    HOST.as_ref().map_err(Clone::clone)
}

/// Names the vectors that kernels run in.
pub(crate) fn vectors() -> String {
    host().map_or("no vectors".into(), |host| host.compiler.vectors())
}

/// Returns why AVX-512 is not used on a processor that has it: a check of it failed.
pub fn avx512_rejected() -> Option<&'static str> {
    host().ok().and_then(|host| host.compiler.rejected())
}

/// Address of the trampoline through which kernels call routines.
pub(crate) fn caller() -> usize {
    match host() {
        Ok(host) => {
            let offset = if host.compiler.has_upper_registers() { host.upper_caller } else { 0 };
            host.callers.as_ptr() as usize + offset
        }
        Err(reason) => unreachable!("code is made only where there is a host: {reason}"),
    }
}

/// Maps memory with this code, executable and not writable.
pub(crate) fn executable(machine_code: &[u8]) -> std::io::Result<memmap2::Mmap> {
    let mut memory = memmap2::MmapMut::map_anon(machine_code.len())?;
    memory.copy_from_slice(machine_code);
    let memory = memory.make_exec()?;
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: the range is the mapping that was just written.
        unsafe { wasmtime_internal_jit_icache_coherence::clear_cache(memory.as_ptr().cast(), memory.len()) }
            .map_err(std::io::Error::other)?;
        wasmtime_internal_jit_icache_coherence::pipeline_flush_mt().map_err(std::io::Error::other)?;
    }
    Ok(memory)
}
