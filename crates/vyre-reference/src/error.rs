//! Errors of a run.

use crate::options::MAX_SUBGROUP_SIZE;
use crate::sanitizer::FaultReport;
use std::fmt;
use vyre_foundation::diagnostics::Diagnostics;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The inputs or overrides do not match the kernel.
    Launch(Diagnostics),
    /// The memory bound for this buffer is read-only, but the kernel can write it.
    NotWritable {
        /// The buffer.
        buffer: String,
    },
    /// The subgroup size is not between 1 and [`MAX_SUBGROUP_SIZE`].
    SubgroupSize(u32),
    /// An invocation trapped with this code. If several would trap, it is the code of one of them.
    Trapped {
        /// The code in the program.
        code: u32,
    },
    /// The deadline passed.
    Timeout,
    /// The run exceeds its memory limit.
    Memory {
        /// Lower bound on the bytes needed.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Invocations of one workgroup wait at different places, which validation should have
    /// rejected.
    Diverged(Box<FaultReport>),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Launch(diagnostics) => diagnostics.fmt(f),
            RunError::NotWritable { buffer } => {
                write!(f, "buffer `{buffer}` is bound to read-only memory; bind writable memory")
            }
            RunError::SubgroupSize(size) => {
                write!(f, "subgroup size {size} is not possible; choose 1 to {MAX_SUBGROUP_SIZE}")
            }
            RunError::Trapped { code } => write!(f, "the kernel trapped with code {code}"),
            RunError::Timeout => {
                f.write_str("the kernel did not end in time; raise the timeout or bound its loops")
            }
            RunError::Memory { needed, limit } => {
                write!(f, "the interpreter needs at least {needed} bytes and may take {limit}; ")?;
                f.write_str("choose smaller workgroups or outputs, or raise the limit")
            }
            RunError::Diverged(report) => report.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}
