//! Evenly spaced elements: where the lanes of an access are, relative to those of another.
//!
//! Lanes are different invocations, and what one invocation writes and another one accesses is a
//! race. So two accesses depend on each other only if a lane accesses one element with both: a
//! kernel that works in place can be reordered like one that writes to another buffer, except for
//! what a lane reads after its own store.

use crate::schedule::nested;
use crate::vector::{Calc, Frame, Index, Inst, Reg, VectorCode};
use vyre_foundation::ir::Op;
use vyre_foundation::types::Value;

/// Widest stride at which no index between lanes in range has wrapped past 2^32: buffers are that
/// much shorter. Chosen, not measured: wider strides use accesses that do not rely on this.
pub(crate) const MOST_STRIDE: u32 = 4096;

/// Per register: the scalar as another one plus a constant, as far as known.
#[derive(Default)]
pub(crate) struct Bases {
    constants: Vec<Option<u32>>,
    sums: Vec<Option<(Reg, u32)>>,
}

/// Elements that lanes access: lane k at the root plus the offset plus k times the stride, modulo
/// 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Elements {
    pub(crate) root: Reg,
    pub(crate) offset: u32,
    pub(crate) stride: Stride,
}

/// Distance between the elements of neighbouring lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stride {
    Constant(u32),
    /// A scalar that is known at dispatch.
    Scalar(Reg),
}

impl Bases {
    /// Collects the scalars of a kernel. Where lanes are iterations of one invocation, accesses
    /// of different lanes can depend on each other, so nothing is known there.
    pub(crate) fn of_code(code: &VectorCode) -> Option<Bases> {
        let mut bases = Bases::default();
        match &code.frame {
            Frame::Rows { head, full, tail } => {
                [head, full, tail].into_iter().for_each(|block| bases.block(block));
            }
            Frame::Groups(body) => bases.block(body),
        }
        (code.invocations == code.lanes).then_some(bases)
    }

    fn block(&mut self, block: &[Inst]) {
        for inst in block {
            if let Inst::Def(reg, calc) = inst {
                self.note(*reg, calc);
            }
            nested(inst).into_iter().for_each(|block| self.block(block));
        }
    }

    pub(crate) fn note(&mut self, reg: Reg, calc: &Calc) {
        match calc {
            Calc::Const(Value::U32(number)) => put(&mut self.constants, reg, *number),
            Calc::Const(Value::I32(number)) => put(&mut self.constants, reg, *number as u32),
            Calc::Op(Op::Add, args) => {
                let sum = match args[..] {
                    [a, b] => match (self.constant(a), self.constant(b)) {
                        (_, Some(number)) => Some((a, number)),
                        (Some(number), None) => Some((b, number)),
                        (None, None) => None,
                    },
                    _ => None,
                };
                if let Some((base, number)) = sum {
                    let (root, more) = self.of(base);
                    put(&mut self.sums, reg, (root, more.wrapping_add(number)));
                }
            }
            _ => {}
        }
    }

    /// Returns the register and the constant whose sum a register is.
    pub(crate) fn of(&self, reg: Reg) -> (Reg, u32) {
        self.sums.get(reg.0 as usize).copied().flatten().unwrap_or((reg, 0))
    }

    fn constant(&self, reg: Reg) -> Option<u32> {
        self.constants.get(reg.0 as usize).copied().flatten()
    }

    /// Returns the elements of an access, if they are evenly spaced.
    pub(crate) fn elements(&self, index: Index) -> Option<Elements> {
        let (base, stride) = match index {
            Index::Same(base) => (base, Stride::Constant(0)),
            Index::Consecutive(base) => (base, Stride::Constant(1)),
            Index::Strided(base, stride) => (base, Stride::Constant(stride as u32)),
            Index::Spaced(base, stride) => {
                (base, self.constant(stride).map_or(Stride::Scalar(stride), Stride::Constant))
            }
            Index::Mostly { .. } | Index::Each(_) => return None,
        };
        let (root, offset) = self.of(base);
        Some(Elements { root, offset, stride })
    }
}

/// Sets the entry of a register.
fn put<T: Clone>(table: &mut Vec<Option<T>>, reg: Reg, value: T) {
    let at = reg.0 as usize;
    if table.len() <= at {
        table.resize(at + 1, None);
    }
    table[at] = Some(value);
}

impl Elements {
    /// The elements that follow these by a constant distance.
    pub(crate) fn plus(self, distance: u32) -> Elements {
        Elements { offset: self.offset.wrapping_add(distance), ..self }
    }

    /// Whether no lane accesses the same element with both accesses.
    pub(crate) fn are_apart(self, other: Elements) -> bool {
        self.root == other.root && self.stride == other.stride && self.offset != other.offset
    }
}
