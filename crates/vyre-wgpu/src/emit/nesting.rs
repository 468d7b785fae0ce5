//! How deep the blocks of a module lie in one another, as drivers count them.
//!
//! A driver that runs both sides of conditions under masks keeps these on a stack, which has an end: Mesa's llvmpipe has
//! room for 80 and ignores what is above, so that all lanes go on as if the innermost conditions were not there.

use super::Emitted;
use naga::{Block, Statement};

impl Emitted {
    /// How many conditions and loops are open at once, at most. What follows a `continue` counts as an inner block: drivers
    /// move it into the other side of the condition.
    pub(crate) fn nesting(&self) -> u32 {
        self.module.entry_points.iter().map(|entry| depth(&entry.function.body)).max().unwrap_or(0)
    }
}

fn depth(block: &Block) -> u32 {
    let (mut moved, mut deepest) = (0, 0);
    for statement in block {
        deepest = deepest.max(moved + inner(statement).map_or(0, |[a, b]| 1 + depth(a).max(depth(b))));
        moved += u32::from(continues(statement));
    }
    deepest
}

/// Whether a condition may go on with the next round of the loop around it.
fn continues(statement: &Statement) -> bool {
    match statement {
        Statement::Continue => true,
        // What continues an inner loop stays in it.
        Statement::Loop { .. } => false,
        _ => inner(statement).is_some_and(|blocks| blocks.into_iter().flatten().any(continues)),
    }
}

/// The blocks of a statement, of the kinds that kernels are emitted as.
fn inner(statement: &Statement) -> Option<[&Block; 2]> {
    match statement {
        Statement::If { accept, reject, .. } => Some([accept, reject]),
        Statement::Loop { body, continuing, .. } => Some([body, continuing]),
        _ => None,
    }
}
