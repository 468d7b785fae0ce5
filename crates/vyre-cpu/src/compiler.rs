//! Selection of the code generator for this processor: `x64` if supported, else Cranelift if it is
//! built in.
//!
//! Cranelift is always built in for targets that `x64` does not support, and for the others with
//! the feature `cranelift`.

#[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
use crate::clif;
use crate::effort::Effort;
use crate::piece::Function;
#[cfg(all(target_arch = "x86_64", not(windows)))]
use crate::x64;

pub(crate) enum Compiler {
    #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
    Cranelift(Box<clif::Compiler>),
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    X64,
}

impl Compiler {
    /// Creates the one that `VYRE_CPU` requests, else the best for this processor.
    pub(crate) fn new() -> Result<Compiler, String> {
        match std::env::var("VYRE_CPU").as_deref() {
            Ok("cranelift") => {
                Compiler::cranelift().map_err(|reason| format!("VYRE_CPU is `cranelift`: {reason}"))
            }
            Ok("x64") => Compiler::x64().map_err(|reason| format!("VYRE_CPU is `x64`: {reason}")),
            Ok(other) => Err(format!("VYRE_CPU is `{other}`, which is neither `x64` nor `cranelift`")),
            Err(_) => Compiler::x64()
                .or_else(|lacks| Compiler::cranelift().map_err(|reason| format!("{lacks}; {reason}"))),
        }
    }

    #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
    fn cranelift() -> Result<Compiler, String> {
        Ok(Compiler::Cranelift(Box::new(clif::Compiler::new()?)))
    }

    #[cfg(not(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows))))))]
    fn cranelift() -> Result<Compiler, String> {
        Err("the feature `cranelift`, for processors without AVX2, is not built in".into())
    }

    #[cfg(all(target_arch = "x86_64", not(windows)))]
    fn x64() -> Result<Compiler, String> {
        match x64::missing() {
            None => Ok(Compiler::X64),
            Some(feature) => Err(format!("this processor lacks {feature}")),
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(windows))))]
    fn x64() -> Result<Compiler, String> {
        Err("x64 is not available on this target".into())
    }

    /// Bytes of a piece.
    pub(crate) fn piece_bytes(&self) -> u32 {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(_) => clif::PIECE_BYTES,
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64 => x64::PIECE_BYTES,
        }
    }

    pub(crate) fn compile(&self, function: &Function, effort: Effort) -> Result<Vec<u8>, String> {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(compiler) => compiler.compile(function, effort),
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64 => x64::compile(function, effort),
        }
    }

    /// Generates the trampoline through which kernels call routines.
    pub(crate) fn caller_code(&self) -> Result<Vec<u8>, String> {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(compiler) => compiler.caller_code(),
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64 => Ok(x64::caller_code()),
        }
    }
}
