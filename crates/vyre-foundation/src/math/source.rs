//! The text of the expansions, and the hash that identifies the text that was measured.

use crate::ops::Op;
use crate::types::ValueType;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// One function per op and type, and the functions that they call.
pub(super) const TEXTS: [&str; 4] = [
    include_str!("expansions.vyre"),
    include_str!("expansions_more.vyre"),
    include_str!("expansions_f64.vyre"),
    include_str!("composites.vyre"),
];

/// The name of the function that defines an op whose first operand has type `ty`.
pub(super) fn function_name(op: Op, ty: ValueType) -> Cow<'static, str> {
    let name = op.row().name;
    if ty == ValueType::F32 { name.into() } else { format!("{name}_{ty}").into() }
}

/// The BLAKE3 hash, in hex, of the code that defines the op on operands of type `ty`; `None` for an
/// op without an expansion.
///
/// It covers the op's function and its transitive callees, without comments and spaces, so that
/// only a change that can affect results affects the hash.
///
/// ```
/// use vyre_foundation::{math, ops::Op, types::ValueType};
/// let of = |op| math::fingerprint(op, ValueType::F32);
/// assert_ne!(of(Op::Sin), of(Op::Cos));
/// assert_eq!(of(Op::Add), None);
/// ```
pub fn fingerprint(op: Op, ty: ValueType) -> Option<String> {
    op.row().expansion_error?;
    let functions = functions();
    let mut used = BTreeSet::new();
    collect(&function_name(op, ty), &functions, &mut used);
    let mut hasher = blake3::Hasher::new();
    for (position, (_, code)) in functions.iter().enumerate() {
        if used.contains(&position) {
            hasher.update(code.as_bytes());
        }
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// The functions in order: name, and code without comments and spaces.
fn functions() -> Vec<(&'static str, String)> {
    TEXTS.iter().flat_map(|text| functions_of(text)).collect()
}

fn functions_of(text: &'static str) -> Vec<(&'static str, String)> {
    let mut functions: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or("");
        if let Some(header) = code.strip_prefix("fn ") {
            functions.push((header.split('(').next().unwrap_or(""), String::new()));
        }
        if let Some((_, text)) = functions.last_mut() {
            text.extend(code.split_whitespace());
            text.push('\n');
        }
    }
    functions
}

/// Adds the position of the named function and of its transitive callees.
fn collect(name: &str, functions: &[(&str, String)], used: &mut BTreeSet<usize>) {
    let Some(position) = functions.iter().position(|(other, _)| *other == name) else { return };
    if !used.insert(position) {
        return;
    }
    let words = functions[position].1.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.for_each(|word| collect(word, functions, used));
}
