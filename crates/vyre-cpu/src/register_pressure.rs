//! Register pressure of a kernel, which decides how many lanes a vector should have.
//!
//! Doubling the lanes halves the loop overhead and doubles the independent work for a core, as long
//! as everything fits the registers; beyond that, values spill. The count is on the vector form in
//! program order. A register is live from its definition to its last use, and throughout any loop
//! that it enters from outside; a variable used in a loop is live throughout it. Loops that only
//! complete others do not count, and code outside the loops of a vector of invocations counts less:
//! it runs once while they run often.

use crate::piece::Machine;
use crate::vector::{Calc, Frame, Index, Inst, Reg, Var, VectorCode};

/// Vector registers that intermediate results take: an op that expands to several instructions has
/// a temporary and a constant. With 32 registers, 0 and 6 decide all benchmarks alike. With 16,
/// the code of `batched` grows by 2,000 instructions at 0, and four kernels get longer at 6.
const TAKEN: usize = 2;

/// Acceptable pressure where code runs once, as a multiple of the registers: some values then spill
/// once. 1 and 4 decide all benchmarks alike.
const ONCE: usize = 2;

/// Whether the kernel's values fit `times` times the machine's registers where it spends its time.
pub(crate) fn fits_registers(code: &VectorCode, machine: Machine, times: usize) -> bool {
    let mut walk = Walk {
        code,
        piece_bytes: machine.piece_bytes as usize,
        position: 0,
        lives: vec![None; code.regs.len() + code.vars.len()],
        loops: Vec::new(),
        in_lanes: matches!(code.frame, Frame::Rows { .. }),
        often: Vec::new(),
    };
    let blocks = match &code.frame {
        Frame::Rows { full, tail, .. } => [full, tail].into_iter().find(|block| !block.is_empty()),
        Frame::Groups(body) => Some(body),
    };
    blocks.into_iter().for_each(|block| walk.block(block));
    let (often, once) = walk.most();
    let registers = times * (machine.registers - TAKEN);
    often <= registers && once <= registers * if walk.often.is_empty() { 1 } else { ONCE }
}

/// First write and last use of a value.
#[derive(Clone, Copy)]
struct Life {
    from: usize,
    to: usize,
}

struct Walk<'c> {
    code: &'c VectorCode,
    piece_bytes: usize,
    position: usize,
    /// Live ranges of every register, then of every variable.
    lives: Vec<Option<Life>>,
    /// Start of each enclosing loop, and the values used in it.
    loops: Vec<(usize, Vec<usize>)>,
    /// Whether this is the code of a vector of invocations.
    in_lanes: bool,
    /// Ranges of the loops in such code.
    often: Vec<Life>,
}

impl Walk<'_> {
    /// Maximum numbers of machine registers in use: in loops of a vector of invocations, and
    /// anywhere.
    fn most(&self) -> (usize, usize) {
        let mut changes: Vec<(usize, isize)> = Vec::new();
        for (value, life) in self.lives.iter().enumerate() {
            if let Some(life) = life {
                let weight = self.weight(value) as isize;
                changes.push((life.from, weight));
                changes.push((life.to, -weight));
            }
        }
        // At one position, ends sort before starts: an operand's register can hold the result.
        changes.sort_unstable();
        let (mut now, mut often, mut once) = (0, 0, 0);
        for (position, change) in changes {
            now += change;
            once = once.max(now);
            if self.often.iter().any(|range| (range.from..=range.to).contains(&position)) {
                often = often.max(now);
            }
        }
        (often as usize, once as usize)
    }

    /// Machine registers of a value: one per piece of a vector, none for a scalar.
    fn weight(&self, value: usize) -> usize {
        let registers = self.code.regs.len();
        let reg_type =
            if value < registers { self.code.regs[value] } else { self.code.vars[value - registers] };
        if !reg_type.vector {
            return 0;
        }
        let bytes = self.code.lanes as usize * if reg_type.ty.bits() == 64 { 8 } else { 4 };
        bytes.div_ceil(self.piece_bytes)
    }

    fn touch(&mut self, value: usize) {
        let position = self.position;
        let life = self.lives[value].get_or_insert(Life { from: position, to: position });
        life.to = position;
        for (_, used) in &mut self.loops {
            used.push(value);
        }
    }

    fn reg(&mut self, reg: Reg) {
        self.touch(reg.0 as usize);
    }

    fn var(&mut self, var: Var) {
        self.touch(self.code.regs.len() + var.0 as usize);
    }

    fn block(&mut self, insts: &[Inst]) {
        for inst in insts {
            self.position += 1;
            self.inst(inst);
        }
    }

    fn inst(&mut self, inst: &Inst) {
        match inst {
            Inst::Def(reg, calc) => {
                self.calc(calc);
                self.reg(*reg);
            }
            Inst::Set(var, reg) => {
                self.reg(*reg);
                self.var(*var);
            }
            Inst::Keep(_, reg) => self.reg(*reg),
            Inst::Store(store) => {
                self.index(store.index);
                self.reg(store.value);
                store.more.iter().for_each(|&reg| self.reg(reg));
                store.mask.into_iter().for_each(|mask| self.reg(mask));
            }
            Inst::Tile(step) => step.registers().into_iter().for_each(|reg| self.reg(reg)),
            Inst::Clear { mask, .. } => mask.iter().for_each(|&mask| self.reg(mask)),
            Inst::If { condition, then, otherwise } => {
                self.reg(*condition);
                self.block(then);
                self.block(otherwise);
            }
            Inst::Loop { rest: true, .. } => {}
            Inst::Loop { body, next, rest: false } => {
                let from = self.position;
                self.repeated(&[body, next]);
                if self.in_lanes {
                    self.often.push(Life { from, to: self.position });
                }
            }
            Inst::Lanes { full, tail } => {
                let block = if full.is_empty() { tail } else { full };
                let outer = std::mem::replace(&mut self.in_lanes, true);
                self.repeated(&[block]);
                self.in_lanes = outer;
            }
            Inst::Break | Inst::Continue | Inst::EndLanes | Inst::EndGroup | Inst::Trap(_) => {}
        }
    }

    /// Values live at the start of a loop, and every variable in it, are live to its end.
    fn repeated(&mut self, blocks: &[&[Inst]]) {
        let start = self.position;
        self.loops.push((start, Vec::new()));
        blocks.iter().for_each(|block| self.block(block));
        self.position += 1;
        let Some((_, used)) = self.loops.pop() else { unreachable!("it was pushed above") };
        let (end, registers) = (self.position, self.code.regs.len());
        for value in used {
            if let Some(life) = &mut self.lives[value] {
                if life.from <= start {
                    life.to = end;
                } else if value >= registers {
                    *life = Life { from: start, to: end };
                }
            }
        }
    }

    fn index(&mut self, index: Index) {
        index.registers().for_each(|reg| self.reg(reg));
    }

    fn calc(&mut self, calc: &Calc) {
        match calc {
            Calc::Const(_) | Calc::LaneNumbers | Calc::Source(_) | Calc::Recall(_) | Calc::Len(_) => {}
            Calc::Tile(_, number) => self.reg(*number),
            Calc::Get(var) => self.var(*var),
            Calc::Op(_, args) => args.iter().for_each(|&arg| self.reg(arg)),
            Calc::Any(reg) | Calc::All(reg) | Calc::First(reg) => self.reg(*reg),
            Calc::Load { index, .. } => self.index(*index),
            Calc::Atomic { index, operands, mask, .. } => {
                self.reg(*index);
                operands.iter().chain(mask).for_each(|&reg| self.reg(reg));
            }
            Calc::Subgroup { operands, mask, .. } => {
                operands.iter().chain(mask).for_each(|&reg| self.reg(reg));
            }
        }
    }
}
