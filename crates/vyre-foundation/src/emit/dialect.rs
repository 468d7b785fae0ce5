//! What sets one language of the C family apart from the next, as data.
//!
//! The writer names types as the IR does (`u32`, `f32`, …); a dialect's header defines these names, so that all text but
//! what stands in this file is the same in every dialect.

use super::functions::Function;
use crate::kernel::Needs;
use crate::legalise::{Steps, Wanted};
use crate::ops::{AtomicOp, Op};

/// Whether a kernel needs something that stands in the text only then.
pub(super) type Needed = fn(&Needs) -> bool;

/// A language of the C family.
#[derive(Debug)]
pub struct Dialect {
    /// The name that filetests and commands use.
    pub name: &'static str,
    /// What every text starts with: settings for floats, and the types' names.
    pub(super) header: &'static str,
    /// What a text starts with if its kernel has the need.
    pub(super) optional: &'static [(Needed, &'static str)],
    /// What stands before a kernel's name; `{x}`, `{y}` and `{z}` are the workgroup size.
    pub(super) kernel: &'static str,
    /// Memory that a dispatch binds.
    pub(super) global: &'static str,
    /// Memory that a workgroup shares.
    pub(super) local: &'static str,
    /// A pointer to memory that no other pointer leads to.
    pub(super) restrict: &'static str,
    /// The invocation's position, per axis.
    pub(super) invocation: [&'static str; 3],
    /// The workgroup's position.
    pub(super) workgroup: [&'static str; 3],
    /// The invocation's position in its workgroup.
    pub(super) local_id: [&'static str; 3],
    /// How many workgroups there are.
    pub(super) grid: [&'static str; 3],
    /// Waits for the workgroup and orders all memory within it.
    pub(super) barrier: &'static str,
    /// A `u32` that is zero in every dispatch, which no compiler knows.
    pub(super) zero: &'static str,
    /// What ends a literal of `u64` and one of `i64`.
    pub(super) wide_suffix: [&'static str; 2],
    /// What reads a float's bits as an unsigned integer, and back: for `f32`, then for `f64`.
    pub(super) reinterpret: [[&'static str; 2]; 2],
    /// Ops that the language has a function for. It takes the op's operands and must give what the op's row says.
    pub(super) calls: &'static [(Op, &'static str)],
    /// Functions for atomics on 32 and on 64 bits. They take the element's address, then the operands; that of a load,
    /// which has none, takes a zero.
    pub(super) atomics: &'static [(AtomicOp, [&'static str; 2])],
    /// Functions that the text defines for itself, as far as it uses them, besides those of the whole family.
    pub(super) functions: &'static [Function],
    /// Ops that must have been [decomposed](crate::optimize::Pass::Decompose) before a kernel is written.
    pub lacking: &'static [Op],
    /// Forms that a kernel is brought into before it is written.
    pub wanted: Wanted,
}

/// OpenCL C 1.2, which every later version and every device of the full profile takes.
pub static OPENCL: Dialect = Dialect {
    name: "opencl",
    header: "#pragma OPENCL FP_CONTRACT OFF
typedef uchar u8; typedef char i8; typedef ushort u16; typedef short i16;
typedef uint u32; typedef int i32; typedef ulong u64; typedef long i64; typedef float f32;
",
    optional: &[
        (|needs| needs.f64, "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\ntypedef double f64;\n"),
        (
            |needs| needs.atomic64,
            "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
",
        ),
    ],
    kernel: "__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid",
    global: "__global",
    local: "__local",
    restrict: "restrict",
    invocation: ["get_global_id(0)", "get_global_id(1)", "get_global_id(2)"],
    workgroup: ["get_group_id(0)", "get_group_id(1)", "get_group_id(2)"],
    local_id: ["get_local_id(0)", "get_local_id(1)", "get_local_id(2)"],
    grid: ["get_num_groups(0)", "get_num_groups(1)", "get_num_groups(2)"],
    barrier: "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    // A dispatch has three dimensions at most.
    zero: "get_work_dim() >> 2",
    wide_suffix: ["UL", "L"],
    reinterpret: [["as_uint", "as_float"], ["as_ulong", "as_double"]],
    // Few: PoCL (3.1) folds `rint`, `floor`, `abs_diff` and others wrongly where an argument is a constant, since its own
    // code for them overflows.
    calls: &[(Op::Fma, "fma"), (Op::Sqrt, "sqrt"), (Op::Popcount, "popcount"), (Op::Clz, "clz")],
    atomics: &[
        (AtomicOp::Add, ["atomic_add", "atom_add"]),
        (AtomicOp::Min, ["atomic_min", "atom_min"]),
        (AtomicOp::Max, ["atomic_max", "atom_max"]),
        (AtomicOp::And, ["atomic_and", "atom_and"]),
        (AtomicOp::Or, ["atomic_or", "atom_or"]),
        (AtomicOp::Xor, ["atomic_xor", "atom_xor"]),
        (AtomicOp::Exchange, ["atomic_xchg", "atom_xchg"]),
        (AtomicOp::CompareExchange, ["atomic_cmpxchg", "atom_cmpxchg"]),
        // The language has no loads and stores of this kind before version 2.
        (AtomicOp::Load, ["atomic_or", "atom_or"]),
        (AtomicOp::Store, ["atomic_xchg", "atom_xchg"]),
    ],
    functions: &[Function {
        stem: "trap",
        takes: super::functions::Takes::Anything,
        // The first trap's code stays.
        text: "static void trap_u32(volatile __global u32 *control, u32 code) {
  if (atomic_cmpxchg(&control[0], 0u, 1u) == 0u) control[1] = code;
}
",
    }],
    lacking: &[
        Op::Clamp,
        Op::SatAdd,
        Op::SatSub,
        Op::AbsDiff,
        Op::MulHi,
        Op::Rsqrt,
        Op::IsInf,
        Op::IsFinite,
        Op::RotateLeft,
        Op::RotateRight,
        Op::Ctz,
        Op::ReverseBits,
    ],
    wanted: Wanted { steps: Steps::One, nan_stores: true, half_floats: true },
};

/// Every dialect.
pub static ALL: [&Dialect; 1] = [&OPENCL];

impl Dialect {
    /// The dialect with that name, if there is one.
    pub fn from_name(name: &str) -> Option<&'static Dialect> {
        ALL.into_iter().find(|dialect| dialect.name == name)
    }
}
