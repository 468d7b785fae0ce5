//! Statements: bodies, control flow, stores, phases between barriers, functions.

use super::expr::Wanted;
use super::shape::{COMMUTATIVE, ProgramPlan};
use super::{Array, Callable, Flow, GeneratorState, Phase, ProgramPlace, Role, Var};
use vyre_foundation::ir::{Builtin, Combine, Expr, Function, Name, Node, SubgroupOp, Value, ValueType};

/// Limit on block nesting; the cost budget limits loops further.
const DEPTH: u32 = 5;

/// A kind of statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Let,
    Assign,
    Store,
    Tally,
    If,
    For,
    While,
    Array,
    StoreArray,
    Block,
    Region,
    Break,
    Continue,
    Return,
    Barrier,
    UniformIf,
    UniformFor,
    UniformWhile,
    UniformReturn,
    SubgroupIf,
    SubgroupFor,
    Trap,
}

impl GeneratorState<'_> {
    /// The regions of the program. Each starts by naming the ids of the invocation.
    pub(super) fn regions(&mut self, plan: &ProgramPlan) -> Vec<Node> {
        let count = 1 + self.choices.below(3);
        let budget = self.statements / count as u32;
        (0..count)
            .map(|k| {
                let mut body = self.identity(plan);
                self.statements = budget;
                body.extend(self.block(ProgramPlace::TOP, 24));
                // The epilogue makes whatever the region computed visible in the outputs.
                body.extend(self.epilogue());
                self.vars.clear();
                self.arrays.clear();
                Node::region(format!("generated.part{k}"), body)
            })
            .collect()
    }

    fn identity(&mut self, plan: &ProgramPlan) -> Vec<Node> {
        let mut nodes = vec![Node::let_("id", plan.id.clone())];
        self.declare_var("id".into(), ValueType::U32, Flow::Divergent);
        if self.grouped {
            let linear = |of: Builtin| {
                let [x, y, z] = [0, 1, 2].map(|axis| Expr::Builtin(of, axis));
                let size = if of == Builtin::LocalId { Expr::workgroup_size } else { Expr::grid_size };
                x + (y + z * size(1)) * size(0)
            };
            let group = Expr::workgroup_size(0) * Expr::workgroup_size(1) * Expr::workgroup_size(2);
            nodes.push(Node::let_("slot", linear(Builtin::LocalId)));
            nodes.push(Node::let_("group", group));
            nodes.push(Node::let_("base", linear(Builtin::WorkgroupId) * Expr::var("group")));
            self.declare_var("slot".into(), ValueType::U32, Flow::Divergent);
            self.declare_var("group".into(), ValueType::U32, Flow::Uniform);
            self.declare_var("base".into(), ValueType::U32, Flow::Uniform);
        }
        nodes
    }

    /// Declares a variable that is never assigned: uniform values, and names that ownership depends
    /// on.
    fn declare_var(&mut self, name: Name, ty: ValueType, flow: Flow) {
        self.vars.push(Var { name, ty, assignable: false, uniform: flow == Flow::Uniform });
    }

    fn epilogue(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        let vars: Vec<Var> = self.vars.iter().filter(|var| &*var.name != "id").cloned().collect();
        for k in 0..self.buffers.len() {
            let Role::Owned { .. } = self.buffers[k].role else { continue };
            let ty = self.buffers[k].decl.element.value_type();
            let index = self.owned_index(k, Wanted::any(ValueType::U32), ProgramPlace::TOP);
            let value = match vars.iter().rev().nth(k).or(vars.last()) {
                Some(var) if var.ty == ty => Expr::Var(var.name.clone()),
                Some(var) => Expr::var(var.name.clone()).cast(ty),
                None => Expr::var("id").cast(ty),
            };
            nodes.push(Node::store(self.buffers[k].decl.name.clone(), index, value));
        }
        nodes
    }

    /// A block of up to `limit` statements, with its own scope.
    fn block(&mut self, place: ProgramPlace, limit: usize) -> Vec<Node> {
        let top = place.depth == 0;
        let (vars, arrays) = (self.vars.len(), self.arrays.len());
        let wanted = if top { limit } else { 1 + self.choices.below(limit.max(1)) };
        let mut nodes = Vec::new();
        for _ in 0..wanted {
            if self.statements == 0 || self.cost == 0 || self.choices.is_exhausted() {
                break;
            }
            self.statements -= 1;
            nodes.extend(self.statement(place));
        }
        if !top {
            self.vars.truncate(vars);
            self.arrays.truncate(arrays);
        }
        nodes
    }

    fn kinds(&self, place: ProgramPlace) -> Vec<Kind> {
        let mut kinds =
            vec![Kind::Let, Kind::Let, Kind::Let, Kind::Assign, Kind::Assign, Kind::Array, Kind::StoreArray];
        if !place.in_function {
            kinds.extend([Kind::Store; 5]);
            kinds.extend([Kind::Tally; 2]);
        }
        if place.depth < DEPTH {
            kinds.extend([Kind::If, Kind::If, Kind::Block]);
            if place.trips <= 16 {
                kinds.extend([Kind::For, Kind::While]);
            }
        }
        if place.innermost == Some(Flow::Divergent) {
            kinds.extend([Kind::Break, Kind::Continue]);
        }
        if place.in_function {
            return kinds;
        }
        kinds.push(Kind::Region);
        if self.trap.is_some() {
            kinds.push(Kind::Trap);
        }
        if !place.phased {
            kinds.push(Kind::Return);
        }
        if self.grouped && place.control == Flow::Uniform && !self.diverged {
            kinds.extend([Kind::Barrier; 4]);
            kinds.push(Kind::UniformReturn);
            if place.depth < DEPTH {
                kinds.extend([Kind::UniformIf, Kind::UniformFor, Kind::UniformWhile]);
            }
        }
        if self.lanes_meet(place) && self.options.subgroups && place.depth < DEPTH {
            kinds.push(Kind::SubgroupIf);
            if place.trips <= 16 {
                kinds.push(Kind::SubgroupFor);
            }
        }
        kinds
    }

    fn statement(&mut self, place: ProgramPlace) -> Vec<Node> {
        let kinds = self.kinds(place);
        let kind = self.choices.pick(&kinds).copied().unwrap_or(Kind::Let);
        match kind {
            Kind::Let => vec![self.let_(place)],
            Kind::Assign => self.assign(place),
            Kind::Store => self.store(place),
            Kind::Tally => self.tally(place),
            Kind::If => vec![self.if_(place)],
            Kind::For => vec![self.for_(place)],
            Kind::While => self.while_(place),
            Kind::Array => vec![self.array()],
            Kind::StoreArray => self.store_array(place),
            Kind::Block => vec![Node::block(self.block(place.nested(), 4))],
            Kind::Region => self.region(place),
            Kind::Break => vec![self.jump(Node::Break, place)],
            Kind::Continue => vec![self.jump(Node::Continue, place)],
            Kind::Return => {
                let node = self.jump(Node::Return, place);
                self.diverged = true;
                vec![node]
            }
            Kind::Barrier => {
                self.next_phases();
                vec![Node::Barrier]
            }
            Kind::UniformIf => self.uniform_if(place),
            Kind::UniformFor => self.uniform_for(place),
            Kind::UniformWhile => self.uniform_while(place),
            Kind::UniformReturn => vec![self.uniform_return(place)],
            Kind::SubgroupIf => vec![self.subgroup_if(place)],
            Kind::SubgroupFor => vec![self.subgroup_for(place)],
            Kind::Trap => {
                let code = self.trap.take().unwrap_or(0);
                // Rare on purpose: a dispatch that traps has no outputs to compare.
                let condition = self.expr(ValueType::U32, place).equals(Expr::u32(3));
                vec![Node::if_(condition, vec![Node::Trap(code)])]
            }
        }
    }

    fn let_(&mut self, place: ProgramPlace) -> Node {
        let ty = self.value_type();
        let uniform =
            place.control == Flow::Uniform && !self.diverged && !place.in_function && self.choices.one_in(4);
        let flow = if uniform { Flow::Uniform } else { Flow::Divergent };
        let wanted = if uniform { Wanted::uniform(ty) } else { Wanted::any(ty) };
        let value = self.wanted(wanted, place);
        let name = self.fresh("v");
        self.vars.push(Var { name: name.clone(), ty, assignable: !uniform, uniform: flow == Flow::Uniform });
        Node::let_(name, value)
    }

    fn assign(&mut self, place: ProgramPlace) -> Vec<Node> {
        let assignable: Vec<Var> = self.vars.iter().filter(|var| var.assignable).cloned().collect();
        let Some(var) = self.choices.pick(&assignable) else { return vec![self.let_(place)] };
        vec![Node::assign(var.name.clone(), self.expr(var.ty, place))]
    }

    fn store(&mut self, place: ProgramPlace) -> Vec<Node> {
        let writable = |k: &usize| match self.buffers[*k].role {
            Role::Owned { .. } => true,
            Role::Exchange { phase, .. } => matches!(phase, Phase::Own),
            Role::Wild | Role::Tally(_) => false,
        };
        let writable: Vec<usize> = (0..self.buffers.len()).filter(writable).collect();
        let Some(&buffer) = self.choices.pick(&writable) else { return Vec::new() };
        let index = match self.buffers[buffer].role {
            Role::Owned { .. } => self.owned_index(buffer, Wanted::any(ValueType::U32), place),
            Role::Exchange { .. } | Role::Wild | Role::Tally(_) => {
                GeneratorState::exchange_base(&self.buffers[buffer], Expr::var("slot"))
            }
        };
        let value = self.expr(self.buffers[buffer].decl.element.value_type(), place);
        vec![Node::store(self.buffers[buffer].decl.name.clone(), index, value)]
    }

    fn tally(&mut self, place: ProgramPlace) -> Vec<Node> {
        let op_of = |k: usize| match self.buffers[k].role {
            Role::Tally(op) | Role::Exchange { phase: Phase::Tally(op), .. } => Some((k, op)),
            Role::Wild | Role::Owned { .. } | Role::Exchange { .. } => None,
        };
        let tallies: Vec<_> = (0..self.buffers.len()).filter_map(op_of).collect();
        let Some(&(buffer, op)) = self.choices.pick(&tallies) else { return self.store(place) };
        let wanted = Wanted::any(self.buffers[buffer].decl.element.value_type());
        let mut index = self.index(wanted, place);
        if let Role::Exchange { per_group: true, .. } = self.buffers[buffer].role {
            index = GeneratorState::exchange_base(&self.buffers[buffer], index % Expr::var("group"));
        }
        let value = self.wanted(wanted, place);
        vec![Node::eval(Expr::atomic(op, self.buffers[buffer].decl.name.clone(), index, value))]
    }

    fn array(&mut self) -> Node {
        let (name, element) = (self.fresh("a"), self.value_type());
        self.arrays.push(Array { name: name.clone(), element });
        Node::array(name, element, 1 + self.choices.below(8) as u32)
    }

    fn store_array(&mut self, place: ProgramPlace) -> Vec<Node> {
        let arrays = self.arrays.clone();
        let Some(array) = self.choices.pick(&arrays) else { return vec![self.array()] };
        let index = self.index(Wanted::any(ValueType::U32), place);
        vec![Node::store(array.name.clone(), index, self.expr(array.element, place))]
    }

    fn region(&mut self, place: ProgramPlace) -> Vec<Node> {
        let name = format!("generated.inner{}", self.choices.below(3));
        vec![Node::region(name, self.block(place.nested(), 4))]
    }

    fn if_(&mut self, place: ProgramPlace) -> Node {
        let condition = self.expr(ValueType::Bool, place);
        let then = self.block(place.divergent(), 5);
        let otherwise =
            if self.choices.below(2) == 1 { self.block(place.divergent(), 4) } else { Vec::new() };
        Node::if_else(condition, then, otherwise)
    }

    /// A number that is uniform across a subgroup.
    fn subgroup_number(&mut self, place: ProgramPlace) -> Expr {
        if self.choices.below(2) == 0 {
            return Expr::subgroup(SubgroupOp::Id, vec![]);
        }
        let combine = self.choices.pick_from([Combine::Add, Combine::Xor, Combine::Max]);
        Expr::subgroup(SubgroupOp::Reduce(combine), [self.expr(ValueType::U32, place)])
    }

    fn subgroup_if(&mut self, place: ProgramPlace) -> Node {
        let condition = (self.subgroup_number(place) & Expr::u32(1)).equals(Expr::u32(0));
        let inside = ProgramPlace { control: Flow::Subgroup, phased: true, ..place.nested() };
        let then = self.block(inside, 4);
        let otherwise = if self.choices.below(2) == 1 { self.block(inside, 3) } else { Vec::new() };
        Node::if_else(condition, then, otherwise)
    }

    fn subgroup_for(&mut self, place: ProgramPlace) -> Node {
        let to = self.subgroup_number(place) % Expr::u32(4);
        let counter = self.fresh("i");
        let vars = self.vars.len();
        self.declare_var(counter.clone(), ValueType::U32, Flow::Divergent);
        let body = self.block(place.looped(Flow::Subgroup, 3), 4);
        self.vars.truncate(vars);
        Node::for_step(counter, [Expr::u32(0), to, Expr::u32(1)], body)
    }

    fn jump(&mut self, jump: Node, place: ProgramPlace) -> Node {
        let condition = self.expr(ValueType::Bool, place);
        let mut then = Vec::new();
        if !place.in_function && self.choices.one_in(3) {
            then.extend(self.store(place.divergent()));
        }
        then.push(jump);
        Node::if_(condition, then)
    }

    fn for_(&mut self, place: ProgramPlace) -> Node {
        let (ty, bounds) = self.bounds(place);
        let counter = self.fresh("i");
        let vars = self.vars.len();
        self.declare_var(counter.clone(), ty, Flow::Divergent);
        let body = self.block(place.looped(Flow::Divergent, 4), 4);
        self.vars.truncate(vars);
        Node::for_step(counter, bounds, body)
    }

    /// Bounds of a counted loop with at most 8 iterations, whatever the operands evaluate to.
    fn bounds(&mut self, place: ProgramPlace) -> (ValueType, [Expr; 3]) {
        let integers: Vec<ValueType> =
            ValueType::ALL.into_iter().filter(|&ty| ty.is_integer() && self.options.has_value(ty)).collect();
        let ty = self.choices.pick(&integers).copied().unwrap_or(ValueType::U32);
        let literal = |bits: i64| Expr::Literal(Value::from_bits(ty, bits as u64));
        let bounds = match self.choices.below(3) {
            0 => {
                let to = self.expr(ty, place) % literal(6);
                [literal(0), to, literal(1)]
            }
            1 => {
                // Any step is fine: `from` and `to` are less than 8 apart.
                let from = self.expr(ty, place) & literal(7);
                let to = self.expr(ty, place) & literal(7);
                [from, to, self.expr(ty, place)]
            }
            _ => {
                // At the limits of the type, where a counter that wraps would loop forever.
                let step = 1 + self.choices.below(3) as i64;
                let rounds = self.choices.below(6) as i64;
                let last = if ty.is_signed_integer() { i64::MAX >> (64 - ty.bits()) } else { -1 };
                [literal(last - step * rounds), literal(last), literal(step)]
            }
        };
        (ty, bounds)
    }

    fn while_(&mut self, place: ProgramPlace) -> Vec<Node> {
        let rounds = 1 + self.choices.below(6) as u32;
        let counter = self.fresh("w");
        let mut nodes = vec![Node::let_(counter.clone(), 0u32)];
        self.declare_var(counter.clone(), ValueType::U32, Flow::Divergent);
        let inside = place.looped(Flow::Divergent, rounds);
        let more = Expr::var(counter.clone()).lt(Expr::u32(rounds));
        let condition =
            if self.choices.below(2) == 1 { more & self.expr(ValueType::Bool, inside) } else { more };
        // Increment the counter first, so that a `continue` cannot skip it.
        let mut body = vec![Node::assign(counter.clone(), Expr::var(counter) + Expr::u32(1))];
        body.extend(self.block(inside, 4));
        nodes.push(Node::while_(condition, body));
        nodes
    }

    /// Picks new phases for all exchange memory after a barrier.
    fn next_phases(&mut self) {
        for k in 0..self.buffers.len() {
            let Role::Exchange { per_group, .. } = self.buffers[k].role else { continue };
            let atomic = self.options.has_atomic(self.buffers[k].decl.element);
            let phase = match self.choices.below(5) {
                0 | 1 => Phase::Read,
                2 if atomic => Phase::Tally(self.choices.pick_from(COMMUTATIVE)),
                _ => Phase::Own,
            };
            self.buffers[k].role = Role::Exchange { per_group, phase };
        }
    }

    /// A block that starts new phases and ends with a barrier. Callers put another barrier before
    /// the uniform construct that contains it.
    fn phased(&mut self, place: ProgramPlace) -> Vec<Node> {
        self.next_phases();
        let mut body = self.block(place, 5);
        body.push(Node::Barrier);
        body
    }

    fn uniform_if(&mut self, place: ProgramPlace) -> Vec<Node> {
        let condition = self.wanted(Wanted::uniform(ValueType::Bool), place);
        let inside = ProgramPlace { phased: true, ..place.nested() };
        let then = self.phased(inside);
        let otherwise = if self.choices.below(2) == 1 { self.phased(inside) } else { Vec::new() };
        self.next_phases();
        vec![Node::Barrier, Node::if_else(condition, then, otherwise)]
    }

    fn uniform_for(&mut self, place: ProgramPlace) -> Vec<Node> {
        let rounds = Expr::u32(1 + self.choices.below(4) as u32);
        let to = self.wanted(Wanted::uniform(ValueType::U32), place) % rounds + Expr::u32(1);
        let counter = self.fresh("i");
        let vars = self.vars.len();
        self.declare_var(counter.clone(), ValueType::U32, Flow::Uniform);
        let body = self.uniform_body(place.looped(Flow::Uniform, 4));
        self.vars.truncate(vars);
        self.next_phases();
        vec![Node::Barrier, Node::for_range(counter, Expr::u32(0), to, body)]
    }

    fn uniform_while(&mut self, place: ProgramPlace) -> Vec<Node> {
        let rounds = 1 + self.choices.below(4) as u32;
        let counter = self.fresh("w");
        let declaration = Node::let_(counter.clone(), 0u32);
        self.declare_var(counter.clone(), ValueType::U32, Flow::Uniform);
        let inside = place.looped(Flow::Uniform, rounds);
        let mut body = vec![Node::assign(counter.clone(), Expr::var(counter.clone()) + Expr::u32(1))];
        body.extend(self.uniform_body(inside));
        self.next_phases();
        vec![declaration, Node::Barrier, Node::while_(Expr::var(counter).lt(Expr::u32(rounds)), body)]
    }

    /// One or two phased blocks, with an optional uniform jump between them.
    fn uniform_body(&mut self, place: ProgramPlace) -> Vec<Node> {
        let mut body = self.phased(place);
        let jump = match self.choices.below(4) {
            1 => Node::Break,
            2 => Node::Continue,
            3 => Node::Return,
            _ => return body,
        };
        let condition = self.wanted(Wanted::uniform(ValueType::Bool), place);
        body.push(Node::if_(condition, vec![jump]));
        body.extend(self.phased(place));
        body
    }

    fn uniform_return(&mut self, place: ProgramPlace) -> Node {
        let ty = self.value_type();
        // An equality that rarely holds, so that most programs continue.
        let [left, right] = [Wanted::uniform(ty); 2].map(|wanted| self.wanted(wanted, place));
        Node::if_(left.equals(right), vec![Node::Return])
    }

    /// Functions of scalars; each can call those before it.
    pub(super) fn functions(&mut self) {
        let (statements, cost) = (self.statements, self.cost);
        for _ in 0..self.choices.below(4) {
            let name = self.fresh("f");
            let params: Vec<(Name, ValueType)> =
                (0..self.choices.below(4)).map(|_| (self.fresh("p"), self.value_type())).collect();
            for (name, ty) in &params {
                self.declare_var(name.clone(), *ty, Flow::Divergent);
            }
            self.statements = 5;
            self.cost = cost / 8;
            let place = ProgramPlace { in_function: true, control: Flow::Divergent, ..ProgramPlace::TOP };
            let body = self.block(place, 4);
            let result = self.value_type();
            let value = self.expr(result, place);
            let used = cost / 8 - self.cost;
            self.vars.clear();
            self.arrays.clear();
            let function = Function { name, params, result, body: body.into(), value };
            self.functions.push(Callable { function, cost: used });
        }
        (self.statements, self.cost) = (statements, cost);
    }
}
