//! Values of the kernel in a vector of lanes: where each is, and how it is computed.

use super::across_barriers::Portable;
use super::{LaneValue, Lowering, ValueStorage};
use crate::vector::{Calc, Inst, Reg, RegType};
use hashbrown::{HashMap, HashSet};
use vyre_foundation::ir::{Op, SubgroupOp};
use vyre_foundation::kernel::{Def, ValueId};
use vyre_foundation::types::{Value, ValueType};

/// Values that are available.
pub(super) struct Values<'k> {
    /// Representation of each value in the current part. Values used outside their defining part
    /// are in `crossing`.
    pub(super) lane_values: Vec<Option<LaneValue>>,
    /// Values used in a different part of the workgroup's work from the one that defines them.
    pub(super) crossing: HashMap<ValueId, ValueStorage>,
    /// Definitions of values that a part of the workgroup's work recomputes instead of keeping.
    pub(super) portable: Portable<'k>,
    /// Values recomputed in the open blocks, in order.
    pub(super) recomputed: Vec<ValueId>,
    /// Vector 0, 1, 2, …, if the open block can use one.
    pub(super) lane_numbers: Option<Reg>,
}

impl Values<'_> {
    pub(super) fn new(count: usize) -> Self {
        Values {
            lane_values: vec![None; count],
            crossing: HashMap::new(),
            portable: Portable::default(),
            recomputed: Vec::new(),
            lane_numbers: None,
        }
    }
}

/// Facts about registers.
#[derive(Default)]
pub(super) struct RegFacts {
    pub(super) constants: HashMap<Reg, Value>,
    /// Scalars that are multiples of the lane count.
    pub(super) aligned: HashSet<Reg>,
    /// Masks that never include every lane.
    pub(super) partial: HashSet<Reg>,
    /// Vectors whose lanes are usually consecutive: the value of lane 0, and the condition for it.
    pub(super) mostly: HashMap<Reg, (Reg, Reg)>,
}

impl<'k> Lowering<'k> {
    pub(super) fn value(&mut self, value: ValueId) -> LaneValue {
        if let Some(lane_value) = self.values.lane_values[value.index()] {
            return lane_value;
        }
        match self.values.crossing.get(&value) {
            Some(&ValueStorage::Var(var)) => return LaneValue::Uniform(self.get(var)),
            Some(&ValueStorage::Slot(slot)) => return LaneValue::Varying(self.recall(slot)),
            None => {}
        }
        let Some(def) = self.values.portable.def(value) else {
            unreachable!("{value:?} is defined before it is used")
        };
        let lane_value = self.calculate(value, def);
        self.values.lane_values[value.index()] = Some(lane_value);
        self.values.recomputed.push(value);
        lane_value
    }

    pub(super) fn operand(&mut self, value: ValueId) -> Reg {
        let lane_value = self.value(value);
        self.register(lane_value)
    }

    pub(super) fn define(&mut self, value: ValueId, lane_value: LaneValue) {
        self.values.lane_values[value.index()] = Some(lane_value);
        match self.values.crossing.get(&value).copied() {
            None => {}
            Some(ValueStorage::Var(var)) => {
                let reg = self.register(lane_value);
                self.out.push(Inst::Set(var, reg));
            }
            Some(ValueStorage::Slot(slot)) => {
                let reg = self.register(lane_value);
                self.out.push(Inst::Keep(slot, reg));
            }
        }
    }

    pub(super) fn lane_value(&self, reg: Reg) -> LaneValue {
        if self.reg_type(reg).vector { LaneValue::Varying(reg) } else { LaneValue::Uniform(reg) }
    }

    /// Returns a value as a scalar or vector register; affine and spaced values become vectors.
    pub(super) fn register(&mut self, lane_value: LaneValue) -> Reg {
        match lane_value {
            LaneValue::Uniform(reg) | LaneValue::Varying(reg) => reg,
            LaneValue::Affine { base, stride: 1 } => {
                let steps = self.lane_numbers();
                self.stepped(base, steps)
            }
            LaneValue::Affine { base, stride } => {
                let stride = self.constant(Value::U32(stride));
                self.register(LaneValue::Spaced { base, stride })
            }
            LaneValue::Spaced { base, stride } => {
                let numbers = self.lane_numbers();
                let steps = self.op(Op::Mul, &[numbers, stride]);
                self.stepped(base, steps)
            }
        }
    }

    /// Adds per-lane steps to a scalar.
    fn stepped(&mut self, base: Reg, mut steps: Reg) -> Reg {
        let ty = self.reg_type(base).ty;
        if ty != ValueType::U32 {
            steps = self.op(Op::cast(ty), &[steps]);
        }
        self.op(Op::Add, &[base, steps])
    }

    pub(super) fn calculate(&mut self, value: ValueId, def: &Def) -> LaneValue {
        let ty = self.kernel.ty(value);
        match def {
            Def::Const(constant) => LaneValue::Uniform(self.constant(*constant)),
            Def::Get(local) => {
                let reg = self.read_local(*local);
                self.lane_value(reg)
            }
            Def::Op(op, operands) => match self.decided.get(&value) {
                Some(outcome) => LaneValue::Uniform(outcome.holds),
                None => self.calculate_op(*op, operands),
            },
            Def::Load { place, index, in_bounds } => {
                if let (Some(&tile), Some(number)) = (self.in_tiles.loads.get(&value), self.in_tiles.number) {
                    return LaneValue::Varying(
                        self.def(RegType { ty, vector: true }, Calc::Tile(tile, number)),
                    );
                }
                let loaded = self.load(*place, *index, *in_bounds);
                self.as_uniform(value, loaded)
            }
            Def::Len(buffer) => LaneValue::Uniform(self.scalar(ty, Calc::Len(*buffer))),
            Def::Builtin(builtin, axis) => self.builtin(*builtin, *axis),
            Def::Atomic { op, buffer, index, operands, in_bounds } => {
                let index = self.operand(*index);
                let mut operands: Vec<Reg> = operands.iter().map(|&operand| self.operand(operand)).collect();
                if operands.is_empty() {
                    // The lane-by-lane routine always takes an operand, even if unused.
                    operands.push(self.constant(Value::zero(ty)));
                }
                let (mask, checked, read) =
                    (self.masks.running(), !in_bounds, self.facts.is_read[value.index()]);
                let calc = Calc::Atomic { op: *op, buffer: *buffer, index, operands, mask, checked, read };
                let reg = self.def(RegType { ty, vector: self.lanes > 1 }, calc);
                self.lane_value(reg)
            }
            Def::Subgroup(SubgroupOp::Size, _) => LaneValue::Uniform(self.constant(Value::U32(self.lanes))),
            Def::Subgroup(SubgroupOp::Id, _) => {
                let first = self.first_lane();
                let lanes = self.constant(Value::U32(self.lanes));
                LaneValue::Uniform(self.op(Op::Div, &[first, lanes]))
            }
            Def::Subgroup(SubgroupOp::Count, _) => {
                let invocations: u32 = self.workgroup.iter().product();
                LaneValue::Uniform(self.constant(Value::U32(invocations.div_ceil(self.lanes))))
            }
            Def::Subgroup(op, operands) => {
                let operands = operands.iter().map(|&operand| self.operand(operand)).collect();
                let calc = Calc::Subgroup { op: *op, operands, mask: self.masks.running() };
                LaneValue::Varying(self.def(RegType { ty, vector: true }, calc))
            }
        }
    }

    /// A private array has one element per lane. Where the kernel proves that all are equal, lane 0
    /// is read: it always exists, and an array is uniform only if all lanes wrote it together.
    fn as_uniform(&mut self, value: ValueId, lane_value: LaneValue) -> LaneValue {
        let info = self.kernel.values[value.index()];
        match lane_value {
            LaneValue::Varying(reg) if info.uniform && self.along.is_none() => {
                LaneValue::Uniform(self.scalar(info.ty, Calc::First(reg)))
            }
            LaneValue::Varying(_)
            | LaneValue::Uniform(_)
            | LaneValue::Affine { .. }
            | LaneValue::Spaced { .. } => lane_value,
        }
    }

    fn calculate_op(&mut self, op: Op, operands: &[ValueId]) -> LaneValue {
        let lane_value: Vec<LaneValue> = operands.iter().map(|&operand| self.value(operand)).collect();
        self.calculated(op, &lane_value)
    }
}
