//! Region fusion: neighbouring regions of one generator become one.
//!
//! Regions are what is measured and hinted, under the generator's name, so two of the same name are one unit already;
//! as one block, values of the first can serve the second. Regions of different names are never mixed.

use super::walk::each_block_mut;
use crate::kernel::{KernelBody, Stmt, StmtKind};

/// Fuses neighbours in every block.
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
