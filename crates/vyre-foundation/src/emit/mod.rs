//! Kernels as source text for compilers of the C family.
//!
//! There is one writer (`writer`, and `spelling` for the ops); what sets languages apart is a table, the [`Dialect`].
//! What C cannot say in an expression is a function that the text defines for itself (`functions`); what a dialect
//! lacks altogether is decomposed beforehand, which [`prepare`] sees to, or brought into other forms
//! ([`legalise`](mod@crate::legalise)). The text assumes a compiler that neither contracts
//! nor reorders float arithmetic, and divides and takes roots correctly.
//!
//! ```
//! use vyre_foundation::emit::{OPENCL, Settings, emit, prepare};
//! use vyre_foundation::optimize::Schedule;
//! let program = vyre_foundation::text::parse(
//!     "kernel double(x: read_write f32[]) { region \"r\" { x[invocation.x] = x[invocation.x] * 2.0 } }",
//! )?;
//! let kernel = prepare(&program.validate()?, Schedule::full(), &OPENCL);
//! let source = emit(&kernel, &OPENCL, &Settings { workgroup: [64, 1, 1], stoppable: false, folded: false });
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

/// What is written for, besides the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Invocations per workgroup. Only a shape-free kernel may be written for a size that is not its own.
    pub workgroup: [u32; 3],
    /// Whether the kernel looks into the control words for [`STOPPED`] and ends when it finds it.
    pub stoppable: bool,
    /// Whether workgroups lie on one axis of the device, wherever they are in their grid. Then a launch may start at any of
    /// them and have any number.
    pub folded: bool,
}

/// A kernel's text and how it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The whole text.
    pub text: String,
    /// The kernel function's name.
    pub entry: String,
    /// The name of an entry for workgroups that lie inside the domain, if there is one; it takes the same.
    pub whole_entry: Option<String>,
    /// What the function takes, in order.
    pub arguments: Vec<Argument>,
}

/// One argument of a kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of two `u32` words: the first is [`RUNNING`], [`TRAPPED`] or [`STOPPED`]; the second, a trap's code.
    Control,
    /// The address of a buffer's elements.
    Memory(BufferId),
    /// The one element of a uniform buffer, as it is stored.
    Value(BufferId),
    /// How many elements a buffer has, a `u32`.
    Length(BufferId),
    /// The highest position at which invocations run, on axis 0, 1 or 2; a `u32`.
    Last(u8),
    /// The number of the launch's first workgroup in the grid, the first axis first; a `u64`.
    FirstGroup,
    /// How many workgroups the grid has on axis 0, 1 or 2; a `u32`.
    Grid(u8),
}

/// The first control word of a dispatch under way.
pub const RUNNING: u32 = 0;
/// The first control word once the kernel trapped.
pub const TRAPPED: u32 = 1;
/// What the host makes the first control word to end a dispatch.
pub const STOPPED: u32 = 2;

/// The kernel optimized, and with nothing left in it that the dialect lacks.
pub fn prepare(kernel: &Kernel, schedule: Schedule, dialect: &Dialect) -> Kernel {
    // Compilers of the family know how to divide by constants.
    let target = Target { lacking: dialect.lacking.to_vec(), slow_division: false };
    let optimized = optimize(expand(kernel), &schedule.with_target(target.clone()));
    // A schedule need not hold the pass.
    optimize(optimized, &Schedule::of(&[Pass::Decompose]).with_target(target))
}

/// The text of a kernel that was [prepared](prepare) for the dialect, and has subgroup ops only if the dialect
/// [does](Dialect::subgroup_size).
pub fn emit(kernel: &Kernel, dialect: &Dialect, settings: &Settings) -> Source {
    writer::write(&legalise(kernel, &dialect.wanted), dialect, settings)
}
