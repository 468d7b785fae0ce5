//! Code generator for x86-64 with AVX2: pieces of 32 bytes, in vector registers of 256 bits. With
//! AVX-512, there are 32 registers instead of 16, and instructions for rotations, 64-bit lanes,
//! conversions, narrow stores, any logic of three operands and, on later processors, bit counts.
//!
//! Masks stay in vector registers, where a comparison takes two cycles; by way of a mask register
//! it takes five, and mandelbrot took 1.13 times as long. So comparisons, which EVEX has only with
//! mask registers, use the first 16 vector registers. Pieces stay at 32 bytes: where this was
//! measured (Zen 4), an instruction on 512 bits takes as long as two on 256, loads and stores
//! included.
//!
//! `select` turns the piece form into the instructions of `instruction`, on virtual registers;
//! `allocate` assigns registers; `frame` lays out the stack and emits the prologue and epilogue;
//! `encode` writes the bytes, using `bytes`.
//!
//! Scalars are kept zero-extended to their registers' full width, conditions as 0 or 1. A kernel
//! follows the System V calling convention: five arguments, the result in `eax`, and the upper
//! halves of the vector registers cleared on return.

mod allocate;
mod bytes;
mod check;
mod encode;
mod instruction;
mod op;
mod select;
mod stack_frame;
mod stack_slots;
#[cfg(test)]
mod tests;

use crate::effort::Effort;
use crate::piece::{Function, Machine};
use crate::source_region::Assembled;

pub(crate) use check::{avx512_works, failure};
use instruction::PIECE_BYTES;
pub(crate) use stack_frame::caller_code;

/// Kernels with more code are rejected.
const MOST_CODE_BYTES: usize = 32 << 20;

/// Processors with AVX2.
pub(crate) const AVX2: Machine = Machine::new(PIECE_BYTES);

/// Processors with AVX-512.
pub(crate) const AVX512: Machine =
    Machine { piece_bytes: PIECE_BYTES, registers: 32, avx512: true, counts_bits: true };

/// Processors with AVX-512 as it was at first.
pub(crate) const FIRST_AVX512: Machine = Machine { counts_bits: false, ..AVX512 };

/// The machine that has the most of what this processor has; fails with a CPU feature that it lacks
/// for AVX-512.
pub(crate) fn avx512() -> Result<Machine, &'static str> {
    match missing(AVX512) {
        None => Ok(AVX512),
        Some(_) => missing(FIRST_AVX512).map_or(Ok(FIRST_AVX512), Err),
    }
}

/// Returns a CPU feature that the generated code needs and this processor lacks, if any.
pub(crate) fn missing(machine: Machine) -> Option<&'static str> {
    macro_rules! all_of {
        ($($feature:tt)*) => {
            $(if !std::arch::is_x86_feature_detected!($feature) { return Some($feature); })*
        };
    }
    all_of!("avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt");
    if machine.avx512 {
        all_of!("avx512f" "avx512dq" "avx512bw" "avx512vl" "avx512cd");
    }
    if machine.counts_bits {
        all_of!("avx512vpopcntdq");
    }
    None
}

/// Compiles a function to machine code. The first code that uses AVX-512 has it checked; fails if
/// the check does.
pub(crate) fn compile(function: &Function, effort: Effort) -> Result<Assembled, String> {
    let (code, has_evex) = unchecked(function, effort)?;
    if has_evex {
        avx512_works()?;
    }
    Ok(code)
}

/// Compiles a function; returns whether the code uses AVX-512, too.
fn unchecked(function: &Function, effort: Effort) -> Result<(Assembled, bool), String> {
    // The single-pass allocator cannot keep operands of VEX instructions out of upper registers.
    let vector_registers = match effort {
        Effort::Quick => AVX2.registers,
        Effort::Full => function.machine.registers,
    };
    let code = select::select(function, vector_registers);
    let (assembled, has_evex) =
        allocate::allocated(&code, effort, |allocation| encode::encode(&code, allocation))??;
    if assembled.bytes.len() > MOST_CODE_BYTES {
        return Err(format!("the kernel's machine code takes more than {} MiB", MOST_CODE_BYTES >> 20));
    }
    Ok((assembled, has_evex))
}
