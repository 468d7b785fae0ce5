//! Turns text into a validated program, or into errors at the user's tokens.

use crate::spanned_text::SpannedText;
use crate::token_span::TokenSpan;
use syn::Error;
use vyre_foundation::diagnostics::{Diagnostic, Diagnostics, Severity};
use vyre_foundation::ir::Program;
use vyre_foundation::text;

/// Parses and validates the text together with stand-ins for functions declared elsewhere.
pub(crate) fn program(written: &SpannedText, stand_ins: &str, at: TokenSpan) -> Result<Program, Vec<Error>> {
    let whole = format!("{}{stand_ins}", written.text);
    let checked = text::parse(&whole).and_then(|program| program.validate().map(|_| program));
    checked.map_err(|faults| errors_at_tokens(&faults, written, at))
}

fn errors_at_tokens(faults: &Diagnostics, written: &SpannedText, at: TokenSpan) -> Vec<Error> {
    let errors = faults.iter().filter(|fault| fault.severity() == Severity::Error);
    errors.flat_map(|fault| one(fault, written, at)).collect()
}

/// A fault as an error at its tokens, with another at those of its cause.
fn one(fault: &Diagnostic, written: &SpannedText, at: TokenSpan) -> Vec<Error> {
    let place = |span: vyre_foundation::ir::Span| written.span(span.start as usize, span.end as usize);
    let help = fault.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    let message = in_rust(&format!("[{}] {}{help}", fault.code, fault.message));
    let mut errors = vec![fault.span.and_then(place).unwrap_or(at).error(message)];
    if let Some((span, what)) = fault.cause {
        errors.push(place(span).unwrap_or(at).error(format!("from here on, {what} ([{}])", fault.code)));
    }
    errors
}

/// Restores the user's names in a message: in the text every variable has a unique name.
fn in_rust(message: &str) -> String {
    let mut out = String::new();
    let mut parts = message.split('`');
    if let Some(first) = parts.next() {
        out += first;
    }
    for part in parts {
        out.push('`');
        match part.rsplit_once('\'') {
            Some((name, number))
                if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                out += name;
            }
            _ => out += part,
        }
    }
    out
}
