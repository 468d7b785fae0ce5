//! Which values are the same for all invocations of a workgroup, and which control flow they share.
//!
//! The analysis starts from the belief that everything is uniform and walks the kernel until nothing more is
//! refuted. A value is varying if an operand is, or if its source is (ids, atomics, memory that invocations write). A
//! local or private array is varying once it is written with a varying value, or in divergent control flow.
//!
//! Control flow diverges under a varying condition or trip count, and after an exit taken in divergent control flow:
//! a `continue` until the round ends, a `break` in the whole loop, a `return` everywhere after it and in every loop
//! around it.

use super::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use crate::ir::{Access, Builtin, Span};
use crate::ops::SubgroupOp;

/// A statement that needs the whole workgroup but stands where control flow diverges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divergence {
    /// The statement.
    pub(crate) at: Option<Span>,
    /// What makes control flow diverge there, if that has a place in the text.
    pub(crate) cause: Option<Span>,
    /// Which rule is broken.
    pub(crate) rule: Rule,
}

/// What needs uniformity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A barrier.
    Barrier,
    /// A subgroup op.
    Subgroup,
    /// The lane operand of a broadcast.
    BroadcastLane,
}

/// Sets the uniformity of every value and gives the statements that break a rule.
pub(crate) fn analyze(kernel: &mut KernelBody) -> Vec<Divergence> {
    let mut walk = Walk {
        values: vec![true; kernel.values.len()],
        locals: vec![true; kernel.locals.len()],
        arrays: vec![true; kernel.arrays.len()],
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
            walk.locals.fill(false);
            walk.arrays.fill(false);
        }
        let body = &walk.kernel.body;
        walk.block(body, Control::Uniform);
    }
    let (values, divergences) = (walk.values, walk.divergences);
    for (info, uniform) in kernel.values.iter_mut().zip(values) {
        info.uniform = uniform;
    }
    divergences
}

/// Each round refutes at least one belief, and in real kernels a handful of rounds suffice. Past this many, all
/// variables are taken to vary: sound, and it keeps the time linear for programs made to be slow.
const MAX_ROUNDS: usize = 64;

/// Whether all invocations of the workgroup run the statements at hand together; if not, since where.
#[derive(Clone, Copy, Debug)]
enum Control {
    Uniform,
    Divergent(Option<Span>),
}

impl Control {
    fn is_uniform(self) -> bool {
        matches!(self, Control::Uniform)
    }

    /// This control, diverging at `at` unless `condition` holds.
    fn and(self, condition: bool, at: Option<Span>) -> Control {
        if condition { self } else { self.or_divergent(Some(at)) }
    }

    /// This control, diverging at the given place if there is one; the first cause stays.
    fn or_divergent(self, cause: Option<Option<Span>>) -> Control {
        match (self, cause) {
            (Control::Uniform, Some(cause)) => Control::Divergent(cause),
            (other, _) => other,
        }
    }
}

/// Exits that some invocations may have taken without the others, with their places.
#[derive(Clone, Copy, Debug, Default)]
struct Exits {
    returned: Option<Option<Span>>,
    broke: Option<Option<Span>>,
    continued: Option<Option<Span>>,
}

impl Exits {
    fn merge(&mut self, other: Exits) {
        self.returned = self.returned.or(other.returned);
        self.broke = self.broke.or(other.broke);
        self.continued = self.continued.or(other.continued);
    }

    fn any(self) -> Option<Option<Span>> {
        self.returned.or(self.broke).or(self.continued)
    }
}

struct Walk<'a> {
    kernel: &'a KernelBody,
    values: Vec<bool>,
    locals: Vec<bool>,
    arrays: Vec<bool>,
    changed: bool,
    divergences: Vec<Divergence>,
}

impl Walk<'_> {
    fn uniform(&self, value: ValueId) -> bool {
        self.values[value.index()]
    }

    fn block(&mut self, block: &[Stmt], control: Control) -> Exits {
        let mut exits = Exits::default();
        for stmt in block {
            let control = control.or_divergent(exits.any());
            exits.merge(self.stmt(stmt, control));
        }
        exits
    }

    fn stmt(&mut self, stmt: &Stmt, control: Control) -> Exits {
        let exit = |control: Control| match control {
            Control::Uniform => None,
            Control::Divergent(cause) => Some(cause.or(stmt.at)),
        };
        match &stmt.kind {
            StmtKind::Def(value, def) => self.define(*value, def, stmt.at, control),
            StmtKind::Set(local, value) => {
                if !(self.uniform(*value) && control.is_uniform()) {
                    self.refute(|walk| &mut walk.locals[local.index()]);
                }
            }
            StmtKind::Clear(array) => {
                if !control.is_uniform() {
                    self.refute(|walk| &mut walk.arrays[array.index()]);
                }
            }
            StmtKind::Store { place, index, value, .. } => {
                if let Place::Array(array) = place
                    && !(self.uniform(*index) && self.uniform(*value) && control.is_uniform())
                {
                    self.refute(|walk| &mut walk.arrays[array.index()]);
                }
            }
            StmtKind::If { condition, then, otherwise } => {
                let control = control.and(self.uniform(*condition), stmt.at);
                let mut exits = self.block(then, control);
                exits.merge(self.block(otherwise, control));
                return exits;
            }
            StmtKind::For { counter, from, to, step, body } => {
                let same_start = self.uniform(*from) && self.uniform(*step);
                self.assume(*counter, same_start);
                let control = control.and(same_start && self.uniform(*to), stmt.at);
                return self.looped(body, control);
            }
            StmtKind::Loop(body) => return self.looped(body, control),
            StmtKind::Break => return Exits { broke: exit(control), ..Exits::default() },
            StmtKind::Continue => return Exits { continued: exit(control), ..Exits::default() },
            StmtKind::Return => return Exits { returned: exit(control), ..Exits::default() },
            StmtKind::Barrier => self.require(control, stmt.at, Rule::Barrier),
            StmtKind::Region { body, .. } => return self.block(body, control),
            StmtKind::Trap(_) => {}
        }
        Exits::default()
    }

    /// A loop body; if some invocations leave the loop alone, the rounds of the others diverge from the start.
    fn looped(&mut self, body: &[Stmt], control: Control) -> Exits {
        let reported = self.divergences.len();
        let mut exits = self.block(body, control);
        if let (Control::Uniform, Some(cause)) = (control, exits.returned.or(exits.broke)) {
            self.divergences.truncate(reported);
            exits = self.block(body, Control::Divergent(cause));
        }
        Exits { returned: exits.returned, ..Exits::default() }
    }

    fn define(&mut self, value: ValueId, def: &Def, at: Option<Span>, control: Control) {
        let operands = def.operands().all(|operand| self.uniform(operand));
        let uniform = match def {
            Def::Const(_) | Def::Len(_) => true,
            Def::Get(local) => self.locals[local.index()],
            Def::Op(..) => operands,
            Def::Load { place: Place::Array(array), .. } => operands && self.arrays[array.index()],
            Def::Load { place: Place::Buffer(buffer), .. } => match self.kernel.buffer(*buffer).decl.access {
                Access::Read | Access::Uniform => operands,
                Access::ReadWrite | Access::Output | Access::Workgroup => false,
            },
            Def::Builtin(builtin, _) => match builtin {
                Builtin::WorkgroupId | Builtin::GridSize | Builtin::WorkgroupSize => true,
                Builtin::InvocationId | Builtin::LocalId => false,
            },
            Def::Atomic { .. } => false,
            Def::Subgroup(op, args) => {
                self.require(control, at, Rule::Subgroup);
                if *op == SubgroupOp::Broadcast && !self.uniform(args[1]) {
                    self.divergences.push(Divergence { at, cause: None, rule: Rule::BroadcastLane });
                }
                *op == SubgroupOp::Size
            }
        };
        self.assume(value, uniform);
    }

    fn require(&mut self, control: Control, at: Option<Span>, rule: Rule) {
        if let Control::Divergent(cause) = control {
            self.divergences.push(Divergence { at, cause, rule });
        }
    }

    fn assume(&mut self, value: ValueId, uniform: bool) {
        if !uniform {
            self.refute(|walk| &mut walk.values[value.index()]);
        }
    }

    fn refute(&mut self, belief: impl FnOnce(&mut Self) -> &mut bool) {
        if std::mem::replace(belief(self), false) {
            self.changed = true;
        }
    }
}
