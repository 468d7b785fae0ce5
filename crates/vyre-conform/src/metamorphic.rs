//! Program transformations that must not change results.

use crate::choices::next_random;
use vyre_foundation::ir::{Block, Expr, Node, Program, rewrite_block};

/// Adds statements without effect: unused variables, branches not taken, loops without iterations.
pub fn with_dead_code(program: &Program, seed: u64) -> Program {
    let mut state = seed;
    let mut count = 0u32;
    let mut insert = |node: Node| {
        if !next_random(&mut state).is_multiple_of(3) {
            return vec![node];
        }
        count += 1;
        vec![dead(next_random(&mut state), count), node]
    };
    // The top level has only regions.
    let regions = program.entry().clone().into_vec();
    let regions = regions
        .into_iter()
        .map(|node| map_region(node, |body| rewrite_block(body, &mut insert, &mut |expr| expr)));
    with_body(program, regions.collect())
}

fn dead(random: u64, count: u32) -> Node {
    let name = format!("dead_{count}");
    let value = Expr::u32(random as u32);
    match random >> 32 & 3 {
        0 => Node::let_(name, value.popcount() + Expr::u32(1)),
        1 => Node::if_(Expr::u32(1).lt(Expr::u32(1)), vec![Node::Trap(random as u32)]),
        2 => Node::for_range(name, value.clone(), value, vec![Node::Trap(random as u32)]),
        _ => Node::while_(false, vec![Node::let_(name, value), Node::Trap(random as u32)]),
    }
}

/// Moves the second half of every region's statements into a nested region.
pub fn with_split_regions(program: &Program) -> Program {
    let regions = program.entry().clone().into_vec();
    with_body(program, regions.into_iter().map(|node| map_region(node, split)).collect())
}

fn split(body: Block) -> Block {
    let mut nodes = body.into_vec();
    if nodes.len() < 2 {
        return nodes.into();
    }
    // Nested, not adjacent: the second half can use declarations of the first.
    let rest = nodes.split_off(nodes.len() / 2);
    nodes.push(Node::region("split.rest", rest));
    nodes.into()
}

fn map_region(node: Node, change: impl FnOnce(Block) -> Block) -> Node {
    match node {
        Node::Region { generator, body } => Node::Region { generator, body: change(body) },
        other => other,
    }
}

/// The program with another body.
pub(crate) fn with_body(program: &Program, body: Vec<Node>) -> Program {
    let fresh = Program::new(program.buffers().to_vec(), program.workgroup_size(), body)
        .with_domain(program.domain().clone())
        .with_functions(program.functions().to_vec());
    match program.name() {
        Some(name) => fresh.with_name(name.clone()),
        None => fresh,
    }
}
