//! One constructor per validation diagnostic.

use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{Access, AtomicOp, BufferDecl, MAX_BLOCK_DEPTH, MAX_EXPR_DEPTH, MAX_MESSAGE_OPERANDS};
use crate::kernel::uniformity::{Divergence, UniformityRule};
use crate::ops::{OpRow, Spelling};
use crate::types::ValueType;

/// Collects diagnostics while a program is checked.
pub(super) type Found = Vec<Diagnostic>;

fn fault(code: Code, message: String) -> Diagnostic {
    Diagnostic::new(code, message)
}

fn types(list: &[ValueType]) -> String {
    list.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(" and ")
}

fn meant(fault: Diagnostic, suggestion: Option<&str>) -> Diagnostic {
    match suggestion {
        Some(name) => fault.help(format!("did you mean `{name}`?")),
        None => fault,
    }
}

pub(super) fn unknown_variable(name: &str, suggestion: Option<&str>) -> Diagnostic {
    let fault = fault(Code::UnknownVariable, format!("there is no variable `{name}` here"));
    if suggestion.is_none() {
        return fault.help(format!("declare it before: `let {name} = …`"));
    }
    meant(fault, suggestion)
}

pub(super) fn not_a_variable(name: &str, what: &str) -> Diagnostic {
    fault(Code::UnknownVariable, format!("`{name}` is {what}, not a variable"))
        .help(format!("read an element: `{name}[index]`"))
}

pub(super) fn unknown_buffer(name: &str, suggestion: Option<&str>) -> Diagnostic {
    meant(fault(Code::UnknownBuffer, format!("there is no buffer or array `{name}` here")), suggestion)
}

pub(super) fn buffer_in_function(name: &str) -> Diagnostic {
    fault(Code::NotPure, format!("a function cannot reach buffer `{name}`"))
        .help("read the element where the function is called and pass it as an argument")
}

pub(super) fn unknown_function(name: &str, suggestion: Option<&str>) -> Diagnostic {
    meant(fault(Code::UnknownFunction, format!("there is no function `{name}`")), suggestion)
}

pub(super) fn duplicate_name(name: &str, what: &str) -> Diagnostic {
    let fault = fault(Code::DuplicateName, format!("`{name}` is already {what}"));
    if what == "a variable" {
        fault.help(format!("assign it with `{name} = …`, or choose another name"))
    } else {
        fault.help("choose another name")
    }
}

pub(super) fn operand_types(row: &OpRow, given: &[ValueType]) -> Diagnostic {
    let name = match row.spelling {
        Spelling::Infix(symbol, _) | Spelling::Prefix(symbol) => symbol,
        Spelling::Call => row.name,
    };
    let fault = fault(Code::OperandTypes, format!("`{name}` does not take {}", types(given)));
    fault.help(format!("it takes {}", row.signature.describe()))
}

pub(super) fn call_types(name: &str, given: &[ValueType], wanted: &[ValueType]) -> Diagnostic {
    fault(Code::OperandTypes, format!("`{name}` does not take {}", types(given)))
        .help(format!("it takes {}", types(wanted)))
}

pub(super) fn subgroup_types(name: &str, given: &[ValueType]) -> Diagnostic {
    let fault = fault(Code::OperandTypes, format!("`subgroup_{name}` does not take {}", types(given)));
    match name {
        "ballot" => fault.help("it takes a bool"),
        "broadcast" | "shuffle" => fault.help("it takes a value and a u32 lane"),
        _ => fault.help("it takes a number, and only an integer for and, or, xor"),
    }
}

pub(super) fn operand_count(name: &str, wanted: usize, given: usize) -> Diagnostic {
    let plural = if wanted == 1 { "" } else { "s" };
    fault(Code::OperandCount, format!("`{name}` takes {wanted} operand{plural}, not {given}"))
}

pub(super) fn condition_type(given: ValueType) -> Diagnostic {
    let fault = fault(Code::ConditionType, format!("the condition is {given}, not bool"));
    fault.help("compare it, as in `x != 0`")
}

pub(super) fn assign_type(name: &str, has: ValueType, given: ValueType) -> Diagnostic {
    fault(Code::AssignType, format!("`{name}` is {has} and cannot hold {given}"))
        .help(format!("convert the value: `{has}(…)`"))
}

pub(super) fn assign_target(name: &str, what: &str) -> Diagnostic {
    let fault = fault(Code::AssignTarget, format!("`{name}` is {what} and cannot be assigned"));
    match what {
        "a buffer" | "an array" => fault.help(format!("write an element: `{name}[index] = …`")),
        _ => fault.help("copy it to a variable of another name with `let`"),
    }
}

pub(super) fn store_type(name: &str, takes: ValueType, given: ValueType) -> Diagnostic {
    fault(Code::StoreType, format!("elements of `{name}` take {takes}, not {given}"))
        .help(format!("convert the value: `{takes}(…)`"))
}

pub(super) fn index_type(name: &str, given: ValueType) -> Diagnostic {
    fault(Code::IndexType, format!("the index into `{name}` is {given}, not u32"))
        .help("convert the index: `u32(…)`")
}

pub(super) fn not_writable(decl: &BufferDecl) -> Diagnostic {
    fault(Code::NotWritable, format!("`{}` is a {} buffer and cannot be written", decl.name, decl.access))
        .help("declare it read_write, or output if it starts from zero")
}

pub(super) fn duplicate_binding(binding: u32, first: &str, second: &str) -> Diagnostic {
    fault(Code::DuplicateBinding, format!("`{first}` and `{second}` both have binding {binding}"))
        .help("give each buffer its own binding")
}

pub(super) fn workgroup_size(size: [u32; 3]) -> Diagnostic {
    let [x, y, z] = size;
    fault(Code::WorkgroupSize, format!("a workgroup cannot have {x} x {y} x {z} invocations"))
        .help("every axis is at least 1, and the product below 2^31")
}

pub(super) fn divergent(divergence: Divergence) -> Diagnostic {
    let (code, what, group) = match divergence.rule {
        UniformityRule::Barrier => (Code::BarrierDivergent, "a barrier", "workgroup"),
        UniformityRule::Subgroup => (Code::SubgroupDivergent, "a subgroup op", "subgroup"),
        UniformityRule::BroadcastLane => {
            return fault(Code::LaneNotUniform, "the lane of a broadcast differs between invocations".into())
                .help("use `subgroup_shuffle`")
                .at(divergence.at);
        }
    };
    fault(code, format!("not every invocation of the {group} reaches this point, but {what} needs all"))
        .help(format!(
            "move it out of the divergent part, or make the condition the same for the whole {group}"
        ))
        .at(divergence.at)
        .because(divergence.cause, "control flow depends on the invocation")
}

pub(super) fn workgroup_count(name: &str) -> Diagnostic {
    fault(Code::WorkgroupMemory, format!("workgroup buffer `{name}` has no fixed number of elements"))
        .help("give it a count of at least 1")
}

pub(super) fn workgroup_bytes(bytes: u64) -> Diagnostic {
    fault(Code::WorkgroupMemory, format!("workgroup buffers take {bytes} bytes in all, more than 1 GiB"))
        .help("make them smaller, or use a read_write buffer")
}

pub(super) fn recursion(chain: &[&str]) -> Diagnostic {
    fault(Code::Recursion, format!("function `{}` calls itself: {}", chain[0], chain.join(" -> ")))
        .help("write a loop")
}

pub(super) fn too_deep() -> Diagnostic {
    let limits = format!("expressions nest at most {MAX_EXPR_DEPTH} deep, blocks {MAX_BLOCK_DEPTH}");
    fault(Code::TooDeep, format!("the program nests too deep: {limits}, and calls add to both"))
        .help("name intermediate results with `let`")
}

pub(super) fn too_large() -> Diagnostic {
    fault(Code::TooLarge, "with its functions inlined the program has more than a million values".into())
        .help("use loops instead of repeated code")
}

pub(super) fn outside_loop(what: &str) -> Diagnostic {
    fault(Code::OutsideLoop, format!("`{what}` is outside a loop")).help("use `return` to end the invocation")
}

pub(super) fn not_pure(what: &str) -> Diagnostic {
    fault(Code::NotPure, format!("a function cannot contain {what}")).help("move it to the kernel's body")
}

pub(super) fn atomic_target(op: AtomicOp, name: &str, what: &str) -> Diagnostic {
    fault(Code::AtomicType, format!("`atomic_{}` does not work on `{name}`: {what}", op.row().name))
        .help("use a read_write, output or workgroup buffer of u32, i32, u64 or i64")
}

pub(super) fn atomic_types(op: AtomicOp, name: &str, takes: ValueType, given: ValueType) -> Diagnostic {
    let op = op.row().name;
    fault(Code::OperandTypes, format!("`atomic_{op}` on `{name}` takes {takes}, not {given}"))
        .help(format!("convert the value: `{takes}(…)`"))
}

pub(super) fn axis(axis: u8) -> Diagnostic {
    fault(Code::Axis, format!("there is no axis {axis}")).help("use 0, 1 or 2: `.x`, `.y` or `.z`")
}

pub(super) fn not_regions() -> Diagnostic {
    let message =
        "this is not a top-level Region-wrapped Program: its top level is empty or has other statements";
    fault(Code::NotRegions, message.into())
        .help("put the body in a region, or build it with `Program::wrapped`")
}

pub(super) fn message_braces(format: &str) -> Diagnostic {
    fault(Code::MessageFormat, format!("the message \"{format}\" has a brace that is not part of `{{}}`"))
        .help("write `{{` or `}}` for a brace")
}

pub(super) fn message_operands(places: usize, given: usize) -> Diagnostic {
    let message = format!("the message has {places} `{{}}` but {given} operands");
    fault(Code::MessageFormat, message).help("give one operand for each `{}`")
}

pub(super) fn message_length(given: usize) -> Diagnostic {
    fault(Code::MessageFormat, format!("the message has {given} operands, more than {MAX_MESSAGE_OPERANDS}"))
        .help("print several messages")
}

pub(super) fn message_effect(what: &str) -> Diagnostic {
    fault(Code::MessageOperand, format!("a message cannot contain {what}, which would give it side effects"))
        .help("name its value with `let` first")
}

pub(super) fn length_source(what: &str, name: &str, problem: &str) -> Diagnostic {
    fault(Code::LengthSource, format!("{what} cannot take its length from `{name}`: {problem}"))
        .help("name a buffer that is bound at dispatch")
}

pub(super) fn length_taker(decl: &BufferDecl) -> Diagnostic {
    fault(
        Code::LengthSource,
        format!("`{}` is a {} buffer and cannot borrow a length", decl.name, decl.access),
    )
    .help("only an output takes its length from another buffer: the caller's bytes decide the others'")
}

pub(super) fn size_source(what: &str, found: &str) -> Diagnostic {
    fault(Code::SizeFormula, format!("{what} cannot depend on {found}"))
        .help("use literals, single-value uniforms, `len(…)` and table ops")
}

/// A name that does not denote a single value.
pub(super) fn size_name(what: &str, name: &str, is_buffer: bool) -> Diagnostic {
    let (problem, help) = match is_buffer {
        true => (
            format!("`{name}`, which has many elements"),
            format!("write `len({name})` for its number of elements"),
        ),
        false => (
            format!("`{name}`, which is not declared before it"),
            format!("declare it as a single value: `{name}: u32 uniform`"),
        ),
    };
    fault(Code::SizeFormula, format!("{what} cannot depend on {problem}")).help(help)
}

pub(super) fn size_type(what: &str, given: ValueType) -> Diagnostic {
    fault(Code::SizeFormula, format!("{what} is {given}, not u32")).help("convert it: `u32(…)`")
}

pub(super) fn one_invocation(name: &str) -> Diagnostic {
    fault(
        Code::OneInvocation,
        format!("the domain is the length of the single value `{name}`: one invocation"),
    )
    .help(format!("write `over [{name}]` to run as many invocations as its value"))
}

pub(super) fn loop_bounds(from: ValueType, to: ValueType, step: ValueType) -> Diagnostic {
    fault(Code::LoopBounds, format!("the loop goes from {from} to {to} by {step}"))
        .help("make all three integers of one type")
}

pub(super) fn array_count(name: &str, count: u32) -> Diagnostic {
    fault(Code::ArraySize, format!("array `{name}` cannot have {count} elements"))
        .help("give it between 1 and 65,536 elements")
}

pub(super) fn array_bytes(bytes: u64) -> Diagnostic {
    fault(Code::ArraySize, format!("the arrays of one invocation take {bytes} bytes, more than 1 MiB"))
        .help("use a buffer")
}

pub(super) fn result_type(name: &str, wanted: ValueType, given: ValueType) -> Diagnostic {
    fault(
        Code::ResultType,
        format!("function `{name}` is declared to return {wanted}, but its result is {given}"),
    )
    .help(format!("convert the result: `{wanted}(…)`"))
}

pub(super) fn count_and_length(name: &str) -> Diagnostic {
    fault(
        Code::BufferCount,
        format!("`{name}` has a fixed count and also takes the length of another buffer"),
    )
    .help("keep one of the two")
}

pub(super) fn index_out_of_range(name: &str, index: u32, count: u32) -> Diagnostic {
    let message = format!("index {index} is outside `{name}`, which has {count} elements");
    fault(Code::IndexOutOfRange, message)
        .help("the load gives zero and the store does nothing: use another index")
}

pub(super) fn unused_buffer(decl: &BufferDecl) -> Diagnostic {
    let fault = fault(Code::UnusedBuffer, format!("{} buffer `{}` is never used", decl.access, decl.name));
    if decl.access == Access::Workgroup { fault.help("remove it") } else { fault.help("remove it or use it") }
}
