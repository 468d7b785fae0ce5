//! Finds the outputs that a kernel writes completely, which need not be zeroed first.
//!
//! An output reads as zero until it is written. Suppose that no statement loads it and that every
//! invocation that ends stores to a distinct element: element `x`, the position on the first axis,
//! or element `y * width + x`. The output is then fully written if those elements include all of
//! it, which depends on the dispatch: the domain and the width must match. A store under `x <
//! len(a)` or `x < min(len(a), len(b))` counts if `a` and `b` are at least as long as the output.

use super::{BufferId, Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use crate::ir::Builtin;
use crate::launch::Launch;
use crate::ops::Op;
use crate::types::Value;
use std::collections::HashMap;

/// The condition under which a buffer is fully written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Not known to be fully written.
    Unknown,
    /// Fully written if the domain is one row of at least the buffer's length.
    Row,
    /// As `Row`, and these buffers must be at least as long.
    RowWithin([BufferId; 2]),
    /// Fully written if the domain's rows have this width and cover the buffer's length.
    Rows(Width),
}

/// The width of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// This many elements.
    Constant(u32),
    /// An element of a buffer that the kernel only reads.
    Element(BufferId, u32),
}

impl Coverage {
    /// Whether a dispatch writes all of a buffer. `element` is as for [`Launch::doubts`].
    pub fn holds(
        self,
        buffer: BufferId,
        launch: &Launch,
        element: &mut dyn FnMut(BufferId, u32) -> Option<Value>,
    ) -> bool {
        // All elements of the domain, regardless of how many one invocation handles.
        let Some([x, y, z]) = launch.domain.filter(|_| launch.limit.is_some()) else { return false };
        let width = match self {
            Coverage::Unknown => return false,
            Coverage::Row | Coverage::RowWithin(_) if y != 1 => return false,
            Coverage::Row => x,
            Coverage::RowWithin(bounds) => {
                let length = launch.lengths[buffer.index()];
                if bounds.iter().any(|bound| launch.lengths[bound.index()] < length) {
                    return false;
                }
                x
            }
            Coverage::Rows(Width::Constant(width)) => width,
            Coverage::Rows(Width::Element(id, index)) => match element(id, index) {
                Some(Value::U32(width)) => width,
                Some(_) | None => return false,
            },
        };
        let length = u64::from(launch.lengths[buffer.index()]);
        width == x && z == 1 && length <= u64::from(x) * u64::from(y)
    }
}

/// The coverage of every buffer.
pub fn coverage(kernel: &KernelBody) -> Vec<Coverage> {
    let unknown = vec![Coverage::Unknown; kernel.buffers.len()];
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
    a.iter().zip(b).map(|(&a, &b)| if a == b { a } else { Coverage::Unknown }).collect()
}

/// What a value is known to be.
#[derive(Clone, Copy)]
enum Known {
    X,
    Y,
    Width(Width),
    /// `y` times a width.
    RowStart(Width),
    /// Element `y * width + x`.
    Own(Width),
    /// The lesser of two lengths, which can be the same one.
    Length([BufferId; 2]),
    /// Whether `x` is less than `Length`.
    Below([BufferId; 2]),
}

struct Walk<'k> {
    kernel: &'k KernelBody,
    known: HashMap<ValueId, Known>,
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
                if let (Some(&Known::Below(bounds)), []) = (self.known.get(condition), &otherwise[..]) {
                    return self.guarded(bounds, then, covered);
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
            // A loop can run no iterations, so what it covers does not count after it.
            StmtKind::For { body, .. } | StmtKind::Loop(body) => {
                let mut inside = covered.clone();
                self.block(body, &mut inside);
            }
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

    /// Adds what is covered by invocations whose position is within the bounds; the others skip the
    /// block.
    fn guarded(&mut self, bounds: [BufferId; 2], then: &[Stmt], covered: &mut [Coverage]) -> bool {
        let mut inside = covered.to_vec();
        let ends = self.ends.len();
        if !self.block(then, &mut inside) || self.ends.len() > ends {
            // Some invocations end inside; their coverage is compared with that of the others
            // unchanged.
            return true;
        }
        for (before, now) in covered.iter_mut().zip(inside) {
            if *before != now && now == Coverage::Row {
                *before = Coverage::RowWithin(bounds);
            } else if *before != now {
                *before = Coverage::Unknown;
            }
        }
        true
    }

    fn store(&mut self, id: BufferId, index: ValueId, covered: &mut [Coverage]) {
        if self.kernel.buffer(id).loaded {
            return;
        }
        match self.known.get(&index) {
            Some(Known::X) => covered[id.index()] = Coverage::Row,
            Some(Known::Own(width)) => covered[id.index()] = Coverage::Rows(*width),
            Some(Known::Y | Known::Width(_) | Known::RowStart(_) | Known::Length(_) | Known::Below(_))
            | None => {}
        }
    }

    fn define(&mut self, value: ValueId, def: &Def) {
        let known = match def {
            Def::Builtin(Builtin::InvocationId, 0) => Known::X,
            Def::Builtin(Builtin::InvocationId, 1) => Known::Y,
            Def::Const(Value::U32(width)) => Known::Width(Width::Constant(*width)),
            Def::Load { place: Place::Buffer(id), index, .. } if !self.kernel.buffer(*id).stored => {
                match self.known.get(index) {
                    Some(Known::Width(Width::Constant(index))) => Known::Width(Width::Element(*id, *index)),
                    Some(_) | None => return,
                }
            }
            Def::Op(op, operands) => {
                let operand = |k: usize| operands.get(k).and_then(|operand| self.known.get(operand)).copied();
                match (op, operand(0), operand(1)) {
                    (Op::Mul, Some(Known::Y), Some(Known::Width(width)))
                    | (Op::Mul, Some(Known::Width(width)), Some(Known::Y)) => Known::RowStart(width),
                    (Op::Add, Some(Known::RowStart(width)), Some(Known::X))
                    | (Op::Add, Some(Known::X), Some(Known::RowStart(width))) => Known::Own(width),
                    (Op::Min, Some(Known::Length([a, _])), Some(Known::Length([b, c]))) if b == c => {
                        Known::Length([a, b])
                    }
                    (Op::Lt, Some(Known::X), Some(Known::Length(bounds))) => Known::Below(bounds),
                    (Op::Gt, Some(Known::Length(bounds)), Some(Known::X)) => Known::Below(bounds),
                    _ => return,
                }
            }
            Def::Len(id) => Known::Length([*id; 2]),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Overrides;
    use crate::text::parse;

    /// Checks whether a dispatch with inputs of `x` and `z` elements writes all of `y`.
    fn check(body: &str, [x, z]: [usize; 2], expected: bool) {
        let source = format!(
            "kernel k(x: read u32[], z: read u32[], y: output u32[] len_of x) over y workgroup 64 {{
               region \"r\" {{ let i = invocation.x
                 {body} }} }}"
        );
        let kernel =
            parse(&source).and_then(|program| program.validate()).unwrap_or_else(|wrong| panic!("{wrong}"));
        let launch = Launch::from_inputs(&kernel, &[4 * x, 4 * z], Overrides::default());
        let launch = launch.unwrap_or_else(|wrong| panic!("{wrong}"));
        let id = kernel.bound_buffers()[2];
        assert_eq!(coverage(&kernel)[id.index()].holds(id, &launch, &mut |_, _| None), expected, "{body}");
    }

    #[test]
    fn a_store_under_a_guard_counts_where_the_guards_lengths_suffice() {
        check("y[i] = x[i]", [64, 1], true);
        check("if i < len(y) { y[i] = x[i] }", [64, 1], true);
        check("if i < min(len(x), len(y)) { y[i] = x[i] }", [64, 1], true);
        check("if i < min(len(z), len(y)) { y[i] = x[i] }", [64, 64], true);
        check("if i < min(len(z), len(y)) { y[i] = x[i] }", [64, 63], false);
        check("if i < min(len(x), len(y)) { if i > 3 { y[i] = x[i] } }", [64, 1], false);
        check("if i < len(x) { return } y[i] = x[i]", [64, 1], false);
        check("if i < len(x) { y[i] = 1; return }", [64, 1], false);
        check("if i < len(x) { y[i] = 1 } else { y[i + 1] = 2 }", [64, 1], false);
    }
}
