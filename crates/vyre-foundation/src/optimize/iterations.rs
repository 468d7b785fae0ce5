//! How many rounds of loops one invocation runs at most.
//!
//! One walk keeps an interval for each integer value, from constants, types and ops alone. A counted loop runs at most
//! as often as the ends of its bounds' intervals allow; its rounds and those of the loops in its body multiply. A loop
//! without a counter has no bound here.

use super::interval::{Interval, transfer};
use crate::kernel::{Def, KernelBody, Stmt, StmtKind, ValueId};
use crate::types::ValueType;

/// A bound on the loop rounds, of all loops together, that any one invocation runs; `None` if none was found. It also
/// holds for invocations that run in step, where a loop goes on until the last of them leaves it.
///
/// ```
/// use vyre_foundation::optimize::iteration_bound;
/// use vyre_foundation::text::parse;
/// let source = "kernel k(n: u8 uniform, out: output u32[1]) workgroup 1 { region \"r\" {
///   let sum = 0
///   for i in 0..n { for j in 0..4 { sum = sum + j } }
///   out[0] = sum } }";
/// // At most 255 outer rounds, with one and four inner ones each.
/// let kernel = parse(source)?.validate()?;
/// assert_eq!(iteration_bound(&kernel), Some(255 * (1 + 4)));
/// # Ok::<(), vyre_foundation::diagnostics::Diagnostics>(())
/// ```
pub fn iteration_bound(kernel: &KernelBody) -> Option<u64> {
    let intervals = kernel.values.iter().map(|info| Interval::of_type(info.ty)).collect();
    Walk { kernel, intervals }.block(&kernel.body)
}

struct Walk<'a> {
    kernel: &'a KernelBody,
    intervals: Vec<Interval>,
}

impl Walk<'_> {
    fn block(&mut self, block: &[Stmt]) -> Option<u64> {
        block.iter().try_fold(0, |sum: u64, stmt| sum.checked_add(self.statement(&stmt.kind)?))
    }

    fn statement(&mut self, kind: &StmtKind) -> Option<u64> {
        match kind {
            StmtKind::Def(value, def) => {
                self.intervals[value.index()] = self.interval_of(*value, def);
                Some(0)
            }
            // At most one side runs, but of invocations in step each may take another.
            StmtKind::If { then, otherwise, .. } => self.block(then)?.checked_add(self.block(otherwise)?),
            StmtKind::For { counter, from, to, step, body } => {
                let [from, to, step] = [from, to, step].map(|bound| self.intervals[bound.index()]);
                let reach = Interval::new(from.low.min(to.low), from.high.max(to.high));
                self.intervals[counter.index()] = reach;
                let rounds = rounds(from, to, step)?;
                rounds.checked_mul(self.block(body)?.checked_add(1)?)
            }
            StmtKind::Loop(_) => None,
            StmtKind::Region { body, .. } => self.block(body),
            StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => Some(0),
        }
    }

    fn interval_of(&self, value: ValueId, def: &Def) -> Interval {
        let full = Interval::of_type(self.kernel.ty(value));
        match def {
            Def::Const(constant) => Interval::of_constant(*constant),
            Def::Load { place, .. } => Interval::of_element(self.kernel.element(*place)),
            Def::Len(buffer) => {
                let count = self.kernel.buffer(*buffer).decl.count;
                if count > 0 { Interval::only(count.into()) } else { full }
            }
            Def::Op(op, operands) => {
                let args: Vec<Interval> =
                    operands.iter().map(|operand| self.intervals[operand.index()]).collect();
                let types: Vec<ValueType> = operands.iter().map(|&operand| self.kernel.ty(operand)).collect();
                transfer(*op, &args, types[0], self.kernel.ty(value))
            }
            Def::Get(_) | Def::Builtin(..) | Def::Atomic { .. } | Def::Subgroup(..) => full,
        }
    }
}

/// The most rounds that a counted loop with such bounds runs.
fn rounds(from: Interval, to: Interval, step: Interval) -> Option<u64> {
    let up = if step.high > 0 { to.high - from.low } else { 0 };
    let down = if step.low < 0 { from.high - to.low } else { 0 };
    let shortest = match (step.low > 0, step.high < 0) {
        (true, _) => step.low,
        (_, true) => -step.high,
        (false, false) => 1,
    };
    let distance = up.max(down).max(0).unsigned_abs();
    u64::try_from(distance.div_ceil(shortest.unsigned_abs())).ok()
}
