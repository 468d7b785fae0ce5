//! Hoisting of row-invariant code, and the number of rows processed together.
//!
//! Scalars that depend on the row's position, on lengths and on uniforms are hoisted out of the
//! code of a vector. Ops have no effect and are defined for all operands, so those in the likely
//! side of a branch are hoisted too. So are loads that no store to their buffer precedes: what an
//! invocation reads before it writes, no other one writes. Where a branch guards such a load, its
//! index is checked, once per row.
//!
//! A transposition accesses memory down columns: every lane touches another cache line, and the
//! next row touches the neighbours of all of them. Rows are then processed in blocks, vector by
//! vector, so that a line is still cached when its neighbour is needed. In short code, squares of
//! lanes and rows are transposed in registers, so that columns are accessed in whole pieces.

use crate::schedule::nested;
use crate::vector::{Blocks, Calc, Index, Inst, Reg, RegType, Source, TileStep};
use hashbrown::HashSet;
use vyre_foundation::ir::{Access, Op};
use vyre_foundation::kernel::{BufferId, KernelBody, Place};
use vyre_foundation::types::Value;

/// Moves code that is the same for all vectors of a row out of the code of one.
pub(crate) fn head_of_row(kernel: &KernelBody, regs: &[RegType], vector: &mut Vec<Inst>) -> Vec<Inst> {
    let mut split = Split {
        kernel,
        regs,
        is_same: vec![false; regs.len()],
        at_start: true,
        written: HashSet::new(),
        loads: 0,
        head: Vec::new(),
    };
    split.block(vector);
    split.head
}

struct Split<'k> {
    kernel: &'k KernelBody,
    regs: &'k [RegType],
    /// Per register: whether it is in the head.
    is_same: Vec<bool>,
    /// Whether only definitions have come before.
    at_start: bool,
    /// What has been written before.
    written: HashSet<Place>,
    /// Number of loads in the head.
    loads: usize,
    head: Vec<Inst>,
}

/// Maximum number of loads in the head of a row; more would only take registers from the vectors.
/// Of the benchmarks only `dct` has more than 16; with 128, its code grows by 840 instructions.
const LOADS: usize = 32;

impl Split<'_> {
    fn block(&mut self, block: &mut Vec<Inst>) {
        for mut inst in std::mem::take(block) {
            match &mut inst {
                Inst::Def(reg, calc) if !self.regs[reg.0 as usize].vector && self.is_row(calc) => {
                    self.is_same[reg.0 as usize] = true;
                    if let Calc::Load { checked, .. } = calc {
                        *checked |= !self.at_start;
                        self.loads += 1;
                    }
                    self.head.push(inst);
                    continue;
                }
                Inst::Def(..) => note_written(&inst, &mut self.written),
                Inst::If { then, otherwise, .. } => {
                    self.at_start = false;
                    self.block(then);
                    otherwise.iter().for_each(|inst| note_written(inst, &mut self.written));
                }
                Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Store(_)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Loop { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::Lanes { .. }
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {
                    self.at_start = false;
                    note_written(&inst, &mut self.written);
                }
            }
            block.push(inst);
        }
    }

    /// Whether a scalar is the same for all vectors of a row.
    fn is_row(&self, calc: &Calc) -> bool {
        let same = |reg: &Reg| self.is_same[reg.0 as usize];
        match calc {
            Calc::Const(_) | Calc::Len(_) => true,
            Calc::Source(source) => match source {
                Source::Position(axis) => *axis > 0,
                Source::Grid(_) => true,
                Source::Remaining | Source::Group(_) | Source::FirstLane => false,
            },
            Calc::Op(_, args) => args.iter().all(same),
            Calc::Load { place: Place::Buffer(buffer), index: Index::Same(index), .. } => {
                let is_kept = match self.kernel.buffer(*buffer).decl.access {
                    Access::Uniform => true,
                    Access::Read => self.loads < LOADS,
                    Access::ReadWrite | Access::Output => {
                        self.loads < LOADS && !self.written.contains(&Place::Buffer(*buffer))
                    }
                    Access::Workgroup => false,
                };
                is_kept && same(index)
            }
            Calc::Load { .. }
            | Calc::LaneNumbers
            | Calc::Get(_)
            | Calc::Recall(_)
            | Calc::Tile(..)
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => false,
        }
    }
}

/// Collects what an instruction and those in its blocks write.
fn note_written(inst: &Inst, written: &mut HashSet<Place>) {
    match inst {
        Inst::Store(store) => drop(written.insert(store.place)),
        Inst::Def(_, Calc::Atomic { buffer, .. }) => drop(written.insert(Place::Buffer(*buffer))),
        Inst::Tile(TileStep::Flush(_, span)) => drop(written.insert(Place::Buffer(span.buffer))),
        Inst::Def(..)
        | Inst::Set(..)
        | Inst::Keep(..)
        | Inst::Tile(TileStep::Fill(..) | TileStep::Put { .. })
        | Inst::Clear { .. }
        | Inst::If { .. }
        | Inst::Loop { .. }
        | Inst::Lanes { .. }
        | Inst::Break
        | Inst::Continue
        | Inst::EndLanes
        | Inst::EndGroup
        | Inst::Trap(_) => {}
    }
    nested(inst).into_iter().flatten().for_each(|inst| note_written(inst, written));
}

/// Rows of a block: as many as a cache line has elements of 4 bytes, so that a line that a column
/// touches is used up before it is evicted.
const BLOCK: u32 = 16;

/// Longest code, in instructions, that is repeated for the rows of a square: twice that of
/// `transpose`, which has 13 to 24.
const SHORT: usize = 48;

/// How rows are processed together.
pub(crate) fn blocks_of_rows(kernel: &KernelBody, regs: &[RegType], vector: &[Inst]) -> Blocks {
    let straight = vector.iter().all(|inst| matches!(inst, Inst::Def(..) | Inst::Store(_)));
    let mut walk = Columns {
        kernel,
        steps: vec![None; regs.len()],
        strides: vec![None; regs.len()],
        found: false,
        squares: straight && vector.len() <= SHORT,
        loads: Vec::new(),
        stores: Vec::new(),
    };
    walk.block(vector);
    if !walk.found {
        return Blocks { rows: 1, loads: Vec::new(), store: None };
    }
    let Columns { loads, stores, .. } = walk;
    Blocks { rows: BLOCK, store: only_access(kernel, vector, &stores), loads }
}

/// Returns the buffer of a single store that nothing else in the code accesses, so that it can wait
/// for other rows.
fn only_access(kernel: &KernelBody, vector: &[Inst], stores: &[BufferId]) -> Option<BufferId> {
    let &[buffer] = stores else { return None };
    let touches = |inst: &&Inst| match inst {
        Inst::Def(_, Calc::Load { place, .. }) => *place == Place::Buffer(buffer),
        Inst::Def(_, Calc::Atomic { buffer: other, .. }) => *other == buffer,
        Inst::Store(store) => store.place == Place::Buffer(buffer),
        _ => false,
    };
    let is_shared = kernel.buffer(buffer).decl.access == Access::Workgroup;
    (!is_shared && vector.iter().filter(touches).count() == 1).then_some(buffer)
}

struct Columns<'k> {
    kernel: &'k KernelBody,
    /// Per scalar register: its increase from one row to the next, if known.
    steps: Vec<Option<i64>>,
    /// Constants.
    strides: Vec<Option<u32>>,
    found: bool,
    /// Whether squares can be transposed.
    squares: bool,
    /// Loads and stores whose rows are neighbours in memory.
    loads: Vec<Reg>,
    stores: Vec<BufferId>,
}

impl Columns<'_> {
    fn block(&mut self, block: &[Inst]) {
        for inst in block {
            match inst {
                Inst::Def(reg, calc) => {
                    self.steps[reg.0 as usize] = self.step(calc);
                    if let Calc::Const(Value::U32(number)) = calc {
                        self.strides[reg.0 as usize] = Some(*number);
                    }
                    if let Calc::Load { place, index, checked, .. } = calc
                        && let Some((buffer, is_next)) = self.access(*place, *index)
                        && is_next
                        && !checked
                        && self.kernel.buffer(buffer).decl.access == Access::Read
                    {
                        self.loads.push(*reg);
                    }
                }
                Inst::Store(store) => {
                    if let Some((buffer, is_next)) = self.access(store.place, store.index)
                        && is_next
                        && !store.checked
                        && store.mask.is_none()
                        && store.more.is_empty()
                    {
                        self.stores.push(buffer);
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                // A loop has a separate access pattern.
                Inst::Loop { .. }
                | Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::Lanes { .. }
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {}
            }
        }
    }

    /// Notes an access down columns. Returns its buffer if squares of it can be transposed, and
    /// whether the next row has the next element.
    fn access(&mut self, place: Place, index: Index) -> Option<(BufferId, bool)> {
        const LINE: i64 = 64;
        let (Place::Buffer(buffer), Index::Spaced(base, stride)) = (place, index) else { return None };
        let bytes = self.kernel.buffer(buffer).decl.element.size() as i64;
        let is_far = self.strides[stride.0 as usize].is_none_or(|stride| i64::from(stride) * bytes >= LINE);
        let step = self.steps[base.0 as usize];
        let down = step.is_some_and(|step| step != 0 && 2 * bytes * step.abs() <= LINE);
        self.found |= is_far && down;
        (self.squares && is_far && bytes >= 4).then_some((buffer, step == Some(1)))
    }

    fn step(&self, calc: &Calc) -> Option<i64> {
        let step = |reg: &Reg| self.steps[reg.0 as usize];
        match calc {
            Calc::Source(Source::Position(1)) => Some(1),
            Calc::Const(_) | Calc::Len(_) | Calc::Source(Source::Position(_) | Source::Grid(_)) => Some(0),
            Calc::Op(Op::Add, args) => Some(step(&args[0])?.saturating_add(step(&args[1])?)),
            Calc::Op(Op::Sub, args) => Some(step(&args[0])?.saturating_sub(step(&args[1])?)),
            Calc::Op(_, args) => args.iter().all(|arg| step(arg) == Some(0)).then_some(0),
            Calc::Load { place: Place::Buffer(buffer), index: Index::Same(index), .. } => {
                let is_uniform = self.kernel.buffer(*buffer).decl.access == Access::Uniform;
                step(index).filter(|&step| is_uniform && step == 0)
            }
            Calc::Source(Source::Remaining | Source::Group(_) | Source::FirstLane)
            | Calc::Load { .. }
            | Calc::LaneNumbers
            | Calc::Get(_)
            | Calc::Recall(_)
            | Calc::Tile(..)
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => None,
        }
    }
}
