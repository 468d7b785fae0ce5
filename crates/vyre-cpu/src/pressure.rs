//! How many vectors a kernel holds at once: what decides how many lanes a vector should have.
//!
//! Twice the lanes means half the loop overhead and twice the independent work for a core, as long as everything fits the
//! registers; beyond that, values move to memory and back. The count is of the vector form in the order of its text.
//! A register lives from its definition to its last use, and through any loop that it enters from outside; a variable
//! that is used in a loop lives through all of it. Loops that only finish what others left do not count, and what stands
//! outside the loops of a vector of invocations counts less: it runs once while they run often.

use crate::vector::{Calc, Frame, Index, Inst, Reg, Var, VectorCode};

/// Vector registers that every machine has at least, less two for intermediate results.
const REGISTERS: usize = 14;

/// How many are bearable where code runs once: some values then move to memory and back once.
const ONCE: usize = 2 * REGISTERS;

/// Whether the values of the kernel, in pieces of so many bytes, fit the registers where it spends its time, or so many times
/// the registers.
pub(crate) fn fits_registers(code: &VectorCode, piece_bytes: u32, times: usize) -> bool {
    let mut walk = Walk {
        code,
        piece_bytes: piece_bytes as usize,
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
    often <= times * REGISTERS && once <= times * if walk.often.is_empty() { REGISTERS } else { ONCE }
}

/// Where a value is first written and last used.
#[derive(Clone, Copy)]
struct Life {
    from: usize,
    to: usize,
}

struct Walk<'c> {
    code: &'c VectorCode,
    piece_bytes: usize,
    position: usize,
    /// Of every register, then of every variable.
    lives: Vec<Option<Life>>,
    /// Where the loops around start, and what is used in them.
    loops: Vec<(usize, Vec<usize>)>,
    /// Whether this is the code of a vector of invocations.
    in_lanes: bool,
    /// Where the loops in such code lie.
    often: Vec<Life>,
}

impl Walk<'_> {
    /// The largest numbers of machine registers in use at once: in loops of a vector of invocations, and anywhere.
    fn most(&self) -> (usize, usize) {
        let mut changes: Vec<(usize, isize)> = Vec::new();
        for (value, life) in self.lives.iter().enumerate() {
            if let Some(life) = life {
                let weight = self.weight(value) as isize;
                changes.push((life.from, weight));
                changes.push((life.to, -weight));
            }
        }
        // At one position what ends goes before what starts: an operand's register may take the result.
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

    /// Machine registers of a value: a vector has several, a scalar one if it is broadcast.
    fn weight(&self, value: usize) -> usize {
        let registers = self.code.regs.len();
        let shape = if value < registers { self.code.regs[value] } else { self.code.vars[value - registers] };
        if !shape.vector {
            return 0;
        }
        let bytes = self.code.lanes as usize * if shape.ty.bits() == 64 { 8 } else { 4 };
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

    /// What is in use where a loop starts, and every variable in it, is in use until it ends.
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
