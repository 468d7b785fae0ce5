//! Registers that are read in loops outside of which they are defined.

use crate::schedule::{nested, operands};
use crate::vector::{Frame, Inst, Reg, VectorCode};

/// Per register: whether something reads it in a loop that does not define it.
pub(super) fn used_in_loops(code: &VectorCode) -> Vec<bool> {
    let count = code.regs.len();
    let mut walk = Walk { loops: 0, defined_in: vec![0; count], found: vec![false; count] };
    match &code.frame {
        Frame::Rows { head, full, tail } => {
            walk.block(head);
            walk.loops = 1;
            [full, tail].into_iter().for_each(|block| walk.block(block));
        }
        Frame::Groups(body) => walk.block(body),
    }
    walk.found
}

struct Walk {
    /// Number of enclosing loops.
    loops: usize,
    /// Per register: number of loops around its definition.
    defined_in: Vec<usize>,
    found: Vec<bool>,
}

impl Walk {
    fn block(&mut self, insts: &[Inst]) {
        for inst in insts {
            operands(inst, &mut |reg| self.read(reg));
            if let Inst::Def(reg, _) = inst {
                self.defined_in[reg.0 as usize] = self.loops;
            }
            let is_loop = matches!(inst, Inst::Loop { .. } | Inst::Lanes { .. });
            self.loops += usize::from(is_loop);
            nested(inst).into_iter().for_each(|block| self.block(block));
            self.loops -= usize::from(is_loop);
        }
    }

    fn read(&mut self, reg: Reg) {
        let at = reg.0 as usize;
        self.found[at] |= self.defined_in[at] < self.loops;
    }
}
