//! `#[vyre::function]`: a function that kernels call, in this or other modules and crates.
//!
//! The function is kept, and a type of the same name describes it to kernels; one `use` imports
//! both.

use crate::check;
use crate::host;
use crate::read::{Read, Reader, fault, plain, span_of, untold};
use crate::signature;
use crate::source::{self, CheckedSource};
use crate::text::Writer;
use crate::tree::{Block, VariableId};
use crate::types::{Scalar, Type};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, ReturnType};

pub(crate) fn expand(item: &ItemFn) -> TokenStream {
    let ItemFn { attrs, vis, sig, .. } = item;
    let mut reader = Reader::new(sig.ident.clone(), None);
    let (function, source, functions) = match read(&mut reader, item) {
        Ok((body, source)) => {
            let body = host::block(&reader, &body);
            let kept = quote! {
                #(#attrs)*
                #[allow(unused_parens, unused_braces, clippy::all)]
                #vis #sig { #body }
            };
            (kept, source, source::functions(&reader))
        }
        Err(faults) => {
            let errors = faults.iter().map(Error::to_compile_error);
            // The body is not checked again; the signature is kept for its callers.
            let kept = quote!(#(#errors)* #(#attrs)* #[allow(unused)] #vis #sig { ::std::unreachable!() });
            (kept, CheckedSource::default(), quote!(&[]))
        }
    };
    let (name, title, source) = (&sig.ident, plain(&sig.ident), source.tokens());
    let about = format!("What [`{title}()`] is in a kernel.");
    quote! {
        #function
        #[doc = #about]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #name {}
        impl ::vyre::typed::KernelFunction for #name {
            const FUNCTION: &'static ::vyre::typed::EmbeddedFunction = &::vyre::typed::EmbeddedFunction {
                name: ::std::concat!(::std::module_path!(), "::", #title),
                source: #source,
                functions: #functions,
            };
        }
    }
}

fn read(reader: &mut Reader, item: &ItemFn) -> Result<(Block, CheckedSource), Vec<Error>> {
    let (parameters, result) = parameters(reader, item).map_err(|fault| vec![fault])?;
    let ty = Type::Known(result);
    reader.result = Some(ty);
    let body = reader.block_with_value(&item.block, ty);
    let mut faults = untold(std::mem::take(&mut reader.faults));
    match body {
        Ok(body) if faults.is_empty() => {
            let source = checked(reader, item, &parameters, result, &body)?;
            Ok((body, source))
        }
        Ok(_) => Err(faults),
        Err(fault) => {
            faults.push(fault);
            Err(untold(faults))
        }
    }
}

fn parameters(reader: &mut Reader, item: &ItemFn) -> Read<(Vec<VariableId>, Scalar)> {
    if !item.sig.generics.params.is_empty() {
        return fault(span_of(&item.sig.generics), "functions in kernels have no type parameters");
    }
    let mut found = Vec::new();
    for input in &item.sig.inputs {
        let (ident, mutable, typed) = signature::typed(input)?;
        if let syn::Type::Reference(reference) = &*typed.ty {
            return fault(
                span_of(reference),
                "a function takes numbers; read the element where it is called",
            );
        }
        let ty = reader.scalar(&typed.ty)?;
        found.push(reader.add_parameter(&ident, ty, mutable));
    }
    match &item.sig.output {
        ReturnType::Type(_, ty) => Ok((found, reader.scalar(ty)?)),
        ReturnType::Default => fault(span_of(&item.sig.ident), "a function in a kernel returns a number"),
    }
}

fn checked(
    reader: &Reader,
    item: &ItemFn,
    parameters: &[VariableId],
    result: Scalar,
    body: &Block,
) -> Result<CheckedSource, Vec<Error>> {
    let mut writer = Writer::new(reader);
    let name = plain(&item.sig.ident);
    let written = writer.function(&name, parameters, result, body);
    let stand_ins = writer.stand_ins();
    let constants = source::constants(&mut writer, reader);
    if !writer.faults.is_empty() {
        return Err(writer.faults);
    }
    let program = check::program(&written, &stand_ins, item.sig.ident.span().into())?;
    let own = program.functions().iter().filter(|function| *function.name == *name).cloned().collect();
    Ok(CheckedSource::new(written.text, program.with_functions(own), constants, reader))
}
