//! Expressions as text.

use super::{Writer, ident_text, ticked};
use crate::read::expressions::integer;
use crate::read::sizes::spelling;
use crate::spanned_text::{SpannedText, spanned};
use crate::table::{Class, Intrinsic, Method};
use crate::token_span::TokenSpan;
use crate::tree::{AssignmentTarget, Binary, Block, Element, If, SliceOf, Value, ValueKind};
use crate::types::Scalar;

impl Writer<'_> {
    /// Writes an expression; statements that must run before it are written first.
    pub(super) fn value(&mut self, value: &Value) -> SpannedText {
        self.bare_value(value).at(value.span)
    }

    fn bare_value(&mut self, value: &Value) -> SpannedText {
        let span = value.span;
        match &value.kind {
            ValueKind::Integer { .. } | ValueKind::Float { .. } => {
                let ty = self.settle(value.ty, span);
                self.literal(value, ty)
            }
            ValueKind::Bool(truth) => SpannedText::new(truth.to_string()),
            ValueKind::Named(_, text) => SpannedText::new(text),
            ValueKind::Variable(id, _) => SpannedText::new(self.name(*id)),
            // A name in backticks is never a uniform, but it has elements.
            ValueKind::Uniform(ident) => SpannedText::new(format!("{}[0]", ident_text(ident))),
            ValueKind::Constant(id) => SpannedText::new(&self.reader.constants[id.0].name),
            ValueKind::Length(slice) => match slice.of {
                SliceOf::Buffer(_) => SpannedText::new(format!("len({})", self.slice_name(slice))),
                SliceOf::Array(id) => {
                    let length = self.reader.variables[id.0].length.as_ref();
                    SpannedText::new(length.map(|size| size.text.clone()).unwrap_or_default())
                }
            },
            ValueKind::Load(place) => {
                let index = self.value(&place.index);
                spanned!("{}[{}]", SpannedText::new(self.slice_name(&place.slice)), index)
            }
            ValueKind::Negate(inner) => {
                self.refuse_narrow(inner, "-");
                let inner = self.value(inner);
                spanned!("-({})", inner)
            }
            ValueKind::Not(inner) => {
                self.refuse_narrow(inner, "!");
                let ty = self.settle(inner.ty, inner.span);
                if ty == Scalar::Usize {
                    self.fault(span, "the width of `usize` differs between Rust and kernels; write `u32`");
                } else if ty.is_float() {
                    self.fault(span, "`!` is for integers and bools");
                }
                let inner = self.value(inner);
                spanned!("!({})", inner)
            }
            ValueKind::Binary(op, sides) => self.binary(*op, sides, span),
            ValueKind::Lazy(op, sides) => self.lazy(*op, sides),
            ValueKind::Cast(inner) => {
                let (from, to) = (self.settle(inner.ty, inner.span), self.settle(value.ty, span));
                let inner = self.value(inner);
                self.cast(inner, from, to, span)
            }
            ValueKind::FromBits(_, bits) => {
                let to = self.settle(value.ty, span).value();
                let bits = self.value(bits);
                spanned!("bitcast_{}({})", SpannedText::new(to), bits)
            }
            ValueKind::Method(method, _, operands) => self.method(method, operands, span),
            ValueKind::Intrinsic(intrinsic, _, operands) => self.intrinsic(intrinsic, operands),
            ValueKind::Atomic(name, _, place, operands) => self.atomic(name, place, operands),
            ValueKind::Call(id, _, arguments) => {
                let name = ticked(&spelling(&self.reader.functions[id.0].path));
                let arguments = self.arguments(arguments);
                spanned!("{}({})", SpannedText::new(name), joined(&arguments))
            }
            ValueKind::If(branch) => self.if_value(branch, value),
            ValueKind::Block(block) => self.block_value(block),
        }
    }

    pub(super) fn literal(&mut self, value: &Value, ty: Scalar) -> SpannedText {
        match &value.kind {
            ValueKind::Integer { digits, negative } => {
                let number = i128::try_from(*digits).unwrap_or(i128::MAX);
                let number = if *negative { -number } else { number };
                let (least, greatest) = ty.limits();
                if ty.is_integer() && !(least..=greatest).contains(&number) {
                    self.fault(
                        value.span,
                        format!("`{number}` is out of the range of `{}` in a kernel", ty.name()),
                    );
                    return SpannedText::new(ty.zero());
                }
                SpannedText::new(integer(ty, number))
            }
            ValueKind::Float { digits, negative } => {
                let sign = if *negative { "-" } else { "" };
                let (single, double) = (digits.parse::<f32>(), digits.parse::<f64>());
                match (ty, single, double) {
                    (Scalar::F32, Ok(single), _) if single.is_finite() => {
                        SpannedText::new(format!("{sign}{single:?}"))
                    }
                    (Scalar::F64, _, Ok(double)) if double.is_finite() => {
                        SpannedText::new(format!("{sign}{double:?}f64"))
                    }
                    _ => {
                        self.fault(value.span, format!("`{digits}` is out of the range of `{}`", ty.name()));
                        SpannedText::new(ty.zero())
                    }
                }
            }
            _ => SpannedText::default(),
        }
    }

    fn binary(&mut self, op: Binary, sides: &[Value; 2], span: TokenSpan) -> SpannedText {
        let ty = self.settle(sides[0].ty, sides[0].span);
        self.check_operator(op, ty, &sides[1], span);
        let mut spanned_list = self.operands(&sides.iter().collect::<Vec<_>>());
        if op.shifts() {
            self.count(&sides[1], &mut spanned_list[1]);
        }
        spanned!("({} {} {})", spanned_list[0], SpannedText::new(op.symbol()), spanned_list[1])
    }

    /// Converts the count of a shift to `u32`.
    pub(super) fn count(&mut self, count: &Value, spanned: &mut SpannedText) {
        let from = self.settle(count.ty, count.span);
        if from.value() != "u32" {
            *spanned = spanned!("u32({})", spanned);
        }
    }

    pub(super) fn check_operator(&mut self, op: Binary, ty: Scalar, right: &Value, span: TokenSpan) {
        let name = ty.name();
        let whole = ty.is_integer();
        if ty.is_narrow() {
            let exact = op.compares() || matches!(op, Binary::And | Binary::Or | Binary::Xor);
            let shrinks = !ty.is_signed() && matches!(op, Binary::Div | Binary::Rem | Binary::Shr);
            if !exact && !shrinks {
                self.fault(span, narrow(ty, op.symbol()));
            }
        } else if ty.is_float() && matches!(op, Binary::Rem) {
            self.fault(span, "kernels have no `%` of floats; write `x - y * (x / y).trunc()`");
        } else if (ty.is_float() && (op.shifts() || matches!(op, Binary::And | Binary::Or | Binary::Xor)))
            || (ty == Scalar::Bool
                && !matches!(op, Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne))
        {
            self.fault(span, format!("`{}` does not work on `{name}`", op.symbol()));
        }
        if whole
            && op.shifts()
            && matches!(right.kind, ValueKind::Integer { digits, .. } if digits > u128::from(u32::BITS) - 1 && ty.limits().1 < 1 << 33)
        {
            self.fault(
                right.span,
                format!("`{name}` has 32 bits in a kernel, and the count is taken modulo that"),
            );
        }
    }

    fn refuse_narrow(&mut self, value: &Value, symbol: &str) {
        let ty = self.settle(value.ty, value.span);
        if ty.is_narrow() {
            self.fault(value.span, narrow(ty, symbol));
        }
    }

    fn lazy(&mut self, op: Binary, sides: &[Value; 2]) -> SpannedText {
        let symbol = if op == Binary::And { "&&" } else { "||" };
        if !sides[1].acts() && !sides[1].needs_statements() {
            let spanned_list = self.operands(&[&sides[0], &sides[1]]);
            return spanned!("({} {} {})", spanned_list[0], SpannedText::new(symbol), spanned_list[1]);
        }
        // The right side runs only if the left one does not decide the result.
        let left = self.value(&sides[0]);
        let name = self.spill(left);
        let (statements, right) = self.deeper(|writer| writer.value(&sides[1]));
        let condition = if op == Binary::And { name.clone() } else { spanned!("!{}", name) };
        self.line(spanned!("if {} {", condition));
        self.out.append(statements);
        self.line(spanned!("  {} = {}", name, right));
        self.line(SpannedText::new("}"));
        name
    }

    fn cast(&mut self, inner: SpannedText, from: Scalar, to: Scalar, span: TokenSpan) -> SpannedText {
        if to == Scalar::Bool && from != Scalar::Bool {
            self.fault(span, "a number is not a bool; write `x != 0`");
        }
        if from == to || (from.value() == to.value() && !to.is_narrow()) {
            return inner;
        }
        let converted = |inner: SpannedText| match from.value() == to.value() {
            true => inner,
            false => spanned!("{}({})", SpannedText::new(to.value()), inner),
        };
        let (least, greatest) = to.limits();
        match (to.is_narrow(), from.is_float(), to.is_signed()) {
            (false, _, _) => converted(inner),
            // Floats saturate at the limits of the narrow type, as in Rust.
            (true, true, _) => {
                let limits = format!("{}, {}", integer(to, least), integer(to, greatest));
                spanned!("clamp({}, {})", converted(inner), SpannedText::new(limits))
            }
            (true, false, false) => {
                spanned!("({} & {})", converted(inner), SpannedText::new(greatest.to_string()))
            }
            (true, false, true) => {
                let bits = if to == Scalar::I8 { "24" } else { "16" };
                spanned!(
                    "(({} << {}) >> {})",
                    converted(inner),
                    SpannedText::new(bits),
                    SpannedText::new(bits)
                )
            }
        }
    }

    fn method(&mut self, method: &Method, operands: &[Value], span: TokenSpan) -> SpannedText {
        self.check_class(method.receiver, &operands[0], method.name);
        let spanned_list = self.operands(&operands.iter().collect::<Vec<_>>());
        let name = match method.text {
            "bitcast" if self.settle(operands[0].ty, span) == Scalar::F64 => "bitcast_u64",
            "bitcast" => "bitcast_u32",
            other => other,
        };
        spanned!("{}({})", SpannedText::new(name), joined(&spanned_list))
    }

    fn check_class(&mut self, class: Class, operand: &Value, name: &str) {
        let ty = self.settle(operand.ty, operand.span);
        let fits = match class {
            Class::Float => ty.is_float(),
            Class::Integer => ty.is_integer() && !ty.is_narrow() && ty != Scalar::Usize,
            Class::Whole => ty.is_integer() && !ty.is_narrow(),
            Class::Number => ty != Scalar::Bool && !ty.is_narrow() && ty != Scalar::Usize,
            Class::Ordered => ty != Scalar::Bool,
            Class::Any => !ty.is_narrow(),
            Class::Bool | Class::F32 | Class::U32 => true,
        };
        if fits {
            return;
        }
        let message = match (ty.is_narrow(), ty == Scalar::Usize) {
            (true, _) => narrow(ty, name),
            (_, true) => format!(
                "`{name}` shows how wide `usize` is, which differs between Rust and kernels; write `u32`"
            ),
            _ => format!("`{name}` does not work on `{}`", ty.name()),
        };
        self.fault(operand.span, message);
    }

    fn intrinsic(&mut self, intrinsic: &Intrinsic, operands: &[Value]) -> SpannedText {
        if intrinsic.place {
            return SpannedText::new(intrinsic.text);
        }
        if let (Some(class), Some(first)) = (intrinsic.first, operands.first()) {
            self.check_class(class, first, intrinsic.name);
        }
        let spanned_list = self.operands(&operands.iter().collect::<Vec<_>>());
        spanned!("{}({})", SpannedText::new(intrinsic.text), joined(&spanned_list))
    }

    fn atomic(&mut self, name: &str, place: &Element, operands: &[Value]) -> SpannedText {
        let mut values = vec![&place.index];
        values.extend(operands);
        let spanned_list = self.operands(&values);
        let slice = self.slice_name(&place.slice);
        spanned!("{}({}, {})", SpannedText::new(name), SpannedText::new(slice), joined(&spanned_list))
    }

    /// Arguments of a function; a literal can have a type that only the function knows.
    fn arguments(&mut self, arguments: &[Value]) -> Vec<SpannedText> {
        let last = arguments.iter().rposition(Value::needs_statements).unwrap_or(0);
        let mut spanned_list = Vec::new();
        for (at, argument) in arguments.iter().enumerate() {
            if argument.is_literal() && self.reader.types.known(argument.ty).is_none() {
                spanned_list.push(self.open_literal(argument));
                continue;
            }
            let spanned = self.value(argument);
            spanned_list.push(if at < last { self.spilled(spanned, argument) } else { spanned });
        }
        spanned_list
    }

    fn open_literal(&mut self, value: &Value) -> SpannedText {
        let ty = self.argument_type(value.ty);
        if let ValueKind::Float { digits, .. } = &value.kind
            && let (Ok(single), Ok(double)) = (digits.parse::<f32>(), digits.parse::<f64>())
            && single.to_bits() != (double as f32).to_bits()
        {
            self.fault(value.span, "this rounds to another f32 by way of f64; write its type: `0.1f32`");
        }
        self.literal(value, ty).at(value.span)
    }

    /// Operands in order, each evaluated before the statements that later ones need.
    pub(super) fn operands(&mut self, values: &[&Value]) -> Vec<SpannedText> {
        let last = values.iter().rposition(|value| value.needs_statements()).unwrap_or(0);
        let mut spanned_list = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let spanned = self.value(value);
            spanned_list.push(if at < last { self.spilled(spanned, value) } else { spanned });
        }
        spanned_list
    }

    fn spilled(&mut self, spanned: SpannedText, value: &Value) -> SpannedText {
        if value.is_constant() { spanned } else { self.spill(spanned) }
    }

    /// Stores a value in a temporary variable.
    pub(super) fn spill(&mut self, spanned: SpannedText) -> SpannedText {
        let name = SpannedText::new(self.temporary());
        self.line(spanned!("let {} = {}", name, spanned));
        name
    }

    fn if_value(&mut self, branch: &If, value: &Value) -> SpannedText {
        let plain = |block: &Block| {
            block.statements.is_empty()
                && block.value.as_ref().is_some_and(|value| value.is_cheap() && !value.needs_statements())
        };
        if plain(&branch.then)
            && plain(&branch.otherwise)
            && let (Some(then), Some(otherwise)) = (&branch.then.value, &branch.otherwise.value)
        {
            let spanned_list = self.operands(&[&branch.condition, then, otherwise]);
            return spanned!("select({})", joined(&spanned_list));
        }
        let condition = self.value(&branch.condition);
        let zero = self.settle(value.ty, value.span).zero();
        let name = self.spill(SpannedText::new(zero));
        let then = self.assigned(&branch.then, &name);
        let otherwise = self.assigned(&branch.otherwise, &name);
        self.line(spanned!("if {} {", condition));
        self.out.append(then);
        self.line(SpannedText::new("} else {"));
        self.out.append(otherwise);
        self.line(SpannedText::new("}"));
        name
    }

    /// Writes a block that assigns its value to a variable.
    fn assigned(&mut self, block: &Block, name: &SpannedText) -> SpannedText {
        let (written, ()) = self.deeper(|writer| {
            block.statements.iter().for_each(|one| writer.statement(one));
            if let Some(value) = &block.value {
                let value = writer.value(value);
                writer.line(spanned!("{} = {}", name, value));
            }
        });
        written
    }

    pub(super) fn deeper<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> (SpannedText, T) {
        self.depth += 1;
        let result = self.apart(write);
        self.depth -= 1;
        result
    }

    fn block_value(&mut self, block: &Block) -> SpannedText {
        // Names are unique, so the statements need no scope.
        block.statements.iter().for_each(|one| self.statement(one));
        match &block.value {
            Some(value) => self.value(value),
            None => SpannedText::new("0"),
        }
    }

    pub(super) fn target(&mut self, target: &AssignmentTarget) -> SpannedText {
        match target {
            AssignmentTarget::Variable(id, ident) => SpannedText::new(self.name(*id)).at(ident.span()),
            AssignmentTarget::Element(place) => {
                let mut index = self.value(&place.index);
                if place.index.acts() {
                    index = self.spill(index);
                }
                let name = SpannedText::new(self.slice_name(&place.slice)).at(place.slice.ident.span());
                spanned!("{}[{}]", name, index)
            }
        }
    }
}

fn narrow(ty: Scalar, what: &str) -> String {
    let (name, wide) = (ty.name(), ty.value());
    format!(
        "`{what}` on `{name}` wraps in Rust and not in a kernel, which computes in `{wide}`; write `x as {wide}`"
    )
}

fn joined(spanned_list: &[SpannedText]) -> SpannedText {
    let mut out = SpannedText::default();
    for (at, spanned) in spanned_list.iter().enumerate() {
        if at > 0 {
            out.push(", ");
        }
        out.append(spanned.clone());
    }
    out
}
