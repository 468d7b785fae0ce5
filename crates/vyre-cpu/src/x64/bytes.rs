//! Encoding of x86-64 instructions: REX encodings for general registers, VEX and EVEX encodings for
//! vectors (and the few BMI instructions that use VEX), memory operands, and displacements that are
//! fixed up at the end.
//!
//! VEX reaches 16 vector registers; EVEX, which is longer, reaches 32. An instruction with both
//! encodings uses VEX unless it names one of the upper registers.
//!
//! Registers are represented by number. The layouts are in Intel's manual, volume 2, chapter 2.

/// Register number: `rax`, `rcx`, `rdx`, `rbx`, `rsp`, `rbp`, `rsi`, `rdi`, `r8` to `r15`, or a
/// vector register.
pub(super) type Register = u8;

pub(super) const RAX: Register = 0;
pub(super) const RCX: Register = 1;
pub(super) const RDX: Register = 2;
pub(super) const RSP: Register = 4;
pub(super) const RBP: Register = 5;
pub(super) const RSI: Register = 6;
pub(super) const RDI: Register = 7;
pub(super) const R8: Register = 8;
pub(super) const R11: Register = 11;

/// Base of a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Register(Register),
    /// A constant by its number.
    Constant(u32),
}

/// A memory operand: a base, an index register shifted left, a displacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryOperand {
    pub(super) base: Base,
    pub(super) index: Option<(Register, u8)>,
    pub(super) displacement: i32,
}

impl MemoryOperand {
    pub(super) fn at(base: Register, displacement: i32) -> MemoryOperand {
        MemoryOperand { base: Base::Register(base), index: None, displacement }
    }
}

/// An operand that can be a register or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterOrMemory {
    Register(Register),
    Memory(MemoryOperand),
}

/// Fields of a vector encoding besides its operands: the implied prefix (none, 66, F3, F2 as 0 to
/// 3), the opcode map (0F, 0F38, 0F3A as 1 to 3), the opcode, the bit W of VEX, and the EVEX form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vex {
    pub(super) prefix: u8,
    pub(super) map: u8,
    pub(super) opcode: u8,
    pub(super) wide: bool,
    pub(super) form: Encodings,
}

/// Encodings that an instruction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encodings {
    /// VEX only.
    Vex,
    /// VEX and EVEX.
    Both(Evex),
    /// EVEX only.
    Evex(Evex),
}

/// Fields of an EVEX encoding that VEX does not share: the bit W, and the bytes of the memory
/// operand, in which short displacements are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evex {
    pub(super) wide: bool,
    pub(super) memory: Extent,
}

/// Bytes of the memory operand of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    Half,
    Quarter,
    Bytes(u8),
}

impl Extent {
    fn bytes(self, length: Length) -> i32 {
        let whole = match length {
            Length::Bits128 => 16,
            Length::Bits256 => 32,
        };
        match self {
            Extent::Whole => whole,
            Extent::Half => whole / 2,
            Extent::Quarter => whole / 4,
            Extent::Bytes(bytes) => bytes.into(),
        }
    }
}

/// Operand length of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Bits128,
    Bits256,
}

/// The number of registers that VEX reaches.
pub(super) const VEX_REGISTERS: Register = 16;

/// Whether an operand is a vector register that only EVEX reaches.
fn is_upper(place: RegisterOrMemory) -> bool {
    matches!(place, RegisterOrMemory::Register(VEX_REGISTERS..))
}

/// Fields of a general instruction's encoding besides its operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct General {
    pub(super) prefix: Option<u8>,
    /// Whether it operates on 64 bits.
    pub(super) wide: bool,
    /// Whether it operates on a byte.
    pub(super) byte: bool,
    /// Whether 0F precedes the opcode.
    pub(super) long: bool,
    pub(super) opcode: u8,
}

impl General {
    pub(super) fn new(wide: bool, opcode: u8) -> General {
        General { prefix: None, wide, byte: false, long: false, opcode }
    }

    /// With 0F before the opcode.
    pub(super) fn long(wide: bool, opcode: u8) -> General {
        General { long: true, ..General::new(wide, opcode) }
    }
}

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(pub(super) u32);

/// An instruction stream.
#[derive(Default)]
pub(super) struct Bytes {
    pub(super) code: Vec<u8>,
    /// Whether any instruction is in EVEX.
    pub(super) has_evex: bool,
    /// Positions of 32-bit displacements to constants, with the constant and the number of
    /// instruction bytes that follow.
    constants: Vec<(usize, u32, usize)>,
    /// Positions of 32-bit displacements to labels, with the label.
    jumps: Vec<(usize, Label)>,
    labels: Vec<Option<usize>>,
}

impl Bytes {
    pub(super) fn with_capacity(bytes: usize) -> Bytes {
        Bytes { code: Vec::with_capacity(bytes), ..Bytes::default() }
    }

    fn push(&mut self, byte: u8) {
        self.code.push(byte);
    }

    /// Upper bits of the registers in a place: index, then base or register.
    fn upper_bits(place: RegisterOrMemory) -> (u8, u8) {
        match place {
            RegisterOrMemory::Register(register) => (0, register >> 3 & 1),
            RegisterOrMemory::Memory(memory) => {
                let base = match memory.base {
                    Base::Register(register) => register >> 3,
                    Base::Constant(_) => 0,
                };
                (memory.index.map_or(0, |(index, _)| index >> 3), base)
            }
        }
    }

    /// Encodes a register (or opcode extension) and a place; a displacement of one byte counts
    /// units of `unit` bytes, and `after` bytes of the instruction follow.
    fn operands(&mut self, register: u8, place: RegisterOrMemory, unit: i32, after: usize) {
        let register = (register & 7) << 3;
        let memory = match place {
            RegisterOrMemory::Register(other) => return self.push(0xC0 | register | (other & 7)),
            RegisterOrMemory::Memory(memory) => memory,
        };
        let base = match memory.base {
            Base::Constant(number) => {
                self.push(register | 5);
                self.constants.push((self.code.len(), number, after));
                return self.code.extend(memory.displacement.to_le_bytes());
            }
            Base::Register(base) => base,
        };
        // Without a displacement, rbp or r13 as the base encodes something else.
        let short = i8::try_from(memory.displacement / unit);
        let (mode, displacement, bytes) = match short {
            Ok(0) if memory.displacement == 0 && base & 7 != RBP => (0, 0, 0),
            Ok(short) if memory.displacement % unit == 0 => (0x40, i32::from(short), 1),
            Ok(_) | Err(_) => (0x80, memory.displacement, 4),
        };
        if memory.index.is_some() || base & 7 == RSP {
            let (index, shift) = memory.index.unwrap_or((RSP, 0));
            self.push(mode | register | 4);
            self.push(shift << 6 | (index & 7) << 3 | (base & 7));
        } else {
            self.push(mode | register | (base & 7));
        }
        self.code.extend(&displacement.to_le_bytes()[..bytes]);
    }

    /// Encodes a vector instruction: `register`, `second` (0 if it has none), `place`.
    pub(super) fn vector(
        &mut self,
        vex: Vex,
        length: Length,
        (register, second, place): (Register, Register, RegisterOrMemory),
        immediate: Option<u8>,
    ) {
        let upper = [RegisterOrMemory::Register(register), RegisterOrMemory::Register(second), place]
            .into_iter()
            .any(is_upper);
        match vex.form {
            Encodings::Evex(evex) => self.evex(vex, evex, length, (register, second, place), immediate),
            Encodings::Both(evex) if upper => {
                self.evex(vex, evex, length, (register, second, place), immediate)
            }
            Encodings::Both(_) | Encodings::Vex => {
                self.vex(vex, length, (register, second, place), immediate)
            }
        }
    }

    /// Encodes a store of 256 bits in the lanes of a mask register.
    pub(super) fn store_masked(
        &mut self,
        vex: Vex,
        mask: Register,
        register: Register,
        place: RegisterOrMemory,
    ) {
        let (Encodings::Both(evex) | Encodings::Evex(evex)) = vex.form else {
            unreachable!("only EVEX has mask registers")
        };
        let start = self.code.len();
        self.evex(vex, evex, Length::Bits256, (register, 0, place), None);
        // The third byte after the first one ends with the number of the mask register.
        self.code[start + 3] |= mask;
    }

    /// Encodes an EVEX instruction.
    pub(super) fn evex(
        &mut self,
        vex: Vex,
        evex: Evex,
        length: Length,
        (register, second, place): (Register, Register, RegisterOrMemory),
        immediate: Option<u8>,
    ) {
        self.has_evex = true;
        let (index, base) = Bytes::upper_bits(place);
        // Of a register as the place, the uppermost bit is where memory has its index.
        let index = if let RegisterOrMemory::Register(register) = place { register >> 4 } else { index };
        let upper = (register >> 3 & 1 ^ 1) << 7 | (index ^ 1) << 6 | (base ^ 1) << 5;
        self.code.extend([0x62, upper | (register >> 4 ^ 1) << 4 | vex.map]);
        self.push(u8::from(evex.wide) << 7 | (!second & 15) << 3 | 4 | vex.prefix);
        self.push(u8::from(length == Length::Bits256) << 5 | (second >> 4 ^ 1) << 3);
        self.push(vex.opcode);
        let unit = evex.memory.bytes(length);
        self.operands(register, place, unit, usize::from(immediate.is_some()));
        self.code.extend(immediate);
    }

    /// Encodes a VEX instruction: `register`, `second` (0 if it has none), `place`.
    pub(super) fn vex(
        &mut self,
        vex: Vex,
        length: Length,
        (register, second, place): (Register, Register, RegisterOrMemory),
        immediate: Option<u8>,
    ) {
        assert!(
            register < VEX_REGISTERS && second < VEX_REGISTERS && !is_upper(place),
            "VEX reaches 16 registers"
        );
        let (index, base) = Bytes::upper_bits(place);
        let inverted = (register >> 3 ^ 1) << 7;
        let last = (!second & 15) << 3 | u8::from(length == Length::Bits256) << 2 | vex.prefix;
        if vex.map == 1 && !vex.wide && index == 0 && base == 0 {
            self.code.extend([0xC5, inverted | last]);
        } else {
            self.code.extend([0xC4, inverted | (index ^ 1) << 6 | (base ^ 1) << 5 | vex.map]);
            self.push(u8::from(vex.wide) << 7 | last);
        }
        self.push(vex.opcode);
        self.operands(register, place, 1, usize::from(immediate.is_some()));
        self.code.extend(immediate);
    }

    /// Encodes a general instruction: `register` (or opcode extension) and `place`.
    pub(super) fn general(
        &mut self,
        general: General,
        register: Register,
        place: RegisterOrMemory,
        immediate: &[u8],
    ) {
        self.code.extend(general.prefix);
        let (index, base) = Bytes::upper_bits(place);
        let rex = 0x40 | u8::from(general.wide) << 3 | (register >> 3) << 2 | index << 1 | base;
        // Without REX, byte registers 4 to 7 are `ah`, `ch`, `dh` and `bh`.
        let names_byte =
            general.byte && ((4..8).contains(&register) || matches!(place, RegisterOrMemory::Register(4..8)));
        if rex != 0x40 || names_byte {
            self.push(rex);
        }
        self.code.extend(general.long.then_some(0x0F));
        self.push(general.opcode);
        self.operands(register, place, 1, immediate.len());
        self.code.extend(immediate);
    }

    /// Copies a general register.
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.general(General::new(true, 0x8B), to, RegisterOrMemory::Register(from), &[]);
    }

    /// Loads a number in as few bytes as possible, preserving the flags.
    pub(super) fn load_number(&mut self, to: Register, number: i64) {
        if let Ok(number) = u32::try_from(number) {
            self.short_register(None, 0xB8, to);
            self.code.extend(number.to_le_bytes());
        } else if let Ok(number) = i32::try_from(number) {
            self.general(General::new(true, 0xC7), 0, RegisterOrMemory::Register(to), &number.to_le_bytes());
        } else {
            self.short_register(Some(0x48), 0xB8, to);
            self.code.extend(number.to_le_bytes());
        }
    }

    /// A one-byte opcode with a register in its low bits.
    fn short_register(&mut self, rex: Option<u8>, opcode: u8, register: Register) {
        let upper = register >> 3;
        match rex {
            Some(rex) => self.push(rex | upper),
            None if upper == 1 => self.push(0x41),
            None => {}
        }
        self.push(opcode | (register & 7));
    }

    pub(super) fn push_register(&mut self, register: Register) {
        self.short_register(None, 0x50, register);
    }

    pub(super) fn pop_register(&mut self, register: Register) {
        self.short_register(None, 0x58, register);
    }

    pub(super) fn clear_upper_halves(&mut self) {
        self.code.extend([0xC5, 0xF8, 0x77]);
    }

    pub(super) fn ret(&mut self) {
        self.push(0xC3);
    }

    // Jumps.

    pub(super) fn label(&mut self, label: Label) {
        let number = label.0 as usize;
        if self.labels.len() <= number {
            self.labels.resize(number + 1, None);
        }
        self.labels[number] = Some(self.code.len());
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.jump_by(&[0xEB], &[0xE9], to);
    }

    /// Jumps under a condition, given by its number in the opcodes.
    pub(super) fn jump_if(&mut self, condition: u8, to: Label) {
        self.jump_by(&[0x70 | condition], &[0x0F, 0x80 | condition], to);
    }

    /// Uses the short form where the distance is known and small.
    fn jump_by(&mut self, short: &[u8], long: &[u8], to: Label) {
        let known = self.labels.get(to.0 as usize).copied().flatten();
        let distance = known.map(|at| at as i64 - (self.code.len() as i64 + 2));
        if let Some(distance) = distance.and_then(|distance| i8::try_from(distance).ok()) {
            self.code.extend(short);
            return self.push(distance as u8);
        }
        self.code.extend(long);
        self.jumps.push((self.code.len(), to));
        self.code.extend([0; 4]);
    }

    /// Encodes a sequence that is jumped over unless the condition holds.
    pub(super) fn only_if(&mut self, condition: u8, then: impl FnOnce(&mut Bytes)) {
        self.code.extend([0x70 | (condition ^ 1), 0]);
        let start = self.code.len();
        then(self);
        self.code[start - 1] = (self.code.len() - start) as u8;
    }

    /// Appends the constants, fixes up all displacements and returns the code.
    pub(super) fn finish(mut self, constants: &[[u8; 32]]) -> Vec<u8> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let Some(to) = self.labels[label.0 as usize] else { unreachable!("what is jumped to is placed") };
            self.fill(at, to as i64 - (at as i64 + 4));
        }
        if self.constants.is_empty() {
            return self.code;
        }
        self.code.resize(self.code.len().next_multiple_of(32), 0xCC);
        let start = self.code.len();
        self.code.extend(constants.as_flattened());
        for (at, number, after) in std::mem::take(&mut self.constants) {
            let to = start + 32 * number as usize;
            self.fill(at, to as i64 - (at + 4 + after) as i64);
        }
        self.code
    }

    /// Adds a distance to the 32 bits at a position.
    fn fill(&mut self, at: usize, distance: i64) {
        let field = &mut self.code[at..at + 4];
        let already = field.iter().rev().fold(0, |number: u32, &byte| number << 8 | u32::from(byte));
        field.copy_from_slice(&(distance as i32).wrapping_add(already as i32).to_le_bytes());
    }
}
