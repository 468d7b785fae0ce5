//! Registers, variables and instructions, as they are emitted.

use super::Lowering;
use crate::source_region::SourceRegion;
use crate::vector::{Calc, Inst, Reg, RegType, Tile, Var, VectorSlot};
use vyre_foundation::ir::Op;
use vyre_foundation::ops::eval;
use vyre_foundation::types::{DataType, Value, ValueType};

/// What the code declares.
#[derive(Default)]
pub(super) struct Declared {
    pub(super) regs: Vec<RegType>,
    /// The region that each register is computed in.
    pub(super) regions: Vec<SourceRegion>,
    pub(super) vars: Vec<RegType>,
    pub(super) slots: Vec<ValueType>,
    pub(super) tiles: Vec<DataType>,
}

impl<'k> Lowering<'k> {
    fn reg(&mut self, reg_type: RegType) -> Reg {
        self.declared.regs.push(reg_type);
        self.declared.regions.push(self.region);
        Reg(self.declared.regs.len() as u32 - 1)
    }

    pub(super) fn var(&mut self, reg_type: RegType) -> Var {
        self.declared.vars.push(reg_type);
        Var(self.declared.vars.len() as u32 - 1)
    }

    /// Declares a slot.
    pub(super) fn slot(&mut self, ty: ValueType) -> VectorSlot {
        self.declared.slots.push(ty);
        VectorSlot(self.declared.slots.len() as u32 - 1)
    }

    /// Declares a tile.
    pub(super) fn tile(&mut self, element: DataType) -> Tile {
        self.declared.tiles.push(element);
        Tile(self.declared.tiles.len() as u32 - 1)
    }

    pub(super) fn reg_type(&self, reg: Reg) -> RegType {
        self.declared.regs[reg.0 as usize]
    }

    pub(super) fn def(&mut self, reg_type: RegType, calc: Calc) -> Reg {
        let reg = self.reg(reg_type);
        if let Calc::Const(value) = calc {
            self.reg_facts.constants.insert(reg, value);
        }
        if let Some(supposed) = &mut self.supposed {
            supposed.note(self.kernel, reg, reg_type, &calc);
        }
        self.out.push(Inst::Def(reg, calc));
        reg
    }

    pub(super) fn scalar(&mut self, ty: ValueType, calc: Calc) -> Reg {
        self.def(RegType { ty, vector: false }, calc)
    }

    pub(super) fn constant(&mut self, value: Value) -> Reg {
        self.scalar(value.ty(), Calc::Const(value))
    }

    /// Emits an op; the result is a vector if an operand is.
    pub(super) fn op(&mut self, op: Op, args: &[Reg]) -> Reg {
        if let Some(known) = self.folded(op, args) {
            return known;
        }
        let types: Vec<ValueType> = args.iter().map(|&arg| self.reg_type(arg).ty).collect();
        let Some(ty) = op.row().signature.result(&types) else {
            unreachable!("the kernel's types fit: {op:?} on {types:?}")
        };
        let vector = args.iter().any(|&arg| self.reg_type(arg).vector);
        self.def(RegType { ty, vector }, Calc::Op(op, args.to_vec()))
    }

    /// Folds an op on constants or an addition of zero; lanes that start at the constant 0 produce
    /// these.
    fn folded(&mut self, op: Op, args: &[Reg]) -> Option<Reg> {
        let known = |this: &Self, reg: Reg| {
            if this.reg_type(reg).vector { None } else { this.reg_facts.constants.get(&reg).copied() }
        };
        if let &[a, b] = args
            && op == Op::Add
        {
            let is_nothing = |value: Option<Value>| matches!(value, Some(Value::U32(0) | Value::I32(0)));
            if is_nothing(known(self, a)) {
                return Some(b);
            }
            if is_nothing(known(self, b)) {
                return Some(a);
            }
        }
        let values = args.iter().map(|&arg| known(self, arg)).collect::<Option<Vec<Value>>>()?;
        let value = eval(op, &values)?;
        Some(self.constant(value))
    }

    pub(super) fn lane_numbers(&mut self) -> Reg {
        match self.values.lane_numbers {
            Some(reg) => reg,
            None => {
                let reg = self.def(RegType { ty: ValueType::U32, vector: true }, Calc::LaneNumbers);
                self.values.lane_numbers = Some(reg);
                reg
            }
        }
    }

    pub(super) fn get(&mut self, var: Var) -> Reg {
        let reg_type = self.declared.vars[var.0 as usize];
        self.def(reg_type, Calc::Get(var))
    }

    pub(super) fn recall(&mut self, slot: VectorSlot) -> Reg {
        let reg_type = RegType { ty: self.declared.slots[slot.0 as usize], vector: true };
        self.def(reg_type, Calc::Recall(slot))
    }

    pub(super) fn any(&mut self, mask: Reg) -> Reg {
        self.def(RegType::CONDITION, Calc::Any(mask))
    }

    pub(super) fn count_up(&mut self, var: Var, by: u32) {
        let (current, by) = (self.get(var), self.constant(Value::U32(by)));
        let following = self.op(Op::Add, &[current, by]);
        self.out.push(Inst::Set(var, following));
    }

    /// Runs `fill` with an empty instruction list and returns what it emitted.
    pub(super) fn nested(&mut self, fill: impl FnOnce(&mut Self)) -> Vec<Inst> {
        let outer = std::mem::take(&mut self.out);
        let (lane_numbers, recomputed) = (self.values.lane_numbers, self.values.recomputed.len());
        fill(self);
        // Registers defined inside are not visible afterwards. The kernel's own values already
        // respect that scoping.
        self.values.lane_numbers = lane_numbers;
        for value in self.values.recomputed.drain(recomputed..) {
            self.values.lane_values[value.index()] = None;
        }
        std::mem::replace(&mut self.out, outer)
    }
}
