//! Expansion of ops that x86-64 has no instruction for. Cranelift has expansions for them, so
//! functions in pieces of 16 bytes, which it compiles, keep the ops.

use super::{Builder, F32, FloatOrder, I32, I64, IntOrder, Op, Type, Value};

impl Builder {
    fn expands(&self) -> bool {
        self.function.machine.piece_bytes > 16
    }

    /// Whether pieces have instructions for counts of leading zeros, rotations, and every op on
    /// 64-bit lanes that 32-bit lanes have.
    pub(crate) fn has_all_integers(&self) -> bool {
        self.function.machine.avx512
    }

    /// Whether pieces have instructions for bit counts.
    pub(crate) fn counts_bits(&self) -> bool {
        self.function.machine.counts_bits
    }

    /// Counts the bits that are set, in a scalar or in each lane of a piece.
    pub(crate) fn count_ones(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        if !ty.is_piece() || self.counts_bits() {
            return self.push(Op::CountOnes, ty, &[value]);
        }
        // Sums of neighbouring bits, pairs and groups of four, then of all bytes by a product.
        let [pairs, fours, eights, bytes] = [0x55, 0x33, 0x0F, 0x01_u8]
            .map(|byte| self.constant(ty, u64::from_ne_bytes([byte; 8]) >> (64 - 8 * ty.lane.bytes())));
        let odd = self.shift_right_const(value, 1);
        let odd = self.and(odd, pairs);
        let by_two = self.sub(value, odd);
        let high = self.shift_right_const(by_two, 2);
        let high = self.and(high, fours);
        let low = self.and(by_two, fours);
        let by_four = self.add(low, high);
        let high = self.shift_right_const(by_four, 4);
        let sum = self.add(by_four, high);
        let by_eight = self.and(sum, eights);
        let total = self.mul(by_eight, bytes);
        self.shift_right_const(total, 8 * ty.lane.bytes() - 8)
    }

    /// Rotates to the left by a scalar count, modulo the bits of a lane.
    pub(crate) fn rotate_left(&mut self, value: Value, count: Value) -> Value {
        let ty = self.ty(value);
        if !(ty.is_piece() && self.has_all_integers()) {
            let rest = self.neg(count);
            let high = self.shift_left(value, count);
            let low = self.shift_right(value, rest);
            return self.or(high, low);
        }
        if let Op::Const(count) = self.function.op(count) {
            let count = count as u32 % (8 * ty.lane.bytes());
            return self.push(Op::RotateLeft(count as u8), ty, &[value]);
        }
        let count = if ty.is_wide() { self.extend_unsigned(I64, count) } else { count };
        let counts = self.splat(ty, count);
        self.push(Op::RotateLeftEach, ty, &[value, counts])
    }

    /// Rotates each lane of a piece by a separate count, modulo the bits of a lane.
    pub(crate) fn rotate_each(&mut self, left: bool, value: Value, counts: Value) -> Value {
        let ty = self.ty(value);
        if self.has_all_integers() {
            let op = if left { Op::RotateLeftEach } else { Op::RotateRightEach };
            return self.push(op, ty, &[value, counts]);
        }
        let most = self.constant(ty, u64::from(8 * ty.lane.bytes()) - 1);
        let count = self.and(counts, most);
        // The complementary count. A rotation by zero shifts by zero both times.
        let rest = self.neg(count);
        let rest = self.and(rest, most);
        let (left, right) = if left { (count, rest) } else { (rest, count) };
        let high = self.shift_left_each(value, left);
        let low = self.shift_right_each(value, right);
        self.or(high, low)
    }

    pub(crate) fn abs(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        let has_instruction = ty.is_float() || ty.is_piece() && (!ty.is_wide() || self.has_all_integers());
        if has_instruction || !self.expands() {
            return self.push(Op::Abs, ty, &[value]);
        }
        // The sign is minus one or zero; subtracting it from the flipped bits negates.
        let sign = if ty.is_piece() {
            let zero = self.constant(ty, 0);
            self.compare(IntOrder::SignedLess, value, zero)
        } else {
            let count = self.int(I32, i64::from(8 * ty.bytes() - 1));
            self.shift_right_signed(value, count)
        };
        let flipped = self.xor(value, sign);
        self.sub(flipped, sign)
    }

    pub(crate) fn shift_right_signed(&mut self, value: Value, count: Value) -> Value {
        let ty = self.ty(value);
        if !(ty.is_piece() && ty.is_wide() && self.expands()) || self.has_all_integers() {
            return self.push(Op::ShiftRightSigned, ty, &[value, count]);
        }
        // The subtraction extends the shifted sign bit upwards.
        let top = self.constant(ty, 1 << 63);
        let sign = self.shift_right(top, count);
        let shifted = self.shift_right(value, count);
        let flipped = self.xor(shifted, sign);
        self.sub(flipped, sign)
    }

    /// Whether each lane of a piece can be shifted by a separate count.
    pub(crate) fn shifts_lanes(&self) -> bool {
        self.expands()
    }

    pub(crate) fn shift_right_signed_each(&mut self, value: Value, count: Value) -> Value {
        let ty = self.ty(value);
        if !ty.is_wide() || self.has_all_integers() {
            return self.push(Op::ShiftRightSignedEach, ty, &[value, count]);
        }
        // As above, lane by lane.
        let top = self.constant(ty, 1 << 63);
        let sign = self.shift_right_each(top, count);
        let shifted = self.shift_right_each(value, count);
        let flipped = self.xor(shifted, sign);
        self.sub(flipped, sign)
    }

    /// Swaps neighbouring groups of bits, from single bits up to halves.
    pub(crate) fn reverse_bits(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        if !self.expands() {
            return self.push(Op::ReverseBits, ty, &[value]);
        }
        let groups = [
            (1, 0x5555_5555_5555_5555),
            (2, 0x3333_3333_3333_3333),
            (4, 0x0F0F_0F0F_0F0F_0F0F),
            (8, 0x00FF_00FF_00FF_00FF),
            (16, 0x0000_FFFF_0000_FFFF),
            (32, 0x0000_0000_FFFF_FFFF),
        ];
        let needed = groups.into_iter().filter(|&(count, _)| count < 8 * ty.bytes());
        needed.fold(value, |value, (count, mask)| {
            let mask = self.constant(ty, mask);
            let high = self.shift_right_const(value, count);
            let high = self.and(high, mask);
            let low = self.and(value, mask);
            let low = self.shift_left_const(low, count);
            self.or(high, low)
        })
    }

    pub(crate) fn int_to_float(&mut self, signed: bool, to: Type, value: Value) -> Value {
        if signed || self.ty(value) != I64 || !self.expands() {
            return self.push(Op::FromInt { signed }, to, &[value]);
        }
        // A number of 2⁶³ or more is halved, keeping its last bit for rounding, and doubled again.
        let is_large = self.compare_const(IntOrder::SignedLess, value, 0);
        let half = self.shift_right_const(value, 1);
        let one = self.int(I64, 1);
        let last = self.and(value, one);
        let half = self.or(half, last);
        let converted = self.select(is_large, half, value);
        let number = self.int_to_float(true, to, converted);
        let doubled = self.add(number, number);
        self.select(is_large, doubled, number)
    }

    pub(crate) fn float_to_int(&mut self, signed: bool, to: Type, value: Value) -> Value {
        if to.is_piece() || !self.expands() {
            return self.push(Op::ToInt { signed }, to, &[value]);
        }
        if signed { self.float_to_signed(to, value) } else { self.float_to_unsigned(to, value) }
    }

    fn power_of_two(&mut self, ty: Type, exponent: i32) -> Value {
        let bits =
            if ty == F32 { 2_f32.powi(exponent).to_bits().into() } else { 2_f64.powi(exponent).to_bits() };
        self.constant(ty, bits)
    }

    fn truncated(&mut self, to: Type, value: Value) -> Value {
        self.push(Op::TruncateInt, to, &[value])
    }

    fn float_to_signed(&mut self, to: Type, value: Value) -> Value {
        let bits = 8 * to.bytes();
        let whole = self.truncated(to, value);
        let limit = self.power_of_two(self.ty(value), bits as i32 - 1);
        let too_large = self.compare_floats(FloatOrder::LessOrEqual, limit, value);
        let most = self.constant(to, (1 << (bits - 1)) - 1);
        let whole = self.select(too_large, most, whole);
        let is_nan = self.compare_floats(FloatOrder::NotEqual, value, value);
        let zero = self.constant(to, 0);
        self.select(is_nan, zero, whole)
    }

    fn float_to_unsigned(&mut self, to: Type, value: Value) -> Value {
        let from = self.ty(value);
        let none = self.constant(from, 0);
        let positive = self.compare_floats(FloatOrder::Less, none, value);
        let limit = self.power_of_two(from, 8 * to.bytes() as i32);
        let too_large = self.compare_floats(FloatOrder::LessOrEqual, limit, value);
        let mut whole = self.truncated(I64, value);
        if to == I64 {
            let half = self.power_of_two(from, 63);
            let is_above = self.compare_floats(FloatOrder::LessOrEqual, half, value);
            let rest = self.sub(value, half);
            let rest = self.truncated(I64, rest);
            let top = self.constant(I64, 1 << 63);
            let above = self.xor(rest, top);
            whole = self.select(is_above, above, whole);
        } else {
            whole = self.reduce(to, whole);
        }
        let most = self.constant(to, u64::MAX);
        let whole = self.select(too_large, most, whole);
        let zero = self.constant(to, 0);
        self.select(positive, whole, zero)
    }
}
