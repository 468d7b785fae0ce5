//! Region fusion: merges adjacent regions of the same generator.
//!
//! Regions are profiled and hinted by generator name, so two adjacent regions with the same name
//! are already one unit; merged, the second can reuse values of the first. Regions with different
//! names are never merged.

use super::walk::each_block_mut;
use crate::kernel::{KernelBody, Stmt, StmtKind};

/// Fuses adjacent regions in every block.
pub(super) fn run(body: &mut KernelBody) {
    each_block_mut(&mut body.body, &mut |block| {
        let mut fused: Vec<Stmt> = Vec::with_capacity(block.len());
        for mut stmt in std::mem::take(block) {
            if let (
                Some(Stmt { kind: StmtKind::Region { generator: first, body: before }, .. }),
                StmtKind::Region { generator, body },
            ) = (fused.last_mut(), &mut stmt.kind)
                && first == generator
            {
                before.append(body);
                continue;
            }
            fused.push(stmt);
        }
        *block = fused;
    });
}
