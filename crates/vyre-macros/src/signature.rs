//! Parameters of a kernel or function, and arguments of the attribute.

use crate::read::{Read, Reader, fault, plain, span_of};
use crate::token_span::TokenSpan;
use crate::tree::{Access, Buffer, Domain, Length, Parameter, Size};
use crate::types::Scalar;
use std::collections::HashMap;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, Expr, FnArg, GenericParam, Generics, Ident, Pat, PatType, Token, TypeParamBound,
};

/// `over = …, workgroup = …, check(N = 8)`.
#[derive(Default)]
pub(crate) struct KernelOptions {
    over: Option<Expr>,
    workgroup: Option<Expr>,
    samples: Vec<(Ident, Expr)>,
}

impl Parse for KernelOptions {
    fn parse(input: ParseStream<'_>) -> syn::Result<KernelOptions> {
        let mut options = KernelOptions::default();
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            match name.to_string().as_str() {
                "over" => options.over = Some(named(input)?),
                "workgroup" => options.workgroup = Some(named(input)?),
                "check" => options.samples.extend(samples(input)?),
                other => {
                    let message = format!("a kernel has `over`, `workgroup` and `check`, not `{other}`");
                    return Err(Error::new(name.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

fn named(input: ParseStream<'_>) -> syn::Result<Expr> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn samples(input: ParseStream<'_>) -> syn::Result<Vec<(Ident, Expr)>> {
    let list;
    syn::parenthesized!(list in input);
    let mut found = Vec::new();
    while !list.is_empty() {
        let name: Ident = list.parse()?;
        found.push((name, named(&list)?));
        if !list.is_empty() {
            list.parse::<Token![,]>()?;
        }
    }
    Ok(found)
}

impl KernelOptions {
    /// Passes the sample values of constants to the reader.
    pub(crate) fn add_samples(&self, reader: &mut Reader) {
        for (name, value) in &self.samples {
            reader.samples.insert(plain(name), quote::quote!(#value).to_string().replace(' ', ""));
        }
    }

    /// Domain of the kernel.
    pub(crate) fn domain(&self, reader: &mut Reader, parameters: &[Parameter]) -> Read<Domain> {
        let is_buffer = |name: &Ident| {
            parameters
                .iter()
                .any(|parameter| matches!(parameter, Parameter::Buffer(buffer) if buffer.ident == *name))
        };
        match &self.over {
            None => Ok(Domain::Default),
            Some(Expr::Path(path)) if path.path.get_ident().is_some_and(is_buffer) => {
                match path.path.get_ident() {
                    Some(ident) => Ok(Domain::LenOf(ident.clone())),
                    None => Ok(Domain::Default),
                }
            }
            Some(Expr::Array(axes)) if (1..=3).contains(&axes.elems.len()) => {
                let axes = axes.elems.iter().map(|axis| reader.size_value(axis)).collect::<Read<Vec<_>>>()?;
                Ok(Domain::Axes(axes))
            }
            Some(Expr::Array(axes)) => fault(span_of(axes), "a domain has one to three axes"),
            Some(one) => Ok(Domain::Axes(vec![reader.size_value(one)?])),
        }
    }

    /// Invocations per workgroup.
    pub(crate) fn workgroup(&self, reader: &mut Reader) -> Read<Vec<Size>> {
        match &self.workgroup {
            None => {
                let usual: Expr = syn::parse_quote!(64);
                Ok(vec![reader.size(&usual)?])
            }
            Some(Expr::Array(axes)) if (1..=3).contains(&axes.elems.len()) => {
                axes.elems.iter().map(|axis| reader.size(axis)).collect()
            }
            Some(Expr::Array(axes)) => fault(span_of(axes), "a workgroup has one to three axes"),
            Some(one) => Ok(vec![reader.size(one)?]),
        }
    }
}

/// Attribute of a parameter.
enum Mark {
    Output(Option<(Ident, Expr)>),
    Uniform,
    Workgroup,
}

/// The mark of a parameter; other attributes are ignored.
fn mark(attributes: &[Attribute]) -> Read<Option<Mark>> {
    let mut found = None;
    for attribute in attributes {
        let path = attribute.path();
        let mark = if path.is_ident("output") {
            Mark::Output(match &attribute.meta {
                syn::Meta::Path(_) => None,
                _ => Some(attribute.parse_args_with(|input: ParseStream<'_>| {
                    let name: Ident = input.parse()?;
                    Ok((name, named(input)?))
                })?),
            })
        } else if path.is_ident("workgroup") {
            Mark::Workgroup
        } else if path.is_ident("uniform") {
            Mark::Uniform
        } else {
            return fault(span_of(attribute), "a parameter has `#[output]`, `#[uniform]` or `#[workgroup]`");
        };
        if found.replace(mark).is_some() {
            return fault(
                span_of(attribute),
                "a parameter has one of `#[output]`, `#[uniform]` and `#[workgroup]`",
            );
        }
    }
    Ok(found)
}

/// Reads the parameters of a kernel and declares each in the reader.
pub(crate) fn parameters<'f>(reader: &mut Reader, inputs: impl Iterator<Item = &'f FnArg>) -> Vec<Parameter> {
    let mut found: Vec<Parameter> = Vec::new();
    for input in inputs {
        let read = typed(input).and_then(|(ident, _, typed)| parameter(reader, &ident, typed, &found));
        match read {
            Ok(parameter) => {
                match &parameter {
                    Parameter::Scalar(ident, ty) => reader.add_uniform(ident, *ty),
                    Parameter::Buffer(buffer) => reader.add_buffer(buffer),
                }
                found.push(parameter);
            }
            Err(fault) => {
                reader.faults.push(fault);
                if let Ok((ident, ..)) = typed(input) {
                    reader.add_faulty(&ident);
                }
            }
        }
    }
    found
}

/// Name of a parameter, whether it is `mut`, and its type.
pub(crate) fn typed(input: &FnArg) -> Read<(Ident, bool, &PatType)> {
    match input {
        FnArg::Receiver(this) => fault(span_of(this), "kernels and functions have no `self`"),
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
                Ok((name.ident.clone(), name.mutability.is_some(), typed))
            }
            other => fault(span_of(other), "a parameter has a name"),
        },
    }
}

fn parameter(reader: &mut Reader, ident: &Ident, typed: &PatType, before: &[Parameter]) -> Read<Parameter> {
    let mark = mark(&typed.attrs)?;
    let syn::Type::Reference(reference) = &*typed.ty else {
        if let Some(Mark::Output(_) | Mark::Workgroup) = mark {
            return fault(ident.span(), "memory is a slice or array: `&mut [f32]`");
        }
        return Ok(Parameter::Scalar(ident.clone(), reader.scalar(&typed.ty)?));
    };
    let (element, count) = match &*reference.elem {
        syn::Type::Slice(slice) => (&*slice.elem, None),
        syn::Type::Array(array) => (&*array.elem, Some(reader.size(&array.len)?)),
        other => return fault(span_of(other), "a kernel takes numbers, and slices or arrays of them"),
    };
    let element_type = reader.scalar(element)?;
    if element_type == Scalar::Usize {
        return fault(span_of(element), "`usize` has no fixed width in memory; write `u32` or `u64`");
    }
    let writable = reference.mutability.is_some();
    let access = access(reader, mark, writable, ident.span().into(), before)?;
    let fixed = matches!(access, Access::Workgroup | Access::Uniform);
    if fixed && count.is_none() {
        return fault(span_of(&reference.elem), "this memory has a fixed size: `[f32; 64]`");
    }
    if element_type == Scalar::Bool && writable && !matches!(access, Access::Workgroup) {
        return fault(span_of(element), "a kernel cannot write a Rust `bool`; write 0 or 1 to a `u8`");
    }
    Ok(Parameter::Buffer(Buffer { ident: ident.clone(), element: element_type, access, count }))
}

fn access(
    reader: &mut Reader,
    mark: Option<Mark>,
    writable: bool,
    span: TokenSpan,
    before: &[Parameter],
) -> Read<Access> {
    match (mark, writable) {
        (None, false) => Ok(Access::Read),
        (None, true) => Ok(Access::ReadWrite),
        (Some(Mark::Uniform), false) => Ok(Access::Uniform),
        (Some(Mark::Uniform), true) => fault(span, "a uniform is only read: `&[f32; 4]`"),
        (Some(Mark::Workgroup), true) => Ok(Access::Workgroup),
        (Some(Mark::Workgroup), false) => fault(span, "workgroup memory is written: `&mut [f32; 64]`"),
        (Some(Mark::Output(_)), false) => fault(span, "an output is written: `&mut [f32]`"),
        (Some(Mark::Output(None)), true) => Ok(Access::Output(Length::AsGiven)),
        (Some(Mark::Output(Some((name, value)))), true) => match (name.to_string().as_str(), &value) {
            ("len_of", Expr::Path(path)) if path.path.get_ident().is_some() => {
                let other = path.path.get_ident().cloned().unwrap_or(name);
                let known = before
                    .iter()
                    .any(|parameter| matches!(parameter, Parameter::Buffer(buffer) if buffer.ident == other));
                if !known {
                    return fault(other.span(), format!("`{other}` is not a slice declared before this one"));
                }
                Ok(Access::Output(Length::Of(other)))
            }
            ("len", _) => Ok(Access::Output(Length::Worked(reader.size_value(&value)?))),
            _ => fault(name.span(), "an output says `len_of = x` or `len = width * height`"),
        },
    }
}

/// Type parameters of a function with their sets of types, and its const parameters.
pub(crate) struct GenericParameters {
    pub(crate) types: Vec<(Ident, Vec<Scalar>)>,
    pub(crate) constants: Vec<(Ident, syn::Type)>,
}

impl GenericParameters {
    pub(crate) fn read(generics: &Generics) -> Read<GenericParameters> {
        let mut found = GenericParameters { types: Vec::new(), constants: Vec::new() };
        if let Some(clause) = &generics.where_clause {
            return fault(span_of(clause), "write the bound at the parameter: `T: vyre::Float`");
        }
        for parameter in &generics.params {
            match parameter {
                GenericParam::Lifetime(lifetime) => {
                    return fault(span_of(lifetime), "slices of a kernel need no lifetimes");
                }
                GenericParam::Type(ty) => found.types.push((ty.ident.clone(), set(ty)?)),
                GenericParam::Const(constant) => {
                    found.constants.push((constant.ident.clone(), constant.ty.clone()))
                }
            }
        }
        Ok(found)
    }

    /// Every choice of types.
    pub(crate) fn instances(&self) -> Vec<HashMap<String, Scalar>> {
        let mut all = vec![HashMap::new()];
        for (name, set) in &self.types {
            let chosen = |before: &HashMap<String, Scalar>, ty: &Scalar| {
                let mut choice = before.clone();
                choice.insert(plain(name), *ty);
                choice
            };
            all = all.iter().flat_map(|before| set.iter().map(move |ty| chosen(before, ty))).collect();
        }
        all
    }
}

/// The closed set of types that a bound specifies.
fn set(parameter: &syn::TypeParam) -> Read<Vec<Scalar>> {
    let mut bounds = parameter.bounds.iter();
    if let (Some(TypeParamBound::Trait(bound)), None) = (bounds.next(), bounds.next()) {
        let last = bound.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let floats = [Scalar::F32, Scalar::F64];
        let integers = [Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64];
        match last.as_str() {
            "Float" => return Ok(floats.into()),
            "Integer" => return Ok(integers.into()),
            "Number" => return Ok([floats.as_slice(), &integers].concat()),
            _ => {}
        }
    }
    fault(
        span_of(parameter),
        "a type parameter has one of the bounds `vyre::Float`, `vyre::Integer` and `vyre::Number`",
    )
}
