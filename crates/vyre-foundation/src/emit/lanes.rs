//! Exchanges between the lanes of a subgroup.
//!
//! All are built from the ballot and shuffles; reductions and scans of floats run in lane order. A
//! kernel with exchanges starts by declaring `lane`, the invocation's lane, `lanes`, the number of
//! lanes in its subgroup, and `mask`, with a bit for each of them. Validation ensures that all
//! lanes of the mask reach an exchange together, so loops here run to `lanes` in all of them.

use super::dialect::{Dialect, LaneExchange};
use super::writer::Writer;
use crate::kernel::ValueId;
use crate::ops::{Combine, SubgroupOp};
use crate::types::{Value, ValueType};

impl<'a> Writer<'a> {
    fn lanes(&self) -> &'a LaneExchange {
        let Dialect { lanes, name, .. } = self.dialect;
        lanes
            .as_ref()
            .unwrap_or_else(|| unreachable!("{name} has no subgroups, so admission refuses the kernel"))
    }

    fn invocations(&self) -> u64 {
        self.settings.workgroup.map(u64::from).iter().product()
    }

    /// Declares the variables that a kernel with exchanges uses.
    pub(super) fn declare_lanes(&mut self) {
        if !self.kernel.needs.subgroups {
            return;
        }
        let (size, all, place) = (self.lanes().size, self.invocations(), self.place_in_group());
        self.line(&format!("const u32 place = {place}, lane = place % {size}u;"));
        if all.is_multiple_of(size.into()) {
            self.line(&format!("const u32 lanes = {size}u, mask = {}u;", u32::MAX >> (32 - size)));
        } else {
            let left = format!("{all}u - (place - lane)");
            self.line(&format!("const u32 lanes = {left} < {size}u ? {left} : {size}u;"));
            self.line("const u32 mask = 0xffffffffu >> (32u - lanes);");
        }
    }

    /// Defines a value by an exchange.
    pub(super) fn exchange(&mut self, value: ValueId, op: SubgroupOp, operands: &[ValueId]) {
        let (ty, name) = (self.kernel.ty(value), format!("v{}", value.0));
        let size = self.lanes().size;
        let args: Vec<String> = operands.iter().map(|&operand| self.operand(operand)).collect();
        let arg = |k: usize| args.get(k).map_or("", String::as_str);
        let expression = match op {
            SubgroupOp::Size => format!("{size}u"),
            SubgroupOp::Lane => "lane".into(),
            SubgroupOp::Id => format!("place / {size}u"),
            SubgroupOp::Count => format!("{}u", self.invocations().div_ceil(size.into())),
            SubgroupOp::Ballot => {
                format!("(u64){}", self.lanes().ballot.replace("{mask}", "mask").replace("{x}", arg(0)))
            }
            SubgroupOp::Broadcast | SubgroupOp::Shuffle => {
                let from = arg(1);
                let zero = self.literal(Value::zero(ty));
                let found = self.shuffled(arg(0), &format!("{from} < lanes ? {from} : 0u"), ty);
                // Every lane takes part, even if it discards the result.
                self.line(&format!("const {ty} {name}_found = {found};"));
                format!("{from} < lanes ? {name}_found : {zero}")
            }
            SubgroupOp::Reduce(combine) => return self.combined(&name, combine, (arg(0), ty), "k < lanes"),
            SubgroupOp::Inclusive(combine) => {
                return self.combined(&name, combine, (arg(0), ty), "k <= lane");
            }
            SubgroupOp::Exclusive(combine) => {
                let below = format!("{name}_below");
                self.combined(&below, combine, (arg(0), ty), "k < lane");
                format!("lane == 0u ? {} : {below}", self.literal(combine.identity(ty)))
            }
        };
        self.line(&format!("const {ty} {name} = {expression};"));
    }

    /// The value of an existing lane.
    fn shuffled(&self, value: &str, from: &str, ty: ValueType) -> String {
        let shuffle =
            |x: &str| self.lanes().shuffle.replace("{mask}", "mask").replace("{x}", x).replace("{k}", from);
        match ty {
            ValueType::Bool => format!("{} != 0u", shuffle(&format!("(u32){value}"))),
            ValueType::U32
            | ValueType::I32
            | ValueType::U64
            | ValueType::I64
            | ValueType::F32
            | ValueType::F64 => shuffle(value),
        }
    }

    /// Declares a variable with the first lane's value, combined in lane order with those of the
    /// lanes `k` that take part.
    fn combined(&mut self, name: &str, combine: Combine, (value, ty): (&str, ValueType), takes_part: &str) {
        let (first, next) = (self.shuffled(value, "0u", ty), self.shuffled(value, "k", ty));
        self.line(&format!("{ty} {name} = {first};"));
        let more = self.spelled(combine.op(), ty, &[name.into(), "next".into()]);
        self.nested("for (u32 k = 1u; k < lanes; ++k)", |writer| {
            writer.line(&format!("const {ty} next = {next};"));
            writer.line(&format!("if ({takes_part}) {name} = {more};"));
        });
    }
}
