//! Vectors kept as scalars, lane by lane.
//!
//! A gather of counters needs every lane's index in a separate register. If an index is a vector of
//! consecutive elements, with or without a constant per lane added, loading the lanes one by one
//! costs less than extracting them from a vector. A register is *spread* if it is such a load or
//! such a sum and its only uses are as an index of that kind or in such a sum.

use super::{Emitter, element_bytes};
use crate::piece::{I32, I64, Narrow, Value as Operand};
use crate::schedule::{nested, operands};
use crate::vector::{Calc, Index, Inst, Reg, VectorCode};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{BufferId, Place};
use vyre_foundation::types::{DataType, Value, ValueType};

/// One lane of a spread register: the sum of `value` and `offset`, which is below 2^32.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpreadLane {
    /// 64 bits.
    pub(super) value: Operand,
    pub(super) offset: u32,
    /// Greatest possible `value`.
    most: u32,
}

/// How a register is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Consecutive elements of a buffer from a scalar index on.
    Load { buffer: BufferId, element: DataType, from: Reg },
    /// Another spread register plus the lane number times `stride`.
    Sum { of: Reg, stride: u32 },
}

/// Per register: how it is spread, if it is.
pub(super) fn spread_registers(code: &VectorCode, is_own: &dyn Fn(BufferId) -> bool) -> Vec<Option<Spread>> {
    let blocks = code.frame.blocks();
    let mut search = Search {
        code,
        is_own,
        strides: vec![None; code.regs.len()],
        constants: vec![None; code.regs.len()],
        found: vec![None; code.regs.len()],
        counters: 0,
    };
    blocks.iter().for_each(|block| search.definitions(block));
    // Most kernels have none, and more lanes would be more scalars than a core has registers.
    while search.counters > 0 && code.lanes <= 8 {
        let before = search.found.clone();
        blocks.iter().for_each(|block| search.uses(block));
        search.sums_of_spread();
        if search.found == before {
            return search.found;
        }
    }
    vec![None; code.regs.len()]
}

struct Search<'a> {
    code: &'a VectorCode,
    is_own: &'a dyn Fn(BufferId) -> bool,
    /// Vectors of lane numbers times a constant.
    strides: Vec<Option<u32>>,
    constants: Vec<Option<u32>>,
    found: Vec<Option<Spread>>,
    /// Number of counters whose index can be spread.
    counters: usize,
}

impl Search<'_> {
    fn definitions(&mut self, block: &[Inst]) {
        for inst in block {
            if let Inst::Def(reg, calc) = inst {
                self.definition(*reg, calc);
            }
            nested(inst).into_iter().for_each(|block| self.definitions(block));
        }
    }

    fn definition(&mut self, reg: Reg, calc: &Calc) {
        let (at, reg_type) = (reg.0 as usize, self.code.reg_type(reg));
        match calc {
            Calc::Const(Value::U32(value)) if !reg_type.vector => self.constants[at] = Some(*value),
            Calc::LaneNumbers => self.strides[at] = Some(1),
            Calc::Op(Op::Mul, args) => {
                let product = |a: Reg, b: Reg| {
                    Some(self.strides[a.0 as usize]?.wrapping_mul(self.constants[b.0 as usize]?))
                };
                self.strides[at] = product(args[0], args[1]).or(product(args[1], args[0]));
            }
            Calc::Op(Op::Add, args) if reg_type.vector && reg_type.ty == ValueType::U32 => {
                let sum = |a: Reg, b: Reg| {
                    let stride = self.strides[b.0 as usize]?;
                    self.code.reg_type(a).vector.then_some(Spread::Sum { of: a, stride })
                };
                self.found[at] = sum(args[0], args[1]).or(sum(args[1], args[0]));
            }
            Calc::Load {
                place: Place::Buffer(buffer),
                element: element @ (DataType::U8 | DataType::U16 | DataType::U32),
                index: Index::Consecutive(from),
                checked: false,
            } if reg_type.vector => {
                self.found[at] = Some(Spread::Load { buffer: *buffer, element: *element, from: *from });
            }
            _ if self.index_of_counters(reg, calc).is_some() => self.counters += 1,
            _ => {}
        }
    }

    /// Returns the index of counters that are updated lane by lane.
    fn index_of_counters(&self, reg: Reg, calc: &Calc) -> Option<Reg> {
        match calc {
            Calc::Atomic { buffer, index, mask: None, .. }
                if self.code.reg_type(reg).vector
                    && self.code.reg_type(*index).vector
                    && (self.is_own)(*buffer) =>
            {
                Some(*index)
            }
            _ => None,
        }
    }

    /// Rejects registers with other uses.
    fn uses(&mut self, block: &[Inst]) {
        for inst in block {
            let allowed = match inst {
                Inst::Def(reg, calc) => match self.found[reg.0 as usize] {
                    Some(Spread::Sum { of, .. }) => Some(of),
                    Some(Spread::Load { .. }) | None => self.index_of_counters(*reg, calc),
                },
                _ => None,
            };
            let mut allowed = allowed;
            operands(inst, &mut |reg| {
                if allowed == Some(reg) {
                    // An operand besides the index is another use.
                    allowed = None;
                } else {
                    self.found[reg.0 as usize] = None;
                }
            });
            nested(inst).into_iter().for_each(|block| self.uses(block));
        }
    }

    /// Rejects sums of registers that are not spread.
    fn sums_of_spread(&mut self) {
        for at in 0..self.found.len() {
            if let Some(Spread::Sum { of, .. }) = self.found[at]
                && self.found[of.0 as usize].is_none()
            {
                self.found[at] = None;
            }
        }
    }
}

impl Emitter<'_> {
    /// Emits the lanes of a spread register.
    pub(super) fn spread_out(&mut self, spread: Spread) -> Vec<SpreadLane> {
        match spread {
            Spread::Load { buffer, element, from } => {
                let from = self.scalar(from);
                let from = self.builder.extend_unsigned(I64, from);
                let address = self.address(buffer, element, from);
                let size = element_bytes(element) as i32;
                let most = u32::MAX >> (32 - 8 * size);
                let lane = |this: &mut Self, lane: i32| {
                    let narrow = Narrow { bytes: size as u8, signed: false };
                    let value = this.builder.load_narrow(I64, narrow, address, size * lane);
                    SpreadLane { value, offset: 0, most }
                };
                (0..self.lanes() as i32).map(|number| lane(self, number)).collect()
            }
            Spread::Sum { of, stride } => {
                let lanes = self.spread_lanes(of).unwrap_or_default();
                let strides = (0..).map(|number: u32| number.wrapping_mul(stride));
                lanes.into_iter().zip(strides).map(|(lane, more)| self.sum(lane, more)).collect()
            }
        }
    }

    /// Adds a constant to a lane, modulo 2^32.
    fn sum(&mut self, lane: SpreadLane, more: u32) -> SpreadLane {
        let offset = u64::from(lane.offset) + u64::from(more);
        // Small enough for the displacement of an access, whatever the element size.
        if offset < 1 << 24 && offset + u64::from(lane.most) <= u64::from(u32::MAX) {
            return SpreadLane { offset: offset as u32, ..lane };
        }
        let word = self.builder.reduce(I32, lane.value);
        let word = self.builder.add_const(word, i64::from(offset as u32 as i32));
        SpreadLane { value: self.builder.extend_unsigned(I64, word), offset: 0, most: u32::MAX }
    }

    /// Returns the lanes of a register, if it is spread.
    pub(super) fn spread_lanes(&self, reg: Reg) -> Option<Vec<SpreadLane>> {
        self.spread_values[reg.0 as usize].clone()
    }
}
