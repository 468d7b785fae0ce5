//! Uniformity analysis: which values and which control flow are the same for all invocations of a
//! workgroup or subgroup.
//!
//! The analysis assumes at first that everything is uniform and walks the kernel until a fixpoint.
//! A value is as uniform as its operands and its source: ids, atomics and memory that invocations
//! write vary, while the result of a subgroup reduction is uniform within the subgroup. A local or
//! private array is as uniform as the least uniform value written to it and the control flow in
//! which that happens.
//!
//! Control flow diverges under a varying condition or trip count, and after an exit taken in
//! divergent control flow: a `continue` until the iteration ends, a `break` in the whole loop, a
//! `return` everywhere after it and in every enclosing loop. The same rules apply to workgroups and
//! to subgroups.

use super::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use crate::ir::{Access, Builtin, Span};
use crate::ops::SubgroupOp;

/// A statement that requires uniform control flow but occurs in divergent control flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divergence {
    /// The statement.
    pub(crate) at: Option<Span>,
    /// The cause of the divergence, if it has a source position.
    pub(crate) cause: Option<Span>,
    /// The violated rule.
    pub(crate) rule: UniformityRule,
}

/// What requires uniformity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UniformityRule {
    /// A barrier.
    Barrier,
    /// A subgroup op.
    Subgroup,
    /// The lane operand of a broadcast.
    BroadcastLane,
}

/// Sets the uniformity of every value and returns the statements that violate a rule.
pub(crate) fn analyze(kernel: &mut KernelBody) -> Vec<Divergence> {
    let mut walk = Walk {
        values: vec![UniformScope::Workgroup; kernel.values.len()],
        locals: vec![UniformScope::Workgroup; kernel.locals.len()],
        arrays: vec![UniformScope::Workgroup; kernel.arrays.len()],
        changed: true,
        divergences: Vec::new(),
        kernel,
    };
    let mut rounds = 0;
    while walk.changed {
        walk.changed = false;
        walk.divergences.clear();
        rounds += 1;
        if rounds == MAX_ROUNDS {
            walk.locals.fill(UniformScope::Invocation);
            walk.arrays.fill(UniformScope::Invocation);
        }
        let body = &walk.kernel.body;
        walk.block(body, Control::default());
    }
    let (values, divergences) = (walk.values, walk.divergences);
    for (info, scope) in kernel.values.iter_mut().zip(values) {
        info.uniform = scope == UniformScope::Workgroup;
    }
    divergences
}

/// Number of rounds after which all variables are taken to vary.
///
/// Each round refutes at least one assumption, and real kernels need only a few rounds. Giving up
/// is sound, and keeps the time linear for adversarial programs.
const MAX_ROUNDS: usize = 64;

/// The group within which something is the same for all invocations, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UniformScope {
    Invocation,
    Subgroup,
    Workgroup,
}

/// Where the invocations diverged, if they did; the position can be unknown.
type Cause = Option<Option<Span>>;

/// Whether and where the invocations of the workgroup, and of each subgroup, diverged.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    workgroup: Cause,
    subgroup: Cause,
}

impl Control {
    /// The largest group whose invocations have not diverged.
    fn scope(self) -> UniformScope {
        match (self.workgroup, self.subgroup) {
            (_, Some(_)) => UniformScope::Invocation,
            (Some(_), None) => UniformScope::Subgroup,
            (None, None) => UniformScope::Workgroup,
        }
    }

    /// This control under a condition that is uniform within `condition`.
    fn and(self, condition: UniformScope, at: Option<Span>) -> Control {
        let cause = |least: UniformScope| (condition < least).then_some(at);
        self.or(Control {
            workgroup: cause(UniformScope::Workgroup),
            subgroup: cause(UniformScope::Subgroup),
        })
    }

    /// This control, diverging also where the other one does; the first cause wins.
    fn or(self, other: Control) -> Control {
        Control { workgroup: self.workgroup.or(other.workgroup), subgroup: self.subgroup.or(other.subgroup) }
    }

    /// This control, with `at` as the position of causes that have none.
    fn placed(self, at: Option<Span>) -> Control {
        let placed = |cause: Cause| cause.map(|place| place.or(at));
        Control { workgroup: placed(self.workgroup), subgroup: placed(self.subgroup) }
    }
}

/// Exits that some invocations may have taken without the others, with their positions.
#[derive(Clone, Copy, Debug, Default)]
struct Exits {
    returned: Control,
    broke: Control,
    continued: Control,
}

impl Exits {
    fn merge(&mut self, other: Exits) {
        self.returned = self.returned.or(other.returned);
        self.broke = self.broke.or(other.broke);
        self.continued = self.continued.or(other.continued);
    }

    fn any(self) -> Control {
        self.returned.or(self.broke).or(self.continued)
    }
}

struct Walk<'a> {
    kernel: &'a KernelBody,
    values: Vec<UniformScope>,
    locals: Vec<UniformScope>,
    arrays: Vec<UniformScope>,
    changed: bool,
    divergences: Vec<Divergence>,
}

impl Walk<'_> {
    fn scope(&self, value: ValueId) -> UniformScope {
        self.values[value.index()]
    }

    fn block(&mut self, block: &[Stmt], control: Control) -> Exits {
        let mut exits = Exits::default();
        for stmt in block {
            let control = control.or(exits.any());
            exits.merge(self.stmt(stmt, control));
        }
        exits
    }

    fn stmt(&mut self, stmt: &Stmt, control: Control) -> Exits {
        match &stmt.kind {
            StmtKind::Def(value, def) => self.define(*value, def, stmt.at, control),
            StmtKind::Set(local, value) => {
                let scope = self.scope(*value).min(control.scope());
                self.limit(scope, |walk| &mut walk.locals[local.index()]);
            }
            StmtKind::Clear(array) => {
                self.limit(control.scope(), |walk| &mut walk.arrays[array.index()]);
            }
            StmtKind::Store { place, index, value, .. } => {
                if let Place::Array(array) = place {
                    let scope = self.scope(*index).min(self.scope(*value)).min(control.scope());
                    self.limit(scope, |walk| &mut walk.arrays[array.index()]);
                }
            }
            StmtKind::If { condition, then, otherwise } => {
                let control = control.and(self.scope(*condition), stmt.at);
                let mut exits = self.block(then, control);
                exits.merge(self.block(otherwise, control));
                return exits;
            }
            StmtKind::For { counter, from, to, step, body } => {
                let start = self.scope(*from).min(self.scope(*step));
                self.assume(*counter, start);
                let control = control.and(start.min(self.scope(*to)), stmt.at);
                return self.looped(body, control);
            }
            StmtKind::Loop(body) => return self.looped(body, control),
            StmtKind::Break => return Exits { broke: control.placed(stmt.at), ..Exits::default() },
            StmtKind::Continue => return Exits { continued: control.placed(stmt.at), ..Exits::default() },
            StmtKind::Return => return Exits { returned: control.placed(stmt.at), ..Exits::default() },
            StmtKind::Barrier => self.require(control.workgroup, stmt.at, UniformityRule::Barrier),
            StmtKind::Region { body, .. } => return self.block(body, control),
            StmtKind::Trap(_) => {}
        }
        Exits::default()
    }

    /// Analyzes a loop body; if only some invocations leave the loop, the others diverge from the
    /// start of the body.
    fn looped(&mut self, body: &[Stmt], control: Control) -> Exits {
        let reported = self.divergences.len();
        let mut exits = self.block(body, control);
        let within = control.or(exits.returned.or(exits.broke));
        if within.scope() < control.scope() {
            self.divergences.truncate(reported);
            exits = self.block(body, within);
        }
        Exits { returned: exits.returned, ..Exits::default() }
    }

    fn define(&mut self, value: ValueId, def: &Def, at: Option<Span>, control: Control) {
        let operands =
            def.operands().map(|operand| self.scope(operand)).min().unwrap_or(UniformScope::Workgroup);
        let scope = match def {
            Def::Const(_) | Def::Len(_) => UniformScope::Workgroup,
            Def::Get(local) => self.locals[local.index()],
            Def::Op(..) => operands,
            Def::Load { place: Place::Array(array), .. } => operands.min(self.arrays[array.index()]),
            Def::Load { place: Place::Buffer(buffer), .. } => {
                let buffer = self.kernel.buffer(*buffer);
                match buffer.decl.access {
                    Access::Read | Access::Uniform => operands,
                    Access::Workgroup if buffer.broadcast => operands,
                    Access::ReadWrite | Access::Output | Access::Workgroup => UniformScope::Invocation,
                }
            }
            Def::Builtin(builtin, _) => match builtin {
                Builtin::WorkgroupId | Builtin::GridSize | Builtin::WorkgroupSize => UniformScope::Workgroup,
                Builtin::InvocationId | Builtin::LocalId => UniformScope::Invocation,
            },
            Def::Atomic { .. } => UniformScope::Invocation,
            Def::Subgroup(op, args) => {
                self.require(control.subgroup, at, UniformityRule::Subgroup);
                let lane = args.get(1).map_or(UniformScope::Workgroup, |&lane| self.scope(lane));
                if *op == SubgroupOp::Broadcast && lane < UniformScope::Subgroup {
                    self.divergences.push(Divergence {
                        at,
                        cause: None,
                        rule: UniformityRule::BroadcastLane,
                    });
                }
                exchanged(*op, lane)
            }
        };
        self.assume(value, scope);
    }

    fn require(&mut self, cause: Cause, at: Option<Span>, rule: UniformityRule) {
        if let Some(cause) = cause {
            self.divergences.push(Divergence { at, cause, rule });
        }
    }

    fn assume(&mut self, value: ValueId, scope: UniformScope) {
        self.limit(scope, |walk| &mut walk.values[value.index()]);
    }

    fn limit(&mut self, scope: UniformScope, belief: impl FnOnce(&mut Self) -> &mut UniformScope) {
        let belief = belief(self);
        if scope < *belief {
            *belief = scope;
            self.changed = true;
        }
    }
}

/// The group within which the result of a subgroup op is uniform, if its second operand is uniform
/// within `lane`.
fn exchanged(op: SubgroupOp, lane: UniformScope) -> UniformScope {
    match op {
        SubgroupOp::Size | SubgroupOp::Count => UniformScope::Workgroup,
        SubgroupOp::Id | SubgroupOp::Ballot | SubgroupOp::Broadcast | SubgroupOp::Reduce(_) => {
            UniformScope::Subgroup
        }
        SubgroupOp::Shuffle => lane.min(UniformScope::Subgroup),
        SubgroupOp::Lane | SubgroupOp::Inclusive(_) | SubgroupOp::Exclusive(_) => UniformScope::Invocation,
    }
}
