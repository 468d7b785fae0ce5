//! Accesses with lanes a few elements apart: wide loads and stores, combined with shuffles.
//!
//! A load covers the lanes' elements and the gaps between them with whole pieces, none of which
//! begins before the first lane's element or ends after the last one's: anything between elements
//! in range is in range. A store must not write the gaps, so it is wide only where several stores
//! together fill the whole range (`joined_stores.rs`), or where lanes go backwards. Elements
//! narrower than a lane are picked byte by byte, from 16 bytes per 4 lanes.

use super::half_ops::HalfFields;
use super::narrow::{Width, narrow};
use super::records::Field;
use super::{Emitter, Pieces, element_bytes};
use crate::piece::{I32, I64, IntOrder, Lane, Value as Operand};
use crate::vector::{Reg, Store};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::{DataType, ValueType};

/// Number of bytes that a byte shuffle selects from.
const HALF: i32 = 16;

impl Emitter<'_> {
    /// Returns the vector `base + lane number * stride`.
    pub(super) fn strided(&mut self, base: Reg, stride: i32) -> Pieces {
        let base = self.vector(base);
        let numbers = self.lane_numbers();
        let stride = self.constant_piece(ValueType::U32, u64::from(stride as u32));
        let each = base.into_iter().zip(numbers);
        each.map(|(base, number)| {
            let far = self.builder.mul(number, stride);
            self.builder.add(base, far)
        })
        .collect()
    }

    pub(super) fn load_strided(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: (Reg, i32),
        checked: bool,
    ) -> Pieces {
        self.load_strided_as(buffer, element, index, checked, Width::Full)
    }

    /// Loads elements at a constant stride into lanes of 32 or 64 bits, or into half lanes.
    pub(super) fn load_strided_as(
        &mut self,
        buffer: BufferId,
        element: DataType,
        (base, stride): (Reg, i32),
        checked: bool,
        width: Width,
    ) -> Pieces {
        if width == Width::Full && !self.is_near(element, stride) {
            let index = self.strided(base, stride);
            return self.gather(buffer, element, &index, checked);
        }
        let index = self.scalar(base);
        let index = self.builder.extend_unsigned(I64, index);
        if !checked {
            return self.near_pieces(buffer, element, index, stride, width);
        }
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(slow);
        let inside = self.ends_inside(buffer, index, self.reach(stride));
        self.builder.branch(inside, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        let pieces = self.near_pieces(buffer, element, index, stride, width);
        for &piece in &pieces {
            self.builder.append_param(after, self.builder.ty(piece));
        }
        self.builder.jump(after, &pieces);
        self.builder.begin(slow);
        let index = self.strided(base, stride);
        let mut pieces = self.gather(buffer, element, &index, true);
        if width == Width::Half {
            pieces = self.lower_halves(&pieces);
        }
        self.builder.jump(after, &pieces);
        self.builder.begin(after);
        self.builder.params(after).to_vec()
    }

    /// Distance from the first lane to the last.
    fn reach(&self, stride: i32) -> i64 {
        i64::from(stride) * (i64::from(self.code.lanes) - 1)
    }

    /// Whether a 64-bit index and that index plus `reach` are both in range.
    fn ends_inside(&mut self, buffer: BufferId, index: Operand, reach: i64) -> Operand {
        let (_, length) = self.buffers[buffer.index()];
        let last = self.builder.add_const(index, reach);
        if reach >= 0 {
            return self.below(last, length);
        }
        let inside = self.below(index, length);
        let is_there = self.builder.compare_const(IntOrder::SignedGreaterOrEqual, last, 0);
        self.builder.and(inside, is_there)
    }

    /// Whether lanes at this stride justify wide loads: each load holds at least two lanes.
    fn is_near(&self, element: DataType, stride: i32) -> bool {
        let (apart, bytes) = (stride.abs(), element_bytes(element) as i32);
        let total = ((self.lanes() as i32 - 1) * apart + 1) * bytes;
        if bytes < 4 {
            return (3 * apart + 1) * bytes <= HALF && total >= HALF;
        }
        let in_piece = self.piece_type(ValueType::U32).bytes() as i32 / bytes;
        apart < in_piece && total >= in_piece * bytes
    }

    /// Loads whole pieces and shuffles them. All elements from the first lane's to the last lane's
    /// are in range.
    fn near_pieces(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: Operand,
        stride: i32,
        width: Width,
    ) -> Pieces {
        // Starts at the lowest element, whichever lane has it.
        let lowest = self.builder.add_const(index, self.reach(stride).min(0));
        let address = self.address(buffer, element, lowest);
        if width == Width::Half {
            return self.picked_halves(element, address, stride, None);
        }
        if element == DataType::Bool {
            let bytes = self.picked_bytes(DataType::U8, address, stride);
            let zero = self.constant_piece(ValueType::U32, 0);
            return bytes
                .into_iter()
                .map(|byte| self.builder.compare(IntOrder::NotEqual, byte, zero))
                .collect();
        }
        if narrow(element).is_some() {
            return self.picked_bytes(element, address, stride);
        }
        self.picked_words(element, address, stride)
    }

    /// Offset of each lane from the lowest element.
    fn offsets(&self, stride: i32) -> Vec<i32> {
        let lanes = self.lanes() as i32;
        (0..lanes).map(|lane| stride.abs() * if stride < 0 { lanes - 1 - lane } else { lane }).collect()
    }

    /// Loads elements of 4 or 8 bytes.
    pub(super) fn picked_words(&mut self, element: DataType, address: Operand, stride: i32) -> Pieces {
        let words = self.piece_type(ValueType::U32);
        let (in_piece, per_element) = (words.lane_count() as i32, element_bytes(element) as i32 / 4);
        // The source word of each word of the result.
        let wanted: Vec<i32> = self
            .offsets(stride)
            .iter()
            .flat_map(|offset| (0..per_element).map(move |word| offset * per_element + word))
            .collect();
        let last_start = wanted.iter().max().map_or(0, |last| last + 1 - in_piece);
        let ty = self.piece_type(element.value_type());
        let mut loaded: Vec<(i32, Operand)> = Vec::new();
        let mut pieces = Vec::new();
        for wanted in wanted.chunks(in_piece as usize) {
            let mut places: Vec<Option<(i32, i32)>> = vec![None; wanted.len()];
            while let Some(next) = (0..wanted.len()).filter(|&k| places[k].is_none()).map(|k| wanted[k]).min()
            {
                let start = next.min(last_start);
                for (place, word) in places.iter_mut().zip(wanted) {
                    if place.is_none() && (start..start + in_piece).contains(word) {
                        *place = Some((start, word - start));
                    }
                }
            }
            let places: Vec<(Operand, u8)> = places
                .into_iter()
                .flatten()
                .map(|(start, lane)| {
                    let known = loaded.iter().find(|(at, _)| *at == start).map(|(_, piece)| *piece);
                    let piece = known.unwrap_or_else(|| {
                        let piece = self.builder.load(words, address, 4 * start);
                        loaded.push((start, piece));
                        piece
                    });
                    (piece, lane as u8)
                })
                .collect();
            let piece = self.builder.gather_lanes(&places);
            pieces.push(self.builder.bitcast(ty, piece));
        }
        pieces
    }

    /// Loads elements of 1 or 2 bytes, extended to lanes.
    fn picked_bytes(&mut self, element: DataType, address: Operand, stride: i32) -> Pieces {
        let Some(narrow) = narrow(element) else { unreachable!("only narrow elements are picked by bytes") };
        let bytes = i32::from(narrow.bytes);
        let offsets: Vec<i32> = self.offsets(stride).iter().map(|offset| offset * bytes).collect();
        let end = offsets.iter().max().map_or(0, |last| last + bytes);
        let words = self.piece_type(ValueType::U32);
        let in_piece = words.lane_count() as usize;
        // A signed element is put at the top of its lane and shifted down.
        let first_byte = if narrow.signed { 4 - bytes } else { 0 };
        let mut pieces = Vec::new();
        for offsets in offsets.chunks(in_piece) {
            let mut starts = Vec::new();
            let mut pattern = [0xFF; 32];
            for (half, offsets) in offsets.chunks(4).enumerate() {
                let start = offsets.iter().min().map_or(0, |&low| low.min(end - HALF));
                starts.push(start);
                for (lane, offset) in offsets.iter().enumerate() {
                    for byte in 0..bytes {
                        let to = half as i32 * HALF + 4 * lane as i32 + first_byte + byte;
                        pattern[to as usize] = (offset - start + byte) as u8;
                    }
                }
            }
            let data = self.builder.load_halves(address, &starts);
            let picked = self.builder.shuffle_bytes(data, pattern);
            let mut piece = self.builder.bitcast(words, picked);
            if narrow.signed {
                let count = self.builder.int(I32, i64::from(32 - 8 * bytes));
                piece = self.builder.shift_right_signed(piece, count);
            }
            pieces.push(piece);
        }
        pieces
    }

    /// Loads elements of 1 or 2 bytes into half lanes: each group of 8 lanes from one or two loads.
    /// The address is that of the lowest element, or of the lowest field of a record.
    pub(super) fn picked_halves(
        &mut self,
        element: DataType,
        address: Operand,
        stride: i32,
        field: Option<Field>,
    ) -> Pieces {
        let Some(narrow) = narrow(element) else { unreachable!("only narrow elements are held in halves") };
        let bytes = i32::from(narrow.bytes);
        let [below, above] = field.map_or([0; 2], |field| field.around(element));
        let offsets: Vec<i32> = self.offsets(stride).iter().map(|offset| offset * bytes + below).collect();
        let end = offsets.iter().max().map_or(0, |last| last + bytes + above);
        // Fields of a record share loads that begin at the same places.
        let grid = if field.is_some() { HALF } else { 1 };
        let ty = self.builder.piece(Lane::I16);
        // A signed byte is put at the top of its lane and shifted down.
        let is_low = !narrow.signed || bytes == 2;
        let first_byte = if is_low { 0 } else { 1 };
        let mut pieces = Vec::new();
        for offsets in offsets.chunks(ty.lane_count() as usize) {
            let picks: Vec<Vec<(i32, [u8; 16])>> =
                offsets.chunks(8).map(|group| group_picks(group, (bytes, first_byte), (grid, end))).collect();
            let loads = picks.iter().map(Vec::len).max().unwrap_or(0);
            let parts: Vec<Operand> = (0..loads)
                .map(|number| {
                    let mut starts = Vec::new();
                    let mut pattern = [0xFF; 32];
                    for (group, picks) in picks.iter().enumerate() {
                        // A group with fewer loads repeats its first and takes nothing from it.
                        starts.push(picks.get(number).unwrap_or(&picks[0]).0);
                        if let Some((_, from)) = picks.get(number) {
                            pattern[16 * group..][..16].copy_from_slice(from);
                        }
                    }
                    let data = match field {
                        Some(field) => self.piece_of_record(field, address, &starts),
                        None => self.builder.load_halves(address, &starts),
                    };
                    self.builder.shuffle_bytes(data, pattern)
                })
                .collect();
            let joined = self.join(&parts, |builder, a, b| builder.or(a, b));
            let mut piece = self.builder.bitcast(ty, joined);
            if !is_low {
                let count = self.builder.int(I32, 8);
                piece = self.builder.shift_right_signed(piece, count);
            }
            pieces.push(piece);
        }
        pieces
    }

    // Stores.

    pub(super) fn store_strided(&mut self, buffer: BufferId, base: Reg, stride: i32, store: &Store) {
        let fields = store.more.len() + 1;
        let is_wide = match fields {
            1 => stride == -1 && store.mask.is_none(),
            // Fields of larger records leave gaps.
            _ => stride == fields as i32 && self.fills(store.element, fields),
        };
        if !is_wide {
            return self.store_fields_apart(buffer, base, stride, store);
        }
        let index = self.scalar(base);
        let index = self.builder.extend_unsigned(I64, index);
        let reach = self.reach(stride) + store.more.len() as i64;
        let wide = |this: &mut Self| {
            let lowest = this.builder.add_const(index, reach.min(0));
            let address = this.address(buffer, store.element, lowest);
            if store.more.is_empty() {
                this.store_backwards(store, address);
            } else {
                this.store_fields(store, address);
            }
        };
        if !store.checked {
            return wide(self);
        }
        let inside = self.ends_inside(buffer, index, reach);
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(slow);
        self.builder.branch(inside, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        wide(self);
        self.builder.jump(after, &[]);
        self.builder.begin(slow);
        self.store_fields_apart(buffer, base, stride, store);
        self.builder.jump(after, &[]);
        self.builder.begin(after);
    }

    /// Stores each field separately, lane by lane.
    fn store_fields_apart(&mut self, buffer: BufferId, base: Reg, stride: i32, store: &Store) {
        let mut index = self.strided(base, stride);
        let one = self.constant_piece(ValueType::U32, 1);
        for (field, &value) in std::iter::once(&store.value).chain(&store.more).enumerate() {
            if field > 0 {
                index = index.into_iter().map(|piece| self.builder.add(piece, one)).collect();
            }
            let single = Store { value, more: Vec::new(), ..store.clone() };
            self.scatter(buffer, &index, &single);
        }
    }

    fn store_backwards(&mut self, store: &Store, address: Operand) {
        let ty = store.element.value_type();
        let pieces = self.vector(store.value);
        let lanes = self.piece_lanes(ty) as u8;
        let per_lane = (self.piece_lanes(ValueType::U32) / usize::from(lanes)) as u8;
        let words = self.piece_type(ValueType::U32);
        let reversed: Pieces = pieces
            .iter()
            .rev()
            .map(|&piece| {
                let piece = self.builder.bitcast(words, piece);
                let lanes = (0..lanes).rev().flat_map(|lane| (0..per_lane).map(move |k| lane * per_lane + k));
                let places: Vec<(Operand, u8)> = lanes.map(|lane| (piece, lane)).collect();
                let turned = self.builder.gather_lanes(&places);
                self.builder.bitcast(self.piece_type(ty), turned)
            })
            .collect();
        self.store_wide_pieces(store, &reversed, address);
    }

    /// Whether this many fields of an element are stored together.
    fn fills(&self, element: DataType, fields: usize) -> bool {
        match (element_bytes(element) as usize, fields) {
            (1, 2 | 4) | (2, 2) => true,
            (1, 3) => self.lanes() * 3 >= self.piece_type(ValueType::U32).bytes() as usize,
            (4 | 8, 2..=4) => true,
            _ => false,
        }
    }

    /// Stores several fields, interleaved by element.
    fn store_fields(&mut self, store: &Store, address: Operand) {
        if let Some(fields) = self.half_fields(store) {
            return self.store_half_fields(&fields, address);
        }
        let fields: Vec<Pieces> = std::iter::once(store.value)
            .chain(store.more.iter().copied())
            .map(|reg| self.vector(reg))
            .collect();
        let bytes = element_bytes(store.element) as i32;
        if bytes == 4 && fields.len() == 4 && self.builder.piece(Lane::I32).bytes() == 32 {
            return self.store_records_of_four(&fields, address);
        }
        if bytes >= 4 {
            return self.store_mixed_words(&fields, bytes / 4, address);
        }
        let joined = self.joined(store.element, &fields);
        match bytes as usize * fields.len() {
            4 => self.store_pieces(&joined, address, 0),
            3 => self.store_threes(&joined, address),
            _ => self.builder.store_narrow_pieces(2, &joined, address),
        }
    }

    /// Stores fields of bytes that are in half lanes.
    fn store_half_fields(&mut self, fields: &HalfFields, address: Operand) {
        match fields {
            HalfFields::Two([first, second]) => {
                let pairs = self.paired_halves(first, second);
                self.store_pieces(&pairs, address, 0);
            }
            HalfFields::Three([first, second, third]) => {
                let low = self.paired_halves(first, second);
                let words = self.words_of_halves(&low, third);
                self.store_threes(&words, address);
            }
            HalfFields::Four([first, second, third, fourth]) => {
                let low = self.paired_halves(first, second);
                let high = self.paired_halves(third, fourth);
                let words = self.words_of_halves(&low, &high);
                self.store_pieces(&words, address, 0);
            }
        }
    }

    /// Joins the lower and the upper halves of 32-bit lanes.
    fn words_of_halves(&mut self, low: &[Operand], high: &[Operand]) -> Pieces {
        low.iter()
            .zip(high)
            .flat_map(|(&low, &high)| {
                let (low, high) = (self.builder.widen(false, low), self.builder.widen(false, high));
                [(low[0], high[0]), (low[1], high[1])].map(|(low, high)| {
                    let high = self.builder.shift_left_const(high, 16);
                    self.builder.or(low, high)
                })
            })
            .collect()
    }

    /// Joins the fields of each lane in 32 bits, the first lowest.
    fn joined(&mut self, element: DataType, fields: &[Pieces]) -> Pieces {
        let bits = 8 * element_bytes(element) as u32;
        let kept = if element == DataType::Bool { 1 } else { (1 << bits) - 1 };
        let last = fields.len() as u32 - 1;
        let kept = self.constant_piece(ValueType::U32, kept);
        (0..fields[0].len())
            .map(|k| {
                let parts: Vec<Operand> = (0..)
                    .zip(fields)
                    .map(|(number, field)| {
                        // If the top field ends at the lane's end, the shift drops its excess bits.
                        let is_top = number == last && bits * (last + 1) == 32 && element != DataType::Bool;
                        let part = if is_top { field[k] } else { self.builder.and(field[k], kept) };
                        self.builder.shift_left_const(part, bits * number)
                    })
                    .collect();
                self.join(&parts, |builder, a, b| builder.or(a, b))
            })
            .collect()
    }

    /// Stores the low three bytes of every lane. The last store starts early enough to end with the
    /// data.
    fn store_threes(&mut self, pieces: &[Operand], address: Operand) {
        let words = self.piece_type(ValueType::U32);
        let in_piece = words.lane_count() as usize;
        let mut pattern = [0xFF; 32];
        for (at, byte) in pattern.iter_mut().enumerate().filter(|(at, _)| at % 16 < 12) {
            *byte = (at % 16 / 3 * 4 + at % 16 % 3) as u8;
        }
        // Three of every four words are then full.
        let mut stream = Vec::new();
        for &piece in pieces {
            let packed = self.builder.shuffle_bytes(piece, pattern);
            let packed = self.builder.bitcast(words, packed);
            stream.extend((0..in_piece as u8).filter(|lane| lane % 4 < 3).map(|lane| (packed, lane)));
        }
        let mut at = 0;
        while at < stream.len() {
            let start = at.min(stream.len() - in_piece);
            let piece = self.builder.gather_lanes(&stream[start..start + in_piece]);
            self.builder.store(piece, address, 4 * start as i32);
            at += in_piece;
        }
    }

    /// Stores records of four words. Transposed within groups of 16 bytes, two pieces hold the
    /// lower and the upper records of a range of lanes.
    fn store_records_of_four(&mut self, fields: &[Pieces], address: Operand) {
        let words = self.piece_type(ValueType::U32);
        for number in 0..fields[0].len() {
            let pieces: Pieces =
                fields.iter().map(|field| self.builder.bitcast(words, field[number])).collect();
            let turned = self.builder.transpose(4, &pieces);
            let pairs = [(0, false), (2, false), (0, true), (2, true)];
            for (place, (first, high)) in pairs.into_iter().enumerate() {
                let piece = self.builder.interleave(16, high, turned[first], turned[first + 1]);
                self.builder.store(piece, address, 32 * (4 * number + place) as i32);
            }
        }
    }

    fn store_mixed_words(&mut self, fields: &[Pieces], per_element: i32, address: Operand) {
        let words = self.piece_type(ValueType::U32);
        let (in_piece, per_element) = (words.lane_count() as usize, per_element as usize);
        let fields: Vec<Pieces> = fields
            .iter()
            .map(|field| field.iter().map(|&piece| self.builder.bitcast(words, piece)).collect())
            .collect();
        let total = self.lanes() * fields.len() * per_element;
        let stream: Vec<(Operand, u8)> = (0..total)
            .map(|word| {
                let element = word / per_element;
                let from = element / fields.len() * per_element + word % per_element;
                (fields[element % fields.len()][from / in_piece], (from % in_piece) as u8)
            })
            .collect();
        for (number, places) in stream.chunks(in_piece).enumerate() {
            let piece = self.builder.gather_lanes(places);
            self.builder.store(piece, address, (4 * in_piece * number) as i32);
        }
    }
}

/// Loads and byte shuffles that bring 8 elements at ascending or descending offsets into half
/// lanes: the start of each load, and the byte of it that each byte of the lanes takes. Loads begin
/// at multiples of `grid`, and none goes beyond `end`.
fn group_picks(
    offsets: &[i32],
    (bytes, first_byte): (i32, i32),
    (grid, end): (i32, i32),
) -> Vec<(i32, [u8; 16])> {
    let mut picks: Vec<(i32, [u8; 16])> = Vec::new();
    let mut left: Vec<(usize, i32)> = offsets.iter().copied().enumerate().collect();
    while let Some(next) = left.iter().map(|&(_, offset)| offset).min() {
        let start = (next / grid * grid).min(end - HALF).max(0);
        let mut pattern = [0xFF; 16];
        left.retain(|&(lane, offset)| {
            let is_here = start <= offset && offset + bytes <= start + HALF;
            for byte in (0..bytes).filter(|_| is_here) {
                pattern[2 * lane + (first_byte + byte) as usize] = (offset - start + byte) as u8;
            }
            !is_here
        });
        picks.push((start, pattern));
    }
    picks
}
