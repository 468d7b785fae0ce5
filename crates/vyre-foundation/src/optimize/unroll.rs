//! Loop unrolling: replaces a counted loop with constant bounds and a small body with its
//! iterations.
//!
//! The cost model counts statements: a loop is unrolled if its iterations together stay below a
//! limit, and the whole kernel can grow only by a fixed number, so that nested loops cannot blow
//! up. Inner loops come first, so that an outer loop sees the actual size of its body. A body that
//! breaks or continues is not unrolled.

use super::control::trip_count;
use super::rewrite::new_value;
use super::walk::{definitions, each_stmt, leaves_round};
use crate::kernel::{Def, KernelBody, Stmt, StmtKind, ValueId};
use crate::types::{Value, ValueType};
use hashbrown::HashMap;

/// Maximum number of statements of an unrolled loop. At 1024, softmax over rows of 1024 takes 8.7
/// ms to compile on `cpu` instead of 2.7, and runs no faster.
const LOOP_LIMIT: usize = 256;
/// The same for a loop of few iterations, as over the rows of a small matrix, whose elements can
/// then be kept in registers: a product of two 4 by 4 matrices fits, and a row of a transform of 8
/// by 8.
const SHORT_LOOP_LIMIT: usize = 1024;
/// Number of iterations of such a loop. With 4, or a limit of 512 statements, the loops of `dct`
/// stay and its arrays are in memory; 16 only makes a tiled `matmul` and an edit distance longer,
/// by 3,121 instructions together.
const FEW_ROUNDS: u128 = 8;
/// Maximum number of iterations unrolled. 32 and 256 change none of the benchmarks.
const ROUND_LIMIT: u128 = 64;
/// Maximum number of statements that unrolling can add to a kernel. `dct` needs more than 2048;
/// 8192 changes none of the benchmarks.
const KERNEL_LIMIT: usize = 4096;

/// Unrolls loops within the limits.
pub(super) fn run(body: &mut KernelBody) {
    let constants = definitions(body)
        .into_iter()
        .map(|def| if let Some(Def::Const(constant)) = def { Some(constant) } else { None })
        .collect();
    let statements = std::mem::take(&mut body.body);
    let mut walk = Walk { body, constants, left: KERNEL_LIMIT };
    let statements = walk.block(statements);
    walk.body.body = statements;
}

struct Walk<'a> {
    body: &'a mut KernelBody,
    constants: Vec<Option<Value>>,
    /// The number of statements that can still be added.
    left: usize,
}

impl Walk<'_> {
    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(block.len());
        for mut stmt in block {
            for nested in stmt.kind.blocks_mut().into_iter().flatten() {
                *nested = self.block(std::mem::take(nested));
            }
            match self.rounds(&stmt.kind) {
                Some(counters) => self.write_out(&stmt, &counters, &mut out),
                None => out.push(stmt),
            }
        }
        out
    }

    /// The counter value of each iteration, if the statement is a loop to unroll.
    fn rounds(&mut self, kind: &StmtKind) -> Option<Vec<Value>> {
        let StmtKind::For { from, to, step, body, .. } = kind else { return None };
        let constant = |value: &ValueId| self.constants.get(value.index()).copied().flatten();
        let (from, step) = (constant(from)?, constant(step)?);
        let rounds = trip_count(from, constant(to)?, step)?;
        if rounds > ROUND_LIMIT || leaves_round(body) {
            return None;
        }
        let mut size = 1;
        each_stmt(body, &mut |_| size += 1);
        let grown = size * rounds as usize;
        let limit = if rounds <= FEW_ROUNDS { SHORT_LOOP_LIMIT } else { LOOP_LIMIT };
        if grown > limit || grown > self.left {
            return None;
        }
        self.left -= grown;
        Some((0..rounds as i128).map(|k| counter(from, step, k)).collect())
    }

    fn write_out(&mut self, stmt: &Stmt, counters: &[Value], out: &mut Vec<Stmt>) {
        let StmtKind::For { counter, body, .. } = &stmt.kind else { return };
        for &value in counters {
            let mut copy = BlockCopy { body: self.body, names: HashMap::new() };
            let fresh = copy.define(*counter);
            out.push(Stmt { kind: StmtKind::Def(fresh, Def::Const(value)), at: stmt.at });
            out.extend(copy.block(body));
        }
    }
}

/// The counter in iteration `k`: `from + k · step`, in range for every iteration that runs.
fn counter(from: Value, step: Value, k: i128) -> Value {
    let exact = |value: Value| value.as_integer().unwrap_or(0);
    let ty: ValueType = from.ty();
    Value::from_bits(ty, (exact(from) + k * exact(step)) as u64)
}

/// Copies statements, with new values for those that they define.
pub(super) struct BlockCopy<'a> {
    pub(super) body: &'a mut KernelBody,
    pub(super) names: HashMap<ValueId, ValueId>,
}

impl BlockCopy<'_> {
    /// Creates the value that replaces `value` in the copy.
    pub(super) fn define(&mut self, value: ValueId) -> ValueId {
        let fresh = new_value(self.body, self.body.ty(value));
        self.names.insert(value, fresh);
        fresh
    }

    /// The copy of a block.
    pub(super) fn block(&mut self, block: &[Stmt]) -> Vec<Stmt> {
        block.iter().map(|stmt| Stmt { kind: self.kind(&stmt.kind), at: stmt.at }).collect()
    }

    fn kind(&mut self, kind: &StmtKind) -> StmtKind {
        let mut copy = match kind {
            StmtKind::Def(value, def) => {
                // Operands first, since a definition never reads itself.
                let mut def = def.clone();
                def.operands_mut().for_each(|operand| self.rename(operand));
                return StmtKind::Def(self.define(*value), def);
            }
            StmtKind::If { condition, then, otherwise } => StmtKind::If {
                condition: *condition,
                then: self.block(then),
                otherwise: self.block(otherwise),
            },
            &StmtKind::For { counter, from, to, step, ref body } => {
                let counter = self.define(counter);
                StmtKind::For { counter, from, to, step, body: self.block(body) }
            }
            StmtKind::Loop(body) => StmtKind::Loop(self.block(body)),
            StmtKind::Region { generator, body } => {
                StmtKind::Region { generator: generator.clone(), body: self.block(body) }
            }
            StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => kind.clone(),
        };
        copy.each_operand_mut(|operand| self.rename(operand));
        copy
    }

    fn rename(&self, operand: &mut ValueId) {
        if let Some(&fresh) = self.names.get(operand) {
            *operand = fresh;
        }
    }
}
