#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("buffers hold little-endian elements, and slices are bound as they lie in memory");

// The macros name this crate as `vyre`, also in the crate itself.
extern crate self as vyre;

mod argument;
mod backend;
mod backend_state;
mod background;
mod batch;
mod call;
pub mod catalogue;
mod certified;
mod code;
mod conformance;
mod dispatch;
mod exact_sum;
mod explain;
mod first_run;
mod held_buffers;
mod helper;
mod helper_trial;
#[doc(hidden)]
pub mod host;
#[cfg(feature = "import")]
mod import;
mod inputs;
mod intrinsics;
mod joint_launch;
mod known_results;
mod meter;
mod op_methods;
mod op_routine;
mod opening;
mod options;
mod parameter;
mod pending;
mod rehearsal;
mod report;
mod resident;
mod routine;
mod routine_core;
mod runtime;
mod sequence;
mod shared;
mod snapshot;
mod specialised;
mod turn;
#[doc(hidden)]
pub mod typed;
mod verify;

pub use argument::{Argument, Element};
pub use call::Call;
pub use certified::Certified;
pub use exact_sum::{ExactFloat, ExactSum, NotASum};
pub use explain::{Explanation, Standing};
pub use intrinsics::*;
pub use op_methods::{Array, Matrix, MatrixMut, SortKey, Tally};
pub use op_routine::OpRoutine;
pub use pending::{Pending, Scope, scope};
pub use rehearsal::Rehearsal;
pub use report::{Attempt, Report};
pub use resident::{Resident, ResidentCell};
pub use routine::Routine;
pub use routine_core::Device;
pub use runtime::{
    BACKENDS_VARIABLE, BUNDLE_VARIABLE, FROZEN_VARIABLE, IntoProgram, Runtime, RuntimeBuilder,
};
pub use sequence::{Batch, Sequence};
pub use typed::{Float, Integer, KernelCall, Map, Number, Read, Write};

/// Turns a function into a kernel: a typed call under the function's name, and a type of that name
/// with `on_host` and `program`. The page `docs/rust.md` of the repository describes the whole
/// language.
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

/// Makes a function from numbers to a number callable from kernels.
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

/// Turns a `.vyre` file into a kernel, as [`kernel`](macro@kernel) does a function:
/// `include_kernel!("blur.vyre")`, `include_kernel!(pub "blur.vyre" as soften, SIDE = 32)`. The
/// path is relative to the file that names it.
pub use vyre_macros::include_kernel;

/// Creates a kernel that maps every element of a slice: a [`Map`].
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

/// In a kernel: sends the caller a message, `vyre::print!("x = {}", x[i])`, with `{}` for each
/// operand.
pub use vyre_macros::print;

/// In a kernel: fails the call where the condition does not hold, `vyre::assert!(x[i] >= 0.0,
/// "negative at {}", i)`.
pub use vyre_macros::assert;

#[doc(inline)]
pub use vyre_driver::messages::Prints;
#[doc(inline)]
pub use vyre_driver::router::{CandidateExplanation, Reason, RefusedBackend, RouteExplanation};
#[doc(inline)]
pub use vyre_driver::storage::{CACHE_LIMIT_VARIABLE, TABLES_VARIABLE};
#[doc(inline)]
pub use vyre_driver::{
    BackendError, BackendError as Error, Cancellation, DeviceClass, DeviceProfile, DeviceTimingQuality,
    DispatchConfig, ErrorKind, Fallback, FloatDepartures, Schedule,
};
#[doc(inline)]
pub use vyre_foundation::hints::RegionRecord;
#[doc(inline)]
pub use vyre_foundation::ir::{DataType, Expr, Node, Program, ProgramBuilder};
#[doc(inline)]
pub use vyre_foundation::messages::Message;
#[doc(inline)]
pub use vyre_foundation::text::Constants;

/// Programs built in Rust, and their parts.
///
/// ```
/// use vyre::prelude::*;
/// use vyre::ir::BufferDecl;
/// # let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
/// let i = || Expr::invocation_id(0);
/// let buffers = vec![BufferDecl::read_write("x", 0, DataType::U32)];
/// let program = Program::wrapped(
///     buffers,
///     [64, 1, 1],
///     vec![Node::store("x", i(), Expr::load("x", i()) + i())],
/// );
/// let mut x = [10_u32, 10, 10];
/// runtime.load_program(program)?.call().bind("x", &mut x).run()?;
/// assert_eq!(x, [10, 11, 12]);
/// # Ok::<(), BackendError>(())
/// ```
pub mod ir {
    #[doc(inline)]
    pub use vyre_foundation::ir::{
        Access, Args, AtomicOp, Axis, Block, BlockBuilder, Buffer, BufferDecl, Builtin, Combine, DataType,
        Domain, Expr, Formula, Function, Name, Node, Op, OpId, Program, ProgramBuilder, Span, SubgroupOp,
        Value, ValueType, WorkgroupOp,
    };
}

/// Faults of a program or of a call's arguments, as [`Error::InvalidProgram`] reports them.
pub mod diagnostics {
    #[doc(inline)]
    pub use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics, Severity};
}

/// Kernel shapes and tuning modes.
pub mod tuner {
    #[doc(inline)]
    pub use vyre_driver::tuner::{Mode, Shape};
}

/// Shader sources and options for [`Runtime::load_shader`].
#[cfg(feature = "import")]
pub mod shader {
    #[doc(inline)]
    pub use vyre_import::{Options, Source};
}

/// The parts that vyre is built from, for tools and experiments. **Nothing here is covered by
/// semantic versioning**: any release may change or remove it. To write a backend, depend on the
/// crate `vyre-driver` instead.
pub mod unstable {
    pub use crate::call::{bind_in_place, next_name};
    pub use crate::exact_sum::thread_count;
    pub use crate::resident::aliased;

    pub use vyre_driver as driver;
    pub use vyre_foundation as foundation;
    #[cfg(feature = "import")]
    pub use vyre_import as import;

    /// One item per linked backend, each of which registers itself. A static library that refers to
    /// this list keeps them linked.
    pub static LINKED: &[&u8] = &[
        #[cfg(feature = "cpu")]
        &vyre_cpu::LINKED,
        #[cfg(feature = "cuda")]
        &vyre_cuda::LINKED,
        #[cfg(feature = "opencl")]
        &vyre_opencl::LINKED,
        #[cfg(feature = "wgpu")]
        &vyre_wgpu::LINKED,
    ];

    /// First contact with drivers, through the helper process.
    pub mod opening {
        pub use crate::opening::{
            HELPER_LIMIT_VARIABLE, HELPER_SUBCOMMAND, HELPER_VARIABLE, command, helper_answer,
            meet_unknown_drivers, set_command, try_program,
        };
    }
}

/// The result of a call; `fn main() -> vyre::Result<()>` prints an error in its readable form.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The imports that most programs need.
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
