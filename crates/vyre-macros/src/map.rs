//! `vyre::map!(|x: f32| x * x + 1.0)`: a kernel over every element of a slice.

use crate::kernel;
use crate::read::{Read, Reader, fault, span_of};
use crate::signature::KernelOptions;
use crate::text::Writer;
use crate::types::Scalar;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::{Expr, ExprClosure, ItemFn, Pat, ReturnType, parse_quote};

pub(crate) fn expand(closure: &ExprClosure) -> TokenStream {
    match map(closure) {
        Ok(tokens) => tokens,
        Err(fault) => fault.to_compile_error(),
    }
}

fn map(closure: &ExprClosure) -> Read<TokenStream> {
    let mut inputs = closure.inputs.iter();
    let (Some(Pat::Type(input)), None) = (inputs.next(), inputs.next()) else {
        return fault(span_of(closure), "a map takes one number, with its type: `|x: f32| …`");
    };
    let (pattern, from, body) = (&input.pat, &input.ty, &closure.body);
    let to = match &closure.output {
        ReturnType::Type(_, ty) => quote!(#ty),
        ReturnType::Default => {
            let ty = Ident::new(result(closure)?.name(), Span::call_site());
            quote!(#ty)
        }
    };
    let item: ItemFn = parse_quote! {
        fn map(from: &[#from], #[output(len_of = from)] to: &mut [#to]) {
            let __at = vyre::index();
            let #pattern: #from = from[__at];
            to[__at] = #body;
        }
    };
    let items = kernel::expand(&KernelOptions::default(), &item);
    Ok(quote!({ #items ::vyre::Map::<#from, #to>::new(map::__kernel()) }))
}

/// Type of the closure's result.
fn result(closure: &ExprClosure) -> Read<Scalar> {
    let name = Ident::new("map", Span::call_site());
    let mut reader = Reader::new(name, None);
    let Some(Pat::Type(input)) = closure.inputs.first() else {
        return fault(span_of(closure), "a map names the type of its number: `|x: f32| …`");
    };
    let (Pat::Ident(ident), ty) = (&*input.pat, reader.scalar(&input.ty)?) else {
        return fault(span_of(&input.pat), "a map names its number: `|x: f32| …`");
    };
    reader.add_parameter(&ident.ident, ty, ident.mutability.is_some());
    let body: &Expr = &closure.body;
    let value = reader.value(body)?;
    let mut writer = Writer::new(&reader);
    Ok(writer.settle(value.ty, value.span))
}
