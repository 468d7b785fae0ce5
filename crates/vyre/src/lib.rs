//! vyre: compute kernels written once, checked, optimised, and run on the backend that was measured fastest.
//!
//! This is the crate to depend on. A [`Runtime`] opens every backend that is linked, proves that each gives the results
//! that the interpreter gives, and sends each call where it is measured to be done first. Each backend is a feature;
//! `cpu`, which needs nothing installed, is the default. The interpreter is always there.

#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("buffers hold little-endian elements, and slices are bound as they lie in memory");

// The macros name this crate, here too.
extern crate self as vyre;

mod apart;
mod argument;
mod backend;
mod background;
mod batch;
mod call;
pub mod catalogue;
mod certified;
mod code;
mod conformance;
pub mod contact;
mod core;
mod dispatch;
mod exact;
mod exhibit;
mod explain;
mod held;
mod helper;
#[doc(hidden)]
pub mod host;
#[cfg(feature = "import")]
mod import;
mod inputs;
mod intrinsics;
mod meter;
mod options;
mod parameter;
mod pending;
mod ready;
mod rehearsal;
mod report;
mod resident;
mod routine;
mod runtime;
mod saved;
mod sequence;
mod shared;
mod side;
mod simple;
mod special;
mod tables;
mod together;
mod trial;
mod turn;
#[doc(hidden)]
pub mod typed;
mod verify;

pub use argument::{Argument, Element};
pub use call::Call;
pub use certified::Certified;
pub use core::Device;
pub use exact::{ExactFloat, ExactSum, NotASum, thread_count};
pub use explain::{Explanation, Standing};
pub use intrinsics::*;
pub use pending::{Pending, Scope, scope};
pub use ready::OpRoutine;
pub use rehearsal::Rehearsal;
pub use report::{Attempt, Report};
pub use resident::Resident;
pub use routine::Routine;
pub use runtime::{
    BACKENDS_VARIABLE, BUNDLE_VARIABLE, FROZEN_VARIABLE, IntoProgram, Runtime, RuntimeBuilder,
};
pub use sequence::{Batch, Sequence};
pub use simple::{Array, Matrix, MatrixMut, SortKey, Tally};
pub use tables::{CACHE_LIMIT_VARIABLE, TABLES_VARIABLE};
pub use typed::{Float, Integer, KernelCall, Map, Number, Read, Write};

/// Makes a kernel of a function: a typed call under the function's name, and a type of that name with `on_host` and
/// `program`. The page `docs/rust.md` of the repository has the whole language.
///
/// ```
/// use vyre::prelude::*;
///
/// #[vyre::kernel(over = [width, height], workgroup = [16, 4])]
/// fn fill(width: u32, height: u32, #[output(len = width * height)] y: &mut [u32]) {
///     let (column, row) = (vyre::index(), vyre::index_y());
///     y[row * width as usize + column] = row as u32;
/// }
/// # let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
/// let mut y = [9; 6];
/// fill(3, 2, &mut y).run(&runtime)?;
/// assert_eq!(y, [0, 0, 0, 1, 1, 1]);
/// # Ok::<(), BackendError>(())
/// ```
pub use vyre_macros::kernel;

/// Lets kernels call a function of numbers that gives a number.
///
/// ```
/// #[vyre::function]
/// fn square(x: f32) -> f32 {
///     x * x
/// }
///
/// #[vyre::kernel]
/// fn squares(y: &mut [f32]) {
///     let i = vyre::index();
///     y[i] = square(y[i]);
/// }
/// let mut y = [1.0, 2.0, 3.0];
/// squares::on_host(&mut y);
/// assert_eq!(y, [1.0, 4.0, 9.0]);
/// ```
pub use vyre_macros::function;

/// Makes a kernel of a `.vyre` file, as [`kernel`](macro@kernel) does of a function: `include_kernel!("blur.vyre")`,
/// `include_kernel!(pub "blur.vyre" as soften, SIDE = 32)`. The path is from the file that names it.
pub use vyre_macros::include_kernel;

/// Makes a kernel that maps every element of a slice, a [`Map`].
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
/// let mut y = [0.0; 3];
/// vyre::map!(|x: f32| x * x + 1.0).call(&[1.0, 2.0, 3.0], &mut y).run(&runtime)?;
/// assert_eq!(y, [2.0, 5.0, 10.0]);
/// # Ok::<(), BackendError>(())
/// ```
pub use vyre_macros::map;

/// In a kernel: tells whoever made the call a message, `vyre::print!("x = {}", x[i])`, with `{}` for each operand.
pub use vyre_macros::print;

/// In a kernel: makes the call fail where the condition does not hold, `vyre::assert!(x[i] >= 0.0, "negative at {}", i)`.
pub use vyre_macros::assert;

pub use vyre_driver as driver;
pub use vyre_foundation as foundation;
#[cfg(feature = "import")]
pub use vyre_import as shader;

pub use vyre_driver::messages::{Message, Prints};
pub use vyre_driver::router::{Reason, RefusedBackend};
pub use vyre_driver::{BackendError, BackendError as Error, DispatchConfig, Fallback};
pub use vyre_foundation::ir::{DataType, Expr, Node, Program, ProgramBuilder};
pub use vyre_foundation::text::Constants;

// Linking a backend's crate registers it.
#[cfg(feature = "cpu")]
use vyre_cpu as _;
#[cfg(feature = "cuda")]
use vyre_cuda as _;
#[cfg(feature = "opencl")]
use vyre_opencl as _;
#[cfg(feature = "wgpu")]
use vyre_wgpu as _;

/// What calls give: `fn main() -> vyre::Result<()>` shows an error as it reads.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What most programs import.
pub mod prelude {
    pub use crate::{
        BackendError, DataType, DispatchConfig, Expr, Fallback, Node, Program, ProgramBuilder, Report,
        Resident, Routine, Runtime,
    };
}

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of docs/rust.md, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustPage;
