//! Statements as text.

use super::{Writer, quoted};
use crate::extent::Extent;
use crate::piece::{Piece, piece};
use crate::tree::{
    AssignmentTarget, Binary, Block, Elements, Message, Range, Statement, StatementKind, Value, ValueKind,
    VariableId,
};
use crate::types::Scalar;

impl Writer<'_> {
    pub(super) fn statement(&mut self, statement: &Statement) {
        let start = self.out.text.len();
        self.bare_statement(statement);
        self.out.mark_from(start, statement.span);
    }

    fn bare_statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Let { variable, value } => self.declaration(*variable, value.as_ref()),
            StatementKind::LetTuple { variables, values } => {
                let pieces = self.operands(&values.iter().collect::<Vec<_>>());
                for (variable, piece) in variables.iter().zip(pieces) {
                    let name = Piece::new(self.name(*variable));
                    self.line(piece!("let {} = {}", name, piece));
                }
            }
            StatementKind::Array { variable, elements } => self.array(*variable, elements),
            StatementKind::Assign(target, value) => self.assignment(target, value),
            StatementKind::AssignTuple { targets, values } => {
                let pieces = self.operands(&values.iter().collect::<Vec<_>>());
                let kept: Vec<Piece> = pieces.into_iter().map(|piece| self.spill(piece)).collect();
                for (target, piece) in targets.iter().zip(kept) {
                    let target = self.target(target);
                    self.line(piece!("{} = {}", target, piece));
                }
            }
            StatementKind::Update(op, target, value) => self.update(*op, target, value, statement.span),
            StatementKind::Evaluate(value) => {
                let value = self.value(value);
                // An unused value is a statement only if it has an effect.
                let acts = value.text.starts_with("atomic_") || value.text.starts_with("subgroup_");
                let line =
                    if acts { value } else { piece!("let {} = {}", Piece::new(self.temporary()), value) };
                self.line(line);
            }
            StatementKind::If { condition, then, otherwise } => {
                let condition = self.value(condition);
                self.line(piece!("if {} {", condition));
                let then = self.nested(then);
                self.out.append(then);
                if let Some(otherwise) = otherwise {
                    self.line(Piece::new("} else {"));
                    let otherwise = self.nested(otherwise);
                    self.out.append(otherwise);
                }
                self.line(Piece::new("}"));
            }
            StatementKind::For { counter, range, body } => self.for_loop(*counter, range, body),
            StatementKind::While { condition, body } => self.while_loop(Some(condition), body),
            StatementKind::Loop(body) => self.while_loop(None, body),
            StatementKind::Block(block) => {
                self.line(Piece::new("{"));
                let inner = self.nested(block);
                self.out.append(inner);
                self.line(Piece::new("}"));
            }
            StatementKind::Break => self.line(Piece::new("break")),
            StatementKind::Continue => self.line(Piece::new("continue")),
            StatementKind::Return(None) => self.line(Piece::new("return")),
            StatementKind::Return(Some(value)) => {
                let value = self.value(value);
                self.line(piece!("return {}", value));
            }
            StatementKind::Barrier(_) => self.line(Piece::new("barrier")),
            StatementKind::Print(message) => {
                let message = self.message(message);
                self.line(piece!("print({})", message));
            }
            StatementKind::Assert { condition, message } => self.assertion(condition, message.as_ref()),
        }
    }

    fn declaration(&mut self, variable: VariableId, value: Option<&Value>) {
        let ty = self.variable_type(variable);
        let value = match value {
            Some(value) => self.value(value),
            // It is assigned before it is read, as rustc checks.
            None => Piece::new(ty.zero()),
        };
        let name = Piece::new(self.name(variable));
        self.line(piece!("let {} = {}", name, value));
    }

    fn array(&mut self, variable: VariableId, elements: &Elements) {
        let (ty, name) = (self.variable_type(variable).value(), self.name(variable));
        let length = self.reader.variables[variable.0].length.as_ref();
        let length = length.map(|size| size.text.clone()).unwrap_or_default();
        match elements {
            Elements::Repeat(value) => {
                let zero = value.is_zero();
                let value = self.value(value);
                self.line(Piece::new(format!("array {name}: {ty}[{length}]")));
                if !zero {
                    let counter = self.temporary();
                    let value = self.spill(value);
                    let head = format!("for {counter} in 0..{length} {{ {name}[{counter}] = ");
                    self.line(piece!("{}{} }", Piece::new(head), value));
                }
            }
            Elements::List(values) => {
                let pieces = self.operands(&values.iter().collect::<Vec<_>>());
                self.line(Piece::new(format!("array {name}: {ty}[{length}]")));
                for (at, piece) in pieces.into_iter().enumerate() {
                    self.line(piece!("{}{}", Piece::new(format!("{name}[{at}] = ")), piece));
                }
            }
        }
    }

    fn assignment(&mut self, target: &AssignmentTarget, value: &Value) {
        // Rust evaluates the value before the index.
        let mut piece = self.value(value);
        if let AssignmentTarget::Element(place) = target
            && (place.index.needs_statements() || place.index.acts() || value.acts())
        {
            piece = self.spill(piece);
        }
        let target = self.target(target);
        self.line(piece!("{} = {}", target, piece));
    }

    fn update(&mut self, op: Binary, target: &AssignmentTarget, value: &Value, span: Extent) {
        let ty = self.target_type(target);
        self.check_operator(op, ty, value, span);
        let mut piece = self.value(value);
        if op.shifts() {
            self.count(value, &mut piece);
        }
        let needs = matches!(target, AssignmentTarget::Element(place) if place.index.needs_statements() || place.index.acts());
        // Rust evaluates the value before it reads the target.
        if value.acts() || needs {
            piece = self.spill(piece);
        }
        let target = self.target(target);
        self.line(piece!("{} {}= {}", target, Piece::new(op.symbol()), piece));
    }

    fn target_type(&mut self, target: &AssignmentTarget) -> Scalar {
        match target {
            AssignmentTarget::Variable(id, _) => self.variable_type(*id),
            AssignmentTarget::Element(place) => match place.slice.of {
                crate::tree::SliceOf::Buffer(at) => self.reader.buffers[at].element,
                crate::tree::SliceOf::Array(id) => self.variable_type(id),
            },
        }
    }

    fn for_loop(&mut self, counter: VariableId, range: &Range, body: &Block) {
        let ty = self.variable_type(counter);
        if ty.is_narrow() {
            self.fault(range.from.span, format!("a loop counts in `{}`, not in `{}`", ty.value(), ty.name()));
        }
        let mut ends = vec![&range.from, &range.to];
        ends.extend(&range.step);
        let mut pieces = self.operands(&ends);
        let one = crate::read::expressions::integer(ty, 1);
        if range.inclusive {
            self.check_inclusive(&range.to, ty);
            pieces[1] = piece!("({} + {})", pieces[1], Piece::new(&one));
        }
        let step = match pieces.get(2) {
            None => Piece::new(&one),
            Some(step) if ty.value() == "u32" => step.clone(),
            // A step above `i32::MAX` leaves the range of all but the widest loops at once.
            Some(step) if ty == Scalar::I32 => piece!("i32(min({}, 2147483647))", step),
            Some(step) => piece!("{}({})", Piece::new(ty.value()), step),
        };
        let name = Piece::new(self.name(counter));
        if !range.reversed {
            self.line(piece!("for {} in {}..{} step {} {", name, pieces[0], pieces[1], step));
            let body = self.nested(body);
            self.out.append(body);
            return self.line(Piece::new("}"));
        }
        let (from, to) = (self.spill(pieces[0].clone()), self.spill(pieces[1].clone()));
        let round = Piece::new(self.temporary());
        self.line(piece!("for {} in {}..{} step {} {", round, from, to, step));
        self.line(piece!("  let {} = {} + ({} - {} - {})", name, from, to, step, round));
        let body = self.nested(body);
        self.out.append(body);
        self.line(Piece::new("}"));
    }

    /// Requires the end of `a..=b` to have a successor.
    fn check_inclusive(&mut self, to: &Value, ty: Scalar) {
        let literal = matches!(to.kind, ValueKind::Integer { digits, negative }
            if negative || i128::try_from(digits).is_ok_and(|digits| digits < ty.limits().1));
        if !literal {
            self.fault(
                to.span,
                "`..=` takes only a literal here, because the bound plus 1 must not overflow; write `a..b + 1`",
            );
        }
    }

    fn while_loop(&mut self, condition: Option<&Value>, body: &Block) {
        let simple = condition.is_none_or(|condition| !condition.needs_statements());
        let head = match condition {
            Some(condition) if simple => self.value(condition),
            _ => Piece::new("true"),
        };
        self.line(piece!("while {} {", head));
        if !simple && let Some(condition) = condition {
            let (before, ()) = self.deeper(|writer| {
                let condition = writer.value(condition);
                writer.line(piece!("if !({}) { break }", condition));
            });
            self.out.append(before);
        }
        let body = self.nested(body);
        self.out.append(body);
        self.line(Piece::new("}"));
    }

    fn message(&mut self, message: &Message) -> Piece {
        let pieces = self.operands(&message.operands.iter().collect::<Vec<_>>());
        let mut out = Piece::new(quoted(&message.format.value()));
        for piece in pieces {
            out = piece!("{}, {}", out, piece);
        }
        out
    }

    fn assertion(&mut self, condition: &Value, message: Option<&Message>) {
        let condition = self.value(condition);
        let line = match message {
            Some(message) => {
                let message = self.message(message);
                piece!("assert({}, {})", condition, message)
            }
            None => piece!("assert({})", condition),
        };
        self.line(line);
    }
}
