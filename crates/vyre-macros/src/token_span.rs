//! Span of tokens from the first to the last: what an error underlines.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::fmt::Display;
use syn::Error;

#[derive(Clone, Copy)]
pub(crate) struct TokenSpan {
    pub(crate) start: Span,
    pub(crate) end: Span,
}

impl TokenSpan {
    pub(crate) fn of(tokens: &impl ToTokens) -> TokenSpan {
        let mut tokens = tokens.to_token_stream().into_iter();
        let first = tokens.next();
        let last = tokens.last();
        let start = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.span_open(),
            other => other.span(),
        };
        let end = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.span_close(),
            other => other.span(),
        };
        let whole = first.as_ref().map_or_else(Span::call_site, start);
        TokenSpan { start: whole, end: last.as_ref().or(first.as_ref()).map_or(whole, end) }
    }

    /// Extends to the end of another span.
    pub(crate) fn to(self, other: TokenSpan) -> TokenSpan {
        TokenSpan { start: self.start, end: other.end }
    }

    pub(crate) fn error(self, message: impl Display) -> Error {
        let (first, last) = (Ident::new("a", self.start), Ident::new("b", self.end));
        let tokens: TokenStream = quote!(#first #last);
        Error::new_spanned(tokens, message)
    }
}

impl From<Span> for TokenSpan {
    fn from(span: Span) -> TokenSpan {
        TokenSpan { start: span, end: span }
    }
}
