//! Removes exits from loops and blocks that contain barriers.
//!
//! Compilers that run a workgroup as loops over its invocations split these loops at barriers, and
//! some (PoCL 3.1) do so incorrectly if a loop with a barrier has several exits or back edges. This
//! pass makes `continue`, `break` and `return` set the variable `leave` to 1, 2 and 3, and guards
//! the following statements with a test of it. A loop with a barrier keeps one exit: a test at its
//! head. An exit that only some invocations take, after which there can be no barrier, sets the
//! separate variable `gone`, so that `leave` stays uniform across the workgroup. Loops without a
//! barrier keep their `break` and `continue`.

use super::Lines;
use crate::kernel::{Def, KernelBody, Local, LocalId, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use crate::optimize::{any_stmt, new_value};
use crate::types::{Value, ValueType};

/// The values of `leave`.
const CONTINUE: u32 = 1;
const BREAK: u32 = 2;
const RETURN: u32 = 3;

/// Whether the kernel has a barrier, and an exit that must become a mark.
pub(super) fn is_needed(body: &KernelBody) -> bool {
    let marks = |kind: &StmtKind| match kind {
        StmtKind::Return => true,
        StmtKind::For { body, .. } | StmtKind::Loop(body) => needs_test(body),
        _ => false,
    };
    holds_barrier(&body.body) && any_stmt(&body.body, &marks)
}

pub(super) fn run(body: &mut KernelBody) {
    let statements = std::mem::take(&mut body.body);
    let uniform: Vec<bool> = body.values.iter().map(|value| value.uniform).collect();
    let [leave, gone] = ["leave", "gone"].map(|name| new_local(body, name, ValueType::U32));
    let mut marks = Marks { uniform, leave, gone, marked: true, divergent: false };
    let mut lines = Lines { body, out: Vec::new(), at: None };
    marks.clear(&mut lines);
    marks.block(&mut lines, statements);
    body.body = std::mem::take(&mut lines.out);
}

fn new_local(body: &mut KernelBody, name: &str, ty: ValueType) -> LocalId {
    body.locals.push(Local { name: name.into(), ty });
    LocalId(body.locals.len() as u32 - 1)
}

struct Marks {
    /// Whether each value of the original kernel is uniform across the workgroup.
    uniform: Vec<bool>,
    leave: LocalId,
    gone: LocalId,
    /// Whether exits become marks here. Inside a loop without barriers, only `return` does.
    marked: bool,
    /// Whether some invocations of the workgroup may be absent here.
    divergent: bool,
}

impl Marks {
    fn set(lines: &mut Lines<'_>, local: LocalId, to: u32) {
        let value = lines.constant(Value::U32(to));
        lines.push(StmtKind::Set(local, value));
    }

    fn get(lines: &mut Lines<'_>, local: LocalId) -> ValueId {
        let value = new_value(lines.body, ValueType::U32);
        lines.push(StmtKind::Def(value, Def::Get(local)));
        value
    }

    fn clear(&self, lines: &mut Lines<'_>) {
        Self::set(lines, self.leave, 0);
        Self::set(lines, self.gone, 0);
    }

    fn mark(&self, lines: &mut Lines<'_>, exit: u32) {
        if self.divergent && exit != BREAK {
            Self::set(lines, self.gone, 1);
        } else {
            Self::set(lines, self.leave, exit);
        }
    }

    /// Whether a variable is below a constant.
    fn is_below(lines: &mut Lines<'_>, local: LocalId, bound: u32) -> ValueId {
        let (value, bound) = (Self::get(lines, local), lines.constant(Value::U32(bound)));
        lines.op(Op::Lt, &[value, bound])
    }

    /// Whether no mark is set; with `all`, only the uniform mark is tested.
    fn is_unmarked(&self, lines: &mut Lines<'_>, all: bool) -> ValueId {
        let mut marks = Self::get(lines, self.leave);
        if !all {
            let gone = Self::get(lines, self.gone);
            marks = lines.op(Op::Or, &[marks, gone]);
        }
        let zero = lines.constant(Value::U32(0));
        lines.op(Op::Eq, &[marks, zero])
    }

    fn nested(&mut self, lines: &mut Lines<'_>, block: Vec<Stmt>) -> Vec<Stmt> {
        lines.nested(|lines| self.block(lines, block))
    }

    fn block(&mut self, lines: &mut Lines<'_>, block: Vec<Stmt>) {
        let mut rest = block.into_iter();
        while let Some(stmt) = rest.next() {
            lines.at = stmt.at;
            let may_mark = self.marked && may_mark(&stmt.kind);
            self.stmt(lines, stmt.kind);
            if may_mark && !rest.as_slice().is_empty() {
                let condition = self.is_unmarked(lines, holds_barrier(rest.as_slice()));
                let then = self.nested(lines, rest.collect());
                return lines.push(StmtKind::If { condition, then, otherwise: Vec::new() });
            }
        }
    }

    fn stmt(&mut self, lines: &mut Lines<'_>, kind: StmtKind) {
        match kind {
            StmtKind::If { condition, then, otherwise } => {
                let outside = self.divergent;
                self.divergent |= !self.uniform[condition.index()];
                let returns = returns(&then) || returns(&otherwise);
                let then = self.nested(lines, then);
                let otherwise = self.nested(lines, otherwise);
                lines.push(StmtKind::If { condition, then, otherwise });
                // Once some invocations have returned, control flow stays divergent.
                self.divergent = outside || (self.divergent && returns);
            }
            StmtKind::Region { generator, body } => {
                let body = self.nested(lines, body);
                lines.push(StmtKind::Region { generator, body });
            }
            StmtKind::For { counter, from, to, step, body } if needs_test(&body) => {
                let next = new_local(lines.body, "next", lines.body.ty(counter));
                lines.push(StmtKind::Set(next, from));
                self.tested(lines, body, Some(Counter { counter, next, to, step }));
            }
            StmtKind::Loop(body) if needs_test(&body) => self.tested(lines, body, None),
            StmtKind::For { counter, from, to, step, body } => {
                let uniform = [from, to].iter().all(|bound| self.uniform[bound.index()]);
                self.plain(lines, body, uniform, |body| StmtKind::For { counter, from, to, step, body });
            }
            StmtKind::Loop(body) => self.plain(lines, body, true, StmtKind::Loop),
            StmtKind::Break if self.marked => self.mark(lines, BREAK),
            StmtKind::Continue if self.marked => self.mark(lines, CONTINUE),
            StmtKind::Return => {
                self.mark(lines, RETURN);
                if !self.marked {
                    lines.push(StmtKind::Break);
                }
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Barrier
            | StmtKind::Trap(_) => lines.push(kind),
        }
    }

    /// A loop with a barrier whose exits become one test at its head.
    fn tested(&mut self, lines: &mut Lines<'_>, body: Vec<Stmt>, counter: Option<Counter>) {
        let inner = lines.nested(|lines| {
            let mut condition = Self::is_below(lines, self.leave, BREAK);
            let mut following = None;
            if let Some(Counter { counter, next, to, step }) = counter {
                lines.push(StmtKind::Def(counter, Def::Get(next)));
                let more = lines.op(Op::Lt, &[counter, to]);
                condition = lines.op(Op::And, &[condition, more]);
                following = Some(StmtKind::Set(next, lines.op(Op::Add, &[counter, step])));
            }
            lines.push(exit_unless(condition));
            self.clear(lines);
            self.block(lines, body);
            following.into_iter().for_each(|following| lines.push(following));
        });
        lines.push(StmtKind::Loop(inner));
        let condition = Self::is_below(lines, self.leave, RETURN);
        let then = lines.nested(|lines| Self::set(lines, self.leave, 0));
        lines.push(StmtKind::If { condition, then, otherwise: Vec::new() });
        Self::set(lines, self.gone, 0);
    }

    /// A loop that keeps its form.
    fn plain(
        &mut self,
        lines: &mut Lines<'_>,
        mut body: Vec<Stmt>,
        uniform: bool,
        make: impl FnOnce(Vec<Stmt>) -> StmtKind,
    ) {
        let (marked, together) = (self.marked, self.divergent);
        self.marked = holds_barrier(&body);
        self.divergent |= !self.marked && (!uniform || self.parts_ways(&body));
        let returns = returns(&body);
        let rest = body.split_off(leading_exit(&body).map_or(0, |at| at + 1));
        body.extend(self.nested(lines, rest));
        lines.push(make(body));
        self.marked = marked;
        if returns && !self.marked {
            let condition = self.is_unmarked(lines, false);
            lines.push(exit_unless(condition));
        }
        self.divergent = together || (self.divergent && returns);
    }

    /// Whether a block of a loop contains an exit that only some invocations may take.
    fn parts_ways(&self, block: &[Stmt]) -> bool {
        any_stmt(block, &|kind| match kind {
            StmtKind::If { condition, then, otherwise } => {
                !self.uniform[condition.index()] && (has_exit(then) || has_exit(otherwise))
            }
            _ => false,
        })
    }
}

/// The state of a counted loop that became an uncounted one; `next` is the counter of the next
/// iteration.
struct Counter {
    counter: ValueId,
    next: LocalId,
    to: ValueId,
    step: ValueId,
}

fn exit_unless(condition: ValueId) -> StmtKind {
    let exit = Stmt { kind: StmtKind::Break, at: None };
    StmtKind::If { condition, then: Vec::new(), otherwise: vec![exit] }
}

fn has_exit(block: &[Stmt]) -> bool {
    any_stmt(block, &|kind| matches!(kind, StmtKind::Break | StmtKind::Continue | StmtKind::Return))
}

fn returns(block: &[Stmt]) -> bool {
    any_stmt(block, &|kind| matches!(kind, StmtKind::Return))
}

pub(crate) fn holds_barrier(block: &[Stmt]) -> bool {
    any_stmt(block, &|kind| matches!(kind, StmtKind::Barrier))
}

/// Whether a loop has a barrier, and exits other than a test at its head.
fn needs_test(body: &[Stmt]) -> bool {
    holds_barrier(body) && body.iter().any(|stmt| may_mark(&stmt.kind)) && leading_exit(body).is_none()
}

/// The position of a barrier loop's only exit, if it is a test before all statements with effects.
pub(crate) fn leading_exit(body: &[Stmt]) -> Option<usize> {
    let at = body.iter().position(|stmt| !matches!(stmt.kind, StmtKind::Def(..)))?;
    let is_break = |block: &[Stmt]| matches!(block, [Stmt { kind: StmtKind::Break, .. }]);
    let leads = match &body[at].kind {
        StmtKind::If { then, otherwise, .. } => {
            (then.is_empty() && is_break(otherwise)) || (is_break(then) && otherwise.is_empty())
        }
        _ => false,
    };
    let rest = &body[at + 1..];
    (leads && holds_barrier(rest) && !rest.iter().any(|stmt| may_mark(&stmt.kind))).then_some(at)
}

/// Whether a statement whose exits are marked can leave a mark for the statements after it. Loops
/// handle their own exits.
fn may_mark(kind: &StmtKind) -> bool {
    let any = |block: &[Stmt]| block.iter().any(|stmt| may_mark(&stmt.kind));
    match kind {
        StmtKind::Break | StmtKind::Continue | StmtKind::Return => true,
        StmtKind::If { then, otherwise, .. } => any(then) || any(otherwise),
        StmtKind::Region { body, .. } => any(body),
        StmtKind::For { body, .. } | StmtKind::Loop(body) => returns(body),
        StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Barrier
        | StmtKind::Trap(_) => false,
    }
}
