//! Pieces: eight lanes of 32 bits or four of 64.

use super::super::bytes::Vex;
use super::super::instruction::{Alu, InstKind, MemoryOperand, OperandOrder};
use super::floats::{order_number, rounding_number};
use super::logic;
use super::{RegisterOrMemory, Selector, in_lanes, op, typed, with_width};
use crate::piece::{FloatOrder, IntOrder, Lane, Op, Type, Value};
use regalloc2::{Operand, VReg};

impl Selector<'_> {
    pub(super) fn avx512(&self) -> bool {
        self.function.machine.avx512
    }

    // Instructions by shape.

    pub(super) fn three_to(
        &mut self,
        to: VReg,
        vex: Vex,
        wide: bool,
        a: VReg,
        b: RegisterOrMemory,
        immediate: Option<i64>,
    ) {
        let operands = [Operand::reg_def(to), Operand::reg_use(a)];
        self.push_place(InstKind::Vector(vex, OperandOrder::Three), wide, &operands, b, immediate);
    }

    pub(super) fn three(
        &mut self,
        vex: Vex,
        wide: bool,
        a: VReg,
        b: RegisterOrMemory,
        immediate: Option<i64>,
    ) -> VReg {
        let to = self.vector();
        self.three_to(to, vex, wide, a, b, immediate);
        to
    }

    /// A 256-bit instruction with both operands in registers.
    fn both(&mut self, vex: Vex, a: VReg, b: VReg) -> VReg {
        self.three(vex, true, a, RegisterOrMemory::Register(b), None)
    }

    fn two_to(&mut self, to: VReg, vex: Vex, from: RegisterOrMemory, immediate: Option<i64>) {
        self.push_place(
            InstKind::Vector(vex, OperandOrder::Two),
            true,
            &[Operand::reg_def(to)],
            from,
            immediate,
        );
    }

    fn two(&mut self, vex: Vex, from: VReg, immediate: Option<i64>) -> VReg {
        let to = self.vector();
        self.two_to(to, vex, RegisterOrMemory::Register(from), immediate);
        to
    }

    /// Shifts lanes by a constant; `digit` is the opcode extension: 2 right, 4 right signed, 6
    /// left.
    fn shifted_to(&mut self, to: VReg, vex: Vex, digit: u8, from: VReg, count: i64) {
        let operands = [Operand::reg_def(to), Operand::reg_use(from)];
        self.push_with(InstKind::Vector(vex, OperandOrder::Shift(digit)), true, &operands, None, Some(count));
    }

    fn shifted(&mut self, vex: Vex, digit: u8, from: VReg, count: i64) -> VReg {
        let to = self.vector();
        self.shifted_to(to, vex, digit, from, count);
        to
    }

    /// Extracts the upper 128 bits.
    pub(super) fn high_half(&mut self, from: VReg) -> VReg {
        let to = self.vector();
        let operands = [Operand::reg_def(to), Operand::reg_use(from)];
        self.push_with(
            InstKind::Vector(op::EXTRACT_HALF, OperandOrder::TwoReversed),
            true,
            &operands,
            None,
            Some(1),
        );
        to
    }

    /// A memory constant with the same bits in every lane.
    pub(super) fn every_lane(&mut self, ty: Type, bits: u64) -> MemoryOperand {
        let lane = ty.lane.bytes() as usize;
        let mut bytes = [0; 32];
        bytes.chunks_mut(lane).for_each(|chunk| chunk.copy_from_slice(&bits.to_le_bytes()[..lane]));
        self.constant_memory(bytes)
    }

    fn words(&mut self, bits: u32) -> RegisterOrMemory {
        RegisterOrMemory::Memory(self.every_lane(Type::piece(Lane::I32, 32), bits.into()))
    }

    fn inverted_to(&mut self, to: VReg, from: VReg) {
        let ones = self.constant_memory([255; 32]);
        self.three_to(to, op::XOR_BITS, true, from, RegisterOrMemory::Memory(ones), None);
    }

    /// An instruction on the value's two operands; the second can be in memory.
    pub(super) fn of_two(&mut self, value: Value, to: VReg, vex: Vex, commutes: bool) {
        let [mut a, mut b] = self.args(value);
        if commutes && self.in_memory(a).is_some() && self.in_memory(b).is_none() {
            std::mem::swap(&mut a, &mut b);
        }
        let first = self.register(a);
        let second = self.place(b);
        self.three_to(to, vex, self.ty(value).is_piece(), first, second, None);
    }

    /// An instruction on the value's only operand, which can be in memory.
    fn of_one_place(&mut self, value: Value, to: VReg, vex: Vex, immediate: Option<i64>) {
        let [from] = self.args(value);
        let from = self.place(from);
        self.two_to(to, vex, from, immediate);
    }

    // Ops.

    /// Computes a piece that is not loaded or moved.
    pub(super) fn piece(&mut self, value: Value) {
        let (to, ty) = (self.home(value), self.ty(value));
        let (float, wide) = (ty.is_float(), ty.is_wide());
        let of_width = |words: Vex, longs: Vex| if wide { longs } else { words };
        let sized = |halves: Vex, words: Vex, longs: Vex| match ty.lane.bytes() {
            2 => halves,
            4 => words,
            _ => longs,
        };
        match self.op(value) {
            Op::Add if float => self.of_two(value, to, typed(op::ADD, ty), true),
            Op::Sub if float => self.of_two(value, to, typed(op::SUB, ty), false),
            Op::Mul if float => self.of_two(value, to, typed(op::MUL, ty), true),
            Op::FloatDiv => self.of_two(value, to, typed(op::DIV, ty), false),
            Op::FloatMin => self.of_two(value, to, typed(op::MIN, ty), false),
            Op::FloatMax => self.of_two(value, to, typed(op::MAX, ty), false),
            Op::Add => self.of_two(value, to, sized(op::ADD_HALVES, op::ADD_WORDS, op::ADD_LONGS), true),
            Op::Sub => self.of_two(value, to, sized(op::SUB_HALVES, op::SUB_WORDS, op::SUB_LONGS), false),
            Op::Mul if wide && self.avx512() => self.of_two(value, to, op::MUL_LONGS, true),
            Op::Mul if wide => self.multiply_longs(value, to),
            Op::Mul => self.of_two(value, to, sized(op::MUL_HALVES, op::MUL_WORDS, op::MUL_WORDS), true),
            Op::Neg | Op::Abs if float => self.sign_changed(value, to, ty),
            Op::Neg => {
                let zero = self.vector_constant([0; 32]);
                let [from] = self.args(value);
                let from = self.place(from);
                let vex = sized(op::SUB_HALVES, op::SUB_WORDS, op::SUB_LONGS);
                self.three_to(to, vex, true, zero, from, None);
            }
            Op::Abs => self.of_one_place(value, to, of_width(op::ABS_WORDS, op::ABS_LONGS), None),
            Op::And | Op::Or | Op::Xor | Op::AndNot | Op::Not | Op::Choose
                if self.avx512() && self.logic_of_three(value, to) => {}
            Op::And => self.and(value, to),
            Op::Or => self.of_two(value, to, op::OR_BITS, true),
            Op::Xor => self.of_two(value, to, op::XOR_BITS, true),
            Op::AndNot => {
                let [a, b] = self.args(value);
                let b = self.register(b);
                let a = self.place(a);
                self.three_to(to, op::AND_NOT_BITS, true, b, a, None);
            }
            Op::Not => {
                let [from] = self.args(value);
                let from = self.register(from);
                self.inverted_to(to, from);
            }
            Op::ShiftLeft => self.shift_piece(value, to, 6, of_width(op::WORDS_LEFT, op::LONGS_LEFT)),
            Op::ShiftRight => self.shift_piece(value, to, 2, of_width(op::WORDS_RIGHT, op::LONGS_RIGHT)),
            Op::ShiftRightSigned => {
                self.shift_piece(value, to, 4, of_width(op::WORDS_RIGHT_SIGNED, op::LONGS_RIGHT_SIGNED));
            }
            Op::ShiftLeftEach => {
                let vex = with_width(op::EACH_LEFT, wide);
                self.of_two(value, to, vex, false);
            }
            Op::ShiftRightEach => {
                let vex = with_width(op::EACH_RIGHT, wide);
                self.of_two(value, to, vex, false);
            }
            Op::ShiftRightSignedEach => {
                let vex = of_width(op::EACH_RIGHT_SIGNED, op::EACH_RIGHT_SIGNED_LONGS);
                self.of_two(value, to, vex, false);
            }
            Op::RotateLeft(count) => {
                let [from] = self.args(value);
                let from = self.register(from);
                self.shifted_to(to, of_width(op::ROTATE_WORDS, op::ROTATE_LONGS), 1, from, count.into());
            }
            Op::RotateLeftEach => self.of_two(value, to, with_width(op::EACH_ROTATE_LEFT, wide), false),
            Op::RotateRightEach => self.of_two(value, to, with_width(op::EACH_ROTATE_RIGHT, wide), false),
            Op::CountOnes => {
                self.of_one_place(value, to, of_width(op::ONES_OF_WORDS, op::ONES_OF_LONGS), None);
            }
            Op::LeadingZeros => {
                let vex = of_width(op::LEADING_ZEROS_OF_WORDS, op::LEADING_ZEROS_OF_LONGS);
                self.of_one_place(value, to, vex, None);
            }
            Op::IntMin { signed } => {
                let vex = sized(
                    if signed { op::MIN_HALVES } else { op::MIN_UNSIGNED_HALVES },
                    if signed { op::MIN_WORDS } else { op::MIN_UNSIGNED },
                    if signed { op::MIN_LONGS } else { op::MIN_UNSIGNED_LONGS },
                );
                self.of_two(value, to, vex, true);
            }
            Op::IntMax { signed } => {
                let vex = sized(
                    if signed { op::MAX_HALVES } else { op::MAX_UNSIGNED_HALVES },
                    if signed { op::MAX_WORDS } else { op::MAX_UNSIGNED },
                    if signed { op::MAX_LONGS } else { op::MAX_UNSIGNED_LONGS },
                );
                self.of_two(value, to, vex, true);
            }
            Op::TruncateInt => self.of_one_place(value, to, op::TO_WORDS, None),
            Op::Pack => {
                let [low, high] = self.args::<2>(value).map(|from| self.register(from));
                let mixed = self.both(op::PACK_WORDS, low, high);
                self.two_to(to, op::PERMUTE_LONGS, RegisterOrMemory::Register(mixed), Some(0xD8));
            }
            Op::MulHigh { signed } if ty.lane.bytes() == 2 => {
                let vex = if signed { op::MUL_HIGH_HALVES_SIGNED } else { op::MUL_HIGH_HALVES };
                self.of_two(value, to, vex, true);
            }
            Op::MulHigh { signed } => self.multiply_high(value, to, signed),
            Op::Fma => self.multiply_add(value, to, ty),
            Op::Sqrt => self.of_one_place(value, to, typed(op::SQRT, ty), None),
            Op::Round(rounding) => {
                let vex = in_lanes(op::ROUND_SINGLES, ty);
                let vex = Vex { opcode: vex.opcode + u8::from(wide), ..vex };
                self.of_one_place(value, to, vex, Some(rounding_number(rounding)));
            }
            Op::FromInt { signed: true } => self.of_one_place(value, to, op::FROM_WORDS, None),
            Op::FromInt { signed: false } if self.avx512() => {
                self.of_one_place(value, to, op::FROM_UNSIGNED_WORDS, None);
            }
            Op::FromInt { signed: false } => self.unsigned_to_singles(value, to),
            Op::ToInt { signed: true } => self.singles_to_signed(value, to),
            Op::ToInt { signed: false } if self.avx512() => {
                // Below zero and NaN give zero; what is too large converts to all ones.
                let zero = self.vector_constant([0; 32]);
                let [from] = self.args(value);
                let from = self.register(from);
                let positive = self.both(op::MAX, from, zero);
                self.two_to(to, op::TO_UNSIGNED_WORDS, RegisterOrMemory::Register(positive), None);
            }
            Op::ToInt { signed: false } => self.singles_to_unsigned(value, to),
            Op::Compare(order) => self.compare_pieces(value, to, order),
            Op::CompareFloats(order) => self.compare_float_pieces(value, to, order),
            Op::Choose => self.choose(value, to),
            Op::Splat => self.splat(value, to),
            Op::Build => self.build(value, to),
            Op::SplatLane(lane) => {
                let [from] = self.args(value);
                let from = self.register(from);
                let within = self.two(op::SHUFFLE_WORDS, from, Some(i64::from(lane % 4) * 0x55));
                let half = if lane < 4 { 0 } else { 0xAA };
                self.two_to(to, op::PERMUTE_LONGS, RegisterOrMemory::Register(within), Some(half));
            }
            Op::Swap(bit) => {
                let (vex, order) = match bit {
                    4 => (op::PERMUTE_LONGS, 0x4E),
                    2 => (op::SHUFFLE_WORDS, 0x4E),
                    _ => (op::SHUFFLE_WORDS, 0xB1),
                };
                self.of_one_place(value, to, vex, Some(order));
            }
            Op::MoveUpWithin(by) => {
                let [below, piece] = self.args(value);
                let piece = self.register(piece);
                let below = self.place(below);
                self.three_to(to, op::ALIGN, true, piece, below, Some(16 - 4 * i64::from(by)));
            }
            Op::MoveUp => {
                let [below, piece] = self.args(value);
                if self.avx512() {
                    let piece = self.register(piece);
                    let below = self.place(below);
                    return self.three_to(to, op::ALIGN_WORDS, true, piece, below, Some(7));
                }
                let (below, piece) = (self.register(below), self.register(piece));
                let between = self.three(
                    op::COMBINE_HALVES,
                    true,
                    below,
                    RegisterOrMemory::Register(piece),
                    Some(0x21),
                );
                self.three_to(to, op::ALIGN, true, piece, RegisterOrMemory::Register(between), Some(12));
            }
            Op::Shuffle(order) => self.shuffle(value, to, order),
            Op::Interleave { bytes, high } => self.interleave(value, to, bytes, high),
            Op::ShuffleBytes => self.of_two(value, to, op::SHUFFLE_BYTES, false),
            Op::CarryHalf => {
                let [below, piece] = self.args(value);
                let (below, piece) = (self.register(below), self.register(piece));
                let last = self.two(op::SHUFFLE_WORDS, piece, Some(0xFF));
                let (vex, halves) =
                    if self.avx512() { (op::JOIN_HALVES, 0) } else { (op::COMBINE_HALVES, 0x20) };
                self.three_to(to, vex, true, below, RegisterOrMemory::Register(last), Some(halves));
            }
            Op::Widen { signed, high } => {
                let vex = match (signed, wide) {
                    (false, true) => op::WORDS_TO_LONGS,
                    (true, true) => op::WORDS_TO_LONGS_SIGNED,
                    (false, false) => op::HALVES_TO_WORDS,
                    (true, false) => op::HALVES_TO_WORDS_SIGNED,
                };
                self.of_half(value, to, vex, high);
            }
            Op::WidenFloat { high } => self.of_half(value, to, op::SINGLES_TO_DOUBLES, high),
            Op::NarrowFloat => {
                let [low, high] = self.args::<2>(value).map(|from| self.register(from));
                let [low, high] = [low, high].map(|from| self.two(op::DOUBLES_TO_SINGLES, from, None));
                self.three_to(to, op::INSERT_HALF, true, low, RegisterOrMemory::Register(high), Some(1));
            }
            Op::LowHalves => {
                let [low, high] = self.args::<2>(value).map(|from| self.register(from));
                let mixed = self.three(op::SHUFFLE, true, low, RegisterOrMemory::Register(high), Some(0x88));
                self.two_to(to, op::PERMUTE_LONGS, RegisterOrMemory::Register(mixed), Some(0xD8));
            }
            not_by_type!()
            | Op::Div { .. }
            | Op::Rem { .. }
            | Op::TrailingZeros
            | Op::Reduce
            | Op::Promote
            | Op::Demote => unreachable!("{value} is not a piece, or is expanded by the builder"),
        }
    }

    /// Shuffles words of two pieces: orders each piece, then blends them, unless one instruction
    /// does both.
    fn shuffle(&mut self, value: Value, to: VReg, order: u32) {
        let [a, b] = self.args(value);
        let order: [u8; 8] = std::array::from_fn(|lane| (order >> (4 * lane) & 15) as u8);
        let from_second = |lane: &u8| *lane >= 8;
        if let Some((first, number)) = in_halves(order).filter(|_| a != b) {
            let (first, second) = if first { (a, b) } else { (b, a) };
            let first = self.register(first);
            let second = self.place(second);
            let mixed = self.three(op::SHUFFLE, true, first, second, Some(number));
            return self.two_to(to, op::PERMUTE_LONGS, RegisterOrMemory::Register(mixed), Some(0xD8));
        }
        let of_both = order.iter().any(from_second) && !order.iter().all(from_second);
        if self.avx512() && of_both {
            return self.shuffle_of_both(to, [a, b], order);
        }
        let blended = (0..8).filter(|&lane| order[lane] >= 8).fold(0, |mask, lane| mask | 1 << lane);
        match order.iter().filter(|lane| from_second(lane)).count() {
            0 => self.ordered_to(to, a, order),
            8 => self.ordered_to(to, b, order.map(|lane| lane - 8)),
            _ => {
                let own = |second: bool| {
                    std::array::from_fn(|lane| {
                        let from = order[lane];
                        if from_second(&from) == second { from & 7 } else { lane as u8 }
                    })
                };
                let (first, second) = (self.ordered(a, own(false)), self.ordered(b, own(true)));
                let second = RegisterOrMemory::Register(second);
                self.three_to(to, op::BLEND_WORDS, true, first, second, Some(blended));
            }
        }
    }

    /// Shuffles words of two pieces in one instruction.
    fn shuffle_of_both(&mut self, to: VReg, [a, b]: [Value; 2], order: [u8; 8]) {
        let order = self.order_constant(order);
        let a = self.register(a);
        let b = self.place(b);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(order), Operand::reg_use(a)];
        self.push_place(
            InstKind::Vector(op::PERMUTE_WORDS_OF_TWO, OperandOrder::InPlace),
            true,
            &operands,
            b,
            None,
        );
    }

    /// A register with the lane numbers of an order.
    fn order_constant(&mut self, order: [u8; 8]) -> VReg {
        let mut bytes = [0; 32];
        bytes.chunks_mut(4).zip(order).for_each(|(chunk, lane)| chunk[0] = lane);
        self.vector_constant(bytes)
    }

    fn interleave(&mut self, value: Value, to: VReg, bytes: u8, high: bool) {
        let vex = match (bytes, high) {
            (4, false) => op::INTERLEAVE_LOW_WORDS,
            (4, true) => op::INTERLEAVE_HIGH_WORDS,
            (8, false) => op::INTERLEAVE_LOW_LONGS,
            (8, true) => op::INTERLEAVE_HIGH_LONGS,
            (_, high) => {
                let [a, b] = self.args(value);
                let first = self.register(a);
                let second = self.place(b);
                let groups = if high { 0x31 } else { 0x20 };
                return self.three_to(to, op::COMBINE_HALVES, true, first, second, Some(groups));
            }
        };
        self.of_two(value, to, vex, false);
    }

    /// Reorders the words of a piece.
    fn ordered(&mut self, piece: Value, order: [u8; 8]) -> VReg {
        if order == [0, 1, 2, 3, 4, 5, 6, 7] {
            return self.register(piece);
        }
        let to = self.vector();
        self.ordered_to(to, piece, order);
        to
    }

    fn ordered_to(&mut self, to: VReg, piece: Value, order: [u8; 8]) {
        if let Some(longs) = pairs(order) {
            let from = self.place(piece);
            return self.two_to(to, op::PERMUTE_LONGS, from, Some(longs));
        }
        let order = self.order_constant(order);
        let from = self.place(piece);
        self.three_to(to, op::PERMUTE_WORDS, true, order, from, None);
    }

    /// An instruction that widens half of a piece to a whole one.
    fn of_half(&mut self, value: Value, to: VReg, vex: Vex, high: bool) {
        let [from] = self.args(value);
        let mut from = self.register(from);
        if high {
            from = self.high_half(from);
        }
        self.two_to(to, vex, RegisterOrMemory::Register(from), None);
    }

    /// `a & !b` is a single instruction.
    fn and(&mut self, value: Value, to: VReg) {
        let [a, b] = self.args(value);
        for (kept, inverted) in [(a, b), (b, a)] {
            let inverted = self.same(inverted);
            if self.op(inverted) == Op::Not {
                let [from] = self.args(inverted);
                let from = self.register(from);
                let kept = self.place(kept);
                return self.three_to(to, op::AND_NOT_BITS, true, from, kept, None);
            }
        }
        self.of_two(value, to, op::AND_BITS, true);
    }

    /// Multiplies 64-bit lanes by way of products of their halves; the product of the upper halves
    /// is not needed.
    fn multiply_longs(&mut self, value: Value, to: VReg) {
        let [a, b] = self.args::<2>(value).map(|from| self.register(from));
        let low = self.both(op::MUL_TO_LONGS, a, b);
        let [a_high, b_high] = [a, b].map(|from| self.shifted(op::SHIFT_LONGS, 2, from, 32));
        let (x, y) = (self.both(op::MUL_TO_LONGS, a_high, b), self.both(op::MUL_TO_LONGS, a, b_high));
        let sum = self.both(op::ADD_LONGS, x, y);
        let high = self.shifted(op::SHIFT_LONGS, 6, sum, 32);
        self.three_to(to, op::ADD_LONGS, true, low, RegisterOrMemory::Register(high), None);
    }

    /// Multiplies the even lanes, then the odd ones.
    fn multiply_high(&mut self, value: Value, to: VReg, signed: bool) {
        let [a, b] = self.args::<2>(value).map(|from| self.register(from));
        let vex = if signed { op::MUL_TO_LONGS_SIGNED } else { op::MUL_TO_LONGS };
        let even = self.both(vex, a, b);
        let [a, b] = [a, b].map(|from| self.shifted(op::SHIFT_LONGS, 2, from, 32));
        let odd = self.both(vex, a, b);
        let even = self.shifted(op::SHIFT_LONGS, 2, even, 32);
        if !self.avx512() {
            return self.three_to(
                to,
                op::BLEND_WORDS,
                true,
                even,
                RegisterOrMemory::Register(odd),
                Some(0xAA),
            );
        }
        let upper = self.every_lane(Type::piece(Lane::I64, 32), 0xFFFF_FFFF << 32);
        let chosen = logic::FIRST & !logic::THIRD | logic::SECOND & logic::THIRD;
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(even), Operand::reg_use(odd)];
        let kind = InstKind::Vector(op::LOGIC, OperandOrder::InPlace);
        self.push_place(kind, true, &operands, RegisterOrMemory::Memory(upper), Some(chosen.into()));
    }

    fn shift_piece(&mut self, value: Value, to: VReg, digit: u8, by_register: Vex) {
        let [from, count] = self.args(value);
        let (most, by_number) = match self.ty(value).lane.bytes() {
            8 if digit == 4 => (63, op::SHIFT_LONGS_SIGNED),
            8 => (63, op::SHIFT_LONGS),
            4 => (31, op::SHIFT_WORDS),
            _ => (15, op::SHIFT_HALVES),
        };
        let from = self.register(from);
        if let Some(count) = self.small(count) {
            return self.shifted_to(to, by_number, digit, from, count & most);
        }
        let by_register = Vex { opcode: by_register.opcode - u8::from(most == 15), ..by_register };
        let count = self.register(count);
        let (masked, counted) = (self.general(), self.vector());
        let operands = [Operand::reg_reuse_def(masked, 1), Operand::reg_use(count)];
        self.push_with(InstKind::Alu(Alu::And), false, &operands, None, Some(most));
        self.transfer(counted, masked, false);
        self.three_to(to, by_register, true, from, RegisterOrMemory::Register(counted), None);
    }

    // Comparisons and choices.

    fn compare_pieces(&mut self, value: Value, to: VReg, order: IntOrder) {
        let [a, b] = self.args(value);
        let halves = self.ty(value).lane.bytes() == 2;
        let (equal, greater) = match self.ty(value).lane.bytes() {
            8 => (op::EQUAL_LONGS, op::GREATER_LONGS),
            4 => (op::EQUAL_WORDS, op::GREATER_WORDS),
            _ => (op::EQUAL_HALVES, op::GREATER_HALVES),
        };
        // The instruction, its operands, and whether its result is inverted.
        let (vex, a, b, inverted) = match order {
            IntOrder::Equal | IntOrder::NotEqual => {
                let (a, b) = if self.in_memory(a).is_some() { (b, a) } else { (a, b) };
                (equal, a, b, order == IntOrder::NotEqual)
            }
            IntOrder::SignedGreater => (greater, a, b, false),
            IntOrder::SignedLess => (greater, b, a, false),
            IntOrder::SignedLessOrEqual => (greater, a, b, true),
            IntOrder::SignedGreaterOrEqual => (greater, b, a, true),
            IntOrder::UnsignedLessOrEqual | IntOrder::UnsignedGreater => {
                let extreme = if halves { op::MIN_UNSIGNED_HALVES } else { op::MIN_UNSIGNED };
                let inverted = order == IntOrder::UnsignedGreater;
                return self.compare_unsigned(to, (extreme, equal), [a, b], inverted);
            }
            IntOrder::UnsignedGreaterOrEqual | IntOrder::UnsignedLess => {
                let extreme = if halves { op::MAX_UNSIGNED_HALVES } else { op::MAX_UNSIGNED };
                return self.compare_unsigned(to, (extreme, equal), [a, b], order == IntOrder::UnsignedLess);
            }
        };
        let a = self.register(a);
        let b = self.place(b);
        if !inverted {
            return self.three_to(to, vex, true, a, b, None);
        }
        let opposite = self.three(vex, true, a, b, None);
        self.inverted_to(to, opposite);
    }

    /// The first operand is at most (at least) the second if it equals the minimum (maximum) of
    /// both.
    fn compare_unsigned(
        &mut self,
        to: VReg,
        (extreme, equal): (Vex, Vex),
        [a, b]: [Value; 2],
        inverted: bool,
    ) {
        let a = self.register(a);
        let b = self.place(b);
        let extreme = self.three(extreme, true, a, b, None);
        if !inverted {
            return self.three_to(to, equal, true, extreme, RegisterOrMemory::Register(a), None);
        }
        let opposite = self.both(equal, extreme, a);
        self.inverted_to(to, opposite);
    }

    fn compare_float_pieces(&mut self, value: Value, to: VReg, order: FloatOrder) {
        let [mut a, mut b] = self.args(value);
        let vex = typed(op::COMPARE, self.ty(a));
        let mut number = order_number(order);
        if self.in_memory(a).is_some() && self.in_memory(b).is_none() {
            std::mem::swap(&mut a, &mut b);
            number = match order {
                FloatOrder::Equal | FloatOrder::NotEqual => number,
                FloatOrder::Less => 14,
                FloatOrder::LessOrEqual => 13,
            };
        }
        let a = self.register(a);
        let b = self.place(b);
        self.three_to(to, vex, true, a, b, Some(number));
    }

    pub(super) fn is_zero(&self, value: Value) -> bool {
        self.op(self.same(value)) == Op::Const(0)
    }

    fn choose(&mut self, value: Value, to: VReg) {
        let [mask, yes, no] = self.args(value);
        let mask = self.register(mask);
        if self.is_zero(no) {
            let yes = self.place(yes);
            return self.three_to(to, op::AND_BITS, true, mask, yes, None);
        }
        if self.is_zero(yes) {
            let no = self.place(no);
            return self.three_to(to, op::AND_NOT_BITS, true, mask, no, None);
        }
        let no = self.register(no);
        let yes = self.place(yes);
        let operands = [Operand::reg_def(to), Operand::reg_use(no), Operand::reg_use(mask)];
        let vex = if self.ty(value).lane.bytes() == 2 { op::BLEND_BYTES } else { op::BLEND };
        self.push_place(InstKind::Vector(vex, OperandOrder::Blend), true, &operands, yes, None);
    }

    // Lanes from scalars.

    fn splat(&mut self, value: Value, to: VReg) {
        let [from] = self.args(value);
        let ty = self.ty(value);
        let mut from = match self.scalar_place(from) {
            RegisterOrMemory::Register(from) => from,
            memory => {
                let vex = if ty.is_wide() { op::SPLAT_DOUBLE } else { op::SPLAT_SINGLE };
                return self.two_to(to, vex, memory, None);
            }
        };
        if !ty.is_float() {
            let lane = self.vector();
            self.transfer(lane, from, ty.is_wide());
            from = lane;
        }
        let vex = match ty.lane.bytes() {
            8 => op::SPLAT_LONG,
            4 => op::SPLAT_WORD,
            _ => op::SPLAT_HALF,
        };
        self.two_to(to, vex, RegisterOrMemory::Register(from), None);
    }

    /// Builds both halves lane by lane, then joins them.
    fn build(&mut self, value: Value, to: VReg) {
        let ty = self.ty(value);
        let per_half = (16 / ty.lane.bytes()) as usize;
        let lanes: Vec<Value> = self.function.operands(value).to_vec();
        let halves: Vec<VReg> = lanes.chunks(per_half).map(|half| self.build_half(ty, half)).collect();
        self.three_to(to, op::INSERT_HALF, true, halves[0], RegisterOrMemory::Register(halves[1]), Some(1));
    }

    fn build_half(&mut self, ty: Type, lanes: &[Value]) -> VReg {
        let wide = ty.is_wide();
        let mut half = self.first_lane(ty, lanes[0]);
        for (number, &lane) in (0_i64..).zip(lanes).skip(1) {
            let place = self.scalar_place(lane);
            let (vex, immediate) = match (ty.is_float(), wide, place) {
                (true, true, RegisterOrMemory::Memory(_)) => (op::LOAD_HIGH_DOUBLE, None),
                (true, true, RegisterOrMemory::Register(_)) => (op::LOW_DOUBLES, None),
                (true, false, _) => (op::INSERT_SINGLE, Some(number << 4)),
                (false, ..) => (with_width(op::INSERT, wide), Some(number)),
            };
            half = self.three(vex, false, half, place, immediate);
        }
        half
    }

    fn first_lane(&mut self, ty: Type, lane: Value) -> VReg {
        if ty.is_float() {
            return self.register(lane);
        }
        let to = self.vector();
        let vex = with_width(op::FROM_GENERAL, ty.is_wide());
        let place = self.scalar_place(lane);
        self.push_place(
            InstKind::Vector(vex, OperandOrder::Two),
            false,
            &[Operand::reg_def(to)],
            place,
            None,
        );
        to
    }

    // Conversions between words and singles. A single has 24 bits of precision.

    /// Puts the upper and lower 16 bits of each lane into the low mantissa bits of 2³⁹ and 2²³,
    /// then subtracts those.
    fn unsigned_to_singles(&mut self, value: Value, to: VReg) {
        let [from] = self.args(value);
        let from = self.register(from);
        let magic = self.words(0x4B00_0000);
        let low = self.three(op::BLEND_HALVES, true, from, magic, Some(0xAA));
        let high = self.shifted(op::SHIFT_WORDS, 2, from, 16);
        let magic = self.words(0x5300_0000);
        let high = self.three(op::BLEND_HALVES, true, high, magic, Some(0xAA));
        let both = self.words(0x5300_0080);
        let high = self.three(op::SUB, true, high, both, None);
        self.three_to(to, op::ADD, true, low, RegisterOrMemory::Register(high), None);
    }

    /// Out-of-range values convert to the least integer; where they are too large, flipping all
    /// bits gives the greatest. NaNs are zeroed first.
    fn singles_to_signed(&mut self, value: Value, to: VReg) {
        let [from] = self.args(value);
        let from = self.register(from);
        let is_number = self.three(op::COMPARE, true, from, RegisterOrMemory::Register(from), Some(0));
        let number = self.both(op::AND, from, is_number);
        let limit = self.words(2_147_483_648_f32.to_bits());
        let too_large = self.three(op::COMPARE, true, number, limit, Some(13));
        let whole = self.two(op::TO_WORDS, number, None);
        self.three_to(to, op::XOR_BITS, true, whole, RegisterOrMemory::Register(too_large), None);
    }

    /// Values below 2³¹ convert directly; from 2³¹ on, the excess over 2³¹ supplies the low bits;
    /// from 2³² on, the result is all ones.
    fn singles_to_unsigned(&mut self, value: Value, to: VReg) {
        let [from] = self.args(value);
        let from = self.register(from);
        let zero = self.vector_constant([0; 32]);
        let positive = self.both(op::MAX, from, zero);
        let whole = self.two(op::TO_WORDS, positive, None);
        let half = self.words(2_147_483_648_f32.to_bits());
        let above = self.three(op::SUB, true, positive, half, None);
        let above = self.two(op::TO_WORDS, above, None);
        let is_above = self.shifted(op::SHIFT_WORDS, 4, whole, 31);
        let above = self.both(op::AND_BITS, above, is_above);
        let whole = self.both(op::OR_BITS, whole, above);
        let limit = self.words(4_294_967_296_f32.to_bits());
        let too_large = self.three(op::COMPARE, true, positive, limit, Some(13));
        self.three_to(to, op::OR_BITS, true, whole, RegisterOrMemory::Register(too_large), None);
    }
}

/// Returns the order of the four longs as the `vpermq` immediate, if words only move in pairs.
fn pairs(order: [u8; 8]) -> Option<i64> {
    let longs = order.as_chunks::<2>().0;
    let fits = longs.iter().all(|&[low, high]| low % 2 == 0 && high == low + 1);
    fits.then(|| (0..).zip(longs).fold(0, |number, (at, &[low, _])| number | i64::from(low / 2) << (2 * at)))
}

/// Matches an order of words of two pieces that `vshufps` followed by a swap of the two middle
/// longs produces: the lower four from one piece, two of each half, and the upper four from the
/// other, from the same places in both halves. Returns whether the first piece comes first, and the
/// `vshufps` immediate.
fn in_halves(order: [u8; 8]) -> Option<(bool, i64)> {
    let first = order[0] < 8;
    let own = |at: usize, second: bool| {
        let lane = order[at];
        ((lane >= 8) == (second == first)).then_some(lane & 7)
    };
    let mut number = 0;
    for (at, half, place) in
        [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 0, 2), (5, 0, 3), (6, 1, 2), (7, 1, 3)]
    {
        let lane = own(at, at >= 4)?;
        if lane / 4 != half {
            return None;
        }
        let bits = i64::from(lane % 4) << (2 * place);
        if half == 0 {
            number |= bits;
        } else if number >> (2 * place) & 3 != i64::from(lane % 4) {
            return None;
        }
    }
    Some((first, number))
}
