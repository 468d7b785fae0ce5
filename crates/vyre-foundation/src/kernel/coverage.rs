//! Finds the outputs that a kernel writes completely, which need not be zeroed first.
//!
//! An output reads as zero until it is written. Suppose that no statement loads it and that every
//! invocation that ends stores to distinct elements:
//!
//! - element `x`, the position on the first axis;
//! - element `y * width + x`;
//! - elements `x * width` to `x * width + width - 1`, one after the other in a loop from 0 or from
//!   `x * width`, or by stores to `x * 4`, `x * 4 + 1` and so on.
//!
//! The output is then fully written if those elements include all of it, which depends on the
//! dispatch: the domain and the width must match. Stores under a guard count where the dispatch
//! shows that every invocation that matters passes it: `x < len(a)` if `a` is at least as long as
//! the output, `x < width` if the domain is no wider.

use super::{BufferId, Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use crate::ir::Builtin;
use crate::launch::Launch;
use crate::ops::Op;
use crate::types::Value;
use hashbrown::HashMap;

/// The condition under which a buffer is fully written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    elements: Elements,
    /// What the dispatch must show as well.
    conditions: Vec<Condition>,
}

/// The elements that every invocation writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Elements {
    /// None, as far as known.
    #[default]
    None,
    /// Element `x`.
    Own,
    /// Element `y * width + x`.
    OwnInRows(Width),
    /// The `width` elements from `x * width` on.
    Block(Width),
    /// Some of those, as a set of bits: `x * width + field`, or inside a loop
    /// `x * width + counter * step + field`.
    Fields { width: Width, counter: Option<Counter>, fields: u64 },
}

/// A counter of a loop from 0 in steps of 1, times a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    value: ValueId,
    step: u32,
}

/// A number that is the same for all invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Constant(u32),
    /// An element of a buffer that the kernel only reads.
    Element(BufferId, u32),
}

/// What a dispatch must show for every invocation that matters to pass a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// `x`, or the element, is less than the length of this buffer, which must be at least as long
    /// as the output.
    Length(BufferId),
    /// The position on this axis is less than the width, which the domain must not exceed.
    Domain(u8, Width),
    /// An element of the invocation's block is less than the length of a buffer: the output must
    /// consist of whole blocks of this many elements.
    WholeBlocks(u32),
}

impl Width {
    fn value(self, element: &mut dyn FnMut(BufferId, u32) -> Option<Value>) -> Option<u64> {
        match self {
            Width::Constant(width) => Some(width.into()),
            Width::Element(id, index) => match element(id, index)? {
                Value::U32(width) => Some(width.into()),
                _ => None,
            },
        }
    }
}

impl Elements {
    /// These elements as a form that can cover a buffer, if they are one.
    fn whole(self) -> Option<Elements> {
        match self {
            Elements::None => None,
            Elements::Own | Elements::OwnInRows(_) | Elements::Block(_) => Some(self),
            Elements::Fields { width, counter: None, fields } => match width {
                Width::Constant(count) if (1..=64).contains(&count) => {
                    let all = u64::MAX >> (64 - count);
                    (fields & all == all).then_some(Elements::Block(width))
                }
                Width::Constant(_) | Width::Element(..) => None,
            },
            Elements::Fields { counter: Some(_), .. } => None,
        }
    }

    /// The elements after a loop whose body writes these in every iteration.
    fn after_loop(self, loop_counter: ValueId, count: Width) -> Elements {
        let Elements::Fields { width, counter: Some(Counter { value, step }), fields } = self else {
            return Elements::None;
        };
        if value != loop_counter {
            return Elements::None;
        }
        match count {
            count if count == width && step == 1 && fields & 1 != 0 => Elements::Block(width),
            Width::Constant(count) => {
                let moved =
                    |round: u32| step.checked_mul(round).and_then(|by| fields.checked_shl(by)).unwrap_or(0);
                // Beyond 64 iterations nothing is left to move.
                let fields = (0..count.min(64)).fold(0, |all, round| all | moved(round));
                Elements::Fields { width, counter: None, fields }
            }
            Width::Element(..) => Elements::None,
        }
    }
}

impl Coverage {
    /// Whether a dispatch writes all of a buffer. `element` is as for [`Launch::doubts`].
    pub fn holds(
        &self,
        buffer: BufferId,
        launch: &Launch,
        element: &mut dyn FnMut(BufferId, u32) -> Option<Value>,
    ) -> bool {
        // All elements of the domain, regardless of how many one invocation handles.
        let Some(domain) = launch.domain.filter(|_| launch.limit.is_some()) else { return false };
        let length = u64::from(launch.lengths[buffer.index()]);
        let [x, y, z] = domain.map(u64::from);
        let written = match self.elements.whole() {
            Some(Elements::Own) if y == 1 => x,
            Some(Elements::OwnInRows(width)) if width.value(element) == Some(x) => x * y,
            // The end of a block that a loop goes up to must not wrap.
            Some(Elements::Block(width)) if y == 1 => match width.value(element) {
                Some(width) if width * x <= u32::MAX.into() => width * x,
                Some(_) | None => return false,
            },
            _ => return false,
        };
        let shown = |condition: &Condition| match *condition {
            Condition::Length(id) => u64::from(launch.lengths[id.index()]) >= length,
            Condition::Domain(axis, width) => {
                width.value(element).is_some_and(|width| width >= domain[usize::from(axis)].into())
            }
            Condition::WholeBlocks(count) => length.is_multiple_of(count.into()),
        };
        z == 1 && length <= written && self.conditions.iter().all(shown)
    }

    /// Adds a store that every invocation makes.
    fn add(&mut self, elements: Elements) {
        match (&mut self.elements, elements) {
            (
                Elements::Fields { width, counter, fields },
                Elements::Fields { width: same_width, counter: same_counter, fields: more },
            ) if (*width, *counter) == (same_width, same_counter) && self.conditions.is_empty() => {
                *fields |= more;
            }
            (now, _) if now.whole().is_some() && elements.whole().is_none() => {}
            _ => *self = Coverage { elements, conditions: Vec::new() },
        }
    }

    /// What is written on both of two paths.
    fn both(&self, other: &Coverage) -> Coverage {
        match (self.elements, other.elements) {
            _ if self == other => self.clone(),
            (
                Elements::Fields { width, counter, fields },
                Elements::Fields { width: same_width, counter: same_counter, fields: others },
            ) if (width, counter) == (same_width, same_counter) && self.conditions == other.conditions => {
                let elements = Elements::Fields { width, counter, fields: fields & others };
                Coverage { elements, conditions: self.conditions.clone() }
            }
            _ => Coverage::default(),
        }
    }
}

/// The coverage of every buffer.
pub fn coverage(kernel: &KernelBody) -> Vec<Coverage> {
    let unknown = vec![Coverage::default(); kernel.buffers.len()];
    if !kernel.shape_free {
        return unknown;
    }
    let mut walk = Walk { kernel, known: HashMap::new(), ends: Vec::new() };
    let mut covered = unknown.clone();
    if walk.block(&kernel.body, &mut covered) {
        walk.ends.push(covered);
    }
    // An invocation can end in several places; only what is written before each of them counts.
    walk.ends.into_iter().reduce(|a, b| both(&a, &b)).unwrap_or(unknown)
}

fn both(a: &[Coverage], b: &[Coverage]) -> Vec<Coverage> {
    a.iter().zip(b).map(|(a, b)| a.both(b)).collect()
}

/// Whether control can leave a block other than at its end.
fn leaves(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break | StmtKind::Continue | StmtKind::Return | StmtKind::Trap(_) => true,
        StmtKind::If { then, otherwise, .. } => leaves(then) || leaves(otherwise),
        StmtKind::For { body, .. } | StmtKind::Loop(body) | StmtKind::Region { body, .. } => leaves(body),
        StmtKind::Def(..)
        | StmtKind::Store { .. }
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Barrier => false,
    })
}

/// What a value is known to be.
#[derive(Clone)]
enum KnownValue {
    X,
    Y,
    Width(Width),
    /// `y` times a width.
    RowStart(Width),
    /// Element `y * width + x`.
    Own(Width),
    /// A counter times its step, plus a constant.
    Steps(Counter, u32),
    /// Element `x * width + field`, plus a counter.
    Field {
        width: Width,
        counter: Option<Counter>,
        field: u32,
    },
    /// Element `x * width + width`, of a width that is not a constant.
    BlockEnd(Width),
    /// The least of these lengths.
    Length(Vec<BufferId>),
    Guard(Vec<Guard>),
}

impl KnownValue {
    /// Whether this is the end of the block of elements that starts at `x * width`.
    fn is_block_end(&self, of: Width) -> bool {
        match *self {
            KnownValue::BlockEnd(width) => width == of,
            KnownValue::Field { width, counter: None, field } => {
                width == of && width == Width::Constant(field)
            }
            _ => false,
        }
    }
}

/// A part of a condition.
#[derive(Clone)]
enum Guard {
    /// `x` is less than the lengths.
    Below(Vec<BufferId>),
    /// The position on an axis is less than the width.
    Within(u8, Width),
    /// Element `y * width + x` is less than the lengths.
    OwnBelow(Width, Vec<BufferId>),
    /// Element `x * count + field` is less than the lengths.
    FieldBelow { count: u32, field: u32, lengths: Vec<BufferId> },
}

impl Guard {
    /// What a dispatch must show so that every invocation that writes one of these elements within
    /// the output passes; `None` if nothing that is considered implies it.
    fn conditions(&self, elements: Elements) -> Option<Vec<Condition>> {
        let at_least = |lengths: &[BufferId]| lengths.iter().copied().map(Condition::Length).collect();
        match *self {
            // In each form, `x` is at most the number of any element that the invocation writes.
            Guard::Below(ref lengths) => Some(at_least(lengths)),
            Guard::Within(axis, width) => Some(vec![Condition::Domain(axis, width)]),
            Guard::OwnBelow(width, ref lengths) => {
                (elements == Elements::OwnInRows(width)).then(|| at_least(lengths))
            }
            Guard::FieldBelow { count, field, ref lengths } => {
                let same = elements == Elements::Block(Width::Constant(count)) && field < count;
                same.then(|| [at_least(lengths), vec![Condition::WholeBlocks(count)]].concat())
            }
        }
    }
}

struct Walk<'k> {
    kernel: &'k KernelBody,
    known: HashMap<ValueId, KnownValue>,
    /// The coverage at each point where an invocation ended.
    ends: Vec<Vec<Coverage>>,
}

impl Walk<'_> {
    /// Adds what a block covers; `false` if control does not reach its end.
    fn block(&mut self, block: &[Stmt], covered: &mut Vec<Coverage>) -> bool {
        block.iter().all(|stmt| self.stmt(stmt, covered))
    }

    fn stmt(&mut self, stmt: &Stmt, covered: &mut Vec<Coverage>) -> bool {
        match &stmt.kind {
            StmtKind::Def(value, def) => self.define(*value, def),
            StmtKind::Store { place: Place::Buffer(id), index, .. } => self.store(*id, *index, covered),
            StmtKind::If { condition, then, otherwise } => {
                if let (Some(KnownValue::Guard(guards)), []) = (self.known.get(condition), &otherwise[..]) {
                    return self.guarded(&guards.clone(), then, covered);
                }
                let mut other = covered.clone();
                let (reached, other_reached) = (self.block(then, covered), self.block(otherwise, &mut other));
                match (reached, other_reached) {
                    (true, true) => *covered = both(covered, &other),
                    (false, true) => *covered = other,
                    (true, false) | (false, false) => {}
                }
                return reached || other_reached;
            }
            StmtKind::For { counter, from, to, step, body } => {
                let steps = Counter { value: *counter, step: 1 };
                let (count, known) = match [from, to, step].map(|value| self.known.get(value)) {
                    _ if leaves(body) => return self.any_rounds(body, covered),
                    [
                        Some(KnownValue::Width(Width::Constant(0))),
                        Some(&KnownValue::Width(count)),
                        Some(KnownValue::Width(Width::Constant(1))),
                    ] => (count, KnownValue::Steps(steps, 0)),
                    [
                        Some(&KnownValue::Field { width, counter: None, field: 0 }),
                        Some(to),
                        Some(KnownValue::Width(Width::Constant(1))),
                    ] if to.is_block_end(width) => {
                        (width, KnownValue::Field { width, counter: Some(steps), field: 0 })
                    }
                    _ => return self.any_rounds(body, covered),
                };
                self.known.insert(*counter, known);
                let mut inside = vec![Coverage::default(); covered.len()];
                self.block(body, &mut inside);
                for (covered, inside) in covered.iter_mut().zip(inside) {
                    let elements = inside.elements.after_loop(*counter, count);
                    if inside.conditions.is_empty() && elements != Elements::None {
                        covered.add(elements);
                    }
                }
            }
            StmtKind::Loop(body) => return self.any_rounds(body, covered),
            StmtKind::Region { body, .. } => return self.block(body, covered),
            StmtKind::Return => {
                self.ends.push(covered.clone());
                return false;
            }
            // After a trap the outputs are discarded. A break or continue leads to the end of a
            // loop.
            StmtKind::Trap(_) | StmtKind::Break | StmtKind::Continue => return false,
            StmtKind::Store { place: Place::Array(_), .. }
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Barrier => {}
        }
        true
    }

    /// A loop that can run no iterations, so that what it covers does not count after it.
    fn any_rounds(&mut self, body: &[Stmt], covered: &[Coverage]) -> bool {
        let mut inside = covered.to_vec();
        self.block(body, &mut inside);
        true
    }

    /// Adds what is covered by invocations that pass the guards; the others skip the block.
    fn guarded(&mut self, guards: &[Guard], then: &[Stmt], covered: &mut [Coverage]) -> bool {
        let mut inside = covered.to_vec();
        let ends = self.ends.len();
        if !self.block(then, &mut inside) || self.ends.len() > ends {
            // Some invocations end inside; their coverage is compared with that of the others
            // unchanged.
            return true;
        }
        for (before, now) in covered.iter_mut().zip(inside) {
            if *before == now || before.elements.whole().is_some() && before.conditions.is_empty() {
                continue;
            }
            let Some(elements) = now.elements.whole() else { continue };
            let more: Option<Vec<_>> = guards.iter().map(|guard| guard.conditions(elements)).collect();
            if let Some(more) = more {
                let conditions = [now.conditions, more.concat()].concat();
                *before = Coverage { elements, conditions };
            }
        }
        true
    }

    fn store(&mut self, id: BufferId, index: ValueId, covered: &mut [Coverage]) {
        if self.kernel.buffer(id).loaded {
            return;
        }
        let elements = match self.known.get(&index) {
            Some(KnownValue::X) => Elements::Own,
            Some(KnownValue::Own(width)) => Elements::OwnInRows(*width),
            Some(&KnownValue::Field { width, counter, field }) => match 1_u64.checked_shl(field) {
                Some(fields) => Elements::Fields { width, counter, fields },
                None => return,
            },
            _ => return,
        };
        covered[id.index()].add(elements);
    }

    fn define(&mut self, value: ValueId, def: &Def) {
        let known = match def {
            Def::Builtin(Builtin::InvocationId, 0) => KnownValue::X,
            Def::Builtin(Builtin::InvocationId, 1) => KnownValue::Y,
            Def::Const(Value::U32(width)) => KnownValue::Width(Width::Constant(*width)),
            Def::Load { place: Place::Buffer(id), index, .. } if !self.kernel.buffer(*id).stored => {
                match self.known.get(index) {
                    Some(KnownValue::Width(Width::Constant(index))) => {
                        KnownValue::Width(Width::Element(*id, *index))
                    }
                    Some(_) | None => return,
                }
            }
            Def::Op(op, operands) => {
                let operand = |k: usize| operands.get(k).and_then(|operand| self.known.get(operand));
                match (operand(0), operand(1)) {
                    (Some(a), Some(b)) => {
                        match combined(*op, a, b).or_else(|| combined(reversed(*op)?, b, a)) {
                            Some(known) => known,
                            None => return,
                        }
                    }
                    _ => return,
                }
            }
            Def::Len(id) => KnownValue::Length(vec![*id]),
            Def::Const(_)
            | Def::Builtin(..)
            | Def::Load { .. }
            | Def::Get(_)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => return,
        };
        self.known.insert(value, known);
    }
}

/// The op with its operands exchanged.
fn reversed(op: Op) -> Option<Op> {
    match op {
        Op::Add | Op::Mul | Op::And => Some(op),
        Op::Gt => Some(Op::Lt),
        _ => None,
    }
}

/// What is known of the result of an op, given what is known of its operands.
fn combined(op: Op, a: &KnownValue, b: &KnownValue) -> Option<KnownValue> {
    Some(match (op, a, b) {
        (Op::Mul, KnownValue::Y, &KnownValue::Width(width)) => KnownValue::RowStart(width),
        (Op::Mul, KnownValue::X, &KnownValue::Width(width)) => {
            KnownValue::Field { width, counter: None, field: 0 }
        }
        (Op::Shl, KnownValue::X, KnownValue::Width(Width::Constant(bits))) => {
            KnownValue::Field { width: Width::Constant(1_u32.checked_shl(*bits)?), counter: None, field: 0 }
        }
        (
            Op::Mul,
            &KnownValue::Steps(Counter { value, step: 1 }, 0),
            KnownValue::Width(Width::Constant(step)),
        ) => KnownValue::Steps(Counter { value, step: *step }, 0),
        (
            Op::Shl,
            &KnownValue::Steps(Counter { value, step: 1 }, 0),
            KnownValue::Width(Width::Constant(bits)),
        ) => KnownValue::Steps(Counter { value, step: 1_u32.checked_shl(*bits)? }, 0),
        (Op::Add, &KnownValue::RowStart(width), KnownValue::X) => KnownValue::Own(width),
        (Op::Add, &KnownValue::Steps(counter, plus), KnownValue::Width(Width::Constant(more))) => {
            KnownValue::Steps(counter, plus.checked_add(*more)?)
        }
        (Op::Add, &KnownValue::Field { width, counter, field }, KnownValue::Width(Width::Constant(more))) => {
            KnownValue::Field { width, counter, field: field.checked_add(*more)? }
        }
        (Op::Add, &KnownValue::Field { width, counter: None, field: 0 }, &KnownValue::Width(more))
            if more == width =>
        {
            KnownValue::BlockEnd(width)
        }
        (Op::Add, &KnownValue::Field { width, counter: None, field }, &KnownValue::Steps(counter, plus)) => {
            KnownValue::Field { width, counter: Some(counter), field: field.checked_add(plus)? }
        }
        (Op::Min, KnownValue::Length(some), KnownValue::Length(others)) => {
            KnownValue::Length([&some[..], others].concat())
        }
        (Op::Lt, KnownValue::X, KnownValue::Length(lengths)) => {
            KnownValue::Guard(vec![Guard::Below(lengths.clone())])
        }
        (Op::Lt, KnownValue::X, &KnownValue::Width(width)) => {
            KnownValue::Guard(vec![Guard::Within(0, width)])
        }
        (Op::Lt, KnownValue::Y, &KnownValue::Width(width)) => {
            KnownValue::Guard(vec![Guard::Within(1, width)])
        }
        (Op::Lt, &KnownValue::Own(width), KnownValue::Length(lengths)) => {
            KnownValue::Guard(vec![Guard::OwnBelow(width, lengths.clone())])
        }
        (
            Op::Lt,
            &KnownValue::Field { width: Width::Constant(count), counter: None, field },
            KnownValue::Length(lengths),
        ) => KnownValue::Guard(vec![Guard::FieldBelow { count, field, lengths: lengths.clone() }]),
        (Op::And, KnownValue::Guard(some), KnownValue::Guard(others)) => {
            KnownValue::Guard([&some[..], others].concat())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Overrides;
    use crate::text::parse;

    /// Checks whether a dispatch writes all of the output `y`, which is the last buffer. `inputs`
    /// are the lengths of the others in bytes, and `uniforms` their first elements.
    fn check_kernel(source: &str, inputs: &[usize], uniforms: &[u32], expected: bool) {
        let kernel =
            parse(source).and_then(|program| program.validate()).unwrap_or_else(|wrong| panic!("{wrong}"));
        let bytes: Vec<Vec<u8>> = inputs
            .iter()
            .enumerate()
            .map(|(k, &length)| {
                let mut bytes = vec![0; length];
                if let Some(uniform) = uniforms.get(k) {
                    bytes[..4].copy_from_slice(&uniform.to_le_bytes());
                }
                bytes
            })
            .collect();
        let given: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let launch = Launch::from_inputs(&kernel, &given, Overrides::default());
        let launch = launch.unwrap_or_else(|wrong| panic!("{wrong}"));
        let bound = kernel.bound_buffers();
        let id = bound[bound.len() - 1];
        let mut element = |id: BufferId, index: u32| {
            let at = bound.iter().position(|&bound| bound == id)?;
            let bytes = bytes.get(at)?.get(4 * index as usize..)?.first_chunk()?;
            Some(Value::U32(u32::from_le_bytes(*bytes)))
        };
        assert_eq!(coverage(&kernel)[id.index()].holds(id, &launch, &mut element), expected, "{source}");
    }

    /// A kernel with inputs of `x` and `z` elements, over the output `y`.
    fn check(body: &str, [x, z]: [usize; 2], expected: bool) {
        let source = format!(
            "kernel k(x: read u32[], z: read u32[], y: output u32[] len_of x) over y workgroup 64 {{
               region \"r\" {{ let i = invocation.x
                 {body} }} }}"
        );
        check_kernel(&source, &[4 * x, 4 * z], &[], expected);
    }

    #[test]
    fn a_store_under_a_guard_counts_where_the_guards_lengths_suffice() {
        check("y[i] = x[i]", [64, 1], true);
        check("if i < len(y) { y[i] = x[i] }", [64, 1], true);
        check("if i < min(len(x), len(y)) { y[i] = x[i] }", [64, 1], true);
        check("if i < min(len(z), len(y)) { y[i] = x[i] }", [64, 64], true);
        check("if i < min(len(z), len(y)) { y[i] = x[i] }", [64, 63], false);
        check("if i < min(min(len(x), len(z)), len(y)) { y[i] = x[i] }", [64, 64], true);
        check("if i < min(min(len(x), len(z)), len(y)) { y[i] = x[i] }", [64, 63], false);
        check("if i < min(len(x), len(y)) { if i > 3 { y[i] = x[i] } }", [64, 1], false);
        check("if i < len(x) { return } y[i] = x[i]", [64, 1], false);
        check("if i < len(x) { y[i] = 1; return }", [64, 1], false);
        check("if i < len(x) { y[i] = 1 } else { y[i + 1] = 2 }", [64, 1], false);
    }

    /// A kernel over `[invocations]` with the uniform `n` and an output of as many elements as `x`.
    fn check_blocks(body: &str, [n, invocations, x]: [u32; 3], expected: bool) {
        let source = format!(
            "kernel k(n: u32 uniform, x: read u32[], z: read u32[], y: output u32[] len_of x)
               over [{invocations}] workgroup 64 {{
               region \"r\" {{ let i = invocation.x
                 {body} }} }}"
        );
        check_kernel(&source, &[4, 4 * x as usize, 4 * x as usize], &[n], expected);
    }

    #[test]
    fn blocks_that_a_loop_fills() {
        let rows = "for k in 0..n { y[i * n + k] = k }";
        check_blocks(rows, [7, 8, 56], true);
        check_blocks(rows, [7, 8, 50], true);
        check_blocks(rows, [7, 8, 57], false);
        check_blocks(rows, [0, 8, 8], false);
        check_blocks("let at = n * i; for k in 0..n { let j = at + k; y[j] = 1 }", [7, 8, 56], true);
        let from_start = "let at = n * i; for k in at..at + n { y[k] = 1 }";
        check_blocks(from_start, [7, 8, 56], true);
        check_blocks(from_start, [7, 8, 57], false);
        check_blocks(from_start, [0, 8, 8], false);
        check_blocks(&from_start.replace("at + n", "at + 7"), [7, 8, 56], false);
        check_blocks(&from_start.replace("at..", "at + 1.."), [7, 8, 56], false);
        check_blocks(&from_start.replace("y[k]", "y[k + 1]"), [7, 8, 56], false);
        check_blocks("for k in i * 8..i * 8 + 8 { y[k] = k }", [7, 7, 56], true);
        check_blocks("for k in i * 8..i * 8 + 7 { y[k] = k }", [7, 7, 56], false);
        check_blocks("for k in i * 8..i * 8 + 8 { y[i * 8 + k] = k }", [7, 7, 56], false);
        check_blocks("for k in 0..n { if k < 5 { continue } y[i * n + k] = k }", [7, 8, 56], false);
        check_blocks("for k in 0..n { y[i * n + k] = k; if x[k] == 3 { break } }", [7, 8, 56], false);
        check_blocks("for k in 0..n { if x[k] == 3 { return } y[i * n + k] = k }", [7, 8, 56], false);
        check_blocks("for k in 0..n { if x[k] == 3 { y[i * n + k] = k } }", [7, 8, 56], false);
        check_blocks(
            "for k in 0..n { if x[k] == 3 { y[i * n + k] = k } else { y[i * n + k] = 1 } }",
            [7, 8, 56],
            true,
        );
        check_blocks("for k in 1..n { y[i * n + k] = k }", [7, 8, 56], false);
        check_blocks("for k in 0..n step 2 { y[i * n + k] = k }", [7, 8, 56], false);
        check_blocks("for k in 0..n { y[i * n + k + 1] = k }", [7, 8, 56], false);
        check_blocks("for k in 0..n { for j in 0..x[0] { y[i * n + k] = j } }", [7, 8, 56], false);
        check_blocks("for k in 0..x[1] { y[i * n + k] = k }", [7, 8, 56], false);
        check_blocks("for k in 0..8 { y[i * 8 + k] = k }", [7, 7, 56], true);
        check_blocks("for k in 0..8 { y[i * 8 + k] = k }", [7, 6, 56], false);
        check_blocks("for k in 0..7 { y[i * 8 + k] = k }", [7, 7, 56], false);
        check_blocks("for k in 0..7 { y[i * 8 + k] = k } y[8 * i + 7] = 1", [7, 7, 56], true);
    }

    #[test]
    fn blocks_that_several_stores_fill() {
        check_blocks("y[2 * i] = 1; y[2 * i + 1] = 2", [0, 28, 56], true);
        check_blocks("y[2 * i] = 1; y[2 * i + 1] = 2", [0, 28, 55], true);
        check_blocks("y[2 * i] = 1; y[2 * i + 1] = 2", [0, 27, 56], false);
        check_blocks("y[(i << 1) + 1] = 1; y[i << 1] = 2", [0, 28, 56], true);
        check_blocks("y[3 * i] = 1; y[3 * i + 1] = 2", [0, 56, 56], false);
        check_blocks("y[2 * i] = 1; y[3 * i + 1] = 2", [0, 56, 56], false);
        check_blocks("y[2 * i] = 1; if x[i] == 3 { y[2 * i + 1] = 2 }", [0, 28, 56], false);
        check_blocks("y[2 * i] = 1; if x[i] == 3 { return } y[2 * i + 1] = 2", [0, 28, 56], false);
        let in_fours = "for r in 0..4 { let at = 16 * i + 4 * r; y[at] = 1; y[at + 1] = 2; y[at + 2] = 3; y[at + 3] = 4 }";
        check_blocks(in_fours, [0, 4, 64], true);
        check_blocks(in_fours, [0, 4, 65], false);
        check_blocks(&in_fours.replace("0..4", "0..3"), [0, 4, 64], false);
        check_blocks(&in_fours.replace("4 * r", "3 * r"), [0, 4, 64], false);
        let guarded = "if 2 * i + 1 < len(y) { y[2 * i] = 1; y[2 * i + 1] = 2 }";
        check_blocks(guarded, [0, 28, 56], true);
        check_blocks(guarded, [0, 28, 55], false);
        check_blocks(&guarded.replace("+ 1 <", "+ 2 <"), [0, 28, 56], false);
        check_blocks("if 2 * i < len(y) { y[i] = 1 }", [0, 56, 56], false);
        check_blocks("y[i] = 1; if 2 * i < len(y) { y[2 * i] = 1 }", [0, 56, 56], true);
        check_blocks("if i < n { y[i] = 1 }", [56, 56, 56], true);
        check_blocks("if i < n { y[i] = 1 }", [55, 56, 56], false);
    }

    /// A kernel over a grid of `width` by `height` that are also uniforms.
    fn check_rows(body: &str, [width, height, x]: [u32; 3], domain: [u32; 2], expected: bool) {
        let [across, down] = domain;
        let source = format!(
            "kernel k(width: u32 uniform, height: u32 uniform, x: read u32[], y: output u32[] len_of x)
               over [{across}, {down}] workgroup 64 {{
               region \"r\" {{ let i = invocation.y * width + invocation.x
                 {body} }} }}"
        );
        check_kernel(&source, &[4, 4, 4 * x as usize], &[width, height], expected);
    }

    #[test]
    fn rows_under_guards() {
        let guarded = "if invocation.x < width && invocation.y < height { y[i] = x[i] }";
        check_rows("y[i] = x[i]", [8, 7, 56], [8, 7], true);
        check_rows("y[i] = x[i]", [8, 7, 56], [7, 8], false);
        check_rows(guarded, [8, 7, 56], [8, 7], true);
        check_rows(guarded, [8, 7, 56], [8, 8], false);
        check_rows(guarded, [8, 7, 57], [8, 7], false);
        check_rows("if i < len(y) { y[i] = 1 }", [8, 7, 56], [8, 7], true);
        check_rows("if i < len(y) && x[0] == 3 { y[i] = 1 }", [8, 7, 56], [8, 7], false);
        check_rows("if i < len(y) || x[0] == 3 { y[i] = 1 }", [8, 7, 56], [8, 7], false);
    }
}
