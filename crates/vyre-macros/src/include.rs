//! `vyre::include_kernel!`: the same items from a `.vyre` file, checked when the crate is built.

use crate::source::CheckedSource;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use std::path::PathBuf;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, LitStr, Token, Visibility};
use vyre_foundation::ir::{Access, BufferDecl, DataType, Program};
use vyre_foundation::text::{self, Constants};

/// `[pub] "file.vyre" [as name] [, CONSTANT = value]…`
pub(crate) struct Include {
    vis: Visibility,
    path: LitStr,
    name: Option<Ident>,
    constants: Vec<(Ident, Expr)>,
}

impl Parse for Include {
    fn parse(input: ParseStream<'_>) -> syn::Result<Include> {
        let (vis, path) = (input.parse()?, input.parse()?);
        let name = if input.peek(Token![as]) {
            input.parse::<Token![as]>()?;
            Some(input.parse()?)
        } else {
            None
        };
        let mut constants = Vec::new();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let constant: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            constants.push((constant, input.parse()?));
        }
        Ok(Include { vis, path, name, constants })
    }
}

pub(crate) fn expand(include: &Include) -> TokenStream {
    let file = file(&include.path);
    // Including the path makes the compiler re-read the file when it changes, whether it was valid
    // or not.
    let shown = file.display().to_string();
    let watched = file.is_file().then(|| {
        quote!(
            const _: &[u8] = ::std::include_bytes!(#shown);
        )
    });
    let items = match program(include, &file).and_then(|program| items(include, &program)) {
        Ok(items) => items,
        Err(fault) => fault.to_compile_error(),
    };
    quote!(#watched #items)
}

/// The file, relative to the folder of the file that includes it.
fn file(path: &LitStr) -> PathBuf {
    let here = path.span().unwrap().local_file();
    let folder = here.and_then(|here| here.parent().map(PathBuf::from)).unwrap_or_default();
    let file = folder.join(path.value());
    std::fs::canonicalize(&file).unwrap_or(file)
}

fn program(include: &Include, file: &std::path::Path) -> Result<Program, Error> {
    let error_at_path = |message: String| Error::new(include.path.span(), message);
    let source = std::fs::read_to_string(file)
        .map_err(|error| error_at_path(format!("{}: {error}", file.display())))?;
    let mut constants = Constants::new();
    for (name, value) in &include.constants {
        constants = constants.set(name.to_string(), quote!(#value).to_string().replace(' ', ""));
    }
    let program = text::parse_with(&source, &constants).map(Program::in_regions);
    let checked = program.and_then(|program| program.validate().map(|_| program));
    checked.map_err(|faults| error_at_path(faults.render(&include.path.value())))
}

fn items(include: &Include, program: &Program) -> Result<TokenStream, Error> {
    let name = match &include.name {
        Some(name) => name.clone(),
        None => named(program, include.path.span())?,
    };
    let mut bound: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access != Access::Workgroup).collect();
    bound.sort_by_key(|decl| decl.binding);
    let (parameters, arguments): (Vec<_>, Vec<_>) = bound.iter().enumerate().map(parameter).unzip();
    let (vis, count) = (&include.vis, bound.len());
    let about = format!("A call of the kernel in `{}`.", include.path.value());
    let belongs = format!("What belongs to the kernel [`{name}()`].");
    let source = CheckedSource::wire(program).tokens();
    Ok(quote! {
        #[doc = #about]
        #[must_use = "a call does nothing until it is run"]
        #[allow(clippy::too_many_arguments)]
        #vis fn #name<'vyre>(#(#parameters),*) -> ::vyre::KernelCall<'vyre, #count> {
            ::vyre::KernelCall::new(#name::__kernel(), &[], [#(#arguments),*])
        }
        #[doc = #belongs]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #name {}
        #[allow(dead_code)]
        impl #name {
            #[doc(hidden)]
            pub fn __kernel() -> &'static ::vyre::typed::EmbeddedKernel {
                static KERNEL: ::vyre::typed::EmbeddedKernel = ::vyre::typed::EmbeddedKernel::new(#source, &[]);
                &KERNEL
            }

            /// The kernel's program.
            pub fn program() -> ::std::result::Result<::vyre::Program, ::vyre::BackendError> {
                #name::__kernel().program(&[])
            }
        }
    })
}

/// The kernel's own name, if it is a valid Rust identifier.
fn named(program: &Program, span: Span) -> Result<Ident, Error> {
    let name = program.name().map(|name| name.to_string()).unwrap_or_default();
    syn::parse_str::<Ident>(&name).map(|ident| Ident::new(&ident.to_string(), span)).map_err(|_| {
        let what = if name.is_empty() {
            "the kernel has no name".into()
        } else {
            format!("`{name}` is not a Rust name")
        };
        Error::new(span, format!("{what}; give it one: `include_kernel!(\"…\" as name)`"))
    })
}

/// A parameter of the function that makes a call, and what it binds.
fn parameter((at, decl): (usize, &&BufferDecl)) -> (TokenStream, TokenStream) {
    let ident = syn::parse_str::<Ident>(&decl.name).unwrap_or_else(|_| {
        let is_word = decl.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let keyword = is_word && decl.name.starts_with(|c: char| c.is_ascii_alphabetic());
        if keyword && !matches!(&*decl.name, "self" | "super" | "crate" | "Self") {
            Ident::new_raw(&decl.name, Span::call_site())
        } else {
            quote::format_ident!("buffer_{at}")
        }
    });
    let written = decl.access.is_output();
    let ty = Ident::new(rust_type(decl.element, written), Span::call_site());
    if decl.access == Access::Uniform && decl.count == 1 {
        (quote!(#ident: #ty), quote!(::vyre::typed::Uniform::argument(#ident)))
    } else if written {
        (quote!(#ident: impl ::vyre::Write<'vyre, #ty>), quote!(::vyre::Write::argument(#ident)))
    } else {
        (quote!(#ident: impl ::vyre::Read<'vyre, #ty>), quote!(::vyre::Read::argument(#ident)))
    }
}

/// The Rust type for an element.
fn rust_type(element: DataType, written: bool) -> &'static str {
    match element {
        DataType::Bool if written => "u8",
        DataType::F16 | DataType::Bf16 => "u16",
        DataType::Bool
        | DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64
        | DataType::F32
        | DataType::F64 => element.name(),
    }
}
