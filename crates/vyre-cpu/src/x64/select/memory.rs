//! Addresses, loads, stores and atomics.

use super::super::bytes::Vex;
use super::super::instruction::{Alu, Base, Condition, InstKind, MemoryOperand, OperandOrder, Retry};
use super::{ARGUMENTS, RegisterOrMemory, Selector, general, op, typed};
use crate::piece::{F64, Narrow, Op, Update, Value};
use regalloc2::{Operand, VReg};

impl Selector<'_> {
    /// Selects an address as a memory operand: base, index times 1, 2, 4 or 8, and displacement.
    pub(super) fn address(&mut self, address: Value, offset: i32) -> MemoryOperand {
        let (value, displacement) = self.without_numbers(address, offset);
        if let Op::StackAddress(slot) = self.op(value) {
            return MemoryOperand { base: Base::Slot(slot), index: None, displacement };
        }
        if self.op(value) != Op::Add {
            let base = self.register(value);
            return MemoryOperand { base: Base::Register(base), index: None, displacement };
        }
        let [mut base, mut index] = self.args(value);
        if self.scaled(base).is_some() {
            std::mem::swap(&mut base, &mut index);
        }
        let (index, shift) = self.scaled(index).unwrap_or((index, 0));
        let (base, displacement) = self.without_numbers(base, displacement);
        let (base, index) = (self.register(base), self.register(index));
        MemoryOperand { base: Base::Register(base), index: Some((index, shift)), displacement }
    }

    /// Strips added constants from an address; returns the rest and their sum with the
    /// displacement.
    fn without_numbers(&self, address: Value, displacement: i32) -> (Value, i32) {
        let (mut address, mut displacement) = (self.same(address), displacement);
        while self.op(address) == Op::Add && self.ty(address).is_wide() {
            let [base, number] = self.args(address);
            let sum =
                self.small(number).and_then(|number| i32::try_from(i64::from(displacement) + number).ok());
            let Some(sum) = sum else { break };
            (address, displacement) = (self.same(base), sum);
        }
        (address, displacement)
    }

    /// Matches a value that is another one times 2, 4 or 8.
    fn scaled(&self, value: Value) -> Option<(Value, u8)> {
        let value = self.same(value);
        if self.op(value) != Op::ShiftLeft || !self.ty(value).is_wide() {
            return None;
        }
        let [index, count] = self.args(value);
        let count = self.small(count)?;
        (1..=3).contains(&count).then_some((index, count as u8))
    }

    /// Whether a load can be folded into its only use.
    pub(super) fn is_foldable(&self, load: Value) -> bool {
        let (block, writes) = self.moments[load.index()];
        let unchanged = match self.now {
            // The end of a block: nothing can be written between the load and it.
            (now, u32::MAX) => now == block && self.writes[block as usize] == writes,
            now => now == (block, writes),
        };
        self.uses[load.index()] == 1 && unchanged
    }

    /// A scalar operand of 32 or 64 bits that can be in memory, which is read in exactly that many
    /// bytes.
    pub(super) fn scalar_place(&mut self, value: Value) -> RegisterOrMemory {
        if let Op::Load(offset) = self.op(value)
            && self.ty(value).bytes() >= 4
            && self.is_foldable(value)
        {
            let [address] = self.args(value);
            return RegisterOrMemory::Memory(self.address(address, offset));
        }
        RegisterOrMemory::Register(self.register(value))
    }

    /// An operand of vector instructions that can be in memory; as many bytes are read as the value
    /// has.
    pub(super) fn place(&mut self, value: Value) -> RegisterOrMemory {
        if let Some(source) = self.in_memory(value) {
            if let Op::Load(offset) = self.op(source) {
                let [address] = self.args(source);
                return RegisterOrMemory::Memory(self.address(address, offset));
            }
            if let Some(bytes) = self.constant_bytes(source) {
                return RegisterOrMemory::Memory(self.constant_memory(bytes));
            }
        }
        RegisterOrMemory::Register(self.register(value))
    }

    /// Returns the load or constant behind the value, if it can be a memory operand.
    pub(super) fn in_memory(&self, value: Value) -> Option<Value> {
        let (mut source, mut alone) = (value, true);
        while let Op::Bitcast = self.op(source) {
            let [from] = self.args(source);
            if !self.is_vector(from) {
                return None;
            }
            alone &= self.uses[source.index()] == 1;
            source = from;
        }
        match self.op(source) {
            Op::Const(bits) => (bits != 0).then_some(source),
            Op::LaneNumbers(_) | Op::Pattern(_) => Some(source),
            Op::Load(_) => (alone && self.is_vector(source) && self.is_foldable(source)).then_some(source),
            _ => None,
        }
    }

    pub(super) fn load(&mut self, value: Value, offset: i32) {
        let ty = self.ty(value);
        let (kind, wide) = if ty.is_piece() {
            (InstKind::Vector(op::LOAD, OperandOrder::Two), true)
        } else if ty.is_float() {
            (InstKind::Vector(typed(op::LOAD, ty), OperandOrder::Two), false)
        } else {
            (InstKind::Load { bytes: ty.bytes() as u8, signed: false }, false)
        };
        self.load_by(value, kind, wide, offset);
    }

    pub(super) fn load_narrow(&mut self, value: Value, Narrow { bytes, signed }: Narrow, offset: i32) {
        let ty = self.ty(value);
        if !ty.is_piece() {
            return self.load_by(value, InstKind::Load { bytes, signed }, ty.is_wide(), offset);
        }
        let vex = match (bytes, signed) {
            (1, false) if ty.lane.bytes() == 2 => op::BYTES_TO_HALVES,
            (1, true) if ty.lane.bytes() == 2 => op::BYTES_TO_HALVES_SIGNED,
            (1, false) => op::BYTES_TO_WORDS,
            (1, true) => op::BYTES_TO_WORDS_SIGNED,
            (_, false) => op::HALVES_TO_WORDS,
            (_, true) => op::HALVES_TO_WORDS_SIGNED,
        };
        self.load_by(value, InstKind::Vector(vex, OperandOrder::Two), true, offset);
    }

    fn load_by(&mut self, value: Value, kind: InstKind, wide: bool, offset: i32) {
        let to = [Operand::reg_def(self.home(value))];
        let [address] = self.args(value);
        let memory = self.address(address, offset);
        self.push_with(kind, wide, &to, Some(memory), None);
    }

    pub(super) fn load_halves(&mut self, value: Value, [low, high]: [i32; 2]) {
        let [address] = self.args(value);
        let (to, first) = (self.home(value), self.vector());
        let memory = self.address(address, low);
        let operands = [Operand::reg_def(first)];
        self.push_with(InstKind::Vector(op::LOAD, OperandOrder::Two), false, &operands, Some(memory), None);
        let memory = self.address(address, high);
        self.three_to(to, op::INSERT_HALF, true, first, RegisterOrMemory::Memory(memory), Some(1));
    }

    pub(super) fn store(&mut self, value: Value, offset: i32) {
        let [what, address] = self.args(value);
        if self.update_in_place(what, address, offset) {
            return;
        }
        let ty = self.ty(what);
        let operands = [Operand::reg_use(self.register(what))];
        let memory = self.address(address, offset);
        let kind = match ty.is_float() || ty.is_piece() {
            true if ty.is_piece() => InstKind::Vector(op::STORE, OperandOrder::Store),
            true => InstKind::Vector(typed(op::STORE, ty), OperandOrder::Store),
            false => InstKind::Store { bytes: ty.bytes() as u8 },
        };
        self.push_with(kind, ty.is_piece(), &operands, Some(memory), None);
    }

    /// Stores in halves: callers' memory is rarely aligned to more than 16 bytes, and stores past
    /// the caches are combined into lines.
    pub(super) fn store_past(&mut self, value: Value, offset: i32) {
        self.store_in_halves(value, [offset, offset + 16], op::STORE_PAST);
        self.stores_past = true;
    }

    /// Stores the halves of a piece to these offsets.
    pub(super) fn store_in_halves(&mut self, value: Value, offsets: [i32; 2], store: Vex) {
        let [what, address] = self.args(value);
        let low = self.register(what);
        let high = self.high_half(low);
        for (half, offset) in [low, high].into_iter().zip(offsets) {
            let memory = self.address(address, offset);
            let operands = [Operand::reg_use(half)];
            self.push_with(
                InstKind::Vector(store, OperandOrder::Store),
                false,
                &operands,
                Some(memory),
                None,
            );
        }
    }

    /// Matches a sum with the element at the address that is stored back there: one instruction.
    fn update_in_place(&mut self, what: Value, address: Value, offset: i32) -> bool {
        let sum = self.same(what);
        if self.op(sum) != Op::Add
            || self.is_vector(sum)
            || self.uses[sum.index()] != 1
            || self.ty(what) != self.ty(sum)
        {
            return false;
        }
        let [old, more] = self.args(sum);
        // The store itself counts as a write.
        let (block, writes) = self.now;
        let just_before = (block, writes - 1);
        let fits = self.op(old) == Op::Load(offset)
            && self.same(self.args::<1>(old)[0]) == self.same(address)
            && self.uses[old.index()] == 1
            && old != more
            && self.moments[old.index()] == just_before
            && self.moments[sum.index()] == just_before;
        if !fits {
            return false;
        }
        let wide = self.ty(sum).is_wide();
        let (operands, number): (Vec<Operand>, _) = match self.small(more) {
            Some(number) => (Vec::new(), Some(number)),
            None => (vec![Operand::reg_use(self.register(more))], None),
        };
        let memory = self.address(address, offset);
        self.push_with(InstKind::AluToMemory(Alu::Add), wide, &operands, Some(memory), number);
        true
    }

    pub(super) fn store_narrow(&mut self, value: Value, bytes: u8, offset: i32) {
        let [what, address] = self.args(value);
        let from = self.register(what);
        if !self.ty(what).is_piece() {
            let memory = self.address(address, offset);
            return self.push_with(
                InstKind::Store { bytes },
                false,
                &[Operand::reg_use(from)],
                Some(memory),
                None,
            );
        }
        let lane = self.ty(what).lane.bytes();
        let packed =
            if self.avx512() { self.truncated(from, lane, bytes) } else { self.packed(from, lane, bytes) };
        let store = if lane == 4 && bytes == 1 { typed(op::STORE, F64) } else { op::STORE };
        let memory = self.address(address, offset);
        let operands = [Operand::reg_use(packed)];
        self.push_with(InstKind::Vector(store, OperandOrder::Store), false, &operands, Some(memory), None);
    }

    pub(super) fn store_masked(&mut self, value: Value, bytes: u8, offset: i32) {
        let [what, mask, address] = self.args(value);
        let lane = self.ty(what).lane.bytes();
        let to_mask = match lane {
            2 => op::HALVES_TO_MASK,
            4 => op::WORDS_TO_MASK,
            _ => op::LONGS_TO_MASK,
        };
        let store = match (lane, bytes) {
            (2, 1) => op::HALVES_TO_BYTES,
            (2, _) => op::STORE_HALVES,
            (4, 1) => op::WORDS_TO_BYTES,
            (4, 2) => op::WORDS_TO_HALVES,
            (4, _) => op::STORE_WORDS,
            _ => op::STORE_LONGS,
        };
        let operands = [Operand::reg_use(self.register(what)), Operand::reg_use(self.register(mask))];
        let memory = self.address(address, offset);
        self.push_with(InstKind::StoreMasked(to_mask, store), true, &operands, Some(memory), None);
    }

    /// Puts the low bytes of all lanes together; the lanes' other bits are zero.
    fn packed(&mut self, from: VReg, lane: u32, bytes: u8) -> VReg {
        let high = RegisterOrMemory::Register(self.high_half(from));
        if lane == 2 {
            return self.three(op::PACK_HALVES, false, from, high, None);
        }
        let halves = self.three(op::PACK_WORDS, false, from, high, None);
        if bytes == 2 {
            return halves;
        }
        self.three(op::PACK_HALVES, false, halves, RegisterOrMemory::Register(halves), None)
    }

    /// The same in one instruction.
    fn truncated(&mut self, from: VReg, lane: u32, bytes: u8) -> VReg {
        let vex = match (lane, bytes) {
            (2, _) => op::HALVES_TO_BYTES,
            (_, 2) => op::WORDS_TO_HALVES,
            _ => op::WORDS_TO_BYTES,
        };
        let to = self.vector();
        let operands = [Operand::reg_def(to), Operand::reg_use(from)];
        self.push_with(InstKind::Vector(vex, OperandOrder::TwoReversed), true, &operands, None, None);
        to
    }

    pub(super) fn atomic_update(&mut self, value: Value, update: Update) {
        let [address, operand] = self.args(value);
        let (to, wide) = (self.home(value), self.ty(value).is_wide());
        let operand = self.register(operand);
        let memory = self.address(address, 0);
        let retry = match update {
            Update::Add | Update::Exchange => {
                let kind = if update == Update::Add { InstKind::ExchangeAdd } else { InstKind::Exchange };
                let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(operand)];
                return self.push_keeping_address(kind, wide, &operands, memory);
            }
            Update::And => Retry::Combine(Alu::And),
            Update::Or => Retry::Combine(Alu::Or),
            Update::Xor => Retry::Combine(Alu::Xor),
            Update::SignedMin => Retry::KeepIf(Condition::Less),
            Update::SignedMax => Retry::KeepIf(Condition::Greater),
            Update::UnsignedMin => Retry::KeepIf(Condition::Below),
            Update::UnsignedMax => Retry::KeepIf(Condition::Above),
        };
        let new = self.general();
        let operands = [
            Operand::reg_fixed_def_at_start(to, general(0)),
            Operand::reg_temp(new),
            Operand::reg_use_at_end(operand),
        ];
        self.push_keeping_address(InstKind::Retry(retry), wide, &operands, memory);
    }

    pub(super) fn compare_exchange(&mut self, value: Value) {
        let [address, expected, new] = self.args(value);
        let (to, wide) = (self.home(value), self.ty(value).is_wide());
        let (expected, new) = (self.register(expected), self.register(new));
        let memory = self.address(address, 0);
        let operands = [
            Operand::reg_fixed_def(to, general(0)),
            Operand::reg_fixed_use(expected, general(0)),
            Operand::reg_use_at_end(new),
        ];
        self.push_keeping_address(InstKind::CompareExchange, wide, &operands, memory);
    }

    pub(super) fn call(&mut self, value: Value) {
        let [code, a, b, c, d, e] = self.args(value);
        let code = Operand::reg_fixed_use(self.register(code), general(0));
        let rest = [a, b, c, d, e].map(|argument| self.register(argument));
        let rest = rest
            .into_iter()
            .zip(ARGUMENTS)
            .map(|(register, at)| Operand::reg_fixed_use(register, general(at)));
        let operands: Vec<Operand> = std::iter::once(code).chain(rest).collect();
        self.push(InstKind::Call, &operands);
    }
}
