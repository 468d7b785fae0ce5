//! Embedded form of a kernel: wire bytes, or text if rustc knows constants that the macro does not.

use crate::read::Reader;
use crate::read::sizes::spelling;
use crate::text::Writer;
use crate::tree::Constant;
use crate::types::Scalar;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::quote;
use vyre_foundation::ir::Program;
use vyre_foundation::wire;

/// A checked kernel or function, ready to be embedded.
#[derive(Default)]
pub(crate) struct CheckedSource {
    tokens: TokenStream,
}

impl CheckedSource {
    pub(crate) fn new(
        text: String,
        program: Program,
        constants: Vec<Scalar>,
        reader: &Reader,
    ) -> CheckedSource {
        if reader.constants.is_empty() {
            return CheckedSource::wire(&program);
        }
        let rows = reader.constants.iter().zip(constants).filter(|(constant, _)| !constant.generic);
        let rows = rows.map(|(row, scalar)| constant(row, scalar));
        CheckedSource { tokens: quote!(::vyre::typed::EmbeddedSource::Text(#text, &[#(#rows),*])) }
    }

    pub(crate) fn wire(program: &Program) -> CheckedSource {
        let bytes = Literal::byte_string(&wire::encode(program));
        CheckedSource { tokens: quote!(::vyre::typed::EmbeddedSource::Wire(#bytes)) }
    }

    pub(crate) fn tokens(&self) -> TokenStream {
        if self.tokens.is_empty() {
            quote!(::vyre::typed::EmbeddedSource::Wire(&[]))
        } else {
            self.tokens.clone()
        }
    }
}

/// Final types of all constants.
pub(crate) fn constants(writer: &mut Writer<'_>, reader: &Reader) -> Vec<Scalar> {
    reader.constants.iter().map(|constant| writer.constant_type(constant)).collect()
}

/// Name of a constant in the text, and its value, which rustc fills in.
pub(crate) fn constant(constant: &Constant, scalar: Scalar) -> TokenStream {
    let (name, path) = (&constant.name, &constant.path);
    let variant = match scalar {
        Scalar::Bool => "Bool",
        Scalar::U8 => "U8",
        Scalar::I8 => "I8",
        Scalar::U16 => "U16",
        Scalar::I16 => "I16",
        Scalar::U32 => "U32",
        Scalar::I32 => "I32",
        Scalar::U64 => "U64",
        Scalar::I64 => "I64",
        Scalar::Usize => "Usize",
        Scalar::F32 => "F32",
        Scalar::F64 => "F64",
    };
    let variant = Ident::new(variant, Span::call_site());
    let cast = constant.cast.map(|scalar| Ident::new(scalar.name(), Span::call_site()));
    let cast = cast.map(|scalar| quote!(as #scalar));
    quote!((#name, ::vyre::typed::Constant::#variant(#path #cast)))
}

/// Functions that are called, each with its name in the text.
pub(crate) fn functions(reader: &Reader) -> TokenStream {
    let rows = reader.functions.iter().map(|function| {
        let (name, path) = (spelling(&function.path), &function.path);
        quote!((#name, <#path as ::vyre::typed::KernelFunction>::FUNCTION))
    });
    quote!(&[#(#rows),*])
}
