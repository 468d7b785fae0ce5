//! The optimizer: rewrites a kernel into a faster one with bit-identical results.
//!
//! [`optimize`] runs the passes of a [`Schedule`] in order. A pass is a plain function over the
//! kernel's body, each in its own file. Any subset of passes in any order is correct; the order in
//! a schedule matters only for performance and is explained at the two lists below. After the last
//! pass, the derived facts of the kernel (uniformity, needs, buffer usage) are recomputed and its
//! handles are renumbered without gaps.
//!
//! Debug builds verify the kernel after every pass with [`check`], which is independent of the
//! passes.
//!
//! Every pass relies on the following: ops are total, so speculative evaluation is harmless; an
//! out-of-range load yields zero; writes of other invocations become visible only across a barrier,
//! since anything else is a race. An access marked `in_bounds` is the exception: the mark is a
//! proof at that point in the control flow, and a pass that moves the access elsewhere must drop
//! it.

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
        /// A transformation of a kernel.
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
    /// Evaluates expressions of constants.
    Fold "fold";
    /// Applies the op table's algebraic laws and rules between ops.
    Simplify "simplify";
    /// Removes branches and loops decided by constants, and unreachable statements; turns exits
    /// from the middle of a block into branches.
    Control "control";
    /// Eliminates common subexpressions.
    Cse "cse";
    /// Replaces reads of variables with the values that they yield.
    Propagate "propagate";
    /// Removes code without effect.
    Dead "dead";
    /// Moves loop-invariant computations out of loops.
    Hoist "hoist";
    /// Replaces division and remainder by constants with cheaper ops.
    Strength "strength";
    /// Marks accesses proved in range and removes guards that are known to hold or fail.
    Range "range";
    /// Replaces private arrays that have constant indices with variables.
    Scalarize "scalarize";
    /// Forwards stored values to loads and removes overwritten stores.
    Forward "forward";
    /// Replaces branches that only choose values with selects.
    Select "select";
    /// Merges adjacent regions of the same generator.
    Fuse "fuse";
    /// Replaces ops that the target lacks with sequences of simpler ones.
    Decompose "decompose";
    /// Makes one invocation of a shape-free kernel handle several elements.
    Coarsen "coarsen";
    /// Replaces transcendental ops that the target lacks with their defining code.
    Expand "expand";
    /// Unrolls short counted loops.
    Unroll "unroll";
}

impl Pass {
    /// The pass with this name, if any.
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
                // The whole body is now under the guard of the last iteration.
                uniformity::analyze(body);
            }
            Pass::Expand if schedule.target.lacking.is_empty() => {}
            Pass::Expand => {
                expand_ops(body, &|op| schedule.target.lacks(op));
                // The copies are marked as uniform as their operands, which may not be provable for
                // variables in them.
                uniformity::analyze(body);
            }
            Pass::Unroll => unroll::run(body),
        }
    }
}

/// The passes to run, their order, and the assumptions they may make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The passes; one can occur several times.
    pub passes: Vec<Pass>,
    /// The features that the device lacks.
    pub target: Target,
    /// Facts about the dispatches.
    pub assume: Assume,
    /// Elements per invocation of a shape-free kernel, at most 1024; 0 and 1 do not coarsen.
    /// Dispatches of a coarsened kernel must not override the grid.
    pub coarsening: u32,
}

impl Schedule {
    /// A schedule without passes.
    pub fn none() -> Schedule {
        Schedule::default()
    }

    /// A schedule of these passes in this order.
    pub fn of(passes: &[Pass]) -> Schedule {
        Schedule { passes: passes.to_vec(), ..Schedule::default() }
    }

    /// A schedule for kernels that run occasionally: one sweep, without passes that grow the code.
    pub fn quick() -> Schedule {
        Schedule::of(&[
            // First, so that all passes see the expanded code, much of which is constant or shared
            // between uses.
            Pass::Expand,
            // Locals early: all other passes see through values only.
            Pass::Propagate,
            Pass::Fold,
            Pass::Simplify,
            Pass::Control,
            // After simplification, which brings equal computations to one form.
            Pass::Cse,
            Pass::Hoist,
            // After CSE, so that a guard and an access refer to the same value; after code motion,
            // which drops proofs.
            Pass::Range,
            // Cleans up what the range facts decided.
            Pass::Simplify,
            Pass::Control,
            // After range analysis: a quotient has a tighter range than its expansion into shifts
            // and products.
            Pass::Strength,
            // On every schedule, since a device must only receive ops that it has.
            Pass::Decompose,
            // Last, since every pass above leaves dead code.
            Pass::Dead,
        ])
    }

    /// A schedule for kernels that run often.
    pub fn full() -> Schedule {
        Schedule::of(&[
            Pass::Fuse,
            Pass::Expand,
            Pass::Propagate,
            Pass::Fold,
            Pass::Simplify,
            Pass::Control,
            // Unrolls loops while their bodies are small, and before scalarization, since unrolling
            // is what makes array indices constant.
            Pass::Unroll,
            Pass::Fold,
            Pass::Scalarize,
            // Propagates the locals that unrolling and scalarization left, then simplifies.
            Pass::Propagate,
            Pass::Fold,
            Pass::Simplify,
            Pass::Control,
            Pass::Cse,
            // Before forwarding, which needs the proofs.
            Pass::Range,
            Pass::Forward,
            // After range analysis: a quotient has a tighter range than its expansion into shifts
            // and products. Before select conversion, which does not speculate slow ops.
            Pass::Strength,
            // After the passes that can empty branches.
            Pass::Select,
            Pass::Propagate,
            Pass::Simplify,
            // After range analysis, whose proofs hold for every element; before code motion, which
            // it enables.
            Pass::Coarsen,
            // Coarsening introduces divisions by a constant.
            Pass::Strength,
            // Before the last CSE, since the sequences repeat their constants.
            Pass::Decompose,
            Pass::Fold,
            Pass::Cse,
            Pass::Hoist,
            // Again, since code motion drops proofs.
            Pass::Range,
            // Cleans up what the range facts decided.
            Pass::Simplify,
            Pass::Control,
            Pass::Dead,
        ])
    }

    /// Sets the target device.
    #[must_use]
    pub fn with_target(self, target: Target) -> Schedule {
        Schedule { target, ..self }
    }

    /// Sets the number of elements per invocation for shape-free kernels.
    #[must_use]
    pub fn with_coarsening(self, elements: u32) -> Schedule {
        Schedule { coarsening: elements, ..self }
    }

    /// Sets the facts about the dispatches.
    #[must_use]
    pub fn with_assumptions(self, assume: Assume) -> Schedule {
        Schedule { assume, ..self }
    }
}

/// Runs the passes of `schedule` on a kernel; the results stay bit-identical.
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

/// Like [`optimize`], and calls `after` with the kernel after each pass.
pub fn optimize_traced(kernel: Kernel, schedule: &Schedule, after: &mut dyn FnMut(Pass, &Kernel)) -> Kernel {
    run(kernel, schedule, Some(after))
}

/// Callback that observes a kernel after a pass.
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

/// Compacts the handles and recomputes the derived facts of the kernel.
pub(crate) fn finish(mut body: KernelBody) -> KernelBody {
    compact::run(&mut body);
    // Validation settled which invocations run: dropping the last use of a local id must not change
    // that.
    let shape_free = body.shape_free;
    facts::derive(&mut body);
    body.shape_free = shape_free;
    let divergences = uniformity::analyze(&mut body);
    debug_assert!(divergences.is_empty(), "uniform control flow stays uniform");
    body
}
