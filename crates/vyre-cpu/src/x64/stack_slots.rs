//! Stack slot sharing after single-pass register allocation.
//!
//! The pass gives every value a separate slot for the whole function. This one computes a live
//! range per slot, from its first to its last access; ranges that do not overlap share a slot,
//! assigned in order of their starts. Blocks come after their predecessors and definitions before
//! uses, so a value is needed only within its range, except in loops: a range that enters or leaves
//! a loop is extended to cover all of it. A range wholly inside a loop restarts in every iteration.

use super::instruction::MachineFunction;
use regalloc2::{Allocation, Edit, Function, Inst, InstPosition, Output, ProgPoint, RegClass, SpillSlot};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Live range of a slot, in positions: two per instruction, before and after it.
#[derive(Clone, Copy)]
struct Life {
    class: RegClass,
    from: usize,
    to: usize,
}

/// Compacts the slots of an allocation.
pub(super) fn share(code: &MachineFunction, output: &mut Output) {
    let mut lives: Vec<Option<Life>> = vec![None; output.num_spillslots];
    every_place(code, output, |place, class, at| {
        if let Some(slot) = place.as_stack() {
            let life = lives[slot.index()].get_or_insert(Life { class, from: at, to: at });
            (life.from, life.to) = (life.from.min(at), life.to.max(at));
        }
    });
    cover_loops(code, &mut lives);
    let (places, count) = colours(code, &lives);
    output.num_spillslots = count;
    every_place(code, output, |place, _, _| {
        if let Some(slot) = place.as_stack() {
            *place = Allocation::stack(SpillSlot::new(places[slot.index()]));
        }
    });
}

/// Visits every location in the allocation, with the class of its value and the position.
fn every_place(
    code: &MachineFunction,
    output: &mut Output,
    mut visit: impl FnMut(&mut Allocation, RegClass, usize),
) {
    for index in 0..code.insts.len() {
        let first = output.inst_alloc_offsets[index] as usize;
        let operands = code.inst_operands(Inst::new(index));
        for (operand, place) in operands.iter().zip(&mut output.allocs[first..]) {
            // Before and after: an operand that is read cannot share its slot with one written by
            // the same instruction.
            visit(place, operand.class(), 2 * index);
            visit(place, operand.class(), 2 * index + 1);
        }
    }
    for (point, Edit::Move { from, to }) in &mut output.edits {
        let class = from.as_reg().or(to.as_reg()).map_or(RegClass::Float, |register| register.class());
        let at = position(*point);
        visit(from, class, at);
        visit(to, class, at);
    }
}

fn position(point: ProgPoint) -> usize {
    2 * point.inst().index() + usize::from(point.pos() == InstPosition::After)
}

/// Extends ranges over loops. A loop extends from the target of a back edge to the end of the block
/// that jumps back; inner loops come first.
fn cover_loops(code: &MachineFunction, lives: &mut [Option<Life>]) {
    let mut loops = Vec::new();
    for (index, block) in code.blocks.iter().enumerate() {
        for back in block.successors.iter().filter(|successor| successor.index() <= index) {
            let from = code.blocks[back.index()].first as usize;
            loops.push((2 * from, 2 * block.end as usize));
        }
    }
    loops.sort_by_key(|(from, to)| to - from);
    for life in lives.iter_mut().flatten() {
        for &(from, to) in &loops {
            let apart = life.to < from || life.from > to;
            let inside = from < life.from && life.to < to;
            if !apart && !inside {
                (life.from, life.to) = (life.from.min(from), life.to.max(to));
            }
        }
    }
}

/// Assigns a new slot for each old one, and returns their total size: vectors, which are larger,
/// come first.
fn colours(code: &MachineFunction, lives: &[Option<Life>]) -> (Vec<usize>, usize) {
    let mut places = vec![0; lives.len()];
    let mut next = 0;
    for class in [RegClass::Vector, RegClass::Float, RegClass::Int] {
        let size = code.spillslot_size(class);
        let of_class = |(slot, life): (usize, &Option<Life>)| {
            life.filter(|life| life.class == class).map(|life| (life.from, slot, life.to))
        };
        let mut ordered: Vec<(usize, usize, usize)> = lives.iter().enumerate().filter_map(of_class).collect();
        ordered.sort_unstable();
        let mut busy: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
        for (from, slot, to) in ordered {
            let free = busy.peek().is_some_and(|Reverse((end, _))| *end < from);
            let place = match if free { busy.pop() } else { None } {
                Some(Reverse((_, place))) => place,
                None => {
                    next += size;
                    next - size
                }
            };
            places[slot] = place;
            busy.push(Reverse((to, place)));
        }
    }
    (places, next)
}
