//! Limits on a shader, checked before naga sees it.
//!
//! naga's readers recurse over nested code and over chains of operators. These limits are far above
//! what the shaders of `filetests/import` need (the comment on each limit has the largest figure),
//! and keep that recursion within the stack of its thread ([`crate::read`]).

use crate::fault::{Fault, Result};
use naga::{Block, Statement};
use vyre_foundation::ir::Span;

/// Maximum size in bytes, as text or as words. The largest have 2,314 bytes as text and 4,752 as
/// words.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Maximum nesting of parentheses, brackets and braces. The deepest has 6; naga needs at most 512
/// KiB of stack at the limit.
const MAX_NESTING: usize = 100;
/// Maximum operators between two commas, semicolons or braces. The longest chain has 101; naga
/// needs at most 1 MiB of stack at the limit.
const MAX_CHAIN: usize = 1000;
/// Maximum number of `else` in a shader, which could all belong to one chain. The most are 2; naga
/// needs at most 2 MiB of stack at the limit.
const MAX_ELSE: usize = 2000;
/// Maximum number of branches and loops in SPIR-V, which could all be nested. The most are 18; naga
/// needs at most 1 MiB of stack for 2,000 nested ones.
const MAX_MERGES: usize = 5000;
/// Maximum nesting of blocks, slightly below that of programs (128). The deepest has 6.
const MAX_BLOCKS: usize = 120;

/// Checks WGSL or GLSL text.
pub(crate) fn check_text(text: &str) -> Result<()> {
    check_size(text.len())?;
    let at = |index: usize| Some(Span { start: index as u32, end: index as u32 + 1 });
    let (mut nesting, mut chain) = (0usize, 0usize);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => nesting += 1,
            b')' | b']' | b'}' => nesting = nesting.saturating_sub(1),
            _ => {}
        }
        match byte {
            b',' | b';' | b'{' | b'}' => chain = 0,
            b'!' | b'%' | b'&' | b'*' | b'+' | b'-' | b'/' | b'<' | b'=' | b'>' | b'?' | b'^' | b'|'
            | b'~' | b'.' | b'@' | b'(' | b'[' => chain += 1,
            _ => {}
        }
        if nesting > MAX_NESTING {
            let message = format!("brackets are nested more than {MAX_NESTING} deep");
            return Err(Fault::too_large(message).or_at(at(index)));
        }
        if chain > MAX_CHAIN {
            let message = format!("an expression has more than {MAX_CHAIN} operators");
            return Err(Fault::too_large(message).or_at(at(index)));
        }
    }
    if text.matches("else").count() > MAX_ELSE {
        return Err(Fault::too_large(format!("the shader has `else` more than {MAX_ELSE} times")));
    }
    Ok(())
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes > MAX_BYTES {
        let message = format!("the shader has {bytes} bytes; at most {MAX_BYTES} are read");
        return Err(Fault::too_large(message));
    }
    Ok(())
}

/// Checks SPIR-V words.
pub(crate) fn check_words(words: &[u32]) -> Result<()> {
    const SELECTION_MERGE: u32 = 247;
    const LOOP_MERGE: u32 = 246;
    check_size(words.len() * 4)?;
    let mut merges = 0;
    let mut at = 5;
    while let Some(&word) = words.get(at) {
        let (length, opcode) = ((word >> 16) as usize, word & 0xffff);
        if length == 0 {
            return Err(Fault::unreadable(format!("the instruction at word {at} has no length")));
        }
        merges += usize::from(opcode == SELECTION_MERGE || opcode == LOOP_MERGE);
        at += length;
    }
    if merges > MAX_MERGES {
        return Err(Fault::too_large(format!("the shader has more than {MAX_MERGES} branches and loops")));
    }
    Ok(())
}

/// Checks the nesting depth of a module's blocks, without recursion.
pub(crate) fn check_blocks(module: &naga::Module) -> Result<()> {
    let functions = module.functions.iter().map(|(_, function)| function);
    let bodies = functions.chain(module.entry_points.iter().map(|point| &point.function));
    let mut open: Vec<(&Block, usize)> = bodies.map(|function| (&function.body, 1)).collect();
    while let Some((block, depth)) = open.pop() {
        if depth > MAX_BLOCKS {
            return Err(Fault::too_large(format!("blocks are nested more than {MAX_BLOCKS} deep")));
        }
        for statement in block.iter() {
            match statement {
                Statement::Block(inner) => open.push((inner, depth + 1)),
                Statement::If { accept, reject, .. } => {
                    open.extend([(accept, depth + 1), (reject, depth + 1)]);
                }
                Statement::Loop { body, continuing, .. } => {
                    open.extend([(body, depth + 1), (continuing, depth + 1)]);
                }
                Statement::Switch { cases, .. } => {
                    open.extend(cases.iter().map(|case| (&case.body, depth + 1)));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Maximum number of tokens that macros can expand to in total, about as many as a text of the
/// maximum size has characters.
const MAX_EXPANDED: f64 = 1e6;

/// Checks that the macros of a GLSL text do not expand excessively. The size of a macro includes
/// the macros in it, and the macros used on a line are assumed to nest as deep as its parentheses.
pub(crate) fn check_macros(text: &str) -> Result<()> {
    use std::collections::HashMap;
    let words = |line: &str| -> Vec<String> {
        let parts = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        parts.filter(|word| !word.is_empty()).map(str::to_string).collect()
    };
    let joined = text.replace("\\\n", " ");
    let mut sizes: HashMap<String, f64> = HashMap::new();
    let mut total = 0.0;
    for line in joined.lines() {
        let line = line.trim_start();
        let definition =
            line.strip_prefix('#').map(str::trim_start).and_then(|rest| rest.strip_prefix("define"));
        let size =
            |words: &[String]| words.iter().map(|word| sizes.get(word).copied().unwrap_or(1.0)).sum::<f64>();
        let Some(definition) = definition else {
            let depth = deepest(line);
            let known: Vec<f64> = words(line).iter().filter_map(|word| sizes.get(word).copied()).collect();
            let largest = known.iter().copied().fold(1.0, f64::max);
            total += known.iter().sum::<f64>() * largest.powi((depth.min(known.len())) as i32 - 1).max(1.0);
            continue;
        };
        let all = words(definition);
        let Some((name, rest)) = all.split_first() else { continue };
        let size = size(rest).max(1.0);
        total += size;
        sizes.insert(name.clone(), size);
    }
    if total > MAX_EXPANDED {
        return Err(Fault::too_large("the macros of the shader can expand beyond the size limit"));
    }
    Ok(())
}

/// Nesting depth of parentheses in a line.
fn deepest(line: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 1);
    for byte in line.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
