//! Short counted loops: several iterations between two tests.
//!
//! A short iteration would mostly test its counter. While as many iterations are left as are
//! emitted in a row, one test is enough for all of them; the others follow one by one.

use super::Emitter;
use crate::piece::{Block, I32, IntOrder, Value as Operand};
use crate::schedule::nested;
use crate::vector::{Calc, Inst, Reg, RegType, Var};
use vyre_foundation::ir::Op;
use vyre_foundation::types::{Value, ValueType};

/// A loop whose counter goes up by one until it reaches an end.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    counter: Var,
    end: Reg,
    /// Position of the test in the body.
    test: usize,
}

const WORD: RegType = RegType { ty: ValueType::U32, vector: false };

impl Emitter<'_> {
    /// Recognises a loop that starts with the test of its counter.
    pub(super) fn counted_loop(&self, body: &[Inst], next: &[Inst]) -> Option<Counted> {
        let test = body.iter().position(|inst| !matches!(inst, Inst::Def(..)))?;
        let Inst::If { condition, then, otherwise } = &body[test] else { return None };
        if !then.is_empty() || !matches!(otherwise[..], [Inst::Break]) {
            return None;
        }
        let (current, end) = match definition(&body[..test], *condition)? {
            Calc::Op(Op::Lt, args) => (args[0], args[1]),
            _ => return None,
        };
        let Calc::Get(counter) = definition(&body[..test], current)? else { return None };
        let is_counter = self.code.vars[counter.0 as usize] == WORD && self.reg_type(end) == WORD;
        let is_outside = definition(body, end).is_none();
        (is_counter && is_outside && self.counts_up(*counter, body, next)).then_some(Counted {
            counter: *counter,
            end,
            test,
        })
    }

    /// Whether an iteration ends with adding one to a variable that nothing else sets.
    fn counts_up(&self, counter: Var, body: &[Inst], next: &[Inst]) -> bool {
        let Some((Inst::Set(set, sum), rest)) = next.split_last() else { return false };
        let is_one = |reg: &Reg| {
            let constant = self.constants[reg.0 as usize];
            let inside = match definition(next, *reg) {
                Some(Calc::Const(value)) => Some(*value),
                _ => None,
            };
            constant.or(inside) == Some(Value::U32(1))
        };
        let is_read = |reg: &Reg| matches!(definition(next, *reg), Some(Calc::Get(var)) if *var == counter);
        let is_sum = match definition(next, *sum) {
            Some(Calc::Op(Op::Add, args)) => is_read(&args[0]) && is_one(&args[1]),
            _ => false,
        };
        *set == counter && is_sum && !sets(body, counter) && !sets(rest, counter)
    }

    /// Emits a loop with several iterations in a row.
    pub(super) fn repeat_counted(&mut self, counted: Counted, body: &[Inst], next: &[Inst], rounds: usize) {
        let end = self.scalar(counted.end);
        let limit = self.less_by(end, rounds as i64 - 1);
        let (head, exit) = (self.builder.create_loop(), self.builder.create_block());
        let (several, single) = (self.builder.create_block(), self.builder.create_block());
        self.builder.jump(head, &[]);
        self.builder.begin(head);
        self.poll();
        let counter = self.vars[counted.counter.0 as usize][0];
        let current = self.builder.get(counter);
        let enough = self.builder.compare(IntOrder::UnsignedLess, current, limit);
        self.leave_unless(enough, single, several);
        self.builder.begin(several);
        let parts = [&body[..counted.test], &body[counted.test + 1..]];
        let goes_on = (0..rounds).all(|_| self.iteration(&parts, next, exit));
        if goes_on {
            self.builder.jump(head, &[]);
        }
        self.builder.begin(single);
        if self.iteration(&[body], next, exit) {
            self.builder.jump(head, &[]);
        }
        self.builder.begin(exit);
    }

    /// Emits one iteration; returns whether control reaches its end.
    fn iteration(&mut self, body: &[&[Inst]], next: &[Inst], exit: Block) -> bool {
        let step = self.builder.create_block();
        self.loops.push((step, exit));
        if body.iter().all(|part| self.block(part)) {
            self.builder.jump(step, &[]);
        }
        self.loops.pop();
        self.builder.begin(step);
        self.block(next)
    }

    /// Subtracts a number from a word; gives 0 where it is greater.
    fn less_by(&mut self, word: Operand, number: i64) -> Operand {
        let by = self.builder.int(I32, number);
        let less = self.builder.sub(word, by);
        let fits = self.builder.compare(IntOrder::UnsignedGreaterOrEqual, word, by);
        let zero = self.builder.int(I32, 0);
        self.builder.select(fits, less, zero)
    }
}

fn definition(insts: &[Inst], reg: Reg) -> Option<&Calc> {
    insts.iter().find_map(|inst| match inst {
        Inst::Def(other, calc) if *other == reg => Some(calc),
        _ => None,
    })
}

fn sets(insts: &[Inst], var: Var) -> bool {
    insts.iter().any(|inst| {
        matches!(inst, Inst::Set(other, _) if *other == var)
            || nested(inst).into_iter().any(|insts| sets(insts, var))
    })
}
