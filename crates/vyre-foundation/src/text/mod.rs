//! The text form of programs, `.vyre`.
//!
//! [`parse`] reads one kernel with its functions, [`print()`] writes any program, valid or not, so
//! that it parses back equal. Only the grammar is checked here; docs/text-format.md describes it. A
//! parsed program keeps its source, so that validation can point into it. Parsing takes time and
//! memory linear in the text, and never panics.
//!
//! Data flow: `lexer` makes tokens, `cursor` walks over them, `items`, `statements` and
//! `expressions` parse what their names say, `returns` moves the results of functions to their
//! ends, and `unsuffixed` assigns types to numbers without a suffix; `printer` is the reverse.
//! `vocabulary` and `literal` hold what both directions must agree on. `layout` formats a text and
//! keeps its comments. `listing` prints a checked kernel, for reading only. `notes` holds the names
//! that the parser records for `analysis`, which serves editors.

#[cfg(feature = "compiler")]
pub mod analysis;
mod constants;
mod cursor;
mod expressions;
mod items;
#[cfg(feature = "compiler")]
mod layout;
mod lexer;
#[cfg(feature = "compiler")]
mod listing;
mod literal;
mod notes;
#[cfg(feature = "compiler")]
mod printer;
mod returns;
mod statements;
#[cfg(test)]
mod tests;
mod unsuffixed;
mod vocabulary;
mod words;

pub use constants::Constants;
#[cfg(feature = "compiler")]
pub use layout::format;
pub use words::{WORDS, Word};

use crate::diagnostics::Diagnostics;
use crate::ir::{Function, Program};
use std::fmt;
use std::str::FromStr;

/// Parses a program. All errors are reported at once, each with its span.
///
/// ```
/// use vyre_foundation::text;
/// let program =
///     text::parse("kernel fill(y: output u32[4]) { region \"fill\" { y[invocation.x] = 7 } }")
///         .unwrap();
/// assert_eq!(program.name().map(|name| &**name), Some("fill"));
/// assert_eq!(text::parse(&text::print(&program)).unwrap(), program);
///
/// let faults =
///     text::parse("kernel fill(y: output u32[4]) { region \"fill\" { y[0] = } }").unwrap_err();
/// assert!(faults.to_string().contains("expected an expression, found `}`"));
/// ```
pub fn parse(source: &str) -> Result<Program, Diagnostics> {
    items::program(source, &Constants::default())
}

/// Parses a program with other values for its constants.
pub fn parse_with(source: &str, constants: &Constants) -> Result<Program, Diagnostics> {
    items::program(source, constants)
}

/// Parses a text that contains only functions.
///
/// ```
/// let functions =
///     vyre_foundation::text::parse_functions("fn square(x: f32) -> f32 { x * x }").unwrap();
/// assert_eq!(&*functions[0].name, "square");
/// ```
pub fn parse_functions(source: &str) -> Result<Vec<Function>, Diagnostics> {
    items::functions(source)
}

/// Prints a program as text that parses back equal, except for parts that were dropped because they
/// nest too deep.
#[cfg(feature = "compiler")]
pub fn print(program: &Program) -> String {
    program.to_string()
}

#[cfg(feature = "compiler")]
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printer::write_program(f, self)
    }
}

impl FromStr for Program {
    type Err = Diagnostics;

    fn from_str(source: &str) -> Result<Program, Diagnostics> {
        parse(source)
    }
}
