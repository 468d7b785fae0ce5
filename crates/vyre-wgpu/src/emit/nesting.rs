//! Nesting depth of a module's blocks, as drivers count it.
//!
//! A driver that runs both sides of conditions under masks keeps the masks on a stack of fixed
//! size. Mesa's llvmpipe has room for 80 and ignores anything beyond, so that all lanes continue as
//! if the innermost conditions did not exist.

use super::Emitted;
use naga::{Block, Statement};

impl Emitted {
    /// Maximum number of conditions and loops open at once. Code after a `continue` counts as an
    /// inner block: drivers move it into the other side of the condition.
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

/// Whether a statement can continue the loop that encloses it.
fn continues(statement: &Statement) -> bool {
    match statement {
        Statement::Continue => true,
        // A `continue` in an inner loop stays in that loop.
        Statement::Loop { .. } => false,
        _ => inner(statement).is_some_and(|blocks| blocks.into_iter().flatten().any(continues)),
    }
}

/// Inner blocks of the statement kinds that kernels are emitted as.
fn inner(statement: &Statement) -> Option<[&Block; 2]> {
    match statement {
        Statement::If { accept, reject, .. } => Some([accept, reject]),
        Statement::Loop { body, continuing, .. } => Some([body, continuing]),
        _ => None,
    }
}
