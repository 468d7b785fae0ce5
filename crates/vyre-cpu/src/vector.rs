//! The vector form: a kernel across SIMD lanes, independent of the machine.
//!
//! A register is either *scalar* (one value for all lanes) or a *vector* (one value per lane;
//! [`VectorCode::lanes`] of them). Control flow is scalar: divergent control flow of the kernel has
//! become masks, vectors of `bool`. An op on scalar and vector operands broadcasts the scalars.
//! Registers are written once; [`Var`]s are mutable. The form does not depend on the width of
//! machine vectors: an emitter splits a vector into as many pieces as it needs.

use crate::source_region::{RegionNames, SourceRegion};
use std::fmt;
use vyre_foundation::ir::{AtomicOp, Op, SubgroupOp};
use vyre_foundation::kernel::{BufferId, Place};
use vyre_foundation::types::{DataType, Value, ValueType};

/// A register, written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reg(pub(crate) u32);

/// A mutable register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Var(pub(crate) u32);

/// Memory for one vector per vector of invocations of a workgroup, for values that live across a
/// barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VectorSlot(pub(crate) u32);

/// Thread-local memory for [`TILE`] elements of every lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Tile(pub(crate) u32);

/// Number of loop iterations that run on one copy of the rows: a cache line of 4-byte elements, so
/// that lines of different rows that compete for one cache set are read once.
pub(crate) const TILE: u32 = 16;

/// Start of each lane's row in a buffer: lane k at the first scalar plus k times the second, modulo
/// 2^32. All of it is in range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowStarts {
    pub(crate) buffer: BufferId,
    pub(crate) index: [Reg; 2],
}

/// Operation on a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TileStep {
    /// Copies the rows into the tile.
    Fill(Tile, RowStarts),
    /// Writes an element of each lane.
    Put { tile: Tile, number: Reg, value: Reg },
    /// Copies the tile back to the rows.
    Flush(Tile, RowStarts),
}

/// The type of a register or variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegType {
    pub(crate) ty: ValueType,
    pub(crate) vector: bool,
}

impl RegType {
    /// A mask of lanes.
    pub(crate) const MASK: RegType = RegType { ty: ValueType::Bool, vector: true };
    /// A condition for all lanes together.
    pub(crate) const CONDITION: RegType = RegType { ty: ValueType::Bool, vector: false };

    /// Whether values or lanes have 64 bits.
    pub(crate) fn is_wide(self) -> bool {
        self.ty.bits() == 64
    }

    pub(crate) fn is_wide_integer(self) -> bool {
        self.is_wide() && self.ty.is_integer()
    }
}

/// A kernel in vector form.
#[derive(Clone, Debug)]
pub(crate) struct VectorCode {
    /// Lanes of a vector.
    pub(crate) lanes: u32,
    /// Invocations that the frame runs together: as many as lanes, or one if lanes are iterations.
    pub(crate) invocations: u32,
    pub(crate) regs: Vec<RegType>,
    /// The region that each register is computed in.
    pub(crate) regions: Vec<SourceRegion>,
    pub(crate) region_names: RegionNames,
    pub(crate) vars: Vec<RegType>,
    pub(crate) slots: Vec<ValueType>,
    /// Element type of each tile.
    pub(crate) tiles: Vec<DataType>,
    pub(crate) frame: Frame,
    /// How rows are processed together, vector by vector.
    pub(crate) blocks: Blocks,
    /// Condition under which all lanes of a vector are on one side of every border, if the code is
    /// split by it.
    pub(crate) inner: Option<Reg>,
}

/// Rows processed together.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    /// Number of rows.
    pub(crate) rows: u32,
    /// Loads whose lanes have, in the next row, the next element each; they have no effect on one
    /// another.
    pub(crate) loads: Vec<Reg>,
    /// Buffer of a store of that kind, which nothing else accesses.
    pub(crate) store: Option<BufferId>,
}

/// Structure around the vectors of invocations.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// Walks the domain along its rows; `head` runs once per row; `tail` handles the end of a row
    /// that does not fill a vector. If `full` is empty, `tail` handles full vectors too.
    Rows { head: Vec<Inst>, full: Vec<Inst>, tail: Vec<Inst> },
    /// Runs workgroups in sequence; the body contains the loops over their vectors of invocations.
    Groups(Vec<Inst>),
}

impl Frame {
    /// Returns all code: of a row's head, full vectors and tail, or of a workgroup.
    pub(crate) fn blocks(&self) -> Vec<&[Inst]> {
        match self {
            Frame::Rows { head, full, tail } => vec![head, full, tail],
            Frame::Groups(body) => vec![body],
        }
    }

    /// Returns the same, to change it.
    pub(crate) fn blocks_mut(&mut self) -> Vec<&mut Vec<Inst>> {
        match self {
            Frame::Rows { head, full, tail } => vec![head, full, tail],
            Frame::Groups(body) => vec![body],
        }
    }
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) enum Inst {
    /// Computes a register.
    Def(Reg, Calc),
    /// Writes a variable.
    Set(Var, Reg),
    /// Keeps a vector for later parts of the workgroup's work.
    Keep(VectorSlot, Reg),
    /// Writes elements.
    Store(Store),
    /// Moves rows to and from thread-local memory.
    Tile(TileStep),
    /// Zeroes a private array, in the lanes of the mask.
    Clear {
        array: u32,
        mask: Option<Reg>,
    },
    /// Branches on a scalar.
    If {
        condition: Reg,
        then: Vec<Inst>,
        otherwise: Vec<Inst>,
    },
    /// Runs `body`, then `next`, until a `Break`; `Continue` goes to `next`. Stops if the dispatch
    /// is cancelled.
    Loop {
        body: Vec<Inst>,
        next: Vec<Inst>,
        /// Whether it completes the work of another loop: a few iterations at most.
        rest: bool,
    },
    Break,
    Continue,
    /// Runs `full` for each full vector of the workgroup's invocations, then `tail` for the rest,
    /// if any.
    Lanes {
        full: Vec<Inst>,
        tail: Vec<Inst>,
    },
    /// Ends this vector of invocations.
    EndLanes,
    /// Ends this workgroup.
    EndGroup,
    /// Fails the dispatch with this code.
    Trap(u32),
}

/// A store of a scalar or vector, in the lanes of the mask (all if there is none).
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) place: Place,
    /// Element type of the place.
    pub(crate) element: DataType,
    pub(crate) index: Index,
    pub(crate) value: Reg,
    /// Values of the elements that follow each lane's element. With a strided index, `value` and
    /// `more` fill the whole range.
    pub(crate) more: Vec<Reg>,
    pub(crate) mask: Option<Reg>,
    /// Whether the index can be out of range in some lane of the mask.
    pub(crate) checked: bool,
    pub(crate) region: SourceRegion,
}

/// As derived, but without the region: listings show what code does, not where it comes from.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Store { place, element, index, value, more, mask, checked, region: _ } = self;
        f.debug_struct("Store")
            .field("place", place)
            .field("element", element)
            .field("index", index)
            .field("value", value)
            .field("more", more)
            .field("mask", mask)
            .field("checked", checked)
            .finish()
    }
}

/// Elements that the lanes access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// All lanes the same: a scalar register.
    Same(Reg),
    /// Lane k accesses the scalar register plus k.
    Consecutive(Reg),
    /// Lane k accesses the scalar register plus k times the number, which is neither 0 nor 1;
    /// nothing wraps.
    Strided(Reg, i32),
    /// Lane k accesses the first scalar register plus k times the second, modulo 2^32.
    Spaced(Reg, Reg),
    /// A vector register. Where the scalar `when` holds, lane k is the scalar `base` plus k.
    Mostly { each: Reg, base: Reg, when: Reg },
    /// A vector register.
    Each(Reg),
}

impl TileStep {
    /// Returns the registers that it reads.
    pub(crate) fn registers(self) -> [Reg; 2] {
        match self {
            TileStep::Fill(_, span) | TileStep::Flush(_, span) => span.index,
            TileStep::Put { number, value, .. } => [number, value],
        }
    }
}

impl Index {
    /// Returns the registers that it consists of.
    pub(crate) fn registers(self) -> impl Iterator<Item = Reg> {
        let (first, others) = match self {
            Index::Same(reg) | Index::Consecutive(reg) | Index::Strided(reg, _) | Index::Each(reg) => {
                (reg, [None; 2])
            }
            Index::Spaced(base, stride) => (base, [Some(stride), None]),
            Index::Mostly { each, base, when } => (each, [Some(base), Some(when)]),
        };
        [Some(first)].into_iter().chain(others).flatten()
    }
}

/// Computation of a register.
#[derive(Clone, Debug)]
pub(crate) enum Calc {
    Const(Value),
    /// 0, 1, 2, … across the lanes.
    LaneNumbers,
    Source(Source),
    Get(Var),
    Recall(VectorSlot),
    Op(Op, Vec<Reg>),
    /// Whether a mask has any lane set.
    Any(Reg),
    /// Whether a mask has every lane set.
    All(Reg),
    /// Lane 0 of a vector.
    First(Reg),
    Load {
        place: Place,
        element: DataType,
        index: Index,
        /// Whether the index can be out of range in some lane, running or not.
        checked: bool,
    },
    Len(BufferId),
    /// The element with this number of each lane's row.
    Tile(Tile, Reg),
    Atomic {
        op: AtomicOp,
        buffer: BufferId,
        index: Reg,
        operands: Vec<Reg>,
        mask: Option<Reg>,
        /// Whether the index can be out of range in some lane of the mask.
        checked: bool,
        /// Whether the old values are read.
        read: bool,
    },
    Subgroup {
        op: SubgroupOp,
        operands: Vec<Reg>,
        mask: Option<Reg>,
    },
}

/// A scalar that the frame provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Position of lane 0 in the domain, on an axis; axes 1 and 2 are the same for all lanes.
    Position(u8),
    /// Number of lanes left in this row.
    Remaining,
    /// Position of the workgroup.
    Group(u8),
    /// Number of workgroups.
    Grid(u8),
    /// Linear local id of lane 0.
    FirstLane,
}

impl Inst {
    /// Whether control never reaches the following instruction.
    pub(crate) fn leaves(&self) -> bool {
        match self {
            Inst::Break | Inst::Continue | Inst::EndLanes | Inst::EndGroup | Inst::Trap(_) => true,
            Inst::Def(..)
            | Inst::Set(..)
            | Inst::Keep(..)
            | Inst::Store(_)
            | Inst::Tile(_)
            | Inst::Clear { .. }
            | Inst::If { .. }
            | Inst::Loop { .. }
            | Inst::Lanes { .. } => false,
        }
    }
}

impl VectorCode {
    pub(crate) fn reg_type(&self, reg: Reg) -> RegType {
        self.regs[reg.0 as usize]
    }
}

impl fmt::Display for VectorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lanes {}", self.lanes)?;
        if self.invocations != self.lanes {
            writeln!(f, "invocations {}", self.invocations)?;
        }
        if self.blocks.rows > 1 {
            writeln!(f, "{:?}", self.blocks)?;
        }
        match &self.frame {
            Frame::Rows { head, full, tail } => {
                writeln!(f, "rows head {{")?;
                list(self, f, head, 1)?;
                writeln!(f, "}} full {{")?;
                list(self, f, full, 1)?;
                writeln!(f, "}} tail {{")?;
                list(self, f, tail, 1)?;
                writeln!(f, "}}")
            }
            Frame::Groups(body) => {
                writeln!(f, "groups {{")?;
                list(self, f, body, 1)?;
                writeln!(f, "}}")
            }
        }
    }
}

fn list(code: &VectorCode, f: &mut fmt::Formatter<'_>, insts: &[Inst], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    for inst in insts {
        match inst {
            Inst::Def(reg, calc) => {
                let reg_type = code.reg_type(*reg);
                let kind = if reg_type.vector { "v" } else { "s" };
                writeln!(f, "{pad}r{}: {kind}.{} = {calc:?}", reg.0, reg_type.ty)?;
            }
            Inst::If { condition, then, otherwise } => {
                writeln!(f, "{pad}if r{} {{", condition.0)?;
                list(code, f, then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{pad}}} else {{")?;
                    list(code, f, otherwise, depth + 1)?;
                }
                writeln!(f, "{pad}}}")?;
            }
            Inst::Loop { body, next, rest } => {
                writeln!(f, "{pad}{}loop {{", if *rest { "rest " } else { "" })?;
                list(code, f, body, depth + 1)?;
                if !next.is_empty() {
                    writeln!(f, "{pad}}} next {{")?;
                    list(code, f, next, depth + 1)?;
                }
                writeln!(f, "{pad}}}")?;
            }
            Inst::Lanes { full, tail } => {
                writeln!(f, "{pad}lanes full {{")?;
                list(code, f, full, depth + 1)?;
                writeln!(f, "{pad}}} tail {{")?;
                list(code, f, tail, depth + 1)?;
                writeln!(f, "{pad}}}")?;
            }
            Inst::Set(..)
            | Inst::Keep(..)
            | Inst::Store(_)
            | Inst::Tile(_)
            | Inst::Clear { .. }
            | Inst::Break
            | Inst::Continue
            | Inst::EndLanes
            | Inst::EndGroup
            | Inst::Trap(_) => writeln!(f, "{pad}{inst:?}")?,
        }
    }
    Ok(())
}
