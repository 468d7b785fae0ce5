//! The interface of a generated program: buffers, bindings, lengths, domain and workgroup size.

use super::{Buffer, GeneratorState, Map, Phase, Role};
use vyre_foundation::ir::{Access, AtomicOp, Axis, BufferDecl, DataType, Domain, Expr};

/// Lengths that catch off-by-one errors: empty, one, primes, powers of two and their neighbours.
const LENGTHS: [u32; 12] = [5, 1, 0, 2, 3, 7, 8, 13, 31, 64, 67, 97];

/// Atomics whose order is not observable in memory.
pub(super) const COMMUTATIVE: [AtomicOp; 6] =
    [AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor];

/// Decisions made before the body is generated.
pub(super) struct ProgramPlan {
    pub(super) workgroup: [u32; 3],
    pub(super) domain: Domain,
    /// Linear id of an invocation, unique in the dispatch.
    pub(super) id: Expr,
    pub(super) subgroup_size: u32,
}

impl GeneratorState<'_> {
    /// Declares the buffers and chooses the shape.
    pub(super) fn plan(&mut self) -> ProgramPlan {
        self.grouped = self.options.grouped && self.choices.below(2) == 1;
        if self.options.traps && self.choices.one_in(16) {
            self.trap = Some(self.choices.below(1000) as u32);
        }
        let counts = self.counts();
        let invocations: u32 = counts.iter().product();
        let workgroup = self.workgroup();
        self.inputs();
        self.owned(invocations);
        self.tallies();
        if self.grouped {
            self.exchanges(invocations, workgroup.iter().product());
        }
        let domain = self.domain(counts);
        self.number_bindings();
        let id = self.id(&domain);
        let subgroup_size = self.choices.pick_from([4, 32, 8, 1, 64, 16]);
        ProgramPlan { workgroup, domain, id, subgroup_size }
    }

    fn counts(&mut self) -> [u32; 3] {
        let limit = self.options.max_invocations.max(1);
        let [x, y, z] = match self.choices.below(4) {
            0 | 1 => [self.choices.pick_from(LENGTHS), 1, 1],
            2 => [1 + self.choices.below(9) as u32, 1 + self.choices.below(7) as u32, 1],
            _ => [1, 1, 1].map(|one: u32| one + self.choices.below(5) as u32),
        };
        let x = x.min(limit);
        let y = y.min((limit / x.max(1)).max(1));
        [x, y, z.min((limit / (x * y).max(1)).max(1))]
    }

    fn workgroup(&mut self) -> [u32; 3] {
        let sizes = [
            [4, 1, 1],
            [1, 1, 1],
            [8, 1, 1],
            [5, 1, 1],
            [2, 2, 1],
            [2, 3, 2],
            [16, 1, 1],
            [3, 1, 2],
            [32, 1, 1],
        ];
        self.choices.pick_from(sizes)
    }

    fn element(&mut self) -> DataType {
        let allowed: Vec<DataType> =
            DataType::ALL.into_iter().filter(|&element| self.options.has_element(element)).collect();
        self.choices.pick(&allowed).copied().unwrap_or(DataType::U32)
    }

    fn atomic_element(&mut self) -> DataType {
        let allowed: Vec<DataType> =
            DataType::ALL.into_iter().filter(|&element| self.options.has_atomic(element)).collect();
        self.choices.pick(&allowed).copied().unwrap_or(DataType::U32)
    }

    fn declare(&mut self, decl: BufferDecl, role: Role, length: u32) {
        // A static count of 0 would mean "sized at dispatch".
        let decl = if length > 0 && self.choices.one_in(3) { decl.with_count(length) } else { decl };
        let length = if decl.count > 0 { decl.count } else { length };
        self.buffers.push(Buffer { decl, role, length, holds: None });
    }

    fn inputs(&mut self) {
        for _ in 0..self.choices.below(4) {
            let (name, element) = (self.fresh("r"), self.element());
            let length = self.choices.pick_from(LENGTHS);
            self.declare(BufferDecl::read(name, 0, element), Role::Wild, length);
        }
        for _ in 0..self.choices.below(3) {
            let (name, element) = (self.fresh("u"), self.element());
            let length = self.choices.pick_from([1, 1, 2, 3, 5]);
            let decl = BufferDecl::uniform(name, 0, element).with_count(length);
            self.buffers.push(Buffer { decl, role: Role::Wild, length, holds: None });
        }
    }

    fn owned(&mut self, invocations: u32) {
        for _ in 0..1 + self.choices.below(3) {
            let name = self.fresh("o");
            let element = if self.choices.one_in(3) { self.atomic_element() } else { self.element() };
            let stride = 1 + self.choices.below(3) as u32;
            let map = match self.choices.below(8) {
                4 => Map::Reverse,
                5 => Map::Xor(self.choices.below(8) as u32),
                6 => Map::Offset(self.choices.below(5) as u32),
                7 => Map::Offset(u32::MAX - self.choices.below(3) as u32),
                _ => Map::Identity,
            };
            let length = match self.choices.below(4) {
                3 => self.choices.pick_from(LENGTHS),
                2 => (invocations * stride).saturating_sub(1),
                _ => invocations * stride,
            };
            self.returned(name, element, Role::Owned { stride, map }, length);
        }
    }

    fn tallies(&mut self) {
        for _ in 0..self.choices.below(3) {
            let (name, element) = (self.fresh("t"), self.atomic_element());
            let op = self.choices.pick_from(COMMUTATIVE);
            let length = self.choices.pick_from(LENGTHS);
            self.returned(name, element, Role::Tally(op), length);
        }
    }

    /// Declares a read_write or output buffer. An output sized at run time needs a buffer to take
    /// its length from.
    fn returned(&mut self, name: vyre_foundation::ir::Name, element: DataType, role: Role, length: u32) {
        let sized_by: Vec<vyre_foundation::ir::Name> = self
            .buffers
            .iter()
            .filter(|buffer| buffer.decl.access.is_input())
            .map(|buffer| buffer.decl.name.clone())
            .collect();
        match self.choices.below(5) {
            0 | 1 => self.declare(BufferDecl::read_write(name, 0, element), role, length),
            3 => {
                let decl = BufferDecl::output(name, 0, element).with_length(self.size(length));
                self.buffers.push(Buffer { decl, role, length, holds: None });
            }
            2 => {
                let decl = BufferDecl::output(name, 0, element).with_count(length.max(1));
                self.buffers.push(Buffer { decl, role, length: length.max(1), holds: None });
            }
            _ => {
                let decl = BufferDecl::output(name, 0, element);
                let longest_decides = self.buffers.iter().any(|buffer| {
                    let BufferDecl { access, count, .. } = buffer.decl;
                    count == 0 && access.is_input() && access != Access::Uniform
                });
                let decl = match self.choices.pick(&sized_by) {
                    Some(_) if longest_decides && self.choices.below(2) == 1 => decl,
                    Some(other) => decl.with_len_of(other.clone()),
                    None => decl.with_count(length.max(1)),
                };
                self.buffers.push(Buffer { decl, role, length, holds: None });
            }
        }
    }

    fn exchanges(&mut self, invocations: u32, group: u32) {
        for _ in 0..self.choices.below(3) {
            let name = self.fresh("s");
            let element = if self.choices.below(2) == 1 { self.atomic_element() } else { self.element() };
            let count = match self.choices.below(4) {
                3 => 1 + self.choices.below(9) as u32,
                _ => group,
            };
            let role = Role::Exchange { per_group: false, phase: Phase::Own };
            self.buffers.push(Buffer {
                decl: BufferDecl::workgroup(name, count, element),
                role,
                length: count,
                holds: None,
            });
        }
        if self.choices.one_in(3) {
            let (name, element) = (self.fresh("x"), self.element());
            let role = Role::Exchange { per_group: true, phase: Phase::Own };
            self.returned(name, element, role, invocations.next_multiple_of(group.max(1)));
        }
    }

    /// Numbers the bindings in declaration order, backwards, or with gaps.
    fn number_bindings(&mut self) {
        let bound = self.buffers.iter_mut().filter(|buffer| Self::is_bound(buffer.decl.access));
        let mut bound: Vec<&mut Buffer> = bound.collect();
        let (step, backwards) = match self.choices.below(4) {
            3 => (1, true),
            2 => (3, false),
            _ => (1, false),
        };
        if backwards {
            bound.reverse();
        }
        for (k, buffer) in bound.into_iter().enumerate() {
            buffer.decl.binding = k as u32 * step;
        }
    }

    fn domain(&mut self, counts: [u32; 3]) -> Domain {
        if self.choices.one_in(3) {
            return Domain::Axes(counts.map(|count| match self.choices.one_in(4) {
                true => Axis::Count(count),
                false => self.size(count).into(),
            }));
        }
        if counts[1] * counts[2] != 1 || self.choices.one_in(3) {
            return Domain::Counts(counts);
        }
        let bound = self.buffers.iter().filter(|buffer| Self::is_bound(buffer.decl.access));
        let names: Vec<_> = bound.map(|buffer| buffer.decl.name.clone()).collect();
        match self.choices.below(2) {
            1 => self.choices.pick(&names).map_or(Domain::Default, |name| Domain::LenOf(name.clone())),
            _ => Domain::Default,
        }
    }

    /// An expression that evaluates to this size at dispatch: a uniform, modified by an op, or a
    /// length.
    fn size(&mut self, size: u32) -> Expr {
        let by = 1 + self.choices.below(4) as u32;
        let inputs = self.buffers.iter().filter(|buffer| buffer.decl.access == Access::Read);
        let lengths: Vec<_> = inputs.map(|buffer| (buffer.decl.name.clone(), buffer.length)).collect();
        let form = self.choices.below(6);
        if let (5, Some((name, length))) = (form, self.choices.pick(&lengths)) {
            // Wraps when the buffer is longer.
            return Expr::buf_len(name.clone()) + Expr::u32(size.wrapping_sub(*length));
        }
        let name = self.fresh("n");
        let held = Expr::uniform(name.clone());
        let (holds, expr) = match form {
            0 => (size * by + self.choices.below(by as usize) as u32, held / Expr::u32(by)),
            1 => (size.wrapping_sub(by), held + Expr::u32(by)),
            2 => (size + by, held.sat_sub(by)),
            // Division by zero gives the dividend.
            3 => (size, held / Expr::u32(0)),
            _ => (size, held),
        };
        let decl = BufferDecl::uniform(name, 0, DataType::U32);
        self.buffers.push(Buffer { decl, role: Role::Wild, length: 1, holds: Some(holds) });
        expr
    }

    /// The linear id. A shape-free program runs exactly its domain, so constants linearise it; any
    /// other runs the whole grid.
    fn id(&self, domain: &Domain) -> Expr {
        let [x, y, z] = [0, 1, 2].map(Expr::invocation_id);
        if self.grouped {
            let across = |axis| Expr::grid_size(axis) * Expr::workgroup_size(axis);
            return x + (y + z * across(1)) * across(0);
        }
        match domain {
            Domain::Counts([_, 1, 1]) | Domain::Default | Domain::LenOf(_) => x,
            Domain::Counts([across, down, _]) => x + (y + z * Expr::u32(*down)) * Expr::u32(*across),
            Domain::Axes(axes) => {
                let along = |axis: &Axis| match axis {
                    Axis::Count(count) => Expr::u32(*count),
                    Axis::Of(formula) => formula.expr().clone(),
                };
                x + (y + z * along(&axes[1])) * along(&axes[0])
            }
        }
    }
}
