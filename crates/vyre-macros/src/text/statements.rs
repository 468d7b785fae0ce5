//! Statements as text.

use super::{Writer, quoted};
use crate::spanned_text::{SpannedText, spanned};
use crate::token_span::TokenSpan;
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
                let spanned_list = self.operands(&values.iter().collect::<Vec<_>>());
                for (variable, spanned) in variables.iter().zip(spanned_list) {
                    let name = SpannedText::new(self.name(*variable));
                    self.line(spanned!("let {} = {}", name, spanned));
                }
            }
            StatementKind::Array { variable, elements } => self.array(*variable, elements),
            StatementKind::Assign(target, value) => self.assignment(target, value),
            StatementKind::AssignTuple { targets, values } => {
                let spanned_list = self.operands(&values.iter().collect::<Vec<_>>());
                let kept: Vec<SpannedText> =
                    spanned_list.into_iter().map(|spanned| self.spill(spanned)).collect();
                for (target, spanned) in targets.iter().zip(kept) {
                    let target = self.target(target);
                    self.line(spanned!("{} = {}", target, spanned));
                }
            }
            StatementKind::Update(op, target, value) => self.update(*op, target, value, statement.span),
            StatementKind::Evaluate(value) => {
                let value = self.value(value);
                // An unused value is a statement only if it has an effect.
                let acts = value.text.starts_with("atomic_") || value.text.starts_with("subgroup_");
                let line = if acts {
                    value
                } else {
                    spanned!("let {} = {}", SpannedText::new(self.temporary()), value)
                };
                self.line(line);
            }
            StatementKind::If { condition, then, otherwise } => {
                let condition = self.value(condition);
                self.line(spanned!("if {} {", condition));
                let then = self.nested(then);
                self.out.append(then);
                if let Some(otherwise) = otherwise {
                    self.line(SpannedText::new("} else {"));
                    let otherwise = self.nested(otherwise);
                    self.out.append(otherwise);
                }
                self.line(SpannedText::new("}"));
            }
            StatementKind::For { counter, range, body } => self.for_loop(*counter, range, body),
            StatementKind::While { condition, body } => self.while_loop(Some(condition), body),
            StatementKind::Loop(body) => self.while_loop(None, body),
            StatementKind::Block(block) => {
                self.line(SpannedText::new("{"));
                let inner = self.nested(block);
                self.out.append(inner);
                self.line(SpannedText::new("}"));
            }
            StatementKind::Break => self.line(SpannedText::new("break")),
            StatementKind::Continue => self.line(SpannedText::new("continue")),
            StatementKind::Return(None) => self.line(SpannedText::new("return")),
            StatementKind::Return(Some(value)) => {
                let value = self.value(value);
                self.line(spanned!("return {}", value));
            }
            StatementKind::Barrier(_) => self.line(SpannedText::new("barrier")),
            StatementKind::Print(message) => {
                let message = self.message(message);
                self.line(spanned!("print({})", message));
            }
            StatementKind::Assert { condition, message } => self.assertion(condition, message.as_ref()),
        }
    }

    fn declaration(&mut self, variable: VariableId, value: Option<&Value>) {
        let ty = self.variable_type(variable);
        let value = match value {
            Some(value) => self.value(value),
            // It is assigned before it is read, as rustc checks.
            None => SpannedText::new(ty.zero()),
        };
        let name = SpannedText::new(self.name(variable));
        self.line(spanned!("let {} = {}", name, value));
    }

    fn array(&mut self, variable: VariableId, elements: &Elements) {
        let (ty, name) = (self.variable_type(variable).value(), self.name(variable));
        let length = self.reader.variables[variable.0].length.as_ref();
        let length = length.map(|size| size.text.clone()).unwrap_or_default();
        match elements {
            Elements::Repeat(value) => {
                let zero = value.is_zero();
                let value = self.value(value);
                self.line(SpannedText::new(format!("array {name}: {ty}[{length}]")));
                if !zero {
                    let counter = self.temporary();
                    let value = self.spill(value);
                    let head = format!("for {counter} in 0..{length} {{ {name}[{counter}] = ");
                    self.line(spanned!("{}{} }", SpannedText::new(head), value));
                }
            }
            Elements::List(values) => {
                let spanned_list = self.operands(&values.iter().collect::<Vec<_>>());
                self.line(SpannedText::new(format!("array {name}: {ty}[{length}]")));
                for (at, spanned) in spanned_list.into_iter().enumerate() {
                    self.line(spanned!("{}{}", SpannedText::new(format!("{name}[{at}] = ")), spanned));
                }
            }
        }
    }

    fn assignment(&mut self, target: &AssignmentTarget, value: &Value) {
        // Rust evaluates the value before the index.
        let mut spanned = self.value(value);
        if let AssignmentTarget::Element(place) = target
            && (place.index.needs_statements() || place.index.acts() || value.acts())
        {
            spanned = self.spill(spanned);
        }
        let target = self.target(target);
        self.line(spanned!("{} = {}", target, spanned));
    }

    fn update(&mut self, op: Binary, target: &AssignmentTarget, value: &Value, span: TokenSpan) {
        let ty = self.target_type(target);
        self.check_operator(op, ty, value, span);
        let mut spanned = self.value(value);
        if op.shifts() {
            self.count(value, &mut spanned);
        }
        let needs = matches!(target, AssignmentTarget::Element(place) if place.index.needs_statements() || place.index.acts());
        // Rust evaluates the value before it reads the target.
        if value.acts() || needs {
            spanned = self.spill(spanned);
        }
        let target = self.target(target);
        self.line(spanned!("{} {}= {}", target, SpannedText::new(op.symbol()), spanned));
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
        let mut spanned_list = self.operands(&ends);
        let one = crate::read::expressions::integer(ty, 1);
        if range.inclusive {
            self.check_inclusive(&range.to, ty);
            spanned_list[1] = spanned!("({} + {})", spanned_list[1], SpannedText::new(&one));
        }
        let step = match spanned_list.get(2) {
            None => SpannedText::new(&one),
            Some(step) if ty.value() == "u32" => step.clone(),
            // A step above `i32::MAX` leaves the range of all but the widest loops at once.
            Some(step) if ty == Scalar::I32 => spanned!("i32(min({}, 2147483647))", step),
            Some(step) => spanned!("{}({})", SpannedText::new(ty.value()), step),
        };
        let name = SpannedText::new(self.name(counter));
        if !range.reversed {
            self.line(spanned!("for {} in {}..{} step {} {", name, spanned_list[0], spanned_list[1], step));
            let body = self.nested(body);
            self.out.append(body);
            return self.line(SpannedText::new("}"));
        }
        let (from, to) = (self.spill(spanned_list[0].clone()), self.spill(spanned_list[1].clone()));
        let round = SpannedText::new(self.temporary());
        self.line(spanned!("for {} in {}..{} step {} {", round, from, to, step));
        self.line(spanned!("  let {} = {} + ({} - {} - {})", name, from, to, step, round));
        let body = self.nested(body);
        self.out.append(body);
        self.line(SpannedText::new("}"));
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
            _ => SpannedText::new("true"),
        };
        self.line(spanned!("while {} {", head));
        if !simple && let Some(condition) = condition {
            let (before, ()) = self.deeper(|writer| {
                let condition = writer.value(condition);
                writer.line(spanned!("if !({}) { break }", condition));
            });
            self.out.append(before);
        }
        let body = self.nested(body);
        self.out.append(body);
        self.line(SpannedText::new("}"));
    }

    fn message(&mut self, message: &Message) -> SpannedText {
        let spanned_list = self.operands(&message.operands.iter().collect::<Vec<_>>());
        let mut out = SpannedText::new(quoted(&message.format.value()));
        for spanned in spanned_list {
            out = spanned!("{}, {}", out, spanned);
        }
        out
    }

    fn assertion(&mut self, condition: &Value, message: Option<&Message>) {
        let condition = self.value(condition);
        let line = match message {
            Some(message) => {
                let message = self.message(message);
                spanned!("assert({}, {})", condition, message)
            }
            None => spanned!("assert({})", condition),
        };
        self.line(line);
    }
}
