//! Encodes a register-allocated function: lays out blocks in order, cold ones last, and shortens
//! chains of jumps.

use super::bytes::{self, Bytes, General, Label, Length, RAX, RDX, RSP, Register, RegisterOrMemory, Vex};
use super::instruction::{Alu, Base, Condition, Inst, InstKind, MachineFunction, OperandOrder, Retry};
use super::op;
use super::stack_frame::{StackFrame, transfer};
use crate::source_region::{Assembled, RegionStarts};
use regalloc2::{Allocation, Block, Edit, InstOrEdit, Output};

/// Returns the machine code, and whether any of it is in EVEX.
pub(super) fn encode(code: &MachineFunction, output: &Output) -> Result<(Assembled, bool), String> {
    let frame = StackFrame::new(code, output)?;
    let targets = targets(code, output);
    let is_placed = |&block: &u32| block == 0 || targets[block as usize] == block;
    let (cold, warm): (Vec<u32>, Vec<u32>) =
        (0..code.blocks.len() as u32).filter(is_placed).partition(|&block| code.blocks[block as usize].cold);
    let placed: Vec<u32> = warm.into_iter().chain(cold).collect();
    let mut encoder = Encoder {
        frame,
        stores_past: code.stores_past,
        targets,
        is_cold: code.blocks.iter().map(|block| block.cold).collect(),
        next: None,
        bytes: Bytes::with_capacity(8 * code.insts.len()),
    };
    let mut regions = RegionStarts::default();
    encoder.frame.enter(&mut encoder.bytes);
    for (at, &block) in placed.iter().enumerate() {
        encoder.bytes.label(Label(block));
        encoder.next = placed.get(at + 1).copied();
        for item in output.block_insts_and_edits(code, Block::new(block as usize)) {
            match item {
                InstOrEdit::Edit(Edit::Move { from, to }) if from == to => {}
                InstOrEdit::Edit(Edit::Move { from, to }) => transfer(&mut encoder.bytes, *from, *to),
                InstOrEdit::Inst(number) => {
                    let inst = &code.insts[number.index()];
                    regions.note(encoder.bytes.code.len(), code.regions[number.index()]);
                    match inst.kind {
                        InstKind::Jump(to) => encoder.jump_or_branch(code, output, to),
                        _ => encoder.inst(inst, output.inst_allocs(number)),
                    }
                }
            }
        }
    }
    let has_evex = encoder.bytes.has_evex;
    Ok((regions.with(encoder.bytes.finish(&code.constants)), has_evex))
}

/// Returns the two instructions of a block that only sets the flags and branches.
fn only_branches(code: &MachineFunction, output: &Output, block: u32) -> Option<[usize; 2]> {
    let data = &code.blocks[block as usize];
    let (first, last) = (data.first as usize, data.end as usize - 1);
    let sets_flags =
        |kind: InstKind| matches!(kind, InstKind::TestByte | InstKind::Test | InstKind::Alu(Alu::Compare));
    let fits = last == first + 1
        && sets_flags(code.insts[first].kind)
        && matches!(code.insts[last].kind, InstKind::Branch(..))
        && !has_moves(code, output, block);
    fits.then_some([first, last])
}

fn has_moves(code: &MachineFunction, output: &Output, block: u32) -> bool {
    output.block_insts_and_edits(code, Block::new(block as usize)).any(|item| match item {
        InstOrEdit::Edit(Edit::Move { from, to }) => from != to,
        InstOrEdit::Inst(_) => false,
    })
}

/// Per block: the final target of a jump to it, past blocks that only jump on.
fn targets(code: &MachineFunction, output: &Output) -> Vec<u32> {
    let only_jumps = |block: u32| -> Option<u32> {
        let data = &code.blocks[block as usize];
        let InstKind::Jump(to) = code.insts[data.first as usize].kind else { return None };
        (!has_moves(code, output, block)).then_some(to)
    };
    let mut targets: Vec<u32> = (0..code.blocks.len() as u32).collect();
    fn last(targets: &[u32], block: u32) -> u32 {
        let mut at = block;
        while targets[at as usize] != at {
            at = targets[at as usize];
        }
        at
    }
    // Processed last to first: most jump targets come later and are already resolved.
    for block in (0..targets.len() as u32).rev() {
        if let Some(to) = only_jumps(block) {
            // If the chain leads back here, it ends here.
            targets[block as usize] = last(&targets, to);
        }
    }
    (0..targets.len() as u32).map(|block| last(&targets, block)).collect()
}

/// `sfence`: all stores before it complete before those after it.
const STORE_FENCE: [u8; 3] = [0x0F, 0xAE, 0xF8];

/// The mask register that masked stores use; nothing is kept in it.
const MASK: Register = 1;

struct Encoder {
    frame: StackFrame,
    stores_past: bool,
    targets: Vec<u32>,
    is_cold: Vec<bool>,
    /// The block that follows this one.
    next: Option<u32>,
    bytes: Bytes,
}

/// Registers and memory operand of an instruction.
struct Operands<'a> {
    places: &'a [Allocation],
    memory: Option<bytes::MemoryOperand>,
}

impl Operands<'_> {
    fn register(&self, number: usize) -> Register {
        match self.places[number].as_reg() {
            Some(register) => register.hw_enc() as Register,
            None => unreachable!("operands are in registers"),
        }
    }

    /// Returns the memory operand if there is one, else a register.
    fn place(&self, number: usize) -> RegisterOrMemory {
        match self.memory {
            Some(memory) => RegisterOrMemory::Memory(memory),
            None => RegisterOrMemory::Register(self.register(number)),
        }
    }

    fn memory(&self) -> RegisterOrMemory {
        match self.memory {
            Some(memory) => RegisterOrMemory::Memory(memory),
            None => unreachable!("the instruction has a memory operand"),
        }
    }
}

impl Encoder {
    fn operands<'a>(&self, inst: &Inst, places: &'a [Allocation]) -> Operands<'a> {
        let mut operands = Operands { places, memory: None };
        let Some(memory) = inst.memory else { return operands };
        let from_register = matches!(memory.base, Base::Register(_));
        let first = places.len() - usize::from(from_register) - usize::from(memory.index.is_some());
        let index = memory.index.map(|(_, shift)| (operands.register(places.len() - 1), shift));
        let (base, displacement) = match memory.base {
            Base::Register(_) => (bytes::Base::Register(operands.register(first)), memory.displacement),
            Base::Constant(number) => (bytes::Base::Constant(number), memory.displacement),
            Base::Slot(slot) => {
                (bytes::Base::Register(RSP), memory.displacement + self.frame.slot(slot.index()))
            }
        };
        operands.memory = Some(bytes::MemoryOperand { base, index, displacement });
        operands
    }

    fn inst(&mut self, inst: &Inst, places: &[Allocation]) {
        let operands = self.operands(inst, places);
        match inst.kind {
            InstKind::Vector(vex, shape) => self.vector(inst, vex, shape, &operands),
            InstKind::StoreMasked(to_mask, store) => {
                let mask = RegisterOrMemory::Register(operands.register(1));
                self.bytes.vector(to_mask, Length::Bits256, (MASK, 0, mask), None);
                self.bytes.store_masked(store, MASK, operands.register(0), operands.memory());
            }
            InstKind::Zero => {
                let register = operands.register(0);
                let all = (register, register, RegisterOrMemory::Register(register));
                self.bytes.vector(op::XOR, Length::Bits128, all, None);
            }
            InstKind::FloatIf(condition) => {
                let (to, from) = (operands.register(0), operands.place(2));
                self.bytes.only_if(condition as u8, |bytes| {
                    bytes.vector(op::COPY, Length::Bits128, (to, 0, from), None);
                });
            }
            InstKind::Jump(to) => self.jump(to),
            InstKind::Branch(condition, yes, no) => self.branch(condition, yes, no),
            InstKind::Return => {
                if self.stores_past {
                    // Makes the stores past the caches visible to other threads before any later
                    // store.
                    self.bytes.code.extend(STORE_FENCE);
                }
                self.frame.leave(&mut self.bytes);
            }
            InstKind::Arguments => {}
            _ => self.general(inst, &operands),
        }
    }

    fn vector(&mut self, inst: &Inst, vex: Vex, shape: OperandOrder, operands: &Operands<'_>) {
        let length = if inst.wide { Length::Bits256 } else { Length::Bits128 };
        let immediate = inst.immediate.map(|number| number as u8);
        let register = |number| operands.register(number);
        let (named, immediate) = match shape {
            OperandOrder::Three => ((register(0), register(1), operands.place(2)), immediate),
            OperandOrder::Two => ((register(0), 0, operands.place(1)), immediate),
            OperandOrder::TwoReversed => {
                ((register(1), 0, RegisterOrMemory::Register(register(0))), immediate)
            }
            OperandOrder::Store => ((register(0), 0, operands.memory()), immediate),
            OperandOrder::Shift(digit) => ((digit, register(0), operands.place(1)), immediate),
            OperandOrder::Blend => ((register(0), register(1), operands.place(3)), Some(register(2) << 4)),
            OperandOrder::InPlace => ((register(0), register(2), operands.place(3)), immediate),
            OperandOrder::Test => ((register(0), 0, operands.place(1)), immediate),
        };
        self.bytes.vector(vex, length, named, immediate);
    }

    fn target(&self, block: u32) -> u32 {
        self.targets[block as usize]
    }

    fn jump(&mut self, to: u32) {
        let to = self.target(to);
        if self.next != Some(to) {
            self.bytes.jump(Label(to));
        }
    }

    /// Jumps, or replicates the test and branch of a target that contains nothing else, which saves
    /// a loop one jump per iteration.
    fn jump_or_branch(&mut self, code: &MachineFunction, output: &Output, to: u32) {
        let to = self.target(to);
        match (self.next != Some(to)).then(|| only_branches(code, output, to)).flatten() {
            Some([test, branch]) => {
                self.inst(&code.insts[test], output.inst_allocs(regalloc2::Inst::new(test)));
                self.inst(&code.insts[branch], &[]);
            }
            None => self.jump(to),
        }
    }

    fn branch(&mut self, condition: Condition, yes: u32, no: u32) {
        let (yes, no) = (self.target(yes), self.target(no));
        if self.next == Some(yes) {
            self.bytes.jump_if(condition as u8 ^ 1, Label(no));
        } else if self.is_cold[yes as usize] && self.next != Some(no) {
            self.bytes.jump_if(condition as u8 ^ 1, Label(no));
            self.bytes.jump(Label(yes));
        } else {
            self.bytes.jump_if(condition as u8, Label(yes));
            self.jump(no);
        }
    }

    /// Encodes instructions on general registers.
    fn general(&mut self, inst: &Inst, operands: &Operands<'_>) {
        let register = |number| operands.register(number);
        let plain = |opcode| General::new(inst.wide, opcode);
        let long = |opcode| General::long(inst.wide, opcode);
        let number = inst.immediate.unwrap_or(0);
        match inst.kind {
            InstKind::Alu(alu) => {
                let second = if alu == Alu::Compare { 1 } else { 2 };
                match inst.immediate {
                    Some(number) => {
                        self.alu_number(inst.wide, alu, RegisterOrMemory::Register(register(0)), number)
                    }
                    None => {
                        self.bytes.general(
                            plain((alu as u8) << 3 | 3),
                            register(0),
                            operands.place(second),
                            &[],
                        );
                    }
                }
            }
            InstKind::AluToMemory(alu) => match inst.immediate {
                Some(number) => self.alu_number(inst.wide, alu, operands.memory(), number),
                None => self.bytes.general(plain((alu as u8) << 3 | 1), register(0), operands.memory(), &[]),
            },
            InstKind::TestByte => self.bytes.general(General::new(false, 0x80), 7, operands.memory(), &[0]),
            InstKind::Test => {
                self.bytes.general(plain(0x85), register(0), RegisterOrMemory::Register(register(0)), &[])
            }
            InstKind::Lea => self.bytes.general(plain(0x8D), register(0), operands.memory(), &[]),
            InstKind::Number => self.bytes.load_number(register(0), number),
            InstKind::Copy32 => {
                self.bytes.general(General::new(false, 0x8B), register(0), operands.place(1), &[])
            }
            InstKind::SignExtend32 => {
                self.bytes.general(General::new(true, 0x63), register(0), operands.place(1), &[])
            }
            InstKind::Load { bytes, signed } => self.load(bytes, signed, inst.wide, operands),
            InstKind::Store { bytes } => self.store(bytes, operands),
            InstKind::Multiply => self.bytes.general(long(0xAF), register(0), operands.place(2), &[]),
            InstKind::MultiplyNumber => {
                self.bytes.general(
                    plain(0x69),
                    register(0),
                    operands.place(1),
                    &(number as i32).to_le_bytes(),
                );
            }
            InstKind::ShiftNumber(digit) => {
                self.bytes.general(
                    plain(0xC1),
                    digit,
                    RegisterOrMemory::Register(register(0)),
                    &[number as u8],
                );
            }
            InstKind::Unary(digit) => {
                self.bytes.general(plain(0xF7), digit, RegisterOrMemory::Register(register(0)), &[])
            }
            InstKind::Count(opcode) => {
                let count = General { prefix: Some(0xF3), ..long(opcode) };
                self.bytes.general(count, register(0), operands.place(1), &[]);
            }
            InstKind::Divide { signed } => {
                self.prepare_dividend(signed, inst.wide);
                let digit = if signed { 7 } else { 6 };
                self.bytes.general(plain(0xF7), digit, RegisterOrMemory::Register(register(1)), &[]);
            }
            InstKind::MultiplyHigh { signed } => {
                let digit = if signed { 5 } else { 4 };
                self.bytes.general(plain(0xF7), digit, RegisterOrMemory::Register(register(1)), &[]);
            }
            InstKind::SetIf(condition) => {
                let to = register(0);
                let byte = |opcode| General { byte: true, ..General::long(false, opcode) };
                self.bytes.general(byte(0x90 | condition as u8), 0, RegisterOrMemory::Register(to), &[]);
                self.bytes.general(byte(0xB6), to, RegisterOrMemory::Register(to), &[]);
            }
            InstKind::MoveIf(condition) => {
                self.bytes.general(long(0x40 | condition as u8), register(0), operands.place(2), &[]);
            }
            InstKind::ExchangeAdd => {
                self.lock();
                self.bytes.general(long(0xC1), register(0), operands.memory(), &[]);
            }
            InstKind::Exchange => self.bytes.general(plain(0x87), register(0), operands.memory(), &[]),
            InstKind::CompareExchange => {
                self.lock();
                self.bytes.general(long(0xB1), register(2), operands.memory(), &[]);
            }
            InstKind::Retry(retry) => self.retry(retry, inst.wide, operands),
            InstKind::Call => {
                self.bytes.general(General::new(false, 0xFF), 2, RegisterOrMemory::Register(register(0)), &[])
            }
            InstKind::Vector(..)
            | InstKind::StoreMasked(..)
            | InstKind::Zero
            | InstKind::FloatIf(_)
            | InstKind::Arguments
            | InstKind::Jump(_)
            | InstKind::Branch(..)
            | InstKind::Return => unreachable!("{:?} is not general", inst.kind),
        }
    }

    /// Makes the next instruction's access atomic.
    fn lock(&mut self) {
        self.bytes.code.push(0xF0);
    }

    fn alu_number(&mut self, wide: bool, alu: Alu, place: RegisterOrMemory, number: i64) {
        match i8::try_from(number) {
            Ok(short) => self.bytes.general(General::new(wide, 0x83), alu as u8, place, &[short as u8]),
            Err(_) => {
                let number = (number as i32).to_le_bytes();
                self.bytes.general(General::new(wide, 0x81), alu as u8, place, &number);
            }
        }
    }

    fn load(&mut self, bytes: u8, signed: bool, wide: bool, operands: &Operands<'_>) {
        let general = match (bytes, signed) {
            (1, false) => General::long(false, 0xB6),
            (1, true) => General::long(wide, 0xBE),
            (2, false) => General::long(false, 0xB7),
            (2, true) => General::long(wide, 0xBF),
            (4, true) if wide => General::new(true, 0x63),
            (4, _) => General::new(false, 0x8B),
            _ => General::new(true, 0x8B),
        };
        self.bytes.general(general, operands.register(0), operands.memory(), &[]);
    }

    fn store(&mut self, bytes: u8, operands: &Operands<'_>) {
        let general = match bytes {
            1 => General { byte: true, ..General::new(false, 0x88) },
            2 => General { prefix: Some(0x66), ..General::new(false, 0x89) },
            4 => General::new(false, 0x89),
            _ => General::new(true, 0x89),
        };
        self.bytes.general(general, operands.register(0), operands.memory(), &[]);
    }

    /// Sets up the upper half of the dividend, in `edx` or `rdx`.
    fn prepare_dividend(&mut self, signed: bool, wide: bool) {
        match (signed, wide) {
            (true, true) => self.bytes.code.extend([0x48, 0x99]),
            (true, false) => self.bytes.code.push(0x99),
            (false, _) => {
                self.bytes.general(General::new(false, 0x33), RDX, RegisterOrMemory::Register(RDX), &[])
            }
        }
    }

    /// Loads the old value into `rax`, computes the new one from it, and retries if another thread
    /// intervened.
    fn retry(&mut self, retry: Retry, wide: bool, operands: &Operands<'_>) {
        let (new, operand) = (operands.register(1), RegisterOrMemory::Register(operands.register(2)));
        let plain = |opcode| General::new(wide, opcode);
        let long = |opcode| General::long(wide, opcode);
        self.bytes.general(plain(0x8B), RAX, operands.memory(), &[]);
        let again = self.bytes.code.len();
        self.bytes.general(plain(0x8B), new, RegisterOrMemory::Register(RAX), &[]);
        match retry {
            Retry::Combine(alu) => self.bytes.general(plain((alu as u8) << 3 | 3), new, operand, &[]),
            Retry::KeepIf(condition) => {
                self.bytes.general(plain((Alu::Compare as u8) << 3 | 3), new, operand, &[]);
                self.bytes.general(long(0x40 | (condition as u8 ^ 1)), new, operand, &[]);
            }
        }
        self.lock();
        self.bytes.general(long(0xB1), new, operands.memory(), &[]);
        let back = again as i64 - (self.bytes.code.len() as i64 + 2);
        self.bytes.code.extend([0x70 | Condition::NotEqual as u8, back as u8]);
    }
}
