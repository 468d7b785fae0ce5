//! Proofs that a dispatch completes: bounds of values in terms of quantities that a dispatch knows.
//!
//! Where the facts of the walk do not prove an access, they may still bound its index by lengths,
//! read-only elements and grid sizes. The access then counts as proved, and the kernel requires the
//! bound to be below the memory's length in each dispatch. The search for a bound follows chains of
//! "not above" relations and sums, products and quotients, within a budget. A requirement that
//! hardly any dispatch can meet is rejected, because it would make all the others useless.
//!
//! A difference is bounded only if it cannot be negative. Lower bounds used for that (`y * n + x`
//! is at least `n` if `y` is at least 1) hold only if the sums and products involved do not wrap,
//! which becomes a requirement too.

use super::{Limit, REFRESH_DEPTH, Walk};
use crate::ir::{Access, Builtin};
use crate::kernel::requirement::Facts;
use crate::kernel::{BufferId, Def, Extent, KernelDomain, Known, Operands, Place, Requirement, ValueId};
use crate::launch::Launch;
use crate::ops::Op;
use crate::optimize::interval::Interval;
use crate::optimize::walk::fixed_len;
use crate::types::Value;

/// Maximum number of values that one search visits.
const BUDGET: usize = 40;
/// Maximum length of a chain.
const DEPTH: usize = 10;
/// Maximum depth of an expression of known values.
const KNOWN_DEPTH: usize = 4;
/// Recursion depth in sums of products when looking for a lower bound.
const FLOOR_DEPTH: usize = 4;
/// Maximum number of bounds kept per value.
const MOST_BOUNDS: usize = 3;
/// Maximum number of requirements per kernel.
const MOST_REQUIREMENTS: usize = 32;

/// The state of a search.
struct Search {
    path: Vec<ValueId>,
    budget: usize,
    /// Additional requirements of the result.
    also: Vec<Requirement>,
}

impl Walk<'_> {
    /// Whether the value stays below `below` in every dispatch that meets the kernel's
    /// requirements; can add requirements.
    pub(super) fn require_below(&mut self, value: ValueId, below: Known) -> bool {
        if !self.assume.dispatch_checks {
            return false;
        }
        let mut search = Search { path: Vec::new(), budget: BUDGET, also: Vec::new() };
        let Some(index) = self.extent(value, &mut search) else { return false };
        let mut wanted = search.also;
        wanted.push(Requirement { index, below });
        wanted.retain(|requirement| !self.body.requires.contains(requirement));
        let made = self.body.requires.len() + wanted.len() <= MOST_REQUIREMENTS
            && wanted.iter().all(|requirement| self.is_likely(requirement));
        if made {
            self.body.requires.extend(wanted);
        }
        made
    }

    /// Whether a guard can be left to the dispatch: it compares an invocation id with a length or
    /// parameter. Guards against rounded-up domains have this form, and they usually hold in the
    /// whole domain.
    pub(super) fn leaves_guard(&mut self, lesser: ValueId, greater: ValueId) -> bool {
        let own_number =
            matches!(self.definitions[lesser.index()], Some(Def::Builtin(Builtin::InvocationId, _)));
        if !own_number || !self.assume.within_domain || !self.body.shape_free {
            return false;
        }
        match self.known(greater, 0) {
            Some(below @ (Known::Len(_) | Known::Element(..))) => self.require_below(lesser, below),
            Some(Known::Const(_) | Known::Groups(_) | Known::Op(..)) | None => false,
        }
    }

    fn extent(&self, value: ValueId, search: &mut Search) -> Option<Extent> {
        if search.budget == 0 || search.path.len() >= DEPTH || search.path.contains(&value) {
            return None;
        }
        search.budget -= 1;
        if let Some(known) = self.known(value, KNOWN_DEPTH).filter(|_| self.body.ty(value).is_integer()) {
            return Some(Extent::Known(known));
        }
        search.path.push(value);
        let mut found = Vec::new();
        // A bound in the upper half of the type's range says no more than the type.
        let high = self.refreshed(value, REFRESH_DEPTH).high;
        if high <= Interval::of_type(self.body.ty(value)).high / 2 {
            found.extend(u64::try_from(high.max(0)).ok().map(count));
        }
        let computed = self.computed_extent(value, search);
        let operand = computed.is_some().then(|| self.first_operand(value)).flatten();
        found.extend(computed);
        for bound in self.bounds(value) {
            let extent = match bound.by {
                Limit::Len(buffer) => Some(Extent::Known(Known::Len(buffer))),
                Limit::Axis(axis) => self.body.domain.axis(usize::from(axis)).map(Extent::Known),
                // The bound of a quotient's operand is no better than the quotient of that bound.
                Limit::Value(by) if Some(by) == operand => None,
                Limit::Value(by) => self.extent(by, search),
            };
            found.extend(extent.map(|extent| if bound.strict { one_less(extent) } else { extent }));
        }
        search.path.pop();
        least(found)
    }

    fn first_operand(&self, value: ValueId) -> Option<ValueId> {
        self.definitions[value.index()].as_ref()?.operands().next()
    }

    /// The bound that follows from a value's definition.
    fn computed_extent(&self, value: ValueId, search: &mut Search) -> Option<Extent> {
        match self.definitions[value.index()].as_ref()? {
            // Within the domain, the domain already bounds the invocation id.
            Def::Builtin(Builtin::InvocationId, _) if self.assume.within_domain && self.body.shape_free => {
                None
            }
            Def::Builtin(Builtin::InvocationId, axis) => {
                Some(Extent::Below(Box::new(Extent::Invocations(*axis))))
            }
            Def::Builtin(Builtin::WorkgroupId, axis) => {
                Some(Extent::Below(Box::new(Extent::Known(Known::Groups(*axis)))))
            }
            Def::Op(op, operands) => self.op_extent(*op, *operands, search),
            Def::Builtin(Builtin::LocalId | Builtin::GridSize | Builtin::WorkgroupSize, _)
            | Def::Const(_)
            | Def::Get(_)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => None,
        }
    }

    fn op_extent(&self, op: Op, operands: Operands, search: &mut Search) -> Option<Extent> {
        let natural = |operand: &ValueId| {
            self.body.ty(*operand).is_integer() && self.intervals[operand.index()].low >= 0
        };
        if !operands.iter().all(natural) {
            return None;
        }
        let x = operands[0];
        let y = *operands.get(1)?;
        let constant = self.intervals[y.index()].single().and_then(|exact| u64::try_from(exact).ok());
        if op == Op::Div {
            let by = constant.filter(|&by| by > 0)?;
            return Some(quotient(self.extent(x, search)?, by));
        }
        if op == Op::Shr || op == Op::Shl {
            let power = 1_u64 << (constant? % u64::from(self.body.ty(x).bits()));
            let extent = self.extent(x, search)?;
            return Some(match op == Op::Shr {
                true => quotient(extent, power),
                false => combined(true, [extent, count(power)]),
            });
        }
        if op == Op::Sub {
            let extent = self.stays_natural([x, y], search).then(|| self.extent(x, search)).flatten()?;
            return Some(if self.intervals[y.index()].low > 0 { one_less(extent) } else { extent });
        }
        let product = op == Op::Mul;
        // `x | y` and `x ^ y` never exceed `x + y`.
        if !product && op != Op::Add && op != Op::Or && op != Op::Xor {
            return None;
        }
        Some(combined(product, [self.extent(x, search)?, self.extent(y, search)?]))
    }

    /// Whether `x - y` is non-negative, for non-negative operands.
    fn stays_natural(&self, [x, y]: [ValueId; 2], search: &mut Search) -> bool {
        let most = self.refreshed(y, REFRESH_DEPTH).high;
        self.is_at_least(x, y, search, FLOOR_DEPTH) || self.floor(x, search, FLOOR_DEPTH) >= most
    }

    /// Whether a value is at least another: it is that value, a multiple of it, or a sum that
    /// contains either.
    fn is_at_least(&self, value: ValueId, least: ValueId, search: &mut Search, depth: usize) -> bool {
        if value == least {
            return true;
        }
        let Some((op, [x, y])) = self.sum_or_product(value).filter(|_| depth > 0) else { return false };
        let found = match op == Op::Mul {
            true => [(x, y), (y, x)]
                .into_iter()
                .any(|(one, other)| one == least && self.floor(other, search, depth - 1) > 0),
            false => [x, y].into_iter().any(|term| self.is_at_least(term, least, search, depth - 1)),
        };
        found && self.is_exact(op, [x, y], search)
    }

    /// A lower bound of a value.
    fn floor(&self, value: ValueId, search: &mut Search, depth: usize) -> i128 {
        let known = self.refreshed(value, REFRESH_DEPTH).low.max(0);
        let Some((op, [x, y])) = self.sum_or_product(value).filter(|_| depth > 0 && known == 0) else {
            return known;
        };
        let [from_x, from_y] = [x, y].map(|term| self.floor(term, search, depth - 1));
        let floor = if op == Op::Mul { from_x.saturating_mul(from_y) } else { from_x.saturating_add(from_y) };
        if floor > 0 && self.is_exact(op, [x, y], search) { floor } else { known }
    }

    fn sum_or_product(&self, value: ValueId) -> Option<(Op, [ValueId; 2])> {
        let Some(Def::Op(op @ (Op::Add | Op::Mul), operands)) = &self.definitions[value.index()] else {
            return None;
        };
        let natural =
            |operand: ValueId| self.body.ty(operand).is_integer() && self.intervals[operand.index()].low >= 0;
        let operands = [operands[0], operands[1]];
        operands.into_iter().all(natural).then_some((*op, operands))
    }

    /// Whether a sum or product does not wrap in dispatches that meet the requirements.
    fn is_exact(&self, op: Op, [x, y]: [ValueId; 2], search: &mut Search) -> bool {
        let most = Interval::of_type(self.body.ty(x)).high;
        let (Some(from_x), Some(from_y)) = (self.extent(x, search), self.extent(y, search)) else {
            return false;
        };
        let index = combined(op == Op::Mul, [from_x, from_y]);
        let Some(below) = u64::try_from(most + 1).ok() else { return false };
        if as_count(&index).is_none_or(|count| count >= below) {
            let requirement = Requirement { index, below: Known::Const(Value::U64(below)) };
            if !search.also.contains(&requirement) {
                search.also.push(requirement);
            }
        }
        true
    }

    /// The axis, computed at dispatch, whose number of invocations equals this value.
    pub(super) fn axis_of(&self, value: ValueId) -> Option<u8> {
        let KernelDomain::Axes(axes) = &self.body.domain else { return None };
        let known = self.known(value, KNOWN_DEPTH)?;
        axes.iter().position(|axis| *axis == known).map(|axis| axis as u8)
    }

    /// The value as an expression that a dispatch can evaluate.
    fn known(&self, value: ValueId, depth: usize) -> Option<Known> {
        match self.definitions[value.index()].as_ref()? {
            Def::Const(constant) => Some(Known::Const(*constant)),
            Def::Len(buffer) => Some(Known::Len(*buffer)),
            Def::Builtin(Builtin::GridSize, axis) => Some(Known::Groups(*axis)),
            Def::Load { place: Place::Buffer(buffer), index, .. } => {
                let read_only =
                    matches!(self.body.buffer(*buffer).decl.access, Access::Read | Access::Uniform);
                let index = u32::try_from(self.intervals[index.index()].single()?).ok()?;
                read_only.then_some(Known::Element(*buffer, index))
            }
            Def::Op(op, operands) if depth > 0 => {
                let args: Option<Vec<Known>> =
                    operands.iter().map(|&operand| self.known(operand, depth - 1)).collect();
                Some(Known::Op(*op, args?))
            }
            Def::Op(..)
            | Def::Builtin(
                Builtin::InvocationId | Builtin::LocalId | Builtin::WorkgroupId | Builtin::WorkgroupSize,
                _,
            )
            | Def::Load { place: Place::Array(_), .. }
            | Def::Get(_)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => None,
        }
    }

    /// Whether typical dispatches meet the requirement: those with buffers of one length, or with
    /// memory for several elements per invocation. A requirement beyond that, such as an index past
    /// the end of a buffer as long as the domain, comes from border handling, which must stay
    /// checked.
    fn is_likely(&self, requirement: &Requirement) -> bool {
        const LARGE: u32 = 3 << 20;
        let held = |others: u32| self.holds_among(requirement, LARGE, others);
        held(LARGE) || (!held(LARGE / 3 * 2) && held(SMALL))
    }

    /// Whether the requirement holds if the required buffer or element has size `large` and the
    /// other buffers have size `others`.
    fn holds_among(&self, requirement: &Requirement, large: u32, others: u32) -> bool {
        let length = |id: u32| {
            let buffer = BufferId(id);
            let size = if requirement.below == Known::Len(buffer) { large } else { others };
            fixed_len(self.body, Place::Buffer(buffer)).unwrap_or(size)
        };
        let lengths = (0..self.body.buffers.len() as u32).map(length).collect();
        let (workgroup, grid) = ([1; 3], [SMALL; 3]);
        let launch = Launch { lengths, workgroup, grid, domain: None, limit: None, coarsening: 1 };
        let mut element = |buffer: BufferId, index: u32| {
            let wanted = requirement.below == Known::Element(buffer, index);
            let ty = self.body.buffer(buffer).decl.element.value_type();
            let size = if wanted { large } else { SMALL };
            ty.is_integer().then(|| Value::from_bits(ty, size.into()))
        };
        requirement.holds(&mut Facts { launch: &launch, element: &mut element })
    }
}

/// Assumed size of parameters and grids.
const SMALL: u32 = 16;

/// A constant bound.
fn count(number: u64) -> Extent {
    Extent::Known(Known::Const(Value::U64(number)))
}

fn as_count(extent: &Extent) -> Option<u64> {
    if let Extent::Known(Known::Const(value)) = extent {
        return u64::try_from(value.as_integer()?).ok();
    }
    None
}

/// The bound of the sum or product of two bounded values.
fn combined(product: bool, both: [Extent; 2]) -> Extent {
    match (as_count(&both[0]), as_count(&both[1])) {
        (Some(x), Some(y)) => count(if product { x.saturating_mul(y) } else { x.saturating_add(y) }),
        _ if product => Extent::Product(Box::new(both)),
        _ => Extent::Sum(Box::new(both)),
    }
}

fn quotient(extent: Extent, by: u64) -> Extent {
    as_count(&extent).map_or_else(|| Extent::Quotient(Box::new(extent), by), |number| count(number / by))
}

fn one_less(extent: Extent) -> Extent {
    as_count(&extent)
        .map_or_else(|| Extent::Below(Box::new(extent)), |number| count(number.saturating_sub(1)))
}

/// The least of several bounds, with the constants merged.
fn least(bounds: Vec<Extent>) -> Option<Extent> {
    let constant = bounds.iter().filter_map(as_count).min().map(count);
    let mut kept: Vec<Extent> = Vec::new();
    for bound in constant.into_iter().chain(bounds.into_iter().filter(|bound| as_count(bound).is_none())) {
        if kept.len() < MOST_BOUNDS && !kept.contains(&bound) {
            kept.push(bound);
        }
    }
    if kept.len() > 1 { Some(Extent::Least(kept)) } else { kept.pop() }
}
