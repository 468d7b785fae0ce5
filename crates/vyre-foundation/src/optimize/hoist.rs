//! Loop-invariant code motion: moves invariant computations in front of the loop.
//!
//! One forward walk tracks how many loops enclose each value's definition. A computation moves out
//! of every loop that encloses none of its operands. All ops are total, so speculative evaluation
//! is harmless. A load moves only out of loops that cannot write its memory, and only if every
//! iteration reaches it or it loads from a uniform, which is cheap. An out-of-range load yields
//! zero wherever it is executed, but a proof that it is in range does not move with it.

use super::walk::Writes;
use crate::ir::Access;
use crate::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};

/// Moves invariant computations in front of loops.
pub(super) fn run(body: &mut KernelBody) {
    let statements = std::mem::take(&mut body.body);
    let mut walk = Walk { levels: vec![0; body.values.len()], body, loops: Vec::new() };
    let statements = walk.block(statements);
    walk.body.body = statements;
}

struct Walk<'a> {
    body: &'a mut KernelBody,
    /// The number of loops that enclose each value's definition.
    levels: Vec<usize>,
    /// The open loops, outermost first.
    loops: Vec<OpenLoop>,
}

struct OpenLoop {
    writes: Writes,
    /// The statements to insert before the loop.
    hoisted: Vec<Stmt>,
    /// The number of open branches inside the loop.
    branches: usize,
}

impl Walk<'_> {
    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(block.len());
        for mut stmt in block {
            if let StmtKind::Def(value, def) = &mut stmt.kind {
                let level = self.level(def);
                self.levels[value.index()] = level;
                if level < self.loops.len() {
                    if let Def::Load { in_bounds, .. } = def {
                        *in_bounds = false;
                    }
                    self.loops[level].hoisted.push(stmt);
                    continue;
                }
            }
            out.extend(self.nested(&mut stmt.kind));
            out.push(stmt);
        }
        out
    }

    /// Walks the statement's blocks; returns the statements to insert before it.
    fn nested(&mut self, kind: &mut StmtKind) -> Vec<Stmt> {
        match kind {
            StmtKind::For { counter, body, .. } => self.open_loop(Some(*counter), body),
            StmtKind::Loop(body) => self.open_loop(None, body),
            StmtKind::If { then, otherwise, .. } => {
                self.branches(1);
                *then = self.block(std::mem::take(then));
                *otherwise = self.block(std::mem::take(otherwise));
                self.branches(-1);
                Vec::new()
            }
            StmtKind::Region { body, .. } => {
                *body = self.block(std::mem::take(body));
                Vec::new()
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => Vec::new(),
        }
    }

    fn open_loop(&mut self, counter: Option<ValueId>, body: &mut Vec<Stmt>) -> Vec<Stmt> {
        let writes = Writes::of([body, &[]]);
        self.loops.push(OpenLoop { writes, hoisted: Vec::new(), branches: 0 });
        if let Some(counter) = counter {
            self.levels[counter.index()] = self.loops.len();
        }
        *body = self.block(std::mem::take(body));
        self.loops.pop().map(|done| done.hoisted).unwrap_or_default()
    }

    fn branches(&mut self, change: isize) {
        if let Some(innermost) = self.loops.last_mut() {
            innermost.branches = innermost.branches.saturating_add_signed(change);
        }
    }

    /// The number of open loops that the definition must stay in.
    fn level(&self, def: &Def) -> usize {
        let operands = def.operands().map(|operand| self.levels[operand.index()]).max().unwrap_or(0);
        match def {
            Def::Const(_) | Def::Op(..) | Def::Len(_) | Def::Builtin(..) => operands,
            Def::Get(local) => self.innermost(|open| open.writes.locals.contains(local)),
            Def::Load { place, .. } => {
                let skipped = |open: &OpenLoop| open.branches > 0 && !self.is_cheap(*place);
                let stays = |open: &OpenLoop| skipped(open) || open.writes.touches(self.body, *place);
                operands.max(self.innermost(stays))
            }
            Def::Atomic { .. } | Def::Subgroup(..) => self.loops.len(),
        }
    }

    /// Whether a speculative load costs next to nothing.
    fn is_cheap(&self, place: Place) -> bool {
        matches!(place, Place::Buffer(id) if self.body.buffer(id).decl.access == Access::Uniform)
    }

    /// The number of open loops down to the innermost one that satisfies `stays`.
    fn innermost(&self, stays: impl Fn(&OpenLoop) -> bool) -> usize {
        self.loops.iter().rposition(stays).map_or(0, |position| position + 1)
    }
}
