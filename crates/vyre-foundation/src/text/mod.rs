//! The text form, `.vyre`: programs as people read and write them.
//!
//! [`parse`] reads one kernel with its functions, [`print()`] writes it so that it reads back equal, for every program,
//! valid or not. Nothing is checked here but the grammar, which docs/text-format.md describes; a program that was
//! parsed knows its text, so that validation can point into it. Parsing takes time and memory linear in the text, and
//! no text makes it panic.
//!
//! The path of the data: `lexer` makes tokens, `cursor` walks over them, `items`, `statements` and
//! `expressions` read what their names say, `returns` puts the results of functions at their ends,
//! and `unsuffixed` gives numbers without a suffix their types; `printer` goes the other way.
//! `vocabulary` and `literal` hold what both directions must agree on. `layout` puts a text into
//! the usual layout and keeps its comments. `listing` shows a checked kernel, for reading only. `notes`
//! is what the parser notes of names for `analysis`, which tells an editor all that is known of a text.

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

/// Reads a program from text. The faults of the text come all at once, each with its place.
///
/// ```
/// use vyre_foundation::text;
/// let program = text::parse("kernel fill(y: output u32[4]) { region \"fill\" { y[invocation.x] = 7 } }").unwrap();
/// assert_eq!(program.name().map(|name| &**name), Some("fill"));
/// assert_eq!(text::parse(&text::print(&program)).unwrap(), program);
///
/// let faults = text::parse("kernel fill(y: output u32[4]) { region \"fill\" { y[0] = } }").unwrap_err();
/// assert!(faults.to_string().contains("expected an expression, found `}`"));
/// ```
pub fn parse(source: &str) -> Result<Program, Diagnostics> {
    items::program(source, &Constants::default())
}

/// Reads a program from text, with other values for its constants.
pub fn parse_with(source: &str, constants: &Constants) -> Result<Program, Diagnostics> {
    items::program(source, constants)
}

/// Reads functions from a text that holds nothing else.
///
/// ```
/// let functions = vyre_foundation::text::parse_functions("fn square(x: f32) -> f32 { x * x }").unwrap();
/// assert_eq!(&*functions[0].name, "square");
/// ```
pub fn parse_functions(source: &str) -> Result<Vec<Function>, Diagnostics> {
    items::functions(source)
}

/// The program as text that reads back equal. Only parts that were dropped for being nested too deep are lost.
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
