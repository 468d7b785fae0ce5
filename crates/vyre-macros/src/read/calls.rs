//! Calls: methods of numbers, functions of the crate `vyre`, and functions declared elsewhere.

use super::sizes::spelling;
use super::{Read, Reader, fault, plain, span_of};
use crate::table::{self, Class, RelativeType};
use crate::token_span::TokenSpan;
use crate::tree::{Function, FunctionId, Value, ValueKind};
use crate::types::{Kind, Scalar, Type};
use syn::{Expr, ExprCall, ExprMethodCall, Path};

/// Atomics, each with the number of values it takes besides the element.
const ATOMICS: &[(&str, usize)] = &[
    ("add", 1),
    ("min", 1),
    ("max", 1),
    ("and", 1),
    ("or", 1),
    ("xor", 1),
    ("exchange", 1),
    ("compare_exchange", 2),
    ("load", 0),
    ("store", 1),
];

impl Reader {
    pub(super) fn method_call(&mut self, call: &ExprMethodCall) -> Read<Value> {
        let (span, name) = (span_of(call), plain(&call.method));
        if name == "len" && call.args.is_empty() {
            let slice = self.slice(&call.receiver)?;
            return Ok(Value { kind: ValueKind::Length(slice), ty: Type::Known(Scalar::Usize), span });
        }
        let Some(method) = table::method(&name) else {
            return fault(call.method.span(), table::refused_method(&name));
        };
        let mut operands = vec![self.value(&call.receiver)?];
        for argument in &call.args {
            operands.push(self.value(argument)?);
        }
        if operands.len() != 1 + method.operands.len() {
            let wanted = method.operands.len();
            return fault(
                call.method.span(),
                format!("`{name}` takes {wanted} arguments, not {}", call.args.len()),
            );
        }
        let ty = self.operands(method.receiver, method.operands, &operands, &name)?;
        let ty = self.relative_type(method.result, Some(ty), call.method.span())?;
        Ok(Value { kind: ValueKind::Method(method, call.method.clone(), operands), ty, span })
    }

    /// Checks operands against a row of the table and returns the type of the first.
    fn operands(
        &mut self,
        class: Class,
        further: &[RelativeType],
        operands: &[Value],
        name: &str,
    ) -> Read<Type> {
        let Some((first, others)) = operands.split_first() else {
            return fault(proc_macro2::Span::call_site(), format!("`{name}` has no operand"));
        };
        let kind = match class {
            Class::Float => Some(Kind::Float),
            Class::Integer | Class::Whole => Some(Kind::Integer),
            Class::F32 | Class::U32 | Class::Bool | Class::Number | Class::Ordered | Class::Any => None,
        };
        let wanted = match (class, kind) {
            (Class::F32, _) => Type::Known(Scalar::F32),
            (Class::U32, _) => Type::Known(Scalar::U32),
            (Class::Bool, _) => Type::Known(Scalar::Bool),
            (_, Some(kind)) => self.types.open(kind),
            (_, None) => self.types.open(Kind::Any),
        };
        if let Err(mismatch) = self.types.same(wanted, first.ty) {
            let message = match kind {
                Some(Kind::Float) => format!("`{name}` is for floats"),
                Some(_) => format!("`{name}` is for integers"),
                None => mismatch.message(),
            };
            return fault(first.span, message);
        }
        for (ty, operand) in further.iter().zip(others) {
            let wanted = self.relative_type(*ty, Some(first.ty), operand.span)?;
            self.same(wanted, operand.ty, operand.span)?;
        }
        Ok(first.ty)
    }

    /// Type that a row of the table specifies for a result or operand.
    fn relative_type(
        &mut self,
        ty: RelativeType,
        first: Option<Type>,
        span: impl Into<TokenSpan>,
    ) -> Read<Type> {
        let scalar = match (ty, first) {
            (RelativeType::Same, Some(first)) => return Ok(first),
            (RelativeType::Same | RelativeType::Unsigned, None) => Scalar::U32,
            (RelativeType::Bool, _) => Scalar::Bool,
            (RelativeType::U32, _) => Scalar::U32,
            (RelativeType::I32, _) => Scalar::I32,
            (RelativeType::U64, _) => Scalar::U64,
            (RelativeType::F32, _) => Scalar::F32,
            (RelativeType::Usize, _) => Scalar::Usize,
            (RelativeType::Unsigned, Some(first)) => match self.types.known(first) {
                Some(Scalar::Usize) => Scalar::Usize,
                Some(Scalar::I64 | Scalar::U64 | Scalar::F64) => Scalar::U64,
                Some(_) => Scalar::U32,
                None => {
                    return fault(
                        span,
                        "the type of the number must be known here; write it: `let x: f32 = …`",
                    );
                }
            },
        };
        Ok(Type::Known(scalar))
    }

    pub(super) fn call(&mut self, call: &ExprCall) -> Read<Value> {
        let span = span_of(call);
        let Expr::Path(function) = &*call.func else {
            return fault(span_of(&call.func), "only a function can be called, by its name");
        };
        let path = &function.path;
        match intrinsic_name(path) {
            Some(name) => self.intrinsic(&name, path, call, span),
            None if is_from_bits(path) => self.bits_to_float(path, call, span),
            None => self.function_call(path, call, span),
        }
    }

    fn bits_to_float(&mut self, path: &Path, call: &ExprCall, span: TokenSpan) -> Read<Value> {
        let double = path.segments.first().is_some_and(|segment| segment.ident == "f64");
        let (ty, bits) = if double { (Scalar::F64, Scalar::U64) } else { (Scalar::F32, Scalar::U32) };
        let Some(argument) = call.args.first().filter(|_| call.args.len() == 1) else {
            return fault(span, "`from_bits` takes the bits");
        };
        let value = self.value(argument)?;
        self.is(&value, bits)?;
        Ok(Value { kind: ValueKind::FromBits(path.clone(), Box::new(value)), ty: Type::Known(ty), span })
    }

    fn intrinsic(&mut self, name: &str, path: &Path, call: &ExprCall, span: TokenSpan) -> Read<Value> {
        if let Some(atomic) = name.strip_prefix("atomic_")
            && let Some((_, values)) = ATOMICS.iter().find(|row| row.0 == atomic)
        {
            return self.atomic(name, path, call, *values);
        }
        if name == "barrier" {
            return fault(span, "a barrier must be a separate statement");
        }
        let Some(intrinsic) = table::intrinsic(name) else {
            return fault(span_of(path), format!("there is no function `vyre::{name}` for kernels"));
        };
        if call.args.len() != intrinsic.arity() {
            let (wanted, passed) = (intrinsic.arity(), call.args.len());
            return fault(span, format!("`vyre::{name}` takes {wanted} operands, not {passed}"));
        }
        let operands = call.args.iter().map(|argument| self.value(argument)).collect::<Read<Vec<_>>>()?;
        let first = match intrinsic.first {
            Some(class) => Some(self.operands(class, intrinsic.operands, &operands, name)?),
            None => None,
        };
        if self.result.is_some() && (intrinsic.place || intrinsic.exchanges) {
            return fault(
                span,
                format!("a function cannot call `vyre::{name}`; pass the value as an argument"),
            );
        }
        self.exchanges |= intrinsic.exchanges;
        self.shaped |= intrinsic.is_shaped();
        let ty = self.relative_type(intrinsic.result, first, span)?;
        Ok(Value { kind: ValueKind::Intrinsic(intrinsic, path.clone(), operands), ty, span })
    }

    fn atomic(&mut self, name: &str, path: &Path, call: &ExprCall, values: usize) -> Read<Value> {
        let span = span_of(call);
        let element = call.args.first().and_then(|argument| match argument {
            Expr::Reference(reference) if reference.mutability.is_some() => match &*reference.expr {
                Expr::Index(index) => Some(index),
                _ => None,
            },
            _ => None,
        });
        let Some(element) = element else {
            return fault(span, format!("`vyre::{name}` takes an element first: `&mut x[i]`"));
        };
        if call.args.len() != 1 + values {
            let passed = call.args.len() - 1;
            return fault(
                span,
                format!("`vyre::{name}` takes {values} values after the element, not {passed}"),
            );
        }
        let place = self.place(element)?;
        self.check_writable(&place.slice)?;
        let ty = self.element(&place.slice);
        let mut operands = Vec::new();
        for argument in call.args.iter().skip(1) {
            let operand = self.value(argument)?;
            self.same(ty, operand.ty, operand.span)?;
            operands.push(operand);
        }
        Ok(Value { kind: ValueKind::Atomic(name.into(), path.clone(), Box::new(place), operands), ty, span })
    }

    fn function_call(&mut self, path: &Path, call: &ExprCall, span: TokenSpan) -> Read<Value> {
        if let Some(ident) = path.get_ident() {
            let name = plain(ident);
            let known = table::intrinsic(&name).is_some() || name == "barrier" || name.starts_with("atomic_");
            if known {
                return fault(
                    span_of(path),
                    format!("write `vyre::{name}`, or `self::{name}` for your own function"),
                );
            }
            if *ident == self.name {
                return fault(
                    span_of(path),
                    format!("`{name}` calls itself; kernels have no recursion: write a loop"),
                );
            }
        }
        let arguments = call.args.iter().map(|argument| self.value(argument)).collect::<Read<Vec<_>>>()?;
        let id = self.function(path, arguments.len());
        let count = self.functions[id.0].parameters.len();
        if count != arguments.len() {
            let passed = arguments.len();
            let message = format!(
                "`{}` was called with {count} arguments before, and with {passed} here",
                spelling(path)
            );
            return fault(span, message);
        }
        for (at, argument) in arguments.iter().enumerate() {
            self.same(self.functions[id.0].parameters[at], argument.ty, argument.span)?;
        }
        let ty = self.functions[id.0].result;
        Ok(Value { kind: ValueKind::Call(id, path.clone(), arguments), ty, span })
    }

    /// The function at a path. Its parameter and result types are inferred from its calls; rustc
    /// checks both.
    fn function(&mut self, path: &Path, count: usize) -> FunctionId {
        let spelt = spelling(path);
        if let Some(at) = self.functions.iter().position(|function| spelling(&function.path) == spelt) {
            return FunctionId(at);
        }
        let parameters = (0..count).map(|_| self.types.outside()).collect();
        let result = self.types.outside();
        self.functions.push(Function { path: path.clone(), parameters, result });
        FunctionId(self.functions.len() - 1)
    }
}

/// The name after `vyre::`.
pub(super) fn intrinsic_name(path: &Path) -> Option<String> {
    let mut names = path.segments.iter();
    match (names.next(), names.next(), names.next()) {
        (Some(first), Some(second), None) if first.ident == "vyre" => Some(plain(&second.ident)),
        _ => None,
    }
}

fn is_from_bits(path: &Path) -> bool {
    let spelt = spelling(path);
    spelt == "f32::from_bits" || spelt == "f64::from_bits"
}
