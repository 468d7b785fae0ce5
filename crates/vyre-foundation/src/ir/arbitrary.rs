//! Programs from arbitrary bytes, for property tests and fuzzing.
//!
//! The programs are *unchecked*: odd names, wrong arities, impossible sizes and missing regions are
//! common, since text and wire must carry whatever can be built. Only trees beyond the depth
//! limits, which cannot be carried, are never generated. Every part consumes bytes, and only leaves
//! are generated once the bytes run out, so the input length bounds the size of a program.

use super::{
    Access, Block, BufferDecl, Builtin, DataType, Domain, Expr, Formula, Function, Name, Node, Program,
    ROOT_GENERATOR, Value, ValueType,
};
use crate::ops::{AtomicOp, Op, SubgroupOp, WorkgroupOp};
use arbitrary::{Arbitrary, Result, Unstructured};

/// Limit for random nesting; deliberately deep chains come on top.
const RANDOM_DEPTH: usize = 8;
/// Stays within `MAX_EXPR_DEPTH` together with `RANDOM_DEPTH` and the levels around it.
const LONGEST_EXPR_CHAIN: usize = 240;
/// Stays within `MAX_BLOCK_DEPTH` together with `RANDOM_DEPTH` and the levels around it.
const LONGEST_BLOCK_CHAIN: usize = 110;

/// Names that are easy to mishandle: ordinary names, keywords, op names, and non-identifiers.
const NAMES: [&str; 40] = [
    "x",
    "y",
    "a",
    "i",
    "out",
    "_",
    "x1",
    "min",
    "select",
    "f32",
    "len",
    "atomic_add",
    "subgroup_size",
    "f32_bits",
    "invocation",
    "workgroup",
    "local",
    "step",
    "in",
    "over",
    "uniform",
    "let",
    "if",
    "else",
    "kernel",
    "fn",
    "true",
    "inf",
    "nan",
    "region",
    "",
    " ",
    "odd name",
    "q\"uote",
    "back`tick",
    "back\\slash",
    "new\nline",
    "\u{0}",
    "\u{202e}ü",
    "0x1",
];

const EDGE_BITS: [u64; 12] = [
    0,
    1,
    0x8000_0000,
    0x7FC0_0000,
    0x7FC0_0001,
    0xFF80_0000,
    0x7F80_0000,
    0x7FF8_0000_0000_0000,
    0x7FF0_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x3FF0_0000_0000_0000,
    u64::MAX,
];

impl<'a> Arbitrary<'a> for Program {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Program> {
        let buffers = list(u, 5, buffer)?;
        let functions = list(u, 3, function)?;
        let size = workgroup_size(u)?;
        let domain = domain(u)?;
        let program = if u.arbitrary()? {
            Program::wrapped(buffers, size, block(u, 0)?.into_vec())
        } else {
            Program::new(buffers, size, deep_block(u)?.into_vec())
        };
        let program = program.with_domain(domain).with_functions(functions);
        Ok(if u.arbitrary()? { program.with_name(name(u)?) } else { program })
    }
}

fn list<'a, T>(
    u: &mut Unstructured<'a>,
    longest: usize,
    mut item: impl FnMut(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut items = Vec::new();
    while items.len() < longest && !u.is_empty() && u.ratio(3, 4)? {
        items.push(item(u)?);
    }
    Ok(items)
}

fn name(u: &mut Unstructured<'_>) -> Result<Name> {
    match u.int_in_range(0..=15)? {
        0 => Ok(u.arbitrary::<&str>()?.into()),
        1..=8 => Ok((*u.choose(&NAMES[..8])?).into()),
        _ => Ok((*u.choose(&NAMES)?).into()),
    }
}

fn count(u: &mut Unstructured<'_>) -> Result<u32> {
    let edges = [0, 1, 2, 64, 4096, u32::MAX];
    if u.arbitrary()? { Ok(*u.choose(&edges)?) } else { u.arbitrary() }
}

fn workgroup_size(u: &mut Unstructured<'_>) -> Result<[u32; 3]> {
    Ok(match u.int_in_range(0..=2)? {
        0 => [64, 1, 1],
        1 => [count(u)?, 1, 1],
        _ => [count(u)?, count(u)?, count(u)?],
    })
}

fn domain(u: &mut Unstructured<'_>) -> Result<Domain> {
    Ok(match u.int_in_range(0..=3)? {
        0 => Domain::Default,
        1 => Domain::Counts(workgroup_size(u)?),
        2 => Domain::LenOf(name(u)?),
        _ => Domain::Axes([deep_expr(u)?.into(), deep_expr(u)?.into(), deep_expr(u)?.into()]),
    })
}

fn buffer(u: &mut Unstructured<'_>) -> Result<BufferDecl> {
    Ok(BufferDecl {
        name: name(u)?,
        binding: if u.ratio(3, 4)? { u.int_in_range(0..=5)? } else { u.arbitrary()? },
        access: *u.choose(&Access::ALL)?,
        element: *u.choose(&DataType::ALL)?,
        count: count(u)?,
        len_of: if u.ratio(1, 4)? { Some(name(u)?) } else { None },
        length: if u.ratio(1, 8)? { Formula::new(deep_expr(u)?).ok() } else { None },
    })
}

fn function(u: &mut Unstructured<'_>) -> Result<Function> {
    Ok(Function {
        name: name(u)?,
        params: list(u, 4, |u| Ok((name(u)?, value_type(u)?)))?,
        result: value_type(u)?,
        body: block(u, RANDOM_DEPTH - 2)?,
        value: deep_expr(u)?,
    })
}

fn value_type(u: &mut Unstructured<'_>) -> Result<ValueType> {
    Ok(*u.choose(&ValueType::ALL)?)
}

fn value(u: &mut Unstructured<'_>) -> Result<Value> {
    let bits = if u.arbitrary()? { *u.choose(&EDGE_BITS)? } else { u.arbitrary()? };
    Ok(Value::from_bits(value_type(u)?, bits))
}

/// A block, occasionally at the bottom of a long chain of blocks.
fn deep_block(u: &mut Unstructured<'_>) -> Result<Block> {
    let mut inner = block(u, 0)?;
    if u.ratio(1, 16)? {
        for _ in 0..u.int_in_range(0..=LONGEST_BLOCK_CHAIN)? {
            inner = vec![Node::region(ROOT_GENERATOR, inner)].into();
        }
    }
    Ok(inner)
}

fn block(u: &mut Unstructured<'_>, depth: usize) -> Result<Block> {
    Ok(list(u, 8, |u| node(u, depth))?.into())
}

fn node(u: &mut Unstructured<'_>, depth: usize) -> Result<Node> {
    let last = if depth < RANDOM_DEPTH { 17 } else { 12 };
    Ok(match u.int_in_range(0..=last)? {
        0 => Node::Break,
        1 => Node::Continue,
        2 => Node::Return,
        3 => Node::Barrier,
        4 => Node::Trap(count(u)?),
        5 => Node::let_(name(u)?, deep_expr(u)?),
        6 => Node::array(name(u)?, value_type(u)?, count(u)?),
        7 => Node::assign(name(u)?, deep_expr(u)?),
        8 | 9 => Node::store(name(u)?, deep_expr(u)?, deep_expr(u)?),
        10 => Node::eval(deep_expr(u)?),
        11 => Node::print(name(u)?, list(u, 3, deep_expr)?),
        12 => Node::assert(deep_expr(u)?, name(u)?, list(u, 3, deep_expr)?),
        13 => Node::if_else(deep_expr(u)?, block(u, depth + 1)?, block(u, depth + 1)?),
        14 => {
            let step = if u.arbitrary()? { Expr::u32(1) } else { deep_expr(u)? };
            Node::for_step(name(u)?, [deep_expr(u)?, deep_expr(u)?, step], block(u, depth + 1)?)
        }
        15 => Node::while_(deep_expr(u)?, block(u, depth + 1)?),
        16 => Node::block(block(u, depth + 1)?),
        _ => Node::region(name(u)?, block(u, depth + 1)?),
    })
}

/// An expression, occasionally at the bottom of a long chain of operations.
fn deep_expr(u: &mut Unstructured<'_>) -> Result<Expr> {
    let mut inner = expr(u, 0)?;
    if u.ratio(1, 32)? {
        let op = *u.choose(Op::ALL)?;
        for _ in 0..u.int_in_range(0..=LONGEST_EXPR_CHAIN)? {
            inner = match op.row().signature.arity() {
                1 => Expr::op(op, [inner]),
                2 => Expr::op(op, [Expr::bool(true), inner]),
                _ => Expr::load("x", inner),
            };
        }
    }
    Ok(inner)
}

fn expr(u: &mut Unstructured<'_>, depth: usize) -> Result<Expr> {
    let last = if depth < RANDOM_DEPTH && !u.is_empty() { 12 } else { 3 };
    Ok(match u.int_in_range(0..=last)? {
        0 => Expr::Literal(value(u)?),
        1 => Expr::Var(name(u)?),
        2 => {
            let axis = if u.ratio(7, 8)? { u.int_in_range(0..=2)? } else { u.arbitrary()? };
            Expr::Builtin(*u.choose(&Builtin::ALL)?, axis)
        }
        3 => Expr::BufLen(name(u)?),
        4 => Expr::uniform(name(u)?),
        5 => Expr::Load(name(u)?, args(u, depth, 1)?.into()),
        6 => {
            let op = *u.choose(&AtomicOp::ALL)?;
            Expr::Atomic(op, name(u)?, args(u, depth, 1 + op.operands())?.into())
        }
        7 => {
            let op = *u.choose(&SubgroupOp::all().collect::<Vec<_>>())?;
            Expr::Subgroup(op, args(u, depth, op.row().arity)?.into())
        }
        8 => {
            let arity = u.int_in_range(0..=4)?;
            Expr::Call(name(u)?, args(u, depth, arity)?.into())
        }
        9 => {
            let op = *u.choose(&WorkgroupOp::ALL)?;
            Expr::Workgroup(op, args(u, depth, op.row().arity)?.into())
        }
        _ => {
            let op = *u.choose(Op::ALL)?;
            Expr::Op(op, args(u, depth, op.row().signature.arity())?.into())
        }
    })
}

/// Operands: usually the right number, otherwise any small number.
fn args(u: &mut Unstructured<'_>, depth: usize, fitting: usize) -> Result<Vec<Expr>> {
    let count = if u.ratio(7, 8)? { fitting } else { u.int_in_range(0..=5)? };
    (0..count).map(|_| expr(u, depth + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::walk_block;

    #[test]
    fn any_bytes_give_a_program_within_the_depth_limits() {
        let bytes: Vec<u8> = (0..4096u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut statements = 0;
        for start in 0..400 {
            let program =
                Program::arbitrary_take_rest(Unstructured::new(&bytes[start..])).expect("never refused");
            assert!(!program.entry().is_too_deep());
            walk_block(
                program.entry(),
                &mut |node| {
                    statements += 1;
                    assert!(node.blocks().iter().all(|block| !block.is_too_deep()));
                },
                &mut |expr| assert!(expr.arg_list().is_none_or(|args| !args.is_too_deep())),
            );
        }
        assert!(statements > 400, "the programs are not all empty: {statements} statements");
    }
}
