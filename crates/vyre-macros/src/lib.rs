//! Kernels in Rust: the macros that the crate `vyre` re-exports and documents.
//!
//! [`signature`] and [`read`] turn a function's tokens into the [`tree`]; [`text`] writes it as a
//! kernel, which [`check`] validates; [`host`] writes it as Rust for rustc to check; [`kernel`],
//! [`function`] and [`include`] assemble the items. Faults in the text are reported at the tokens
//! that it came from ([`spanned_text`]).

#![forbid(unsafe_code)]

mod check;
#[cfg(test)]
mod examples;
mod function;
mod host;
mod include;
mod kernel;
mod map;
mod read;
mod signature;
mod source;
mod spanned_text;
mod table;
mod text;
mod token_span;
mod tree;
mod types;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Turns a function into a kernel.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(arguments as signature::KernelOptions);
    kernel::expand(&options, &parse_macro_input!(item as syn::ItemFn)).into()
}

/// Makes a function callable from kernels.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        let span = proc_macro2::TokenStream::from(arguments);
        return syn::Error::new_spanned(span, "`#[vyre::function]` takes no arguments")
            .to_compile_error()
            .into();
    }
    function::expand(&parse_macro_input!(item as syn::ItemFn)).into()
}

/// Turns a `.vyre` file into a kernel.
#[proc_macro]
pub fn include_kernel(input: TokenStream) -> TokenStream {
    include::expand(&parse_macro_input!(input as include::Include)).into()
}

/// Creates a kernel that maps every element of a slice.
#[proc_macro]
pub fn map(input: TokenStream) -> TokenStream {
    map::expand(&parse_macro_input!(input as syn::ExprClosure)).into()
}

/// Prints a message from a kernel.
#[proc_macro]
pub fn print(input: TokenStream) -> TokenStream {
    outside("print", &input.into())
}

/// Checks a condition in a kernel.
#[proc_macro]
pub fn assert(input: TokenStream) -> TokenStream {
    outside("assert", &input.into())
}

fn outside(name: &str, input: &proc_macro2::TokenStream) -> TokenStream {
    let message = format!("`vyre::{name}!` can be used only in functions with `#[vyre::kernel]`");
    syn::Error::new_spanned(input, message).to_compile_error().into()
}
