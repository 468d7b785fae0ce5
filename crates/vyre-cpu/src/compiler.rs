//! Selection of the code generator for this processor: `x64` if supported, with AVX-512 or else
//! AVX2; else Cranelift if it is built in.
//!
//! Cranelift is always built in for targets that `x64` does not support, and for the others with
//! the feature `cranelift`.

#[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
use crate::clif;
use crate::effort::Effort;
use crate::piece::{Function, Machine};
use crate::source_region::Assembled;
#[cfg(all(target_arch = "x86_64", not(windows)))]
use crate::x64;

pub(crate) enum Compiler {
    #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
    Cranelift(Box<clif::Compiler>),
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    X64(Machine),
}

impl Compiler {
    /// Creates the one that `VYRE_CPU` requests, else the best for this processor.
    pub(crate) fn new() -> Result<Compiler, String> {
        match std::env::var("VYRE_CPU").as_deref() {
            Ok("cranelift") => {
                Compiler::cranelift().map_err(|reason| format!("VYRE_CPU is `cranelift`: {reason}"))
            }
            Ok("x64") => Compiler::x64().map_err(|reason| format!("VYRE_CPU is `x64`: {reason}")),
            Ok("avx2") => Compiler::avx2().map_err(|reason| format!("VYRE_CPU is `avx2`: {reason}")),
            Ok("avx512") => Compiler::avx512().map_err(|reason| format!("VYRE_CPU is `avx512`: {reason}")),
            Ok(other) => Err(format!(
                "VYRE_CPU is `{other}`, which is none of `x64`, `avx2`, `avx512` and `cranelift`"
            )),
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

    /// Creates the best that `x64` has for this processor.
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    fn x64() -> Result<Compiler, String> {
        x64::avx512().map(Compiler::X64).or_else(|_| Compiler::avx2())
    }

    #[cfg(all(target_arch = "x86_64", not(windows)))]
    fn avx2() -> Result<Compiler, String> {
        match x64::missing(x64::AVX2) {
            None => Ok(Compiler::X64(x64::AVX2)),
            Some(feature) => Err(format!("this processor lacks {feature}")),
        }
    }

    /// Checks AVX-512 at once.
    #[cfg(all(target_arch = "x86_64", not(windows)))]
    fn avx512() -> Result<Compiler, String> {
        let machine = x64::avx512().map_err(|feature| format!("this processor lacks {feature}"))?;
        x64::avx512_works().map(|()| Compiler::X64(machine))
    }

    #[cfg(not(all(target_arch = "x86_64", not(windows))))]
    fn x64() -> Result<Compiler, String> {
        Err("x64 is not available on this target".into())
    }

    #[cfg(not(all(target_arch = "x86_64", not(windows))))]
    fn avx2() -> Result<Compiler, String> {
        Compiler::x64()
    }

    #[cfg(not(all(target_arch = "x86_64", not(windows))))]
    fn avx512() -> Result<Compiler, String> {
        Compiler::x64()
    }

    /// Machine to make functions for. AVX-512 counts until a check of it fails.
    pub(crate) fn machine(&self) -> Machine {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(_) => Machine::new(clif::PIECE_BYTES),
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64(_) if x64::failure().is_some() => x64::AVX2,
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64(machine) => *machine,
        }
    }

    /// Names the vectors that kernels run in.
    pub(crate) fn vectors(&self) -> String {
        let machine = self.machine();
        let instructions = if machine.avx512 { " of AVX-512" } else { "" };
        format!("{}-bit vectors{instructions}", 8 * machine.piece_bytes)
    }

    /// Returns why AVX-512 is not used, if a check of it failed.
    pub(crate) fn rejected(&self) -> Option<&'static str> {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(_) => None,
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64(_) => x64::failure(),
        }
    }

    /// Whether code can use registers beyond those that the trampoline for AVX2 preserves.
    pub(crate) fn has_upper_registers(&self) -> bool {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(_) => false,
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64(machine) => machine.avx512 && x64::avx512_works().is_ok(),
        }
    }

    pub(crate) fn compile(&self, function: &Function, effort: Effort) -> Result<Assembled, String> {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(compiler) => compiler.compile(function, effort),
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64(_) => x64::compile(function, effort),
        }
    }

    /// Generates the trampolines through which kernels call routines: the one that preserves the
    /// registers of AVX2, then the one that preserves all of them.
    pub(crate) fn caller_code(&self) -> Result<[Vec<u8>; 2], String> {
        match self {
            #[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
            Compiler::Cranelift(compiler) => Ok([compiler.caller_code()?, Vec::new()]),
            #[cfg(all(target_arch = "x86_64", not(windows)))]
            Compiler::X64(machine) => Ok([x64::AVX2, *machine].map(x64::caller_code)),
        }
    }
}
