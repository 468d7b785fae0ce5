//! Expands the kernels of the examples outside the compiler.
//!
//! `cargo test -p vyre-macros --lib -- --nocapture examples` prints how long each takes: the
//! minimum of several runs, which is the most meaningful on a busy machine.

use crate::{function, kernel, signature};
use proc_macro2::TokenStream;
use std::path::Path;
use std::time::{Duration, Instant};
use syn::{Attribute, Item, ItemFn, Meta};

/// The ten kernels that exist in every form, each in its example's file.
const EXAMPLES: [&str; 10] = [
    "saxpy",
    "blur",
    "mandelbrot",
    "histogram",
    "reduction",
    "n_body",
    "axpy",
    "black_scholes",
    "life",
    "hash",
];

/// Expansions per kernel.
const ROUNDS: usize = 25;

#[test]
fn the_kernels_of_the_examples_expand() {
    let mut slowest = Duration::ZERO;
    for name in EXAMPLES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../vyre/examples/{name}.rs"));
        let source = std::fs::read_to_string(&path).expect("the example is there");
        let items = syn::parse_file(&source).expect("it is Rust").items;
        let functions: Vec<&ItemFn> = items.iter().filter_map(is_of_vyre).collect();
        assert!(functions.iter().any(|function| is_marked(function, "kernel")), "{name} has no kernel");
        for function in functions {
            let (tokens, time) = measured(function);
            assert!(!tokens.to_string().contains("compile_error"), "{name}: {tokens}");
            println!("{name:<14} {:<14} {time:?}", function.sig.ident);
            slowest = slowest.max(time);
        }
    }
    println!("the slowest    {slowest:?}");
}

/// The function, if it has one of the attributes.
fn is_of_vyre(item: &Item) -> Option<&ItemFn> {
    let Item::Fn(function) = item else { return None };
    ["kernel", "function"].iter().any(|name| is_marked(function, name)).then_some(function)
}

fn is_marked(function: &ItemFn, name: &str) -> bool {
    function.attrs.iter().any(|attribute| is_named(attribute, name))
}

fn is_named(attribute: &Attribute, name: &str) -> bool {
    let mut path = attribute.path().segments.iter().map(|segment| segment.ident.to_string());
    path.next().as_deref() == Some("vyre") && path.next().as_deref() == Some(name)
}

/// Expansion of a function, and the time it takes from tokens.
fn measured(function: &ItemFn) -> (TokenStream, Duration) {
    let mut item = function.clone();
    let is_ours = |attribute: &Attribute| ["kernel", "function"].iter().any(|name| is_named(attribute, name));
    let ours = item.attrs.extract_if(.., |attribute| is_ours(attribute)).collect::<Vec<_>>();
    let arguments = ours.iter().find_map(|attribute| match &attribute.meta {
        Meta::List(list) => Some(list.tokens.clone()),
        Meta::Path(_) | Meta::NameValue(_) => None,
    });
    let (arguments, item) = (arguments.unwrap_or_default(), quote::quote!(#item));
    let mut least = Duration::MAX;
    let mut tokens = TokenStream::new();
    for _ in 0..ROUNDS {
        let (arguments, item) = (arguments.clone(), item.clone());
        let began = Instant::now();
        let item: ItemFn = syn::parse2(item).expect("it was a function");
        tokens = match is_marked(function, "kernel") {
            true => {
                kernel::expand(&syn::parse2::<signature::KernelOptions>(arguments).expect("options"), &item)
            }
            false => function::expand(&item),
        };
        least = least.min(began.elapsed());
    }
    (tokens, least)
}
