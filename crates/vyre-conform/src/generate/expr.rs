//! Expressions of a given type.

use super::{Buffer, Flow, GeneratorState, Map, Options, Phase, ProgramPlace, Role, values};
use vyre_foundation::ir::{Access, AtomicOp, Builtin, DataType, Expr, Name, Op, SubgroupOp, ValueType};

/// Approximate nesting limit of a generated expression.
const DEPTH: u32 = 4;

/// For each result type, every table op with every list of operand types that gives it.
#[derive(Debug)]
pub(super) struct Forms {
    ops: Vec<(ValueType, Vec<OpForm>)>,
    subgroup: Vec<(ValueType, Vec<SubgroupForm>)>,
}

#[derive(Clone, Debug)]
struct OpForm {
    op: Op,
    operands: Vec<ValueType>,
}

#[derive(Clone, Debug)]
struct SubgroupForm {
    op: SubgroupOp,
    operands: Vec<ValueType>,
}

impl Forms {
    pub(super) fn new(options: &Options) -> Forms {
        let types: Vec<ValueType> = ValueType::ALL.into_iter().filter(|&ty| options.has_value(ty)).collect();
        let mut forms = Forms { ops: Vec::new(), subgroup: Vec::new() };
        for &result in &types {
            let gives = |ty: Option<ValueType>| ty == Some(result);
            let mut ops = Vec::new();
            for &op in Op::ALL.iter().filter(|op| !options.without.contains(op)) {
                let signature = op.row().signature;
                let fitting =
                    tuples(&types, signature.arity()).filter(|operands| gives(signature.result(operands)));
                ops.extend(fitting.map(|operands| OpForm { op, operands }));
            }
            let mut subgroup = Vec::new();
            for op in
                SubgroupOp::all().filter(|&op| options.subgroups && (options.shuffles || !needs_shuffle(op)))
            {
                let fitting = tuples(&types, op.row().arity).filter(|operands| gives(op.result(operands)));
                subgroup.extend(fitting.map(|operands| SubgroupForm { op, operands }));
            }
            forms.ops.push((result, ops));
            forms.subgroup.push((result, subgroup));
        }
        forms
    }

    fn ops(&self, result: ValueType) -> &[OpForm] {
        self.ops.iter().find(|(ty, _)| *ty == result).map_or(&[], |(_, forms)| forms)
    }

    fn subgroup(&self, result: ValueType) -> &[SubgroupForm] {
        self.subgroup.iter().find(|(ty, _)| *ty == result).map_or(&[], |(_, forms)| forms)
    }
}

fn needs_shuffle(op: SubgroupOp) -> bool {
    matches!(op, SubgroupOp::Shuffle | SubgroupOp::Broadcast)
}

/// Every list of `length` types.
fn tuples(types: &[ValueType], length: usize) -> impl Iterator<Item = Vec<ValueType>> {
    let total = types.len().pow(length as u32);
    let types = types.to_vec();
    (0..total).map(move |mut code| {
        let digit = |_| {
            let ty = types[code % types.len()];
            code /= types.len();
            ty
        };
        (0..length).map(digit).collect()
    })
}

/// Constraints on an expression.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) ty: ValueType,
    /// `Uniform`: only leaves that are uniform across the workgroup.
    pub(super) flow: Flow,
    depth: u32,
}

impl Wanted {
    pub(super) fn any(ty: ValueType) -> Wanted {
        Wanted { ty, flow: Flow::Divergent, depth: DEPTH }
    }

    pub(super) fn uniform(ty: ValueType) -> Wanted {
        Wanted { ty, flow: Flow::Uniform, depth: 2 }
    }

    fn operand(self, ty: ValueType) -> Wanted {
        Wanted { ty, depth: self.depth.saturating_sub(1), ..self }
    }
}

/// The source of a leaf's value.
enum Leaf {
    Var(Name),
    Literal,
    Builtin(Builtin, u8),
    Len(Name),
    Load(usize),
    Element(Name),
    Atomic(usize),
}

impl GeneratorState<'_> {
    /// An expression without constraints on uniformity.
    pub(super) fn expr(&mut self, ty: ValueType, place: ProgramPlace) -> Expr {
        self.wanted(Wanted::any(ty), place)
    }

    pub(super) fn wanted(&mut self, wanted: Wanted, place: ProgramPlace) -> Expr {
        self.cost = self.cost.saturating_sub(place.trips);
        if wanted.depth == 0 || self.cost == 0 || self.choices.is_exhausted() || self.choices.below(5) == 0 {
            return self.leaf(wanted, place);
        }
        if self.lanes_meet(place) && place.control == Flow::Uniform && self.choices.one_in(24) {
            return Expr::workgroup_broadcast(
                self.wanted(Wanted { flow: Flow::Divergent, ..wanted.operand(wanted.ty) }, place),
            );
        }
        if self.lanes_meet(place)
            && wanted.flow == Flow::Divergent
            && self.choices.one_in(10)
            && let Some(expr) = self.subgroup(wanted, place)
        {
            return expr;
        }
        if self.choices.one_in(12)
            && let Some(expr) = self.call(wanted, place)
        {
            return expr;
        }
        let forms = self.forms;
        let Some(form) = self.choices.pick(forms.ops(wanted.ty)) else { return self.leaf(wanted, place) };
        let mut operands: Vec<Expr> = Vec::with_capacity(form.operands.len());
        for (k, &ty) in form.operands.iter().enumerate() {
            // Equal operands are a separate edge case: `x - x`, `min(x, x)`, `x / x`.
            let same = k > 0 && form.operands[k - 1] == ty && self.choices.one_in(10);
            let operand = if same { operands[k - 1].clone() } else { self.wanted(wanted.operand(ty), place) };
            operands.push(operand);
        }
        Expr::op(form.op, operands)
    }

    /// Whether all lanes of a subgroup reach this place together.
    pub(super) fn lanes_meet(&self, place: ProgramPlace) -> bool {
        self.grouped && !self.diverged && !place.in_function && place.control != Flow::Divergent
    }

    fn subgroup(&mut self, wanted: Wanted, place: ProgramPlace) -> Option<Expr> {
        let forms = self.forms;
        let form = self.choices.pick(forms.subgroup(wanted.ty))?;
        let mut operands = Vec::with_capacity(form.operands.len());
        for (k, &ty) in form.operands.iter().enumerate() {
            let lane = k == 1;
            let operand = match form.op {
                SubgroupOp::Broadcast if lane => self.wanted(Wanted::uniform(ty), place),
                SubgroupOp::Size
                | SubgroupOp::Lane
                | SubgroupOp::Id
                | SubgroupOp::Count
                | SubgroupOp::Ballot
                | SubgroupOp::Broadcast
                | SubgroupOp::Shuffle
                | SubgroupOp::Reduce(_)
                | SubgroupOp::Inclusive(_)
                | SubgroupOp::Exclusive(_) => self.wanted(wanted.operand(ty), place),
            };
            // Most random lane numbers would be out of range.
            operands.push(if lane && self.choices.below(4) != 0 { operand % Expr::u32(8) } else { operand });
        }
        Some(Expr::subgroup(form.op, operands))
    }

    fn call(&mut self, wanted: Wanted, place: ProgramPlace) -> Option<Expr> {
        let fits = |k: &usize| {
            let callable = &self.functions[*k];
            callable.function.result == wanted.ty && callable.cost.saturating_mul(place.trips) < self.cost
        };
        let fitting: Vec<usize> = (0..self.functions.len()).filter(fits).collect();
        let chosen = *self.choices.pick(&fitting)?;
        let callable = self.functions[chosen].clone();
        self.cost = self.cost.saturating_sub(callable.cost.saturating_mul(place.trips));
        let args: Vec<Expr> =
            callable.function.params.iter().map(|(_, ty)| self.wanted(wanted.operand(*ty), place)).collect();
        Some(Expr::call(callable.function.name, args))
    }

    fn leaf(&mut self, wanted: Wanted, place: ProgramPlace) -> Expr {
        let vars = self
            .vars
            .iter()
            .filter(|var| var.ty == wanted.ty && (var.uniform || wanted.flow == Flow::Divergent));
        let vars: Vec<Leaf> = vars.map(|var| Leaf::Var(var.name.clone())).collect();
        let leaf = if !vars.is_empty() && self.choices.below(2) == 0 {
            let at = self.choices.below(vars.len());
            vars.into_iter().nth(at)
        } else {
            let others = self.other_leaves(wanted, place);
            let at = self.choices.below(others.len());
            others.into_iter().nth(at)
        };
        match leaf {
            Some(Leaf::Var(name)) => Expr::Var(name),
            Some(Leaf::Builtin(builtin, axis)) => Expr::Builtin(builtin, axis),
            Some(Leaf::Len(name)) => Expr::BufLen(name),
            Some(Leaf::Load(buffer)) => self.load(buffer, wanted, place),
            Some(Leaf::Element(name)) => {
                let index = self.index(wanted, place);
                Expr::load(name, index)
            }
            Some(Leaf::Atomic(buffer)) => self.owned_atomic(buffer, wanted, place),
            Some(Leaf::Literal) | None => Expr::Literal(values::value(&mut self.choices, wanted.ty)),
        }
    }

    fn other_leaves(&self, wanted: Wanted, place: ProgramPlace) -> Vec<Leaf> {
        let mut leaves = vec![Leaf::Literal];
        let divergent = wanted.flow == Flow::Divergent;
        if divergent {
            let fitting = self.arrays.iter().filter(|array| array.element == wanted.ty);
            leaves.extend(fitting.map(|array| Leaf::Element(array.name.clone())));
        }
        if place.in_function {
            return leaves;
        }
        if wanted.ty == ValueType::U32 {
            self.u32_leaves(divergent, &mut leaves);
        }
        // An index nests another expression, so loads stop one level earlier.
        if wanted.depth > 0 {
            for (k, buffer) in self.buffers.iter().enumerate() {
                if buffer.decl.element.value_type() == wanted.ty && readable(buffer, divergent) {
                    leaves.push(Leaf::Load(k));
                }
                let owned = matches!(buffer.role, Role::Owned { .. });
                if owned
                    && divergent
                    && is_atomic(buffer.decl.element, self.options)
                    && buffer.decl.element.value_type() == wanted.ty
                {
                    leaves.push(Leaf::Atomic(k));
                }
            }
        }
        leaves
    }

    fn u32_leaves(&self, divergent: bool, leaves: &mut Vec<Leaf>) {
        for axis in 0..3 {
            if divergent {
                leaves.push(Leaf::Builtin(Builtin::InvocationId, axis));
            }
            if self.grouped {
                leaves.push(Leaf::Builtin(Builtin::WorkgroupId, axis));
                leaves.push(Leaf::Builtin(Builtin::GridSize, axis));
                leaves.push(Leaf::Builtin(Builtin::WorkgroupSize, axis));
                if divergent {
                    leaves.push(Leaf::Builtin(Builtin::LocalId, axis));
                }
            }
        }
        leaves.extend(self.buffers.iter().map(|buffer| Leaf::Len(buffer.decl.name.clone())));
    }

    /// An index: mostly small, sometimes arbitrary.
    pub(super) fn index(&mut self, wanted: Wanted, place: ProgramPlace) -> Expr {
        let raw = self.wanted(wanted.operand(ValueType::U32), place);
        match self.choices.below(4) {
            0 => raw,
            1 => raw % Expr::u32(1 + self.choices.below(16) as u32),
            2 => raw & Expr::u32(self.choices.pick_from([7, 3, 15, 63])),
            _ => Expr::u32(self.choices.below(20) as u32),
        }
    }

    fn load(&mut self, buffer: usize, wanted: Wanted, place: ProgramPlace) -> Expr {
        let name = self.buffers[buffer].decl.name.clone();
        let index = match self.buffers[buffer].role {
            Role::Wild
                if self.buffers[buffer].decl.access == Access::Uniform && self.choices.below(2) == 0 =>
            {
                Expr::u32(0)
            }
            Role::Wild | Role::Tally(_) => self.index(wanted, place),
            Role::Owned { .. } => self.owned_index(buffer, wanted, place),
            Role::Exchange { per_group, phase } => match phase {
                Phase::Own => GeneratorState::exchange_base(&self.buffers[buffer], Expr::var("slot")),
                Phase::Read | Phase::Tally(_) if per_group => {
                    let slot = self.index(wanted, place) % Expr::var("group");
                    GeneratorState::exchange_base(&self.buffers[buffer], slot)
                }
                Phase::Read | Phase::Tally(_) => self.index(wanted, place),
            },
        };
        Expr::load(name, index)
    }

    /// An index in an owned buffer that only this invocation uses.
    pub(super) fn owned_index(&mut self, buffer: usize, wanted: Wanted, place: ProgramPlace) -> Expr {
        let Role::Owned { stride, map } = self.buffers[buffer].role.clone() else {
            unreachable!("only owned buffers have owned indices")
        };
        let id = Expr::var("id");
        let linear = match stride {
            1 => id,
            _ if self.choices.below(3) == 0 => {
                let inner = self.wanted(wanted.operand(ValueType::U32), place);
                id * Expr::u32(stride) + inner % Expr::u32(stride)
            }
            _ => id * Expr::u32(stride) + Expr::u32(self.choices.below(stride as usize) as u32),
        };
        match map {
            Map::Identity => linear,
            Map::Reverse => Expr::buf_len(self.buffers[buffer].decl.name.clone()) - Expr::u32(1) - linear,
            Map::Xor(bits) => linear ^ Expr::u32(bits),
            Map::Offset(by) => linear + Expr::u32(by),
        }
    }

    /// An atomic whose result is used, which is safe because only this invocation accesses the
    /// element.
    fn owned_atomic(&mut self, buffer: usize, wanted: Wanted, place: ProgramPlace) -> Expr {
        let mut args = vec![self.owned_index(buffer, wanted, place)];
        let op = *self.choices.pick(&AtomicOp::ALL).unwrap_or(&AtomicOp::Add);
        let ty = self.buffers[buffer].decl.element.value_type();
        for _ in 0..op.operands() {
            args.push(self.wanted(wanted.operand(ty), place));
        }
        Expr::Atomic(op, self.buffers[buffer].decl.name.clone(), args.into())
    }
}

fn readable(buffer: &Buffer, divergent: bool) -> bool {
    match buffer.role {
        Role::Wild => true,
        Role::Owned { .. } => divergent,
        Role::Tally(_) => false,
        Role::Exchange { phase, .. } => divergent && !matches!(phase, Phase::Tally(_)),
    }
}

fn is_atomic(element: DataType, options: &Options) -> bool {
    options.has_atomic(element)
}
