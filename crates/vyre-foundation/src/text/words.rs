//! Help for the words of the text form.

/// A word of the text form that is not an op.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its spelling.
    pub name: &'static str,
    /// An example of its use that parses.
    pub example: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

const fn word(name: &'static str, example: &'static str, meaning: &'static str) -> Word {
    Word { name, example, meaning }
}

/// All words: those that start an item or a statement, those of a kernel's header, and values that
/// are not ops.
pub const WORDS: &[Word] = &[
    word(
        "kernel",
        "kernel k(x: read_write f32[]) { }",
        "Code that runs once for each element of its domain.",
    ),
    word(
        "fn",
        "fn half(x: f32) -> f32 { x / 2.0 }",
        "A function of the program: scalars in, one out, no buffers. Its last expression is the result; `return x` returns one early.",
    ),
    word(
        "const",
        "const SIDE: u32 = 16",
        "A name for a value, for sizes, domains and expressions. The caller can override the value: `--set SIDE=32`.",
    ),
    word(
        "over",
        "kernel k(width: u32 uniform, height: u32 uniform, y: output u32[width * height]) over [width, height] { }",
        "The domain: a buffer, one invocation per element; or one to three counts in brackets, computed at each dispatch from single-value uniforms and `len(…)`. `--domain 640x480`, or `domain([640, 480])` on a call, overrides it.",
    ),
    word(
        "workgroup",
        "kernel k(y: output u32[64]) workgroup [8, 8] { }",
        "After a kernel's buffers: the number of invocations in a workgroup, 64 by default. Before an element type: memory that a workgroup shares. With an axis, `workgroup.x`: the workgroup's position in the grid.",
    ),
    word(
        "len_of",
        "kernel k(x: read f32[], y: output f32[] len_of x) { }",
        "The output is as long as another buffer.",
    ),
    word("len", "let n = len(x)", "The number of elements of a buffer, as a u32."),
    word(
        "let",
        "let a = 3",
        "Declares a variable with the type of its value; any variable can be assigned again.",
    ),
    word(
        "array",
        "array t: u32[16]",
        "Elements of this invocation alone, all zero at first. An index out of range reads zero and writes nothing.",
    ),
    word("if", "if a > 3 { a = 3 } else { a = 1 }", "Runs the block if the condition, a bool, holds."),
    word(
        "else",
        "if a > 3 { a = 3 } else if a == 1 { a = 2 }",
        "Runs the block if the condition before it does not hold.",
    ),
    word(
        "for",
        "for i in 0..16 step 2 { x[i] = i }",
        "Counts from the first bound up to, but excluding, the second. The number of rounds is fixed before it starts; a step of 0 runs none.",
    ),
    word(
        "while",
        "while a > 10 { a /= 2 }",
        "Runs the block as long as the condition holds. `--timeout`, or `timeout` on a call, stops a loop that does not end.",
    ),
    word("break", "while true { break }", "Leaves the enclosing loop."),
    word("continue", "for i in 0..16 { continue }", "Continues with the next round of the enclosing loop."),
    word("return", "return", "Ends this invocation; in a function, `return x` gives its result."),
    word(
        "barrier",
        "barrier",
        "All invocations of the workgroup wait for each other, and see what the others wrote. They must all reach it through the same control flow.",
    ),
    word(
        "region",
        "region \"load\" { let a = 3 }",
        "A named part of the kernel: times are reported per region.",
    ),
    word("trap", "trap 7", "Fails the whole dispatch with this code; it has no outputs."),
    word(
        "print",
        "print(\"x = {}, i = {}\", a, 3)",
        "Prints a message, with one operand for each `{}`, at most 16; `{{` and `}}` are braces. Messages come in the order of the invocations, on standard error, in `report.prints()` or to `on_print`.",
    ),
    word(
        "assert",
        "assert(a < 100, \"{} is too many\", a)",
        "If the condition does not hold, the kernel continues and the call fails with the message of the lowest invocation (E013). `--asserts off`, or `asserts(false)` on a call, leaves asserts out.",
    ),
    word("invocation", "let i = invocation.x", "The invocation's position in the grid, along an axis."),
    word("local", "let i = local.x", "The invocation's position in its workgroup, along an axis."),
    word("grid_size", "let n = grid_size.x", "The number of workgroups in the grid, along an axis."),
    word(
        "workgroup_size",
        "let n = workgroup_size.x",
        "The number of invocations in a workgroup, along an axis.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;
    use crate::text::vocabulary::{MESSAGE_WORDS, STATEMENT_WORDS};

    #[test]
    fn every_word_has_an_example_that_is_read() {
        for Word { name, example, meaning } in WORDS {
            assert!(example.contains(name) && meaning.ends_with('.'), "{name}");
            let text = match example.split(' ').next() {
                Some("kernel") => example.to_string(),
                Some("fn" | "const") => format!("{example}\nkernel k() {{ }}"),
                // Declares what the example uses.
                _ if example.starts_with("let") => format!("kernel k(x: read_write u32[]) {{ {example} }}"),
                _ => format!("kernel k(x: read_write u32[]) {{ let a = x[0]; {example} }}"),
            };
            assert!(parse(&text).is_ok(), "{name}: {:?}", parse(&text));
        }
        for word in STATEMENT_WORDS.iter().chain(&MESSAGE_WORDS) {
            assert!(WORDS.iter().any(|known| known.name == *word), "{word}");
        }
    }
}
