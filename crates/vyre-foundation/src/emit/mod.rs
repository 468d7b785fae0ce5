//! Emits kernels as source text for compilers of the C family.
//!
//! There is one writer (`writer`, with `spelling` for the ops); a table, the [`Dialect`], describes
//! the differences between languages. Ops without a C expression become functions that the text
//! defines (`functions`). Ops that a dialect lacks are decomposed first by [`prepare`], and other
//! unsupported forms are rewritten ([`legalise`](mod@crate::legalise)). The text requires a
//! compiler that neither contracts nor reorders float arithmetic, and whose divisions and square
//! roots are correctly rounded.
//!
//! ```
//! use vyre_foundation::emit::{OPENCL, Settings, emit, prepare};
//! use vyre_foundation::optimize::Schedule;
//! let program = vyre_foundation::text::parse(
//!     "kernel double(x: read_write f32[]) { region \"r\" { x[invocation.x] = x[invocation.x] * 2.0 } }",
//! )?;
//! let kernel = prepare(&program.validate()?, Schedule::full(), &OPENCL);
//! let source = emit(
//!     &kernel,
//!     &OPENCL,
//!     &Settings { workgroup: [64, 1, 1], stoppable: false, folded: false },
//! );
//! assert!(source.text.contains("* 2.0f"));
//! # Ok::<(), vyre_foundation::diagnostics::Diagnostics>(())
//! ```

mod dialect;
mod functions;
mod lanes;
mod spelling;
mod writer;

pub use dialect::{ALL, CUDA, Dialect, HIP, OPENCL};

use crate::kernel::{BufferId, Kernel};
use crate::legalise::legalise;
use crate::math::expand;
use crate::optimize::{Pass, Schedule, Target, optimize};

/// Settings for the emitted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Invocations per workgroup. Only a shape-free kernel can be emitted for a size other than its
    /// own.
    pub workgroup: [u32; 3],
    /// Whether the kernel polls the control words for [`STOPPED`] and ends when it finds it.
    pub stoppable: bool,
    /// Whether all workgroups are on one axis of the device, regardless of their position in the
    /// grid. A launch can then start at any workgroup and run any number of them.
    pub folded: bool,
}

/// A kernel's text and its calling convention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedKernel {
    /// The complete text.
    pub text: String,
    /// The name of the kernel function.
    pub entry: String,
    /// The name of an entry for workgroups entirely inside the domain, if there is one; it takes
    /// the same arguments.
    pub whole_entry: Option<String>,
    /// The function's arguments, in order.
    pub arguments: Vec<EntryArgument>,
}

/// An argument of a kernel's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryArgument {
    /// The address of two `u32` words: the first is [`RUNNING`], [`TRAPPED`] or [`STOPPED`]; the
    /// second, a trap's code.
    Control,
    /// The address of a buffer's elements.
    Memory(BufferId),
    /// The single element of a uniform buffer, as stored.
    Value(BufferId),
    /// The number of elements in a buffer, a `u32`.
    Length(BufferId),
    /// The highest position at which invocations run on axis 0, 1 or 2, a `u32`.
    Last(u8),
    /// The number of the launch's first workgroup in the grid, counted along the first axis first,
    /// a `u64`.
    FirstGroup,
    /// The number of workgroups in the grid on axis 0, 1 or 2, a `u32`.
    Grid(u8),
}

/// The first control word while a dispatch is running.
pub const RUNNING: u32 = 0;
/// The first control word after the kernel trapped.
pub const TRAPPED: u32 = 1;
/// The value that the host writes to the first control word to end a dispatch.
pub const STOPPED: u32 = 2;

/// Optimizes a kernel and decomposes the ops that the dialect lacks.
pub fn prepare(kernel: &Kernel, schedule: Schedule, dialect: &Dialect) -> Kernel {
    // Compilers of the family optimize division by constants themselves.
    let target = Target { lacking: dialect.lacking.to_vec(), slow_division: false };
    let optimized = optimize(expand(kernel), &schedule.with_target(target.clone()));
    // The schedule may not include the pass.
    optimize(optimized, &Schedule::of(&[Pass::Decompose]).with_target(target))
}

/// Emits the text of a kernel that was [prepared](prepare) for the dialect. Subgroup ops require a
/// dialect that [supports them](Dialect::subgroup_size).
pub fn emit(kernel: &Kernel, dialect: &Dialect, settings: &Settings) -> EmittedKernel {
    writer::write(&legalise(kernel, &dialect.wanted), dialect, settings)
}
