//! Counted loops with step one: accesses with which each lane walks along a separate row, and
//! comparisons whose varying side only increases with iterations and lanes.
//!
//! Where each lane walks along a row, each reads a different cache line, and some lines can be
//! evicted by the next iteration: rows a power of two apart compete for the same few cache sets. So
//! a few iterations run together: their part of each row is copied to thread-local memory at once,
//! and what they write is copied back afterwards. This is equivalent if no other access of the loop
//! touches the same buffer, or only a store to each element after it was loaded.

use crate::divergence::Item;
use crate::op_groups::Inequality;
use hashbrown::HashMap;
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{BufferId, Def, KernelBody, Place, StmtKind, ValueId};
use vyre_foundation::types::ValueType;

/// An access of every iteration whose index increases by one per iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWalk {
    pub(crate) buffer: BufferId,
    pub(crate) index: ValueId,
    /// The loaded value; `None` for a store.
    pub(crate) loaded: Option<ValueId>,
}

/// Accesses of a loop that can be made for several iterations together.
pub(crate) struct RowWalks<'k> {
    pub(crate) walks: Vec<RowWalk>,
    /// Definitions in the loop's own block.
    pub(crate) definitions: HashMap<ValueId, &'k Def>,
}

/// Maximum number of copied rows per loop: four tiles of 16 elements in 16 lanes are 4 KiB, an
/// eighth of the smallest first-level cache. `batched` would copy more than 4; `iir` and
/// `solve` copy 2.
const MOST: usize = 4;

/// Finds such accesses in the body of a counted loop with step one and no early exits.
pub(crate) fn walks<'k>(body: &[Item<'k>], counter: ValueId) -> Option<RowWalks<'k>> {
    let mut touched = Touched::default();
    if !touched.block(body) {
        return None;
    }
    let mut definitions = HashMap::new();
    let mut walks = Vec::new();
    for item in body {
        let walk = match &item.stmt.kind {
            StmtKind::Def(value, def) => {
                definitions.insert(*value, def);
                match def {
                    Def::Load { place: Place::Buffer(buffer), index, in_bounds: true } => {
                        let unchanged =
                            !touched.stores.contains_key(buffer) || is_updated(body, &touched, *buffer);
                        unchanged.then_some(RowWalk { buffer: *buffer, index: *index, loaded: Some(*value) })
                    }
                    _ => None,
                }
            }
            StmtKind::Store { place: Place::Buffer(buffer), index, in_bounds: true, .. } => {
                let alone = touched.stores[buffer] == 1 && !touched.loads.contains_key(buffer)
                    || is_updated(body, &touched, *buffer);
                alone.then_some(RowWalk { buffer: *buffer, index: *index, loaded: None })
            }
            _ => None,
        };
        walks.extend(walk.filter(|walk| steps(walk.index, counter, &definitions) == Some(1)));
    }
    walks.truncate(MOST);
    (!walks.is_empty()).then_some(RowWalks { walks, definitions })
}

/// Whether each iteration loads one element of a buffer, then stores to it, and touches no other.
fn is_updated(body: &[Item<'_>], touched: &Touched, buffer: BufferId) -> bool {
    if touched.loads.get(&buffer) != Some(&1) || touched.stores.get(&buffer) != Some(&1) {
        return false;
    }
    let indices = body.iter().filter_map(|item| match &item.stmt.kind {
        StmtKind::Def(_, Def::Load { place, index, .. }) if *place == Place::Buffer(buffer) => {
            Some((true, *index))
        }
        StmtKind::Store { place, index, .. } if *place == Place::Buffer(buffer) => Some((false, *index)),
        _ => None,
    });
    let indices: Vec<(bool, ValueId)> = indices.collect();
    matches!(indices[..], [(true, loaded), (false, stored)] if loaded == stored)
}

/// Comparisons in a loop's own block between a value that increases by one per iteration and an
/// invariant one.
pub(crate) struct Compared<'k> {
    /// The comparison, then the moving and the invariant value.
    pub(crate) found: Vec<(ValueId, Inequality, [ValueId; 2])>,
    /// Definitions in that block.
    pub(crate) definitions: HashMap<ValueId, &'k Def>,
}

/// Finds such comparisons.
pub(crate) fn compared<'k>(body: &[Item<'k>], counter: ValueId, kernel: &KernelBody) -> Compared<'k> {
    let mut compared = Compared { found: Vec::new(), definitions: HashMap::new() };
    for item in body {
        let StmtKind::Def(value, def) = &item.stmt.kind else { continue };
        compared.definitions.insert(*value, def);
        let Def::Op(op, operands) = def else { continue };
        let Some(order) = Inequality::of(*op) else { continue };
        let sides = [operands[0], operands[1]];
        let moves = sides.map(|side| steps(side, counter, &compared.definitions));
        let is_word = matches!(kernel.ty(sides[0]), ValueType::U32 | ValueType::I32);
        let varies = !kernel.values[value.index()].uniform;
        let found = match moves {
            [Some(1), Some(0)] => Some((*value, order, sides)),
            [Some(0), Some(1)] => Some((*value, order.mirrored(), [sides[1], sides[0]])),
            _ => None,
        };
        compared.found.extend(found.filter(|_| is_word && varies));
    }
    compared
}

/// Maximum number of values that a search for the increase of one visits: sums of sums have
/// exponentially many terms. An index such as `(y + j) * width + x + i` takes 5.
const MOST_VISITS: u32 = 64;

/// Increase of a value per iteration, if known.
pub(crate) fn steps(value: ValueId, counter: ValueId, definitions: &HashMap<ValueId, &Def>) -> Option<i32> {
    let mut visits = MOST_VISITS;
    steps_within(&mut visits, value, counter, definitions)
}

fn steps_within(
    visits: &mut u32,
    value: ValueId,
    counter: ValueId,
    definitions: &HashMap<ValueId, &Def>,
) -> Option<i32> {
    *visits = visits.checked_sub(1)?;
    if value == counter {
        return Some(1);
    }
    match definitions.get(&value) {
        None => Some(0),
        Some(Def::Op(op @ (Op::Add | Op::Sub), operands)) => {
            let x = steps_within(visits, operands[0], counter, definitions)?;
            let y = steps_within(visits, operands[1], counter, definitions)?;
            if *op == Op::Add { x.checked_add(y) } else { x.checked_sub(y) }
        }
        Some(_) => None,
    }
}

/// Numbers of loads and stores per buffer.
#[derive(Default)]
struct Touched {
    loads: HashMap<BufferId, usize>,
    stores: HashMap<BufferId, usize>,
}

impl Touched {
    /// Counts the accesses of a block; returns `false` if it contains more than loads and stores.
    fn block(&mut self, block: &[Item<'_>]) -> bool {
        block.iter().all(|item| {
            let simple = match &item.stmt.kind {
                StmtKind::Def(_, Def::Load { place: Place::Buffer(buffer), .. }) => {
                    *self.loads.entry(*buffer).or_default() += 1;
                    true
                }
                StmtKind::Store { place: Place::Buffer(buffer), .. } => {
                    *self.stores.entry(*buffer).or_default() += 1;
                    true
                }
                StmtKind::Def(_, Def::Atomic { .. } | Def::Subgroup(..))
                | StmtKind::Barrier
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return
                | StmtKind::Trap(_) => false,
                StmtKind::Def(..)
                | StmtKind::Set(..)
                | StmtKind::Clear(_)
                | StmtKind::Store { .. }
                | StmtKind::If { .. }
                | StmtKind::For { .. }
                | StmtKind::Loop(_)
                | StmtKind::Region { .. } => true,
            };
            simple && item.blocks.iter().all(|block| self.block(block))
        })
    }
}
