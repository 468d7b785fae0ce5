//! Ids of invocations and workgroups.

use super::across_barriers::GroupLayout;
use super::{LaneValue, Lowering};
use crate::vector::{Calc, Reg, Source};
use vyre_foundation::ir::{Builtin, Op};
use vyre_foundation::kernel::{Def, KernelBody, Stmt, StmtKind};
use vyre_foundation::types::{Value, ValueType};

/// Per value: whether it is the number of an invocation on an axis.
pub(super) fn invocation_numbers(kernel: &KernelBody) -> Vec<bool> {
    fn visit(block: &[Stmt], numbers: &mut [bool]) {
        for stmt in block {
            if let StmtKind::Def(value, Def::Builtin(Builtin::InvocationId | Builtin::LocalId, _)) = stmt.kind
            {
                numbers[value.index()] = true;
            }
            stmt.kind.blocks().into_iter().for_each(|nested| visit(nested, numbers));
        }
    }
    let mut numbers = vec![false; kernel.values.len()];
    visit(&kernel.body, &mut numbers);
    numbers
}

impl<'k> Lowering<'k> {
    pub(super) fn builtin(&mut self, builtin: Builtin, axis: u8) -> LaneValue {
        let u32 = ValueType::U32;
        let size = self.workgroup[usize::from(axis)];
        match builtin {
            Builtin::InvocationId if self.kernel.shape_free => {
                let base = self.scalar(u32, Calc::Source(Source::Position(axis)));
                let is_one = axis > 0 || self.lanes == 1;
                if is_one { LaneValue::Uniform(base) } else { LaneValue::Affine { base, stride: 1 } }
            }
            Builtin::InvocationId => {
                let group = self.scalar(u32, Calc::Source(Source::Group(axis)));
                let size = self.constant(Value::U32(size));
                let first = self.op(Op::Mul, &[group, size]);
                match self.local_id(axis) {
                    LaneValue::Affine { base, stride } => {
                        let aligned = self.workgroup[usize::from(axis)].is_multiple_of(self.lanes);
                        let base = self.op(Op::Add, &[base, first]);
                        if aligned {
                            self.reg_facts.aligned.insert(base);
                        }
                        LaneValue::Affine { base, stride }
                    }
                    LaneValue::Uniform(local) => LaneValue::Uniform(self.op(Op::Add, &[local, first])),
                    LaneValue::Varying(local) => LaneValue::Varying(self.op(Op::Add, &[local, first])),
                    LaneValue::Spaced { .. } => unreachable!("local ids are neighbours"),
                }
            }
            Builtin::LocalId => self.local_id(axis),
            Builtin::WorkgroupId => LaneValue::Uniform(self.scalar(u32, Calc::Source(Source::Group(axis)))),
            Builtin::GridSize => LaneValue::Uniform(self.scalar(u32, Calc::Source(Source::Grid(axis)))),
            Builtin::WorkgroupSize => LaneValue::Uniform(self.constant(Value::U32(size))),
        }
    }

    pub(super) fn layout_of_rows(&self) -> GroupLayout {
        let [x, y, z] = self.workgroup;
        GroupLayout { workgroup: self.workgroup, within: (y == 1 && z == 1) || x.is_multiple_of(self.lanes) }
    }

    /// Linear local id of the vector's lane 0; constant 0 if the workgroup fits in one vector.
    pub(super) fn first_lane(&mut self) -> Reg {
        let alone = self.workgroup.iter().map(|&n| u64::from(n)).product::<u64>() <= u64::from(self.lanes);
        match alone {
            true => self.constant(Value::U32(0)),
            false => self.scalar(ValueType::U32, Calc::Source(Source::FirstLane)),
        }
    }

    /// Local id derived from the linear one: affine or scalar where a vector of lanes stays within
    /// a row.
    fn local_id(&mut self, axis: u8) -> LaneValue {
        let [x, y, z] = self.workgroup;
        if self.workgroup[usize::from(axis)] == 1 {
            return LaneValue::Uniform(self.constant(Value::U32(0)));
        }
        let first = self.first_lane();
        let within_row = self.layout_of_rows().within;
        let linear = if within_row {
            first
        } else {
            let numbers = self.lane_numbers();
            self.op(Op::Add, &[first, numbers])
        };
        let (below, size) = match axis {
            0 => (1, x),
            1 => (x, y),
            _ => (x * y, z),
        };
        let quotient = self.divided(linear, below, Op::Div);
        let last_axis = (below * size) as u64 == u64::from(x) * u64::from(y) * u64::from(z);
        let id = if last_axis { quotient } else { self.divided(quotient, size, Op::Rem) };
        if within_row && axis == 0 {
            self.reg_facts.aligned.insert(id);
            return LaneValue::Affine { base: id, stride: 1 };
        }
        self.lane_value(id)
    }

    fn divided(&mut self, value: Reg, divisor: u32, op: Op) -> Reg {
        if divisor == 1 && op == Op::Div {
            return value;
        }
        if divisor.is_power_of_two() {
            let (op, operand) =
                if op == Op::Div { (Op::Shr, divisor.trailing_zeros()) } else { (Op::And, divisor - 1) };
            let operand = self.constant(Value::U32(operand));
            return self.op(op, &[value, operand]);
        }
        let divisor = self.constant(Value::U32(divisor));
        self.op(op, &[value, divisor])
    }
}
