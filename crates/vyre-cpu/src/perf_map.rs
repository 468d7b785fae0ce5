//! Names of kernels for `perf` and crash reports: with `VYRE_CPU_PERF_MAP=1`, every kernel's
//! machine code gets a line in `perf-<process>.map` in the temporary directory, where `perf report`
//! looks.

use std::fs::File;
use std::io::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};
use vyre_foundation::kernel::KernelBody;

/// Records the address of a kernel's code. A line that cannot be written is omitted.
pub(crate) fn note(kernel: &KernelBody, code: &[u8]) {
    static MAP: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
        std::env::var_os("VYRE_CPU_PERF_MAP").filter(|wanted| wanted == "1")?;
        let path = std::env::temp_dir().join(format!("perf-{}.map", std::process::id()));
        File::options().create(true).append(true).open(path).ok().map(Mutex::new)
    });
    if let Some(map) = &*MAP {
        let name = kernel.name.as_deref().unwrap_or("kernel");
        let line = format!("{:x} {:x} vyre:{name}\n", code.as_ptr() as usize, code.len());
        let _ = map.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}
