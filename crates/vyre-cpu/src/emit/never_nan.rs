//! Float registers and variables that never hold a NaN, as derived from their definitions. A
//! minimum or maximum with such an operand is one, so a running maximum that starts from a number
//! stays a number.

use crate::vector::{Calc, Inst, Reg, Var, VectorCode};
use vyre_foundation::ir::Op;
use vyre_foundation::types::Value;

/// Per register: whether it is known not to be NaN.
pub(super) fn number_registers(code: &VectorCode) -> Vec<bool> {
    let mut facts = Facts { regs: vec![false; code.regs.len()], vars: vec![true; code.vars.len()] };
    let blocks = code.frame.blocks();
    // A variable is assumed to be a number until a write disproves it; each iteration removes at
    // least one.
    loop {
        let before = facts.vars.clone();
        blocks.iter().for_each(|block| facts.block(block));
        if facts.vars == before {
            return facts.regs;
        }
    }
}

struct Facts {
    regs: Vec<bool>,
    vars: Vec<bool>,
}

impl Facts {
    fn reg(&self, reg: Reg) -> bool {
        self.regs[reg.0 as usize]
    }

    fn var(&mut self, var: Var) -> &mut bool {
        &mut self.vars[var.0 as usize]
    }

    fn block(&mut self, insts: &[Inst]) {
        for inst in insts {
            match inst {
                Inst::Def(reg, calc) => self.regs[reg.0 as usize] = self.calc(calc),
                Inst::Set(var, reg) => {
                    let number = self.reg(*reg);
                    *self.var(*var) &= number;
                }
                Inst::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|b| self.block(b)),
                Inst::Loop { body, next, .. } => [body, next].into_iter().for_each(|b| self.block(b)),
                Inst::Lanes { full, tail } => [full, tail].into_iter().for_each(|b| self.block(b)),
                Inst::Keep(..)
                | Inst::Store(_)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {}
            }
        }
    }

    fn calc(&mut self, calc: &Calc) -> bool {
        match calc {
            Calc::Const(Value::F32(x)) => !x.is_nan(),
            Calc::Const(Value::F64(x)) => !x.is_nan(),
            Calc::Get(var) => *self.var(*var),
            Calc::Op(Op::Min | Op::Max, args) => args.iter().any(|&arg| self.reg(arg)),
            Calc::Op(Op::Select, args) => args[1..].iter().all(|&arg| self.reg(arg)),
            Calc::Op(Op::Abs | Op::Neg, args) => self.reg(args[0]),
            Calc::Op(..)
            | Calc::Const(_)
            | Calc::LaneNumbers
            | Calc::Source(_)
            | Calc::Recall(_)
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Load { .. }
            | Calc::Len(_)
            | Calc::Tile(..)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => false,
        }
    }
}
