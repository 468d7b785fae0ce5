//! Writes the tree as the Rust function that it came from, with every type spelt out, so that rustc
//! verifies what was inferred.
//!
//! Where Rust and a kernel differ, the function calls `vyre::host` instead: for floats that are
//! stored, methods whose bits Rust does not define, and `usize`, which has 32 bits in a kernel.
//! Tokens keep their spans.

use crate::read::Reader;
use crate::table::{HostCall, Method};
use crate::token_span::TokenSpan;
use crate::tree::{
    AssignmentTarget, Binary, Block, Element, Elements, Message, Range, Size, Slice, SliceOf, Statement,
    StatementKind, Value, ValueKind, VariableId,
};
use crate::types::{Scalar, Type};
use proc_macro2::{Delimiter, Group, Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};

pub(crate) struct Rust<'t> {
    reader: &'t Reader,
}

/// Rust code of a block, without its braces.
pub(crate) fn block(reader: &Reader, block: &Block) -> TokenStream {
    Rust { reader }.block(block)
}

/// Rust code of a value.
pub(crate) fn value(reader: &Reader, value: &Value) -> TokenStream {
    Rust { reader }.value(value)
}

impl Rust<'_> {
    fn ty(&self, ty: Type, span: Span) -> Ident {
        Ident::new(self.scalar(ty).name(), span)
    }

    fn scalar(&self, ty: Type) -> Scalar {
        self.reader.types.settle(ty).unwrap_or(Scalar::U32)
    }

    fn block(&self, block: &Block) -> TokenStream {
        let statements = block.statements.iter().map(|statement| self.statement(statement));
        let value = block.value.as_ref().map(|value| self.value(value));
        quote!(#(#statements)* #value)
    }

    fn value(&self, value: &Value) -> TokenStream {
        let span = value.span.start;
        match &value.kind {
            ValueKind::Integer { .. } | ValueKind::Float { .. } => self.literal(value),
            ValueKind::Bool(truth) => {
                let ident = Ident::new(if *truth { "true" } else { "false" }, span);
                quote!(#ident)
            }
            ValueKind::Named(path, _) => quote!(#path),
            ValueKind::Variable(_, ident) | ValueKind::Uniform(ident) => quote!(#ident),
            ValueKind::Constant(id) => {
                let constant = &self.reader.constants[id.0];
                let path = &constant.path;
                match constant.cast {
                    Some(_) => self.cast_to(quote!(#path), constant.ty, span),
                    None => quote_spanned!(span=> #path),
                }
            }
            ValueKind::Length(Slice { ident, .. }) => quote_spanned!(span=> #ident.len()),
            ValueKind::Load(place) => self.place(place, value.span),
            ValueKind::Negate(inner) => {
                let inner = self.value(inner);
                quote_spanned!(span=> (-#inner))
            }
            ValueKind::Not(inner) => {
                let inner = self.value(inner);
                quote_spanned!(span=> (!#inner))
            }
            ValueKind::Binary(op, sides) => {
                let symbol = operator(*op, span);
                let (left, right) = (self.value(&sides[0]), self.value(&sides[1]));
                let whole = quote_spanned!(span=> (#left #symbol #right));
                self.sized(*op, sides[0].ty, whole, span)
            }
            ValueKind::Lazy(op, sides) => {
                let (left, right) = (self.value(&sides[0]), self.value(&sides[1]));
                match op {
                    Binary::And => quote_spanned!(span=> (#left && #right)),
                    _ => quote_spanned!(span=> (#left || #right)),
                }
            }
            ValueKind::Cast(inner) => self.cast(inner, value.ty, span),
            ValueKind::FromBits(path, bits) => {
                let bits = self.value(bits);
                quote_spanned!(span=> #path(#bits))
            }
            ValueKind::Method(method, ident, operands) => self.method(method, ident, operands, span),
            ValueKind::Intrinsic(_, path, operands) => {
                let operands = operands.iter().map(|operand| self.value(operand));
                called(path, quote!(#(#operands),*), value.span)
            }
            ValueKind::Atomic(_, path, place, operands) => {
                let place = self.place(place, span.into());
                let operands = operands.iter().map(|operand| self.value(operand));
                called(path, quote_spanned!(span=> &mut #place #(, #operands)*), value.span)
            }
            ValueKind::Call(_, path, arguments) => {
                let arguments = arguments.iter().map(|argument| self.argument(argument));
                called(path, quote!(#(#arguments),*), value.span)
            }
            ValueKind::If(branch) => {
                let (condition, then, otherwise) =
                    (self.value(&branch.condition), self.block(&branch.then), self.block(&branch.otherwise));
                quote_spanned!(span=> (if #condition { #then } else { #otherwise }))
            }
            ValueKind::Block(inner) => {
                let inner = self.block(inner);
                quote_spanned!(span=> ({ #inner }))
            }
        }
    }

    fn literal(&self, value: &Value) -> TokenStream {
        self.literal_with(value, self.scalar(value.ty).name())
    }

    fn literal_with(&self, value: &Value, suffix: &str) -> TokenStream {
        let (digits, negative) = match &value.kind {
            ValueKind::Integer { digits, negative } => (digits.to_string(), *negative),
            ValueKind::Float { digits, negative } => (digits.clone(), *negative),
            _ => return TokenStream::new(),
        };
        let Ok(mut literal) = format!("{digits}{suffix}").parse::<Literal>() else {
            return TokenStream::new();
        };
        literal.set_span(value.span.start);
        if negative { quote_spanned!(value.span.start=> (-#literal)) } else { quote!(#literal) }
    }

    /// An argument; an untyped literal takes the type that the function expects.
    fn argument(&self, value: &Value) -> TokenStream {
        if value.is_literal() && self.reader.types.known(value.ty).is_none() {
            return self.literal_with(value, "");
        }
        self.value(value)
    }

    fn place(&self, place: &Element, span: TokenSpan) -> TokenStream {
        let (ident, index) = (&place.slice.ident, self.value(&place.index));
        let index = grouped(Delimiter::Bracket, index, span.end);
        quote!(#ident #index)
    }

    /// Checks that sums and products of `usize` fit 32 bits, as in a kernel.
    fn sized(&self, op: Binary, ty: Type, value: TokenStream, span: Span) -> TokenStream {
        let grows = matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Shl);
        if grows && self.scalar(ty) == Scalar::Usize {
            return quote_spanned!(span=> ::vyre::host::size #value);
        }
        value
    }

    fn cast(&self, inner: &Value, ty: Type, span: Span) -> TokenStream {
        let value = self.value(inner);
        match self.scalar(inner.ty) {
            Scalar::Usize if self.scalar(ty) == Scalar::Usize => value,
            _ => self.cast_to(value, ty, span),
        }
    }

    fn cast_to(&self, value: TokenStream, ty: Type, span: Span) -> TokenStream {
        if self.scalar(ty) == Scalar::Usize {
            return quote_spanned!(span=> (#value as u32 as usize));
        }
        let name = self.ty(ty, span);
        quote_spanned!(span=> (#value as #name))
    }

    fn method(&self, method: &Method, ident: &Ident, operands: &[Value], span: Span) -> TokenStream {
        let float = operands.first().is_some_and(|first| self.scalar(first.ty).is_float());
        let mut values = operands.iter().map(|operand| self.value(operand));
        match method.host {
            HostCall::Op(op) if float => {
                let op = Ident::new(op, Span::call_site());
                quote_spanned!(span=> ::vyre::host::op(::vyre::host::Op::#op, [#(#values),*]))
            }
            HostCall::Bits => quote_spanned!(span=> ::vyre::host::bits(#(#values),*)),
            HostCall::Op(_) | HostCall::Rust => {
                let receiver = values.next();
                quote_spanned!(span=> #receiver.#ident(#(#values),*))
            }
        }
    }

    fn statement(&self, statement: &Statement) -> TokenStream {
        let span = statement.span.start;
        match &statement.kind {
            StatementKind::Let { variable, value } => {
                let declared = self.declared(*variable);
                let value = value.as_ref().map(|value| self.value(value)).map(|value| quote!(= #value));
                quote_spanned!(span=> let #declared #value;)
            }
            StatementKind::LetTuple { variables, values } => {
                let names = variables.iter().map(|id| self.name(*id));
                let types = variables.iter().map(|id| self.variable_type(*id));
                let values = values.iter().map(|value| self.value(value));
                quote_spanned!(span=> let (#(#names,)*): (#(#types,)*) = (#(#values,)*);)
            }
            StatementKind::Array { variable, elements } => self.array(*variable, elements, span),
            StatementKind::Assign(target, value) => {
                let value = self.stored(target, self.value(value), span);
                let target = self.target(target, span);
                quote_spanned!(span=> #target = #value;)
            }
            StatementKind::AssignTuple { targets, values } => {
                let pairs = targets.iter().zip(values);
                let values = pairs.map(|(target, value)| self.stored(target, self.value(value), span));
                let targets = targets.iter().map(|target| self.target(target, span));
                quote_spanned!(span=> (#(#targets,)*) = (#(#values,)*);)
            }
            StatementKind::Update(op, target, value) => self.update(*op, target, value, span),
            StatementKind::Evaluate(value) => {
                let value = self.value(value);
                quote_spanned!(span=> let _ = #value;)
            }
            StatementKind::If { condition, then, otherwise } => {
                let (condition, then) = (self.value(condition), self.block(then));
                let otherwise = otherwise.as_ref().map(|block| self.block(block));
                let otherwise = otherwise.map(|block| quote_spanned!(span=> else { #block }));
                quote_spanned!(span=> if #condition { #then } #otherwise)
            }
            StatementKind::For { counter, range, body } => {
                let (name, range, body) = (self.name(*counter), self.range(range, span), self.block(body));
                quote_spanned!(span=> for #name in #range { #body })
            }
            StatementKind::While { condition, body } => {
                let (condition, body) = (self.value(condition), self.block(body));
                quote_spanned!(span=> while #condition { #body })
            }
            StatementKind::Loop(body) => {
                let body = self.block(body);
                quote_spanned!(span=> loop { #body })
            }
            StatementKind::Block(block) => {
                let block = self.block(block);
                quote_spanned!(span=> { #block })
            }
            StatementKind::Break => quote_spanned!(span=> break;),
            StatementKind::Continue => quote_spanned!(span=> continue;),
            StatementKind::Return(value) => {
                let value = value.as_ref().map(|value| self.value(value));
                quote_spanned!(span=> return #value;)
            }
            StatementKind::Barrier(path) => quote_spanned!(span=> #path();),
            StatementKind::Print(message) => {
                let message = self.message(message);
                quote_spanned!(span=> ::std::println!(#message);)
            }
            StatementKind::Assert { condition, message } => {
                let condition = self.value(condition);
                let message =
                    message.as_ref().map(|message| self.message(message)).map(|message| quote!(, #message));
                quote_spanned!(span=> ::std::assert!(#condition #message);)
            }
        }
    }

    fn message(&self, message: &Message) -> TokenStream {
        let (format, operands) =
            (&message.format, message.operands.iter().map(|operand| self.value(operand)));
        quote!(#format #(, #operands)*)
    }

    fn name(&self, id: VariableId) -> TokenStream {
        let variable = &self.reader.variables[id.0];
        let ident = &variable.ident;
        if variable.mutable { quote!(mut #ident) } else { quote!(#ident) }
    }

    fn variable_type(&self, id: VariableId) -> TokenStream {
        let variable = &self.reader.variables[id.0];
        let ty = self.ty(variable.ty, variable.ident.span());
        match &variable.length {
            Some(Size { expr, .. }) => quote!([#ty; #expr]),
            None => quote!(#ty),
        }
    }

    fn declared(&self, id: VariableId) -> TokenStream {
        let (name, ty) = (self.name(id), self.variable_type(id));
        quote!(#name: #ty)
    }

    fn array(&self, variable: VariableId, elements: &Elements, span: Span) -> TokenStream {
        let declared = self.declared(variable);
        let values = match elements {
            Elements::Repeat(value) => {
                let value = self.value(value);
                let length = self.reader.variables[variable.0].length.as_ref().map(|size| &size.expr);
                quote_spanned!(span=> [#value; #length])
            }
            Elements::List(values) => {
                let values = values.iter().map(|value| self.value(value));
                quote_spanned!(span=> [#(#values),*])
            }
        };
        quote_spanned!(span=> let #declared = #values;)
    }

    fn target(&self, target: &AssignmentTarget, span: Span) -> TokenStream {
        match target {
            AssignmentTarget::Variable(_, ident) => quote!(#ident),
            AssignmentTarget::Element(place) => self.place(place, span.into()),
        }
    }

    /// A float that is written to memory, with NaNs as a kernel stores them.
    fn stored(&self, target: &AssignmentTarget, value: TokenStream, span: Span) -> TokenStream {
        match target {
            AssignmentTarget::Element(Element { slice: Slice { of: SliceOf::Buffer(at), .. }, .. })
                if self.reader.buffers[*at].element.is_float() =>
            {
                quote_spanned!(span=> ::vyre::host::stored(#value))
            }
            AssignmentTarget::Element(_) | AssignmentTarget::Variable(..) => value,
        }
    }

    fn update(&self, op: Binary, target: &AssignmentTarget, value: &Value, span: Span) -> TokenStream {
        let symbol = operator(op, span);
        let value = self.value(value);
        let ty = match target {
            AssignmentTarget::Variable(id, _) => self.reader.variables[id.0].ty,
            AssignmentTarget::Element(place) => match place.slice.of {
                SliceOf::Buffer(at) => Type::Known(self.reader.buffers[at].element),
                SliceOf::Array(id) => self.reader.variables[id.0].ty,
            },
        };
        let given = Ident::new("given", Span::mixed_site());
        let place = Ident::new("place", Span::mixed_site());
        let changed = self.sized(op, ty, quote_spanned!(span=> (*#place #symbol #given)), span);
        let changed = self.stored(target, changed, span);
        let target = self.target(target, span);
        // The value is evaluated before the place, as with Rust's own operators on numbers.
        quote_spanned!(span=> {
            let #given = #value;
            let #place = &mut #target;
            *#place = #changed;
        })
    }

    fn range(&self, range: &Range, span: Span) -> TokenStream {
        let (from, to) = (self.value(&range.from), self.value(&range.to));
        let whole = if range.inclusive {
            quote_spanned!(span=> #from..=#to)
        } else {
            quote_spanned!(span=> #from..#to)
        };
        match (&range.step, range.reversed) {
            (Some(step), _) => {
                let step = self.value(step);
                quote_spanned!(span=> (#whole).step_by(#step))
            }
            (None, true) => quote_spanned!(span=> (#whole).rev()),
            (None, false) => whole,
        }
    }
}

/// Groups tokens in delimiters, with the span of their end.
fn grouped(delimiter: Delimiter, tokens: TokenStream, end: Span) -> Group {
    let mut group = Group::new(delimiter, tokens);
    group.set_span(end);
    group
}

fn called(path: &syn::Path, arguments: TokenStream, span: TokenSpan) -> TokenStream {
    let arguments = grouped(Delimiter::Parenthesis, arguments, span.end);
    quote!(#path #arguments)
}

fn operator(op: Binary, span: Span) -> TokenStream {
    let tokens: TokenStream = op.symbol().parse().unwrap_or_default();
    tokens
        .into_iter()
        .map(|mut token| {
            token.set_span(span);
            token
        })
        .collect()
}
