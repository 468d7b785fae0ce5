//! Checks the encodings against an independent decoder: every instruction with many registers and
//! all kinds of memory operands, and whole kernels.

use super::bytes::{
    Base, Bytes, Encodings, Evex, Extent, General, Length, MemoryOperand, RegisterOrMemory, Vex,
};
use super::op;
use crate::effort::Effort;
use crate::piece::{Builder, Function, I32, I64, Lane, Type};
use crate::pipeline::machine_code;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use vyre_conform::generate::{Generator, Options};
use vyre_driver::{DispatchConfig, Schedule};

fn decode(code: &[u8]) -> Vec<Instruction> {
    Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect()
}

/// Returns the only instruction of the code, if it is valid.
fn only(code: &[u8]) -> Option<Instruction> {
    let decoded = decode(code);
    let [one] = &decoded[..] else { return None };
    (!one.is_invalid() && one.len() == code.len()).then_some(*one)
}

fn number(register: Register) -> Option<u8> {
    (register != Register::None).then(|| register.full_register().number() as u8)
}

/// Whether a decoded register is the one that the encoder was given; of a larger number, the lower
/// bits name a general one.
fn is_register(decoded: Register, given: u8) -> bool {
    let count = if decoded.is_gpr() { 16 } else { 32 };
    number(decoded) == Some(given % count)
}

/// Memory operands of all forms, with all registers.
fn memories() -> Vec<MemoryOperand> {
    let displacements = [0, 1, -128, 127, 128, -129, i32::MIN, i32::MAX];
    let mut memories = Vec::new();
    for base in 0..16 {
        for index in (0..16).filter(|&index| index != 4).map(Some).chain([None]) {
            let shift = (base + index.unwrap_or(0)) % 4;
            let displacement = displacements[usize::from(base ^ index.unwrap_or(3)) % displacements.len()];
            let index = index.map(|index| (index, shift));
            memories.push(MemoryOperand { base: Base::Register(base), index, displacement });
        }
        memories.extend(displacements.map(|displacement| MemoryOperand::at(base, displacement)));
    }
    memories
}

fn places() -> Vec<RegisterOrMemory> {
    (0..16)
        .map(RegisterOrMemory::Register)
        .chain(memories().into_iter().map(RegisterOrMemory::Memory))
        .collect()
}

/// [`places`] with all 32 vector registers, and displacements around those that a byte can hold.
fn wide_places() -> Vec<RegisterOrMemory> {
    let units = [2, 4, 8, 16, 32].into_iter().flat_map(|unit| [unit, -128 * unit, 127 * unit, 128 * unit]);
    let near = units.flat_map(|displacement| [displacement, displacement + 1]);
    let memories = near.map(|displacement| RegisterOrMemory::Memory(MemoryOperand::at(3, displacement)));
    (16..32).map(RegisterOrMemory::Register).chain(places()).chain(memories).collect()
}

/// Mnemonic of the EVEX encoding, where it differs from that of VEX.
fn evex_manual(manual: &str) -> String {
    match manual {
        "vpand" | "vpandn" | "vpor" | "vpxor" => format!("{manual}d"),
        "vroundps" => "vrndscaleps".into(),
        "vinserti128" => "vinserti32x4".into(),
        "vextracti128" => "vextracti32x4".into(),
        _ => manual.into(),
    }
}

/// Whether an operand of the decoded instruction is the place.
fn names(decoded: &Instruction, operand: u32, place: RegisterOrMemory) -> bool {
    match (decoded.op_kind(operand), place) {
        (OpKind::Register, RegisterOrMemory::Register(register)) => {
            is_register(decoded.op_register(operand), register)
        }
        (OpKind::Memory, RegisterOrMemory::Memory(memory)) => {
            let Base::Register(base) = memory.base else { return false };
            number(decoded.memory_base()) == Some(base)
                && number(decoded.memory_index()) == memory.index.map(|(index, _)| index)
                && decoded.memory_index_scale() == 1 << memory.index.map_or(0, |(_, shift)| shift)
                && decoded.memory_displacement64() as i32 == memory.displacement
        }
        _ => false,
    }
}

/// Returns which operands of the decoded instruction are in the register field, the second register
/// field, and the place.
fn roles(decoded: &Instruction) -> Option<(u32, Option<u32>, u32)> {
    let registers = (0..decoded.op_count()).filter(|&k| decoded.op_kind(k) != OpKind::Immediate8).count();
    let name = format!("{:?}", decoded.mnemonic()).to_lowercase();
    let reversed =
        ["vmovdqu16", "vpextrd", "vpextrq", "vextracti128", "vextracti32x4", "vpmovdb", "vpmovdw", "vpmovwb"]
            .contains(&&*name);
    let code = format!("{:?}", decoded.code()).replace("_k1z", "");
    let stores = ["m128_xmm", "m256_ymm", "rm32_xmm", "rm64_xmm"].iter().any(|form| code.contains(form));
    Some(match registers {
        2 if reversed || stores => (1, None, 0),
        2 => (0, None, 1),
        // The count of a shift is where other instructions have their second operand.
        3 if ["shlx", "shrx", "sarx"].contains(&&*name) => (0, Some(2), 1),
        3 | 4 => (0, Some(1), 2),
        _ => return None,
    })
}

/// Encodes an instruction with each place and some registers, and compares; returns the number of
/// valid encodings.
fn check_vex(vex: Vex, manual: &str, length: Length, places: &[RegisterOrMemory]) -> usize {
    let mut valid = 0;
    for (at, &place) in places.iter().enumerate() {
        for register in [at % 16, (at + 8) % 16].map(|register| register as u8) {
            let encode = |second: u8, immediate| {
                let mut bytes = Bytes::default();
                bytes.vex(vex, length, (register, second, place), immediate);
                only(&bytes.code)
            };
            let second = (5 * at % 16) as u8;
            let attempts = [(0, None), (second, None), (0, Some(0x30)), (second, Some(0x30))];
            for (second, immediate) in attempts {
                let Some(decoded) = encode(second, immediate) else { continue };
                assert_eq!(format!("{:?}", decoded.mnemonic()).to_lowercase(), manual, "{decoded}");
                let Some((first, middle, last)) = roles(&decoded) else {
                    panic!("{decoded} has other operands")
                };
                assert!(is_register(decoded.op_register(first), register), "{decoded}");
                assert!(names(&decoded, last, place), "{decoded} names {place:?}");
                if let Some(middle) = middle {
                    assert!(is_register(decoded.op_register(middle), second), "{decoded}");
                }
                valid += 1;
            }
        }
    }
    valid
}

#[test]
fn vector_instructions_are_those_of_the_manual() {
    let all = places();
    let few: Vec<RegisterOrMemory> = all.iter().copied().step_by(7).collect();
    let has_vex = |vex: Vex| !matches!(vex.form, Encodings::Evex(_));
    for &(vex, manual) in op::ALL.iter().filter(|(vex, manual)| !manual.is_empty() && has_vex(*vex)) {
        let places =
            if vex == op::ADD || vex == op::BLEND_WORDS || vex == op::MUL_WORDS { &all } else { &few };
        let lengths = [Length::Bits128, Length::Bits256];
        let valid: usize = lengths.into_iter().map(|length| check_vex(vex, manual, length, places)).sum();
        assert!(valid > 0, "{manual} has no encoding");
    }
}

/// Encodes an EVEX instruction with each place and all registers, and compares; returns the number
/// of valid encodings.
fn check_evex(vex: Vex, evex: Evex, manual: &str, length: Length, places: &[RegisterOrMemory]) -> usize {
    let mut valid = 0;
    for (at, &place) in places.iter().enumerate() {
        for register in [at % 32, (at + 16) % 32, at % 8].map(|register| register as u8) {
            let second = (5 * at % 32) as u8;
            let attempts = [(0, None), (second, None), (0, Some(0x30)), (second, Some(0x30))];
            for (second, immediate) in attempts {
                let mut bytes = Bytes::default();
                bytes.evex(vex, evex, length, (register, second, place), immediate);
                let Some(decoded) = only(&bytes.code) else { continue };
                assert_eq!(format!("{:?}", decoded.mnemonic()).to_lowercase(), manual, "{decoded}");
                let Some((first, middle, last)) = roles(&decoded) else {
                    panic!("{decoded} has other operands")
                };
                assert!(is_register(decoded.op_register(first), register), "{decoded}");
                assert!(names(&decoded, last, place), "{decoded} names {place:?}");
                if let Some(middle) = middle {
                    assert!(is_register(decoded.op_register(middle), second), "{decoded}");
                }
                valid += 1;
            }
        }
    }
    valid
}

#[test]
fn vector_instructions_with_upper_registers_are_those_of_the_manual() {
    let all: Vec<RegisterOrMemory> = wide_places();
    let few: Vec<RegisterOrMemory> = all.iter().copied().step_by(5).collect();
    for &(vex, manual) in op::ALL.iter().filter(|(_, manual)| !manual.is_empty()) {
        let (Encodings::Both(evex) | Encodings::Evex(evex)) = vex.form else { continue };
        let manual = evex_manual(manual);
        let all = if vex == op::ADD || vex == op::LOGIC || vex == op::BYTES_TO_WORDS { &all } else { &few };
        let lengths = [Length::Bits128, Length::Bits256];
        let valid: usize =
            lengths.into_iter().map(|length| check_evex(vex, evex, &manual, length, all)).sum();
        assert!(valid > 0, "{manual} has no encoding");
    }
}

#[test]
fn float_instructions_exist_for_every_type() {
    let few: Vec<RegisterOrMemory> = wide_places().into_iter().step_by(5).collect();
    for (vex, manual) in [(op::ADD, "vadd"), (op::SQRT, "vsqrt"), (op::COMPARE, "vcmp"), (op::MAX, "vmax")] {
        for (prefix, suffix) in [(0, "ps"), (1, "pd"), (2, "ss"), (3, "sd")] {
            let typed = Vex { prefix, ..vex };
            assert!(check_vex(typed, &format!("{manual}{suffix}"), Length::Bits128, &places()) > 0);
            let Encodings::Both(_) = vex.form else { continue };
            let memory = match prefix {
                2 => Extent::Bytes(4),
                3 => Extent::Bytes(8),
                _ => Extent::Whole,
            };
            let (evex, name) = (Evex { wide: prefix % 2 == 1, memory }, format!("{manual}{suffix}"));
            assert!(check_evex(typed, evex, &name, Length::Bits128, &few) > 0);
        }
    }
    for (vex, manual) in [(op::MULTIPLY_ADD_213, "vfmadd213"), (op::MULTIPLY_ADD_231, "vfmadd231")] {
        for (wide, scalar, suffix) in [(false, 0, "ps"), (true, 0, "pd"), (false, 1, "ss"), (true, 1, "sd")] {
            let typed = Vex { wide, opcode: vex.opcode + scalar, ..vex };
            assert!(check_vex(typed, &format!("{manual}{suffix}"), Length::Bits128, &places()) > 0);
        }
    }
}

#[test]
fn shifts_by_a_number_are_those_of_the_manual() {
    let rows = [
        (op::SHIFT_WORDS, 2, "vpsrld"),
        (op::SHIFT_WORDS, 4, "vpsrad"),
        (op::SHIFT_WORDS, 6, "vpslld"),
        (op::SHIFT_LONGS, 2, "vpsrlq"),
        (op::SHIFT_LONGS, 6, "vpsllq"),
        (op::SHIFT_LONGS_SIGNED, 4, "vpsraq"),
        (op::ROTATE_WORDS, 1, "vprold"),
        (op::ROTATE_LONGS, 1, "vprolq"),
    ];
    for (vex, digit, manual) in rows {
        for to in 0..32 {
            for from in 0..32 {
                let mut bytes = Bytes::default();
                bytes.vector(vex, Length::Bits256, (digit, to, RegisterOrMemory::Register(from)), Some(17));
                let Some(decoded) = only(&bytes.code) else { panic!("{manual} does not decode") };
                assert_eq!(format!("{:?}", decoded.mnemonic()).to_lowercase(), manual);
                assert_eq!(number(decoded.op0_register()), Some(to));
                assert_eq!(number(decoded.op1_register()), Some(from));
                assert_eq!(decoded.immediate8(), 17);
            }
        }
    }
}

#[test]
fn general_instructions_are_those_of_the_manual() {
    // Opcode, whether 0F precedes it, the prefix, and the mnemonic.
    let rows = [
        (0x03, false, None, "add"),
        (0x0B, false, None, "or"),
        (0x23, false, None, "and"),
        (0x2B, false, None, "sub"),
        (0x33, false, None, "xor"),
        (0x3B, false, None, "cmp"),
        (0x8B, false, None, "mov"),
        (0xAF, true, None, "imul"),
        (0xB8, true, Some(0xF3), "popcnt"),
        (0xBC, true, Some(0xF3), "tzcnt"),
        (0xBD, true, Some(0xF3), "lzcnt"),
        (0x44, true, None, "cmove"),
        (0x4F, true, None, "cmovg"),
    ];
    for (opcode, long, prefix, manual) in rows {
        for wide in [false, true] {
            for (at, place) in places().into_iter().enumerate() {
                let register = at as u8 % 16;
                let mut bytes = Bytes::default();
                bytes.general(General { prefix, wide, byte: false, long, opcode }, register, place, &[]);
                let Some(decoded) = only(&bytes.code) else { panic!("{manual} does not decode") };
                assert_eq!(format!("{:?}", decoded.mnemonic()).to_lowercase(), manual, "{decoded}");
                assert_eq!(number(decoded.op0_register()), Some(register), "{decoded}");
                assert_eq!(decoded.op0_register().size(), if wide { 8 } else { 4 }, "{decoded}");
                assert!(names(&decoded, 1, place), "{decoded} names {place:?}");
            }
        }
    }
}

#[test]
fn bytes_and_numbers_reach_every_register() {
    for register in 0..16 {
        let mut bytes = Bytes::default();
        bytes.general(
            General { byte: true, ..General::long(false, 0x92) },
            0,
            RegisterOrMemory::Register(register),
            &[],
        );
        let set = only(&bytes.code);
        assert_eq!(
            set.map(|set| (number(set.op0_register()), set.op0_register().size())),
            Some((Some(register), 1))
        );
        for value in [0, 1, -1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, -0x8000_0000, 1 << 40, i64::MIN] {
            let mut bytes = Bytes::default();
            bytes.load_number(register, value);
            let Some(decoded) = only(&bytes.code) else { panic!("a number does not decode") };
            assert_eq!(number(decoded.op0_register()), Some(register));
            let mut loaded = decoded.immediate(1);
            if decoded.op0_register().size() == 4 {
                loaded &= 0xFFFF_FFFF;
            }
            assert_eq!(loaded as i64, value, "{decoded}");
        }
        for push in [true, false] {
            let mut bytes = Bytes::default();
            if push {
                bytes.push_register(register)
            } else {
                bytes.pop_register(register)
            }
            assert_eq!(only(&bytes.code).and_then(|one| number(one.op0_register())), Some(register));
        }
    }
}

#[test]
fn the_code_that_calls_routines_saves_every_register_it_may_not_change() {
    for machine in [super::AVX2, super::AVX512, super::FIRST_AVX512] {
        let code = decode(&super::caller_code(machine));
        assert!(code.iter().all(|inst| !inst.is_invalid()));
        let count = |name: &str| code.iter().filter(|inst| format!("{:?}", inst.mnemonic()) == name).count();
        let moved = 2 * machine.registers;
        assert_eq!((count("Vmovups"), count("Vzeroupper"), count("Call"), count("Ret")), (moved, 1, 1, 1));
        assert_eq!(count("Push"), count("Pop"));
    }
}

/// Follows all control flow of a function from its start.
fn walk(code: &[u8]) -> Result<usize, String> {
    let mut starts = std::collections::BTreeSet::new();
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        if !starts.insert(at) {
            continue;
        }
        let rest = code.get(at as usize..).unwrap_or_default();
        let inst = Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode();
        if inst.is_invalid() {
            return Err(format!("nothing at {at:#x}"));
        }
        match inst.flow_control() {
            FlowControl::Return => {}
            FlowControl::UnconditionalBranch => open.push(inst.near_branch_target()),
            FlowControl::ConditionalBranch => open.extend([inst.near_branch_target(), inst.next_ip()]),
            FlowControl::Next | FlowControl::IndirectCall => open.push(inst.next_ip()),
            other => return Err(format!("{other:?} at {at:#x}: {inst}")),
        }
    }
    // No instruction starts within another.
    let mut end = 0;
    for &at in &starts {
        if at < end {
            return Err(format!("{at:#x} is within an instruction"));
        }
        end = at + Decoder::with_ip(64, &code[at as usize..], at, DecoderOptions::NONE).decode().len() as u64;
    }
    Ok(starts.len())
}

#[test]
fn generated_kernels_are_instructions_from_start_to_end() {
    let generator = Generator::new(Options { subgroup_size: Some(8), ..Options::default() });
    for seed in 0..60 {
        let case = generator.from_seed(0x7100_0000 + seed);
        for schedule in [Schedule::Off, Schedule::Expensive] {
            let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
            let code = machine_code(&case.program, &config).unwrap_or_else(|error| panic!("{error}")).bytes;
            walk(&code).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        }
    }
}

/// A function that writes to stack memory of this size.
fn with_stack(bytes: u32) -> Function {
    let mut builder = Builder::new(super::AVX2, &[I64; 5]);
    let slot = builder.create_slot(bytes);
    let (address, zero) = (builder.stack_address(slot), builder.int(I32, 0));
    builder.store(zero, address, 0);
    builder.give(zero);
    builder.finish()
}

#[test]
fn large_frames_are_touched_page_by_page() -> Result<(), String> {
    let code = decode(&super::compile(&with_stack(20_000), Effort::Full)?.bytes);
    let moves = |inst: &Instruction| inst.mnemonic() == Mnemonic::Add && inst.op0_register() == Register::RSP;
    let down: Vec<i64> =
        code.iter().filter(|inst| moves(inst)).map(|inst| inst.immediate(1) as i64).collect();
    assert_eq!(down, [-4096, -4096, -4096, -4096, -3616]);
    let touched = code.windows(2).filter(|pair| moves(&pair[0]) && pair[1].mnemonic() == Mnemonic::Or);
    assert_eq!(touched.filter(|pair| pair[1].memory_base() == Register::RSP).count(), 4);
    Ok(())
}

#[test]
fn a_function_that_takes_too_much_stack_is_refused() {
    let refused = super::compile(&with_stack(300 << 10), Effort::Quick);
    assert_eq!(refused, Err("the kernel needs more than 256 KiB of stack".into()));
}

#[test]
fn stores_past_the_caches_are_done_before_the_function_returns() -> Result<(), String> {
    let mut builder = Builder::new(super::AVX2, &[I64; 5]);
    let zeros = builder.constant(Type::piece(Lane::F32, 32), 0);
    let address = builder.entry_params()[0];
    builder.store_past(zeros, address, 32);
    let done = builder.int(I32, 0);
    builder.give(done);
    let code = decode(&super::compile(&builder.finish(), Effort::Full)?.bytes);
    let of = |mnemonic| code.iter().filter(move |inst| inst.mnemonic() == mnemonic);
    let offsets: Vec<u64> = of(Mnemonic::Vmovntps).map(Instruction::memory_displacement64).collect();
    assert_eq!(offsets, [32, 48]);
    let at = |mnemonic| code.iter().position(|inst| inst.mnemonic() == mnemonic);
    assert!(at(Mnemonic::Sfence) > at(Mnemonic::Vmovntps) && at(Mnemonic::Sfence) < at(Mnemonic::Ret));
    Ok(())
}
