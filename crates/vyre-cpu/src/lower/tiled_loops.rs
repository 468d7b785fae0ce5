//! Loops that run on tiles: rows copied a few iterations at a time.

use super::{LaneValue, Lowering};
use crate::divergence::Item;
use crate::row_walks::{RowWalk, RowWalks, walks};
use crate::vector::{Inst, Reg, RegType, RowStarts, TILE, Tile, TileStep, Var};
use hashbrown::HashMap;
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{BufferId, Def, ValueId};
use vyre_foundation::types::{Value, ValueType};

/// Iterations run a tile at a time.
#[derive(Clone, Copy)]
pub(super) struct Tiled {
    pub(super) position: Var,
    pub(super) to: Reg,
    /// Distance between the counters of neighbouring lanes; `None` if they are equal.
    pub(super) stride: Option<Reg>,
}

/// Tiles in use while iterations run on them.
#[derive(Default)]
pub(super) struct InTiles {
    /// Keyed by the loaded value.
    pub(super) loads: HashMap<ValueId, Tile>,
    pub(super) stores: HashMap<BufferId, Tile>,
    /// Number of the iteration within the tile.
    pub(super) number: Option<Reg>,
}

impl<'k> Lowering<'k> {
    /// A loop with scalar bounds and a step of one.
    pub(super) fn simple_rounds(&mut self, item: &Item<'k>, counter: ValueId, mut bounds: [Reg; 3]) {
        let is_word = self.reg_type(bounds[0]).ty == ValueType::U32;
        let ends = [bounds[0], bounds[1]].map(|bound| self.reg_facts.constants.get(&bound)?.as_u32());
        let is_short = matches!(ends, [Some(from), Some(to)] if to.saturating_sub(from) < TILE);
        if is_word
            && !is_short
            && let Some(walks) = self.walks(item, counter, LaneValue::Uniform(bounds[0]))
        {
            let position = self.var(RegType { ty: ValueType::U32, vector: false });
            self.out.push(Inst::Set(position, bounds[0]));
            let tiled = Tiled { position, to: bounds[1], stride: None };
            self.rounds_in_tiles(item, counter, &walks, tiled);
            bounds[0] = self.get(position);
        }
        self.rounds(item, counter, bounds);
    }

    /// Finds the accesses of a loop with which each lane walks along a separate row.
    pub(super) fn walks(&mut self, item: &Item<'k>, counter: ValueId, at: LaneValue) -> Option<RowWalks<'k>> {
        if !self.masks.is_all() || self.lanes == 1 || self.in_tiles.number.is_some() {
            return None;
        }
        let mut walks = walks(&item.blocks[0], counter)?;
        // A dry run: the emitted code is dropped.
        let mut found = Vec::new();
        self.nested(|this| {
            let is_row = |walk: &&RowWalk| this.span(&walks, walk, counter, at).is_some();
            found = walks.walks.iter().filter(is_row).copied().collect();
        });
        walks.walks = found;
        (!walks.walks.is_empty()).then_some(walks)
    }

    /// Returns the position of an access in each lane in one iteration, if the lanes are far apart.
    fn span(
        &mut self,
        walks: &RowWalks<'k>,
        walk: &RowWalk,
        counter: ValueId,
        at: LaneValue,
    ) -> Option<RowStarts> {
        // Bytes of a cache line.
        const LINE: u64 = 64;
        let bytes = self.kernel.buffer(walk.buffer).decl.element.size() as u64;
        // A cache line holds many small elements and is reread often before it is evicted.
        if bytes < 4 {
            return None;
        }
        let index = match self.in_round(&walks.definitions, walk.index, counter, at)? {
            LaneValue::Spaced { base, stride } => [base, stride],
            LaneValue::Affine { base, stride } if u64::from(stride) * bytes >= LINE => {
                [base, self.constant(Value::U32(stride))]
            }
            LaneValue::Affine { .. } | LaneValue::Uniform(_) | LaneValue::Varying(_) => return None,
        };
        Some(RowStarts { buffer: walk.buffer, index })
    }

    /// Computes a value of the loop body for one iteration, outside the loop.
    pub(super) fn in_round(
        &mut self,
        definitions: &HashMap<ValueId, &'k Def>,
        value: ValueId,
        counter: ValueId,
        at: LaneValue,
    ) -> Option<LaneValue> {
        if value == counter {
            return Some(at);
        }
        let Some(def) = definitions.get(&value) else { return Some(self.value(value)) };
        let Def::Op(op, operands) = def else { return None };
        let args: Option<Vec<LaneValue>> =
            operands.iter().map(|&operand| self.in_round(definitions, operand, counter, at)).collect();
        Some(self.calculated(*op, &args?))
    }

    /// Runs iterations on tiles of copied rows while a full tile is left; the others follow.
    pub(super) fn rounds_in_tiles(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        walks: &RowWalks<'k>,
        tiled: Tiled,
    ) {
        let Tiled { position, to, stride } = tiled;
        let lane_value = |base: Reg| match stride {
            None => LaneValue::Uniform(base),
            Some(stride) => LaneValue::Spaced { base, stride },
        };
        // The remaining iterations belong to the same loop.
        self.first_copy(|this| {
            let state = this.start_unmasked();
            let body = this.nested(|this| {
                let current = this.get(position);
                let size = this.constant(Value::U32(TILE));
                let left = this.op(Op::Sub, &[to, current]);
                let (some, enough) = (this.op(Op::Lt, &[current, to]), this.op(Op::Ge, &[left, size]));
                let condition = this.op(Op::And, &[some, enough]);
                this.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
                let flushed = this.fill_tiles(walks, counter, lane_value(current));
                let number = this.var(RegType { ty: ValueType::U32, vector: false });
                let zero = this.constant(Value::U32(0));
                this.out.push(Inst::Set(number, zero));
                let body = this.loop_body(item, state, |this| {
                    let round = this.get(number);
                    this.in_tiles.number = Some(round);
                    let base = this.op(Op::Add, &[current, round]);
                    this.define(counter, lane_value(base));
                    Some(this.op(Op::Lt, &[round, size]))
                });
                let next = this.nested(|this| this.count_up(number, 1));
                this.in_tiles = InTiles::default();
                this.out.push(Inst::Loop { body, next, rest: false });
                this.out.extend(flushed);
            });
            let next = this.nested(|this| this.count_up(position, TILE));
            this.out.push(Inst::Loop { body, next, rest: false });
        });
    }

    /// Copies in what the iterations read, and returns the instructions that copy out what they
    /// write.
    fn fill_tiles(&mut self, walks: &RowWalks<'k>, counter: ValueId, at: LaneValue) -> Vec<Inst> {
        let mut flushed = Vec::new();
        for walk in &walks.walks {
            let Some(span) = self.span(walks, walk, counter, at) else { continue };
            let tile = self.tile(self.kernel.buffer(walk.buffer).decl.element);
            match walk.loaded {
                Some(value) => {
                    self.in_tiles.loads.insert(value, tile);
                    self.out.push(Inst::Tile(TileStep::Fill(tile, span)));
                }
                None => {
                    self.in_tiles.stores.insert(walk.buffer, tile);
                    flushed.push(Inst::Tile(TileStep::Flush(tile, span)));
                }
            }
        }
        flushed
    }
}
