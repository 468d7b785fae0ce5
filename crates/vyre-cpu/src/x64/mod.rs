//! Code generator for x86-64 with AVX2: pieces of 32 bytes, in vector registers of 256 bits.
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
mod encode;
mod frame;
mod instruction;
mod select;
mod slots;
#[cfg(test)]
mod tests;

use crate::effort::Effort;
use crate::piece::Function;

pub(crate) use frame::caller_code;
pub(crate) use instruction::PIECE_BYTES;

/// Kernels with more code are rejected.
const MOST_CODE_BYTES: usize = 32 << 20;

/// Returns a CPU feature that the generated code needs and this processor lacks, if any.
pub(crate) fn missing() -> Option<&'static str> {
    macro_rules! all_of {
        ($($feature:tt)*) => {
            $(if !std::arch::is_x86_feature_detected!($feature) { return Some($feature); })*
        };
    }
    all_of!("avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt");
    None
}

/// Compiles a function to machine code.
pub(crate) fn compile(function: &Function, effort: Effort) -> Result<Vec<u8>, String> {
    let code = select::select(function);
    let bytes = allocate::allocated(&code, effort, |allocation| encode::encode(&code, allocation))??;
    if bytes.len() > MOST_CODE_BYTES {
        return Err(format!("the kernel's machine code takes more than {} MiB", MOST_CODE_BYTES >> 20));
    }
    Ok(bytes)
}
