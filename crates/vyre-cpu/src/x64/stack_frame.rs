//! The stack frame of a kernel, and the trampoline through which kernels call routines.
//!
//! From `rbp` down: the callee-saved registers, then, aligned to 32, the function's stack slots and
//! the spill slots, which `rsp` points to. A frame larger than a page is probed page by page from
//! above, so that the guard page of the stack is not skipped.

use super::allocate::KEPT;
use super::bytes::{
    Bytes, General, Length, MemoryOperand, R8, R11, RAX, RBP, RCX, RDI, RDX, RSI, RSP, Register,
    RegisterOrMemory,
};
use super::instruction::{MachineFunction, PIECE_BYTES};
use super::op;
use crate::piece::Machine;
use regalloc2::{Allocation, Edit, Output, RegClass};

/// Bytes of a spill slot unit.
pub(super) const SPILL_BYTES: usize = 8;

/// Kernels with larger frames are rejected: a thread's stack can be as small as a few hundred KiB.
const MOST_FRAME_BYTES: usize = 256 << 10;

const PAGE: i32 = 4096;

/// Layout of the stack frame.
pub(super) struct StackFrame {
    /// Callee-saved registers in use.
    kept: Vec<Register>,
    /// Offsets of the function's stack slots from `rsp`.
    slots: Vec<i32>,
    bytes: i32,
}

impl StackFrame {
    pub(super) fn new(code: &MachineFunction, output: &Output) -> Result<StackFrame, String> {
        let aligned = |bytes: usize| bytes.next_multiple_of(PIECE_BYTES as usize);
        let mut bytes = aligned(SPILL_BYTES * output.num_spillslots);
        let slots = code.slots.iter().map(|&size| {
            let at = bytes as i32;
            bytes = aligned(bytes + size as usize);
            at
        });
        let slots = slots.collect();
        if bytes > MOST_FRAME_BYTES {
            return Err(format!("the kernel needs more than {} KiB of stack", MOST_FRAME_BYTES >> 10));
        }
        Ok(StackFrame { kept: used(output), slots, bytes: bytes as i32 })
    }

    pub(super) fn slot(&self, number: usize) -> i32 {
        self.slots[number]
    }

    pub(super) fn enter(&self, bytes: &mut Bytes) {
        bytes.push_register(RBP);
        bytes.copy(RBP, RSP);
        self.kept.iter().for_each(|&register| bytes.push_register(register));
        if self.bytes == 0 {
            return;
        }
        let mut left = self.bytes;
        while left > PAGE {
            add_number(bytes, RSP, -PAGE);
            bytes.general(
                General::new(false, 0x83),
                1,
                RegisterOrMemory::Memory(MemoryOperand::at(RSP, 0)),
                &[0],
            );
            left -= PAGE;
        }
        add_number(bytes, RSP, -left);
        align(bytes);
    }

    pub(super) fn leave(&self, bytes: &mut Bytes) {
        bytes.clear_upper_halves();
        let kept = RegisterOrMemory::Memory(MemoryOperand::at(RBP, -8 * self.kept.len() as i32));
        bytes.general(General::new(true, 0x8D), RSP, kept, &[]);
        self.kept.iter().rev().for_each(|&register| bytes.pop_register(register));
        bytes.pop_register(RBP);
        bytes.ret();
    }
}

/// Returns the registers among [`KEPT`] that are used.
fn used(output: &Output) -> Vec<Register> {
    let mut used = [false; 16];
    let moved = output.edits.iter().flat_map(|(_, Edit::Move { from, to })| [from, to]);
    for register in output.allocs.iter().chain(moved).filter_map(|place| place.as_reg()) {
        if register.class() == RegClass::Int {
            used[register.hw_enc()] = true;
        }
    }
    KEPT.into_iter().filter(|&register| used[usize::from(register)]).collect()
}

/// Moves a value between two locations that the allocator chose.
pub(super) fn transfer(bytes: &mut Bytes, from: Allocation, to: Allocation) {
    let register = |place: Allocation| place.as_reg().map(|register| register.hw_enc() as Register);
    let place = |place: Allocation| match (register(place), place.as_stack()) {
        (Some(register), _) => RegisterOrMemory::Register(register),
        (None, Some(slot)) => {
            RegisterOrMemory::Memory(MemoryOperand::at(RSP, (SPILL_BYTES * slot.index()) as i32))
        }
        (None, None) => unreachable!("a value is in a register or on the stack"),
    };
    let either = from.as_reg().or(to.as_reg());
    let Some(class) = either.map(|register| register.class()) else {
        unreachable!("the allocator moves nothing from stack to stack")
    };
    match (class, register(from), register(to)) {
        (RegClass::Int, _, Some(to)) => bytes.general(General::new(true, 0x8B), to, place(from), &[]),
        (RegClass::Int, Some(from), None) => bytes.general(General::new(true, 0x89), from, place(to), &[]),
        (_, Some(_), Some(to)) => bytes.vector(op::COPY, Length::Bits256, (to, 0, place(from)), None),
        (_, None, Some(to)) => bytes.vector(op::LOAD, Length::Bits256, (to, 0, place(from)), None),
        (_, Some(from), None) => bytes.vector(op::STORE, Length::Bits256, (from, 0, place(to)), None),
        (_, None, None) => unreachable!("the allocator moves nothing from stack to stack"),
    }
}

fn add_number(bytes: &mut Bytes, register: Register, number: i32) {
    bytes.general(General::new(true, 0x81), 0, RegisterOrMemory::Register(register), &number.to_le_bytes());
}

/// Aligns `rsp` to the size of a piece.
fn align(bytes: &mut Bytes) {
    let down = -(PIECE_BYTES as i32) as u8;
    bytes.general(General::new(true, 0x83), 4, RegisterOrMemory::Register(RSP), &[down]);
}

/// Generates a function that calls its first argument with the others and preserves every register.
/// A routine is compiled like any other function and can clobber most registers; a kernel that
/// called it directly could keep no vectors in registers across the call site, even if the call is
/// rarely made.
pub(crate) fn caller_code(machine: Machine) -> Vec<u8> {
    const CHANGED: [Register; 9] = [RAX, RCX, RDX, RSI, RDI, R8, 9, 10, R11];
    let vectors = machine.registers as u8;
    let vector =
        |number: u8| RegisterOrMemory::Memory(MemoryOperand::at(RSP, PIECE_BYTES as i32 * i32::from(number)));
    let mut bytes = Bytes::default();
    bytes.push_register(RBP);
    bytes.copy(RBP, RSP);
    CHANGED.iter().for_each(|&register| bytes.push_register(register));
    add_number(&mut bytes, RSP, -(PIECE_BYTES as i32) * i32::from(vectors));
    align(&mut bytes);
    (0..vectors)
        .for_each(|number| bytes.vector(op::STORE, Length::Bits256, (number, 0, vector(number)), None));
    bytes.clear_upper_halves();
    for (to, from) in [(RAX, RDI), (RDI, RSI), (RSI, RDX), (RDX, RCX), (RCX, R8)] {
        bytes.copy(to, from);
    }
    bytes.general(General::new(false, 0xFF), 2, RegisterOrMemory::Register(RAX), &[]);
    (0..vectors)
        .for_each(|number| bytes.vector(op::LOAD, Length::Bits256, (number, 0, vector(number)), None));
    let saved = RegisterOrMemory::Memory(MemoryOperand::at(RBP, -8 * CHANGED.len() as i32));
    bytes.general(General::new(true, 0x8D), RSP, saved, &[]);
    CHANGED.iter().rev().for_each(|&register| bytes.pop_register(register));
    bytes.pop_register(RBP);
    bytes.ret();
    bytes.finish(&[])
}
