//! Lowers a kernel to its vector form: SPMD on SIMD.
//!
//! Invocations become lanes. Uniform values become scalars; ids become *affine* values, a scalar
//! plus a multiple of the lane number, so that accesses to neighbouring elements are wide;
//! everything else is a vector. Uniform control flow stays control flow. Divergent control flow
//! becomes masks (`masks`): a lane runs a statement if it is in the mask of running lanes.
//!
//! The files, from the whole to the parts: `groups` (workgroups, cut at barriers), `control` (one
//! vector of invocations, its statements and branches), `loops` and its special cases
//! `strided_loops`, `tiled_loops` and `lanes_along`, `borders` (vectors away from borders),
//! `locals`, `values`, `ids` and `arithmetic` (scalars, affine values and vectors), `access`
//! (memory), and `instructions` (registers and the list of instructions).

mod access;
mod across_barriers;
mod arithmetic;
mod assumptions;
mod borders;
mod control;
mod groups;
mod ids;
mod instructions;
mod lanes_along;
mod locals;
mod loops;
mod masks;
mod strided_loops;
mod tiled_loops;
mod values;

use crate::divergence::{LocalFacts, annotate, local_facts, values_read};
use crate::effort::Effort;
use crate::rows::{blocks_of_rows, head_of_row};
use crate::source_region::SourceRegion;
use crate::vector::{Blocks, Calc, Frame, Index, Inst, Reg, Var, VectorCode, VectorSlot};
use assumptions::{Supposed, has_borders};
use borders::Outcome;
use ids::invocation_numbers;
use instructions::Declared;
use locals::Locals;
use loops::Loops;
use masks::{Finished, Masks};
use std::collections::BTreeMap;
use tiled_loops::InTiles;
use values::{RegFacts, Values};
use vyre_foundation::kernel::{KernelBody, ValueId};

/// Lowers a kernel to vectors of `lanes` lanes, for one workgroup size.
pub(crate) fn lower(kernel: &KernelBody, lanes: u32, workgroup: [u32; 3], effort: Effort) -> VectorCode {
    lower_with(kernel, [lanes, lanes], workgroup, effort)
}

/// Lowers a kernel in which every value is uniform to one invocation at a time, with vectors of
/// `lanes` iterations in loops that are reductions.
pub(crate) fn lower_along(
    kernel: &KernelBody,
    lanes: u32,
    workgroup: [u32; 3],
    effort: Effort,
) -> VectorCode {
    lower_with(kernel, [1, lanes], workgroup, effort)
}

/// Lowers a kernel with this many invocations at once, and vectors of this many lanes.
fn lower_with(
    kernel: &KernelBody,
    [lanes, widest]: [u32; 2],
    workgroup: [u32; 3],
    effort: Effort,
) -> VectorCode {
    let (items, region_names) = annotate(kernel);
    let locals = local_facts(kernel, &items);
    let mut lowering = Lowering::new(kernel, lanes, workgroup, locals);
    lowering.along = (widest > lanes).then_some(widest);
    if effort == Effort::Quick {
        lowering.copies = COPIES;
    }
    let mut inner = None;
    let mut blocks = Blocks { rows: 1, loads: Vec::new(), store: None };
    let frame = if kernel.shape_free {
        let mut full = match lanes > 1 && has_borders(&items, kernel) {
            true => lowering.inner_and_border(&items, &mut inner),
            false => lowering.vector_of_lanes(&items, None),
        };
        // Vectors of one lane are always full.
        let mut tail = match lanes {
            1 => Vec::new(),
            _ => lowering.vector_of_lanes(&items, Some(Tail::Row)),
        };
        let is_long = effort == Effort::Quick && full.len() > SHORT && inner.is_none();
        if lanes > 1 && (is_heavy(&full) || is_long) {
            full.clear();
        }
        blocks = blocks_of_rows(kernel, &lowering.declared.regs, &full);
        let each = if full.is_empty() { &mut tail } else { &mut full };
        let head = head_of_row(kernel, &lowering.declared.regs, each);
        Frame::Rows { head, full, tail }
    } else {
        lowering.find_crossing(&items);
        Frame::Groups(lowering.whole_group(&items))
    };
    let Declared { regs, regions, vars, slots, tiles } = lowering.declared;
    VectorCode {
        lanes: widest,
        invocations: lanes,
        regs,
        regions,
        region_names,
        vars,
        slots,
        tiles,
        frame,
        blocks,
        inner,
    }
}

/// Longest code, in instructions, that a quick compilation duplicates for full vectors without
/// masks. The second copy is half of the code and of the time to compile it: without a limit, the
/// quick code of `yuv` has 6,816 bytes instead of 3,232; with 16, 17 of the benchmarks run masked.
const SHORT: usize = 32;

/// Whether masks cost this code less than compiling a second copy: it is long and straight-line,
/// with few memory accesses.
fn is_heavy(insts: &[Inst]) -> bool {
    // With 320, the code of `black_scholes` grows from 5,280 to 8,544 bytes; without a limit, that
    // of `options_f64` from 13,536 to 24,576. Between 80 and 160 none of the benchmarks differs.
    const LONG: usize = 160;
    // A mask costs about one instruction per access, so this many are at most a twentieth of the
    // code. The two kernels above have at most 4.
    const ACCESSES: usize = 8;
    let accesses = insts.iter().filter(|inst| {
        matches!(
            inst,
            Inst::Store(_)
                | Inst::Def(
                    _,
                    Calc::Load {
                        index: Index::Consecutive(_)
                            | Index::Strided(..)
                            | Index::Spaced(..)
                            | Index::Mostly { .. }
                            | Index::Each(_),
                        ..
                    }
                )
        )
    });
    let straight = insts.iter().all(|inst| matches!(inst, Inst::Def(..) | Inst::Set(..) | Inst::Store(_)));
    insts.len() > LONG && straight && accesses.count() <= ACCESSES
}

/// Representation of a kernel value in a vector of lanes.
#[derive(Clone, Copy, Debug)]
enum LaneValue {
    /// A scalar.
    Uniform(Reg),
    /// Lane k has the scalar plus k times the constant stride, wrapping; a 32-bit integer.
    Affine { base: Reg, stride: u32 },
    /// Lane k has the scalar plus k times a `u32` known only at dispatch, wrapping; a 32-bit
    /// integer.
    Spaced { base: Reg, stride: Reg },
    /// A vector.
    Varying(Reg),
}

/// Storage of a local or of a value that crosses parts.
#[derive(Clone, Copy, Debug)]
enum ValueStorage {
    Var(Var),
    Slot(VectorSlot),
}

/// A last vector that is not full.
#[derive(Clone, Copy)]
enum Tail {
    /// The end of a row; the frame holds the number of lanes left.
    Row,
    /// The end of a workgroup, with this many lanes.
    Group(u32),
}

/// Maximum nesting depth of duplicated branches; the code doubles at each level. Branches in 13 of
/// the benchmarks are duplicated, of which one (`fir`) has a second level and none a third.
const COPIES: u32 = 2;

/// A kernel on its way to vector form.
struct Lowering<'k> {
    kernel: &'k KernelBody,
    /// Facts about the kernel's values.
    facts: ValueFacts,
    lanes: u32,
    workgroup: [u32; 3],
    /// Lanes of loops whose iterations are the lanes, if there are any.
    along: Option<u32>,
    declared: Declared,
    /// The region of the current statement.
    region: SourceRegion,
    /// Instructions of the open block.
    out: Vec<Inst>,
    reg_facts: RegFacts,
    values: Values<'k>,
    locals: Locals,
    masks: Masks,
    finished: Finished,
    loops: Loops,
    /// Tiles of the current loop.
    in_tiles: InTiles,
    /// Number of enclosing branches that are emitted twice, with masks and without.
    copies: u32,
    /// Comparisons whose outcome is known in the current loop.
    decided: BTreeMap<ValueId, Outcome>,
    /// Assumptions about all lanes, while emitting code for vectors away from borders.
    supposed: Option<Supposed>,
}

/// Facts about the kernel's values, per value.
struct ValueFacts {
    /// Whether some statement reads it.
    is_read: Vec<bool>,
    /// Whether it is the number of an invocation on an axis.
    is_number: Vec<bool>,
}

impl<'k> Lowering<'k> {
    fn new(kernel: &'k KernelBody, lanes: u32, workgroup: [u32; 3], local_facts: LocalFacts) -> Lowering<'k> {
        Lowering {
            kernel,
            facts: ValueFacts { is_read: values_read(kernel), is_number: invocation_numbers(kernel) },
            lanes,
            workgroup,
            along: None,
            declared: Declared::default(),
            region: SourceRegion::default(),
            out: Vec::new(),
            reg_facts: RegFacts::default(),
            values: Values::new(kernel.values.len()),
            locals: Locals::new(local_facts, kernel.locals.len()),
            masks: Masks::default(),
            finished: Finished::default(),
            loops: Loops::default(),
            in_tiles: InTiles::default(),
            copies: 0,
            decided: BTreeMap::new(),
            supposed: None,
        }
    }
}
