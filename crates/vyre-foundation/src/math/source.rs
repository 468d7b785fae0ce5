//! The text of the expansions, and the hash that identifies the text that was measured.

use crate::ops::Op;
use crate::types::ValueType;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

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
/// It covers the op's function and its transitive callees, without comments, spaces and empty
/// lines, so that only a change that can affect results affects the hash.
///
/// ```
/// use vyre_foundation::{math, ops::Op, types::ValueType};
/// let of = |op| math::fingerprint(op, ValueType::F32);
/// assert_ne!(of(Op::Sin), of(Op::Cos));
/// assert_eq!(of(Op::Add), None);
/// ```
pub fn fingerprint(op: Op, ty: ValueType) -> Option<String> {
    op.row().expansion_error?;
    let mut hasher = blake3::Hasher::new();
    for (_, code) in with_callees(&function_name(op, ty)) {
        hasher.update(code.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// Whether there is a function of this name.
pub(super) fn is_defined(name: &str) -> bool {
    functions().iter().any(|(other, _)| *other == name)
}

/// The named function and its transitive callees as text.
pub(super) fn text_with_callees(name: &str) -> String {
    let used = with_callees(name);
    used.into_keys().map(|position| functions()[position].1).collect()
}

/// The named function and its transitive callees: the position of each, in order, and its code
/// without comments and spaces.
fn with_callees(name: &str) -> BTreeMap<usize, String> {
    let mut used = BTreeMap::new();
    collect(name, &mut used);
    used
}

/// The functions in order: name and text. A function starts with the line that begins with `fn`.
fn functions() -> &'static [(&'static str, &'static str)] {
    static FUNCTIONS: LazyLock<Vec<(&str, &str)>> =
        LazyLock::new(|| TEXTS.iter().flat_map(|text| functions_of(text)).collect());
    &FUNCTIONS
}

fn functions_of(text: &'static str) -> Vec<(&'static str, &'static str)> {
    let starts: Vec<usize> = text.match_indices("\nfn ").map(|(before, _)| before + 1).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let function = |(&start, end): (&usize, usize)| {
        let text = &text[start..end];
        let name = text["fn ".len()..].split('(').next().unwrap_or("");
        (name, text)
    };
    starts.iter().zip(ends).map(function).collect()
}

/// The code of a text without comments and spaces.
fn stripped(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let before = code.len();
        code.extend(line.split("//").next().unwrap_or("").split_whitespace());
        if code.len() > before {
            code.push('\n');
        }
    }
    code
}

/// Adds the named function and its transitive callees.
fn collect(name: &str, used: &mut BTreeMap<usize, String>) {
    let Some(position) = functions().iter().position(|(other, _)| *other == name) else { return };
    if used.contains_key(&position) {
        return;
    }
    let code = stripped(functions()[position].1);
    used.insert(position, code.clone());
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.for_each(|word| collect(word, used));
}
