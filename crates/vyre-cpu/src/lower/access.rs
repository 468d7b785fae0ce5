//! Accesses to buffers and private arrays.

use super::{LaneValue, Lowering};
use crate::vector::{Calc, Index, Inst, RegType, Store, TileStep};
use vyre_foundation::kernel::{Place, ValueId};
use vyre_foundation::types::Value;

impl<'k> Lowering<'k> {
    fn index(&mut self, place: Place, index: ValueId) -> Index {
        match (self.value(index), place) {
            (LaneValue::Uniform(reg), _) => Index::Same(reg),
            (LaneValue::Affine { base, stride: 1 }, _) => Index::Consecutive(base),
            (LaneValue::Affine { base, stride }, Place::Buffer(_)) if is_short(stride) => {
                Index::Strided(base, stride as i32)
            }
            (LaneValue::Affine { base, stride }, Place::Buffer(_)) => {
                Index::Spaced(base, self.constant(Value::U32(stride)))
            }
            (LaneValue::Spaced { base, stride }, Place::Buffer(_)) => Index::Spaced(base, stride),
            (LaneValue::Varying(each), Place::Buffer(_)) => match self.reg_facts.mostly.get(&each) {
                Some(&(base, when)) => Index::Mostly { each, base, when },
                None => Index::Each(each),
            },
            (
                lane_value @ (LaneValue::Affine { .. } | LaneValue::Spaced { .. } | LaneValue::Varying(_)),
                _,
            ) => Index::Each(self.register(lane_value)),
        }
    }

    pub(super) fn load(&mut self, place: Place, index: ValueId, in_bounds: bool) -> LaneValue {
        let index = self.index(place, index);
        let element = self.kernel.element(place);
        let ty = element.value_type();
        // A private array has one element per lane even where the index is uniform.
        let vector = match place {
            Place::Buffer(_) => !matches!(index, Index::Same(_)),
            Place::Array(_) => self.lanes > 1,
        };
        // A bounds proof covers only lanes that run. For a uniform index it holds if at least one
        // lane runs, which is certain only at the outermost level.
        let proved = match index {
            Index::Same(_) => self.masks.is_outermost(),
            Index::Consecutive(_)
            | Index::Strided(..)
            | Index::Spaced(..)
            | Index::Mostly { .. }
            | Index::Each(_) => self.masks.is_all(),
        };
        let checked = !in_bounds || !(proved || self.masks.is_all());
        let loaded = self.def(RegType { ty, vector }, Calc::Load { place, element, index, checked });
        self.lane_value(loaded)
    }

    pub(super) fn store(&mut self, place: Place, index: ValueId, value: ValueId, in_bounds: bool) {
        if let Place::Buffer(buffer) = place
            && let Some(&tile) = self.in_tiles.stores.get(&buffer)
            && let Some(number) = self.in_tiles.number
        {
            let value = self.operand(value);
            return self.out.push(Inst::Tile(TileStep::Put { tile, number, value }));
        }
        let is_own_number = self.facts.is_number[index.index()];
        let index = self.index(place, index);
        let value = self.operand(value);
        let element = self.kernel.element(place);
        // The proof covers only lanes that run. If lane 0 does not, its index can have wrapped, and
        // the elements of the others are not where it says, unless it is the lane's own number.
        let by_first_lane = match index {
            Index::Same(_) | Index::Each(_) => false,
            Index::Consecutive(_) | Index::Strided(..) | Index::Spaced(..) | Index::Mostly { .. } => true,
        };
        let first_lane_runs = self.masks.is_all() || self.masks.is_outermost();
        let (mask, checked) =
            (self.masks.running(), !in_bounds || (by_first_lane && !first_lane_runs && !is_own_number));
        let (more, region) = (Vec::new(), self.region);
        self.out.push(Inst::Store(Store { place, element, index, value, more, mask, checked, region }));
    }
}

/// Whether lanes at this stride can share a few wide loads.
fn is_short(stride: u32) -> bool {
    // Up to 7, eight lanes span at most 50 elements, 7 loads of 32 bytes, fewer than one load per
    // lane. With 2, the code of `grey` and `yuv` (pixels of three bytes) grows by half.
    const MOST: u32 = 7;
    (2..=MOST).contains(&(stride as i32).unsigned_abs()) || stride == u32::MAX
}
