//! The optimizer: kernels in, faster kernels out, the same results to the bit.
//!
//! [`optimize`] runs the passes of a [`Schedule`] one after the other. A pass is a plain function over the kernel's
//! body, in a file of its own; any subset of passes in any order is correct, so the order in a schedule is a matter of
//! gain only, and stands as comments at the two lists below. After the last pass, what the kernel says about itself
//! (uniformity, needs, what its buffers are used for) is derived anew and its handles are numbered without gaps.
//!
//! Debug builds check the kernel after every pass with [`check`], which knows nothing about the passes.
//!
//! What every pass relies on: ops are total, so computing something that the program would have skipped is harmless;
//! a load out of range gives zero; other invocations' writes are seen only across a barrier, since anything else is a
//! race. An access marked `in_bounds` is the exception: the mark is a proof at that place in the control flow, and
//! whoever moves the access elsewhere drops it.

mod check;
mod coarsen;
pub(crate) mod compact;
mod control;
pub(crate) mod cse;
pub(crate) mod dead;
mod decompose;
pub(crate) mod fold;
mod forward;
mod fuse;
mod hoist;
mod interval;
mod iterations;
mod propagate;
pub(crate) mod range;
mod rewrite;
mod scalarize;
mod select;
pub(crate) mod simplify;
mod strength;
mod target;
#[cfg(test)]
mod tests;
mod unroll;
mod walk;

pub(crate) use control::trip_count;
pub(crate) use iterations::dispatch_iteration_bound;
pub use iterations::iteration_bound;
pub(crate) use rewrite::new_value;
pub use target::{Assume, Target};
pub(crate) use walk::{any_stmt, definitions, each_stmt};

use crate::kernel::{Kernel, KernelBody, facts, uniformity};
use crate::math::expand_ops;

macro_rules! passes {
    ($($(#[doc = $doc:literal])* $pass:ident $name:literal;)*) => {
        /// One transformation of a kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Pass { $($(#[doc = $doc])* $pass),* }

        impl Pass {
            /// Every pass, in table order.
            pub const ALL: &'static [Pass] = &[$(Pass::$pass),*];

            /// The pass's name in traces and tests.
            pub fn name(self) -> &'static str {
                match self { $(Pass::$pass => $name),* }
            }
        }
    };
}

passes! {
    /// What depends on constants alone becomes a constant.
    Fold "fold";
    /// The op table's laws, and rules between ops.
    Simplify "simplify";
    /// Branches and loops that constants decide, statements behind an exit.
    Control "control";
    /// Values computed twice are computed once.
    Cse "cse";
    /// Reads of variables become the values that they give.
    Propagate "propagate";
    /// What has no effect is dropped.
    Dead "dead";
    /// Loop-invariant computations move in front of the loop.
    Hoist "hoist";
    /// Division and remainder by constants become cheaper ops.
    Strength "strength";
    /// Accesses that are in range are marked so, guards that facts decide disappear.
    Range "range";
    /// Private arrays with constant indices become variables.
    Scalarize "scalarize";
    /// Loads of what was just stored become the stored value, covered stores disappear.
    Forward "forward";
    /// Branches that only choose values become selects.
    Select "select";
    /// Neighbouring regions of one generator become one.
    Fuse "fuse";
    /// Ops that the target lacks become sequences of simpler ones.
    Decompose "decompose";
    /// One invocation of a shape-free kernel handles several elements.
    Coarsen "coarsen";
    /// Transcendental ops that the target lacks become the code that defines them.
    Expand "expand";
    /// Short counted loops become their rounds.
    Unroll "unroll";
}

impl Pass {
    /// The pass with that name, if there is one.
    pub fn from_name(name: &str) -> Option<Pass> {
        Pass::ALL.iter().copied().find(|pass| pass.name() == name)
    }

    fn run(self, body: &mut KernelBody, schedule: &Schedule) {
        match self {
            Pass::Fold => fold::run(body, &schedule.assume),
            Pass::Simplify => simplify::run(body),
            Pass::Control => control::run(body),
            Pass::Cse => cse::run(body),
            Pass::Propagate => propagate::run(body),
            Pass::Dead => dead::run(body),
            Pass::Hoist => hoist::run(body),
            Pass::Strength => strength::run(body, &schedule.target),
            Pass::Range => range::run(body, &schedule.assume),
            Pass::Scalarize => scalarize::run(body),
            Pass::Forward => forward::run(body),
            Pass::Select => select::run(body),
            Pass::Fuse => fuse::run(body),
            Pass::Decompose => decompose::run(body, &schedule.target),
            Pass::Coarsen => {
                coarsen::run(body, schedule.coarsening);
                // Everything now stands under the guard of the last round.
                uniformity::analyze(body);
            }
            Pass::Expand if schedule.target.lacking.is_empty() => {}
            Pass::Expand => {
                expand_ops(body, &|op| schedule.target.lacks(op));
                // The copies claim to be as uniform as their operands, which variables in them may not be provably.
                uniformity::analyze(body);
            }
            Pass::Unroll => unroll::run(body),
        }
    }
}

/// Which passes run, in which order, and what they may rely on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The passes; one may stand in several places.
    pub passes: Vec<Pass>,
    /// What the device lacks.
    pub target: Target,
    /// What is known about the dispatches.
    pub assume: Assume,
    /// How many elements an invocation of a shape-free kernel handles: 0 and 1 leave that as it is, up to 1024. Dispatches
    /// of the coarsened kernel must not override the grid.
    pub coarsening: u32,
}

impl Schedule {
    /// No pass at all.
    pub fn none() -> Schedule {
        Schedule::default()
    }

    /// These passes in this order.
    pub fn of(passes: &[Pass]) -> Schedule {
        Schedule { passes: passes.to_vec(), ..Schedule::default() }
    }

    /// For kernels that run now and then: one round, nothing that grows the code.
    pub fn quick() -> Schedule {
        Schedule::of(&[
            // First, so that all passes see the code: much of it is constants, and shared between uses.
            Pass::Expand,
            // Locals early: every other pass sees through values only.
            Pass::Propagate,
            Pass::Fold,
            Pass::Simplify,
            Pass::Control,
            // After simplification, which brings equal computations to one form.
            Pass::Cse,
            Pass::Hoist,
            // After common subexpressions, so that a guard and an access speak of the same value; behind motion, which
            // drops proofs.
            Pass::Range,
            // What the facts decided.
            Pass::Simplify,
            Pass::Control,
            // After range analysis: a quotient tells more about its size than the shifts and products for it.
            Pass::Strength,
            // A device gets only what it has, on every schedule.
            Pass::Decompose,
            // Last, since every pass above leaves things unused.
            Pass::Dead,
        ])
    }

    /// For kernels that run often.
    pub fn full() -> Schedule {
        Schedule::of(&[
            Pass::Fuse,
            Pass::Expand,
            Pass::Propagate,
            Pass::Fold,
            Pass::Simplify,
            Pass::Control,
            // Loops are unrolled while their bodies are small, and before arrays are looked at: unrolling is what makes
            // their indices constant.
            Pass::Unroll,
            Pass::Fold,
            Pass::Scalarize,
            // The locals that unrolling and arrays left, then what their values decide.
            Pass::Propagate,
            Pass::Fold,
            Pass::Simplify,
            Pass::Control,
            Pass::Cse,
            // Proofs first: forwarding needs them.
            Pass::Range,
            Pass::Forward,
            // After range analysis: a quotient tells more about its size than the shifts and products for it. Before selects,
            // which no slow op becomes part of.
            Pass::Strength,
            // Selects are made when the branches have lost what other passes could take out of them.
            Pass::Select,
            Pass::Propagate,
            Pass::Simplify,
            // With the proofs, which hold for every element; in front of motion, which is what it is for.
            Pass::Coarsen,
            // Coarsening divides by what it coarsens by.
            Pass::Strength,
            // Before common subexpressions are merged for the last time, as sequences repeat their constants.
            Pass::Decompose,
            Pass::Fold,
            Pass::Cse,
            Pass::Hoist,
            // Motion drops proofs.
            Pass::Range,
            // What the facts decided.
            Pass::Simplify,
            Pass::Control,
            Pass::Dead,
        ])
    }

    /// The same passes, for a device that lacks something.
    #[must_use]
    pub fn with_target(self, target: Target) -> Schedule {
        Schedule { target, ..self }
    }

    /// The same passes, with invocations of shape-free kernels handling so many elements each.
    #[must_use]
    pub fn with_coarsening(self, elements: u32) -> Schedule {
        Schedule { coarsening: elements, ..self }
    }

    /// The same passes, with more known about the dispatches.
    #[must_use]
    pub fn with_assumptions(self, assume: Assume) -> Schedule {
        Schedule { assume, ..self }
    }
}

/// The kernel after the passes of `schedule`; its results are the same to the bit.
///
/// ```
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_foundation::optimize::{Schedule, optimize};
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let body = vec![Node::store("out", 0u32, Expr::u32(2) + Expr::u32(3))];
/// let kernel = Program::wrapped(vec![out], [1, 1, 1], body).validate()?;
/// assert_eq!(kernel.values.len(), 4); // 0, 2, 3 and their sum
/// assert_eq!(optimize(kernel, &Schedule::quick()).values.len(), 2); // 0 and 5
/// # Ok::<(), vyre_foundation::diagnostics::Diagnostics>(())
/// ```
pub fn optimize(kernel: Kernel, schedule: &Schedule) -> Kernel {
    run(kernel, schedule, None)
}

/// Like [`optimize`], and shows the kernel to `after` behind each pass.
pub fn optimize_traced(kernel: Kernel, schedule: &Schedule, after: &mut dyn FnMut(Pass, &Kernel)) -> Kernel {
    run(kernel, schedule, Some(after))
}

/// Looks at a kernel behind a pass.
type Observer<'a> = &'a mut dyn FnMut(Pass, &Kernel);

fn run(kernel: Kernel, schedule: &Schedule, mut after: Option<Observer>) -> Kernel {
    if schedule.passes.is_empty() {
        return kernel;
    }
    let mut body = kernel.into_body();
    for &pass in &schedule.passes {
        pass.run(&mut body, schedule);
        if cfg!(debug_assertions)
            && let Err(fault) = check::check(&body)
        {
            unreachable!("pass {} broke kernel `{}`: {fault}", pass.name(), body.display_name());
        }
        if let Some(after) = &mut after {
            after(pass, &Kernel::new(finish(body.clone())));
        }
    }
    Kernel::new(finish(body))
}

/// Brings what the kernel says about itself in line with its statements.
pub(crate) fn finish(mut body: KernelBody) -> KernelBody {
    compact::run(&mut body);
    // Which invocations run was settled by validation: dropping the last use of a local id must not change it.
    let shape_free = body.shape_free;
    facts::derive(&mut body);
    body.shape_free = shape_free;
    let divergences = uniformity::analyze(&mut body);
    debug_assert!(divergences.is_empty(), "uniform control flow stays uniform");
    body
}
