//! The host machine: its compiler, and executable memory.

use crate::compiler::Compiler;
use std::sync::LazyLock;

/// Code generation for the host.
pub(crate) struct Host {
    pub(crate) compiler: Compiler,
    /// Trampoline through which kernels call routines.
    caller: memmap2::Mmap,
}

/// Returns the host, or the reason why code cannot be generated for it.
pub(crate) fn host() -> Result<&'static Host, String> {
    static HOST: LazyLock<Result<Host, String>> = LazyLock::new(|| {
        let compiler = Compiler::new()?;
        let caller =
            executable(&compiler.caller_code()?).map_err(|error| format!("no memory for code: {error}"))?;
        Ok(Host { compiler, caller })
    });
    HOST.as_ref().map_err(Clone::clone)
}

/// Names the vectors that kernels run in.
pub(crate) fn vectors() -> String {
    host().map_or("no vectors".into(), |host| host.compiler.vectors())
}

/// Address of the trampoline through which kernels call routines.
pub(crate) fn caller() -> usize {
    match host() {
        Ok(host) => host.caller.as_ptr() as usize,
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
