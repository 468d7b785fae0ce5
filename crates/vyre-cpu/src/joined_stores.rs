//! Merging of stores that fill a range of memory together: `y[2 * i] = a` and `y[2 * i + 1] = b`
//! become one store of both fields.
//!
//! A strided store alone writes lane by lane, since it must not touch the gaps between its
//! elements. Where a block contains as many stores as the stride, one element apart, the last one
//! writes for all. Where the stride is wider than that, as for small matrices, a run of stores that
//! fills a piece in each lane, or half of one, becomes one: the values are transposed in registers.
//! Nothing in between can access the same elements or leave the block.

use crate::elements::{Bases, Elements, MOST_STRIDE, Stride};
use crate::vector::{Calc, Frame, Index, Inst, Store, Var, VectorCode};
use vyre_foundation::kernel::Place;

pub(crate) fn join_fields(code: &mut VectorCode) {
    let Some(bases) = Bases::of_code(code) else { return };
    let blocks = match &mut code.frame {
        Frame::Rows { head, full, tail } => vec![head, full, tail],
        Frame::Groups(body) => vec![body],
    };
    for block in blocks {
        join(block, &bases);
    }
}

fn join(block: &mut Vec<Inst>, bases: &Bases) {
    for inst in block.iter_mut() {
        match inst {
            Inst::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|b| join(b, bases)),
            Inst::Loop { body, next, .. } => [body, next].into_iter().for_each(|b| join(b, bases)),
            Inst::Lanes { full, tail } => [full, tail].into_iter().for_each(|b| join(b, bases)),
            Inst::Def(..)
            | Inst::Set(..)
            | Inst::Keep(..)
            | Inst::Store(_)
            | Inst::Tile(_)
            | Inst::Clear { .. }
            | Inst::Break
            | Inst::Continue
            | Inst::EndLanes
            | Inst::EndGroup
            | Inst::Trap(_) => {}
        }
    }
    for at in 0..block.len() {
        if let Some((store, parts)) = group_at(block, at, bases) {
            // The last of them writes; the others are replaced by placeholders until the end.
            let last = parts.iter().copied().max().unwrap_or(at);
            for part in parts {
                block[part] = Inst::Set(NOTHING, store.value);
            }
            block[last] = Inst::Store(store);
        }
    }
    block.retain(|inst| !matches!(inst, Inst::Set(var, _) if *var == NOTHING));
}

/// Placeholder for a merged store.
const NOTHING: Var = Var(u32::MAX);

/// Number of instructions after a store among which others are looked for, and the most fields that
/// are considered together. With 16 instructions, the code of four benchmarks (`yuv`, `blend`)
/// grows by 1,507 instructions, with 2 fields that of six by 2,077; from 64 and 4 on, all have the
/// same code.
const REACH: usize = 1024;
const MOST: usize = 64;

/// A store whose lanes are a constant distance apart.
#[derive(Clone, Copy)]
struct Field<'a> {
    store: &'a Store,
    elements: Elements,
    /// Distance between lanes.
    stride: u32,
}

/// Matches the stores that fill a range together with the one at `at`: one store of all, and their
/// positions.
fn group_at(block: &[Inst], at: usize, bases: &Bases) -> Option<(Store, Vec<usize>)> {
    let first = field(&block[at], bases)?;
    let mut found: Vec<(Field<'_>, usize)> = vec![(first, at)];
    for (number, inst) in block.iter().enumerate().skip(at + 1).take(REACH) {
        if found.len() == MOST {
            break;
        }
        match field(inst, bases) {
            Some(other)
                if other.store.place == first.store.place && is_beside(first.elements, other.elements) =>
            {
                if found.iter().any(|(known, _)| known.elements.offset == other.elements.offset) {
                    break;
                }
                if other.store.checked == first.store.checked {
                    found.push((other, number));
                }
            }
            Some(_) | None => {
                if found.iter().any(|(known, _)| may_touch(inst, known, bases)) {
                    break;
                }
            }
        }
    }
    let fields = run_of_fields(&first, found)?;
    let (lowest, more) = fields.split_first()?;
    let more = more.iter().map(|(field, _)| field.store.value).collect();
    let store = Store { more, ..lowest.0.store.clone() };
    Some((store, fields.into_iter().map(|(_, number)| number).collect()))
}

/// Returns the complete run of neighbouring fields that contains the first one, lowest first.
fn run_of_fields<'a>(
    first: &Field<'a>,
    mut found: Vec<(Field<'a>, usize)>,
) -> Option<Vec<(Field<'a>, usize)>> {
    let distance = |field: &Field<'_>| field.elements.offset.wrapping_sub(first.elements.offset) as i32;
    found.sort_unstable_by_key(|(field, _)| distance(field));
    let own = found.iter().position(|(field, _)| distance(field) == 0)?;
    let is_next = |k: usize| distance(&found[k].0) == distance(&found[k - 1].0) + 1;
    let start = (1..=own).rev().find(|&k| !is_next(k)).unwrap_or(0);
    let end = (own + 1..found.len()).find(|&k| !is_next(k)).unwrap_or(found.len());
    // Whole runs from the lowest field on.
    first.runs().into_iter().flatten().find_map(|size| {
        let from = start + (own - start) / size * size;
        (from + size <= end).then(|| found[from..from + size].to_vec())
    })
}

impl Field<'_> {
    /// Numbers of neighbouring fields that are stored together, the best first: all of a small
    /// record, or a piece of 32 bytes of one whose stride is wide, or half of one.
    fn runs(&self) -> [Option<usize>; 2] {
        const PIECE: usize = 32;
        let bytes = self.store.element.size();
        match self.stride {
            2..=4 => [Some(self.stride as usize), None],
            _ if matches!(self.store.index, Index::Spaced(..)) && bytes >= 4 && !self.store.checked => {
                let is_half = bytes == 4 && self.stride <= MOST_STRIDE;
                [Some(PIECE / bytes), is_half.then_some(PIECE / bytes / 2)]
            }
            _ => [None, None],
        }
    }
}

/// Matches a store at a constant stride whose lanes all run.
fn field<'a>(inst: &'a Inst, bases: &Bases) -> Option<Field<'a>> {
    let Inst::Store(store) = inst else { return None };
    let elements = bases.elements(store.index)?;
    let stride = match (store.index, elements.stride) {
        (Index::Strided(..) | Index::Spaced(..), Stride::Constant(stride)) => stride,
        _ => return None,
    };
    let is_single = store.mask.is_none() && store.more.is_empty() && matches!(store.place, Place::Buffer(_));
    (is_single && (stride as i32) > 1).then_some(Field { store, elements, stride })
}

fn is_beside(a: Elements, b: Elements) -> bool {
    a.root == b.root && a.stride == b.stride
}

/// Whether an instruction can access the elements that a store writes, or leave the block.
fn may_touch(inst: &Inst, field: &Field<'_>, bases: &Bases) -> bool {
    let meets = |place: Place, index: Index, fields: u32| {
        let is_apart = |elements: Elements| (0..fields).all(|k| elements.plus(k).are_apart(field.elements));
        place == field.store.place && !bases.elements(index).is_some_and(is_apart)
    };
    match inst {
        Inst::Def(_, Calc::Load { place, index, .. }) => meets(*place, *index, 1),
        Inst::Def(_, Calc::Atomic { .. } | Calc::Subgroup { .. }) => true,
        Inst::Store(store) => meets(store.place, store.index, store.more.len() as u32 + 1),
        Inst::Def(..) | Inst::Set(..) | Inst::Keep(..) => false,
        Inst::Tile(_)
        | Inst::Clear { .. }
        | Inst::If { .. }
        | Inst::Loop { .. }
        | Inst::Lanes { .. }
        | Inst::Break
        | Inst::Continue
        | Inst::EndLanes
        | Inst::EndGroup
        | Inst::Trap(_) => true,
    }
}
