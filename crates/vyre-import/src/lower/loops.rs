//! Loops. Counted loops are recognised, since their iteration count is known.

use super::analysis::{arguments, ends, local_root, operands};
use super::pointee::Root;
use super::scalar_type::ScalarType;
use super::statement::{Item, items, negated};
use super::{Lower, RoundEnd, Scope};
use crate::fault::{Fault, Result};
use naga::{BinaryOperator, Block, Expression, Function, Handle, LocalVariable, Statement, UnaryOperator};
use std::collections::HashSet;
use vyre_foundation::ir::{Expr, Node, Value as Number};

/// A loop that starts with a test: the statements before the test, its condition, and the rest of
/// the body.
struct Tested<'m> {
    head: Vec<Item<'m>>,
    condition: Handle<Expression>,
    /// Whether the loop is left, rather than continued, when the condition holds.
    inverted: bool,
    rest: Vec<Item<'m>>,
}

/// A loop over a variable that each iteration changes by the same step while it is on one side of a
/// bound.
struct Counted {
    local: Handle<LocalVariable>,
    kind: ScalarType,
    bound: Handle<Expression>,
    /// Whether the bound itself is included.
    inclusive: bool,
    step: CounterStep,
}

enum CounterStep {
    Number(i64),
    /// An unsigned value that is added.
    Value(Handle<Expression>),
}

impl<'m> Lower<'m> {
    pub(super) fn loop_(
        &mut self,
        statement: &'m Statement,
        body: &'m Block,
        continuing: &'m Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<()> {
        let at = self.here;
        let tested = tested(body);
        if let Some(tested) = &tested
            && break_if.is_none()
            && let Some(counted) = self.counted(statement, tested, body, continuing)
        {
            self.count(counted, tested)?;
        } else {
            self.settle_for_loop()?;
            let end = RoundEnd { continuing: Some(continuing), break_if };
            self.scopes.push(Scope::Loop { end });
            let written = self.repeat(tested, body, end);
            self.scopes.pop();
            written?;
        }
        self.here = at;
        self.spend(1)?;
        self.after_loop(&[body, continuing])
    }

    /// Lowers a loop that is not counted.
    fn repeat(&mut self, tested: Option<Tested<'m>>, body: &'m Block, end: RoundEnd<'m>) -> Result<()> {
        let at = self.here;
        let mut condition = Expr::bool(true);
        let mut list = items(body);
        let mut start = None;
        if let Some(tested) = tested {
            let mut stay = None;
            let head = self.nested(|lower| {
                lower.list(&tested.head)?;
                stay = Some(lower.leaf(tested.condition)?);
                Ok(())
            })?;
            if let (true, Some(stay)) = (head.nodes.is_empty(), stay) {
                condition = if tested.inverted { negated(stay) } else { stay };
                // Values of the head that the body uses are evaluated in the body.
                start = Some((tested.head, tested.condition));
                list = tested.rest;
            }
        }
        let falls_through = !ends(body);
        let written = self.nested(|lower| {
            if let Some((head, condition)) = start {
                lower.list(&head)?;
                lower.leaf(condition)?;
            }
            lower.list(&list)?;
            if falls_through { lower.round_end(end) } else { Ok(()) }
        })?;
        self.code.repeat(condition, written, at);
        Ok(())
    }

    fn count(&mut self, counted: Counted, tested: &Tested<'m>) -> Result<()> {
        let at = self.here;
        let from = self.first_value(&counted)?;
        self.settle_for_loop()?;
        // If a loop is written out again, values from the previous copy do not apply.
        for handle in emitted(&tested.head) {
            self.innermost_mut().values.remove(&handle);
        }
        let bounds = self.bounds(&counted, from)?;
        let function = self.innermost().function;
        let label = function.local_variables[counted.local].name.clone().unwrap_or_else(|| "k".into());
        let counter = self.fresh(&label);
        let root = Root::Counter(Expr::Var(counter.clone()));
        let variable = self.innermost_mut().locals.insert(counted.local, root);
        self.scopes.push(Scope::Loop { end: RoundEnd { continuing: None, break_if: None } });
        let body = self.nested(|lower| {
            lower.list(&tested.head)?;
            lower.leaf(tested.condition)?;
            lower.list(&tested.rest)
        });
        self.scopes.pop();
        match variable {
            Some(variable) => self.innermost_mut().locals.insert(counted.local, variable),
            None => self.innermost_mut().locals.remove(&counted.local),
        };
        self.code.count(&counter, bounds, body?, at);
        Ok(())
    }

    /// Value of the variable before the loop; if it was just stored, that store is removed.
    fn first_value(&mut self, counted: &Counted) -> Result<Expr> {
        let inlined = self.innermost();
        let stores = inlined.facts.stores.get(&counted.local).copied();
        // Only the step stores it, so it starts as declared.
        if stores == Some(1) && !self.is_in_loop() {
            return match inlined.function.local_variables[counted.local].init {
                Some(init) => self.leaf(init),
                None => Ok(counted.kind.zero()),
            };
        }
        let variable = match self.local(counted.local)? {
            Root::Variables(names) if names.len() == 1 => names[0].clone(),
            _ => return Err(Fault::unsupported("this counter of a loop")),
        };
        // It is stored before the loop and by its step, and nowhere else.
        let stored_twice = stores == Some(2);
        let last = match self.code.nodes.last() {
            Some(Node::Let { name, value }) if *name == variable && stored_twice => Some(value.clone()),
            Some(Node::Assign { name, value }) if *name == variable => Some(value.clone()),
            _ => None,
        };
        Ok(match last {
            Some(value) => {
                self.code.pop();
                value
            }
            None => Expr::Var(variable),
        })
    }

    /// Whether there is an enclosing loop in the same function.
    fn is_in_loop(&self) -> bool {
        let own =
            self.scopes.iter().rev().take_while(|scope| !matches!(scope, Scope::Call | Scope::CallOnce));
        own.into_iter().any(|scope| matches!(scope, Scope::Loop { .. }))
    }

    /// Whether the last statement stores the variable.
    fn was_just_stored(&self, local: Handle<LocalVariable>) -> bool {
        let Some(Root::Variables(names)) = self.innermost().locals.get(&local) else { return false };
        match self.code.nodes.last() {
            Some(Node::Let { name, .. } | Node::Assign { name, .. }) => names.contains(name),
            _ => false,
        }
    }

    fn bounds(&mut self, counted: &Counted, from: Expr) -> Result<[Expr; 3]> {
        let kind = counted.kind;
        let bound = self.leaf(counted.bound)?;
        let (step, down) = match counted.step {
            CounterStep::Number(step) => (number(kind, step), step < 0),
            CounterStep::Value(step) => (self.leaf(step)?, false),
        };
        let to = match (counted.inclusive, bound) {
            (false, bound) => bound,
            (true, Expr::Literal(Number::U32(bound))) if bound < u32::MAX => Expr::u32(bound + 1),
            (true, Expr::Literal(Number::I32(bound))) if !down && bound < i32::MAX => Expr::i32(bound + 1),
            (true, Expr::Literal(Number::I32(bound))) if down && bound > i32::MIN => Expr::i32(bound - 1),
            (true, bound) if down => bound.sat_sub(number(kind, 1)),
            (true, bound) => bound.sat_add(number(kind, 1)),
        };
        Ok([from, to, step])
    }

    /// Recognises a counted loop.
    fn counted(
        &self,
        statement: &Statement,
        tested: &Tested<'m>,
        body: &'m Block,
        continuing: &'m Block,
    ) -> Option<Counted> {
        let function = self.innermost().function;
        let (compare, left, right) = self.comparison(tested)?;
        let (compare, local, bound) = match (loaded_local(function, left), loaded_local(function, right)) {
            (Some(local), _) if self.is_step(continuing, local).is_some() => (compare, local, right),
            (_, Some(local)) => (mirrored(compare), local, left),
            _ => return None,
        };
        let kind = match self.types.inner(function.local_variables[local].ty) {
            naga::TypeInner::Scalar(scalar) => ScalarType::of(*scalar).ok()?,
            _ => return None,
        };
        let step = self.is_step(continuing, local)?;
        let down = matches!(step, CounterStep::Number(step) if step < 0);
        let fits = match (compare, kind) {
            (BinaryOperator::Less | BinaryOperator::LessEqual, ScalarType::U32 | ScalarType::I32) => !down,
            (BinaryOperator::Greater | BinaryOperator::GreaterEqual, ScalarType::I32) => down,
            _ => false,
        } && (kind == ScalarType::U32 || matches!(step, CounterStep::Number(_)));
        let mut changes =
            Changes { function, locals: HashSet::new(), emitted: HashSet::new(), loads: 0, local };
        changes.block(body);
        let only_here = {
            let mut all =
                Changes { function, locals: HashSet::new(), emitted: HashSet::new(), loads: 0, local };
            all.statement(statement);
            Some(&all.loads) == self.innermost().facts.loads.get(&local)
        };
        let constant = |handle| self.is_constant(handle, &changes, 0);
        let step_fits = match step {
            CounterStep::Number(step) => step != 0,
            CounterStep::Value(step) => constant(step),
        };
        let inclusive = matches!(compare, BinaryOperator::LessEqual | BinaryOperator::GreaterEqual);
        let plain_root = !matches!(self.innermost().locals.get(&local), Some(Root::Counter(_)));
        // Inside an enclosing loop the variable would keep its value from the previous run.
        let starts_anew = !self.is_in_loop() || self.was_just_stored(local);
        let is_counted = fits
            && plain_root
            && starts_anew
            && only_here
            && step_fits
            && !changes.locals.contains(&local)
            && constant(bound);
        is_counted.then_some(Counted { local, kind, bound, inclusive, step })
    }

    /// The comparison under which the loop continues.
    fn comparison(
        &self,
        tested: &Tested<'m>,
    ) -> Option<(BinaryOperator, Handle<Expression>, Handle<Expression>)> {
        let function = self.innermost().function;
        let (mut condition, mut inverted) = (tested.condition, tested.inverted);
        while let Expression::Unary { op: UnaryOperator::LogicalNot, expr } = function.expressions[condition]
        {
            (condition, inverted) = (expr, !inverted);
        }
        let Expression::Binary { op, left, right } = function.expressions[condition] else { return None };
        let op = match (op, inverted) {
            (op, false) => op,
            (BinaryOperator::Less, true) => BinaryOperator::GreaterEqual,
            (BinaryOperator::LessEqual, true) => BinaryOperator::Greater,
            (BinaryOperator::Greater, true) => BinaryOperator::LessEqual,
            (BinaryOperator::GreaterEqual, true) => BinaryOperator::Less,
            _ => return None,
        };
        Some((op, left, right))
    }

    /// What the end of an iteration adds to the variable, if it does nothing else.
    fn is_step(&self, continuing: &Block, local: Handle<LocalVariable>) -> Option<CounterStep> {
        let function = self.innermost().function;
        let mut stores = continuing.iter().filter(|statement| !matches!(statement, Statement::Emit(_)));
        let (Some(Statement::Store { pointer, value }), None) = (stores.next(), stores.next()) else {
            return None;
        };
        let is_local = |handle: Handle<Expression>| loaded_local(function, handle) == Some(local);
        if !matches!(function.expressions[*pointer], Expression::LocalVariable(stored) if stored == local) {
            return None;
        }
        let Expression::Binary { op, left, right } = function.expressions[*value] else { return None };
        let (by, sign) = match op {
            BinaryOperator::Add if is_local(left) => (right, 1),
            BinaryOperator::Add if is_local(right) => (left, 1),
            BinaryOperator::Subtract if is_local(left) => (right, -1),
            _ => return None,
        };
        match self.whole_number(by) {
            Some(step) => Some(CounterStep::Number(sign * step)),
            None if sign > 0 => Some(CounterStep::Value(by)),
            None => None,
        }
    }

    fn whole_number(&self, handle: Handle<Expression>) -> Option<i64> {
        let literal = match self.innermost().function.expressions[handle] {
            Expression::Literal(literal) => self.literal(literal).ok()?,
            Expression::Constant(constant) => {
                self.constant(self.module.constants[constant].init).ok()?.into_iter().next()?
            }
            _ => return None,
        };
        match literal {
            Expr::Literal(Number::U32(value)) => Some(i64::from(value)),
            Expr::Literal(Number::I32(value)) => Some(i64::from(value)),
            _ => None,
        }
    }

    /// Whether a value is the same in every iteration and can be evaluated before the first.
    fn is_constant(&self, handle: Handle<Expression>, changes: &Changes<'_>, depth: usize) -> bool {
        let inlined = self.innermost();
        if depth > 16 {
            return false;
        }
        if inlined.values.contains_key(&handle) && !changes.emitted.contains(&handle) {
            return true;
        }
        match inlined.function.expressions[handle] {
            Expression::Literal(_) | Expression::Constant(_) | Expression::ZeroValue(_) => true,
            Expression::FunctionArgument(_)
            | Expression::LocalVariable(_)
            | Expression::GlobalVariable(_) => true,
            Expression::Load { pointer } => {
                let unchanged = match local_root(inlined.function, pointer) {
                    Some(local) => !changes.locals.contains(&local),
                    None => self.is_unwritten(pointer),
                };
                unchanged && self.is_constant(pointer, changes, depth + 1)
            }
            ref expression => {
                let parts = arguments(expression);
                !parts.is_empty() && parts.into_iter().all(|part| self.is_constant(part, changes, depth + 1))
            }
        }
    }

    fn is_unwritten(&self, pointer: Handle<Expression>) -> bool {
        let global = super::globals::global_root(self.innermost().function, pointer);
        match global.and_then(|global| self.globals.get(&global)) {
            Some(Root::Buffer(buffer)) => !buffer.written,
            _ => false,
        }
    }
}

fn emitted(list: &[Item<'_>]) -> Vec<Handle<Expression>> {
    let of = |(statement, _): &Item<'_>| match statement {
        Statement::Emit(range) => range.clone().collect(),
        _ => Vec::new(),
    };
    list.iter().flat_map(of).collect()
}

fn number(kind: ScalarType, value: i64) -> Expr {
    if kind == ScalarType::I32 { Expr::i32(value as i32) } else { Expr::u32(value as u32) }
}

fn mirrored(op: BinaryOperator) -> BinaryOperator {
    match op {
        BinaryOperator::Less => BinaryOperator::Greater,
        BinaryOperator::LessEqual => BinaryOperator::GreaterEqual,
        BinaryOperator::Greater => BinaryOperator::Less,
        BinaryOperator::GreaterEqual => BinaryOperator::LessEqual,
        other => other,
    }
}

fn loaded_local(function: &Function, handle: Handle<Expression>) -> Option<Handle<LocalVariable>> {
    let Expression::Load { pointer } = function.expressions[handle] else { return None };
    match function.expressions[pointer] {
        Expression::LocalVariable(local) => Some(local),
        _ => None,
    }
}

/// The test at the start of a loop's body.
fn tested(body: &Block) -> Option<Tested<'_>> {
    let mut head = Vec::new();
    let mut list = items(body).into_iter();
    for (statement, span) in list.by_ref() {
        match statement {
            Statement::Emit(_) => head.push((statement, span)),
            Statement::If { condition, accept, reject } => {
                let leaves = |block: &Block| matches!(&block[..], [Statement::Break]);
                let inverted =
                    match (accept.is_empty() && leaves(reject), leaves(accept) && reject.is_empty()) {
                        (true, _) => false,
                        (_, true) => true,
                        _ => return None,
                    };
                return Some(Tested { head, condition: *condition, inverted, rest: list.collect() });
            }
            _ => return None,
        }
    }
    None
}

/// What a part of a function changes.
struct Changes<'m> {
    function: &'m Function,
    /// Variables that are stored to, or whose pointer is passed to a function.
    locals: HashSet<Handle<LocalVariable>>,
    /// Expressions that are evaluated.
    emitted: HashSet<Handle<Expression>>,
    /// Number of loads of `local`.
    loads: usize,
    local: Handle<LocalVariable>,
}

impl Changes<'_> {
    fn block(&mut self, block: &Block) {
        block.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    self.emitted.insert(handle);
                    if let Expression::Load { pointer } = self.function.expressions[handle] {
                        self.loads += usize::from(local_root(self.function, pointer) == Some(self.local));
                    }
                }
            }
            Statement::Store { pointer, .. } => self.locals.extend(local_root(self.function, *pointer)),
            Statement::Call { .. } => {
                let roots = operands(self.function, statement);
                self.locals.extend(roots.into_iter().filter_map(|handle| local_root(self.function, handle)));
            }
            Statement::Block(block) => self.block(block),
            Statement::If { accept, reject, .. } => {
                self.block(accept);
                self.block(reject);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|case| self.block(&case.body)),
            Statement::Loop { body, continuing, .. } => {
                self.block(body);
                self.block(continuing);
            }
            _ => {}
        }
    }
}
