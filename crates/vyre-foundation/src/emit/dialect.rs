//! The differences between languages of the C family, as data.
//!
//! The writer uses the type names of the IR (`u32`, `f32`, …), which each dialect's header defines.
//! All text other than that in this file is the same in every dialect.

use super::functions::{DialectFunction, Takes};
use crate::kernel::Needs;
use crate::legalise::{Steps, WantedPasses};
use crate::ops::{AtomicOp, Op};
use crate::types::ValueType;

/// Tests whether a kernel needs an optional part of the text.
pub(super) type Needed = fn(&Needs) -> bool;

/// A language of the C family.
#[derive(Debug)]
pub struct Dialect {
    /// The name used by filetests and commands.
    pub name: &'static str,
    /// The start of every text: float settings and type names.
    pub(super) header: &'static str,
    /// Further text for kernels with the given need.
    pub(super) optional: &'static [(Needed, &'static str)],
    /// The text before a kernel's name; `{x}`, `{y}` and `{z}` are the workgroup size, `{n}` their
    /// product.
    pub(super) kernel: &'static str,
    /// The text before any other function.
    pub(super) function: &'static str,
    /// The qualifier for memory that a dispatch binds, with a trailing space.
    pub(super) global: &'static str,
    /// The qualifier for memory that a workgroup shares.
    pub(super) local: &'static str,
    /// The qualifier for a pointer that has no aliases.
    pub(super) restrict: &'static str,
    /// The invocation's position per axis, if the language has it.
    pub(super) invocation: Option<[&'static str; 3]>,
    /// The workgroup's position.
    pub(super) workgroup: [&'static str; 3],
    /// The invocation's position in its workgroup.
    pub(super) local_id: [&'static str; 3],
    /// The number of workgroups; `{x}`, `{y}` and `{z}` are the workgroup size.
    pub(super) grid: [&'static str; 3],
    /// A barrier for the workgroup that orders all memory within it.
    pub(super) barrier: &'static str,
    /// A `u32` expression that is zero in every dispatch but opaque to the compiler.
    ///
    /// For compilers that may run a workgroup as loops over its invocations, split at barriers.
    /// `None` if each invocation has its own control flow, and barriers do not wait for invocations
    /// that have returned.
    pub(super) zero: Option<&'static str>,
    /// The suffixes of `u64` and `i64` literals.
    pub(super) wide_suffix: [&'static str; 2],
    /// The functions that reinterpret a float's bits as an unsigned integer, and back: for `f32`,
    /// then for `f64`.
    pub(super) reinterpret: [[&'static str; 2]; 2],
    /// Ops written as calls. The function takes the op's operands and must return what the op's row
    /// specifies.
    pub(super) calls: &'static [(Op, Called)],
    /// Functions for atomics. They take the element's address, then the operands; that of a load,
    /// which has no operands, takes a zero.
    pub(super) atomics: &'static [(AtomicOp, Called)],
    /// How lanes exchange values, if they can.
    pub(super) lanes: Option<LaneExchange>,
    /// Functions that the text defines if it uses them, in addition to those of the whole family.
    pub(super) functions: &'static [DialectFunction],
    /// Ops that must be [decomposed](crate::optimize::Pass::Decompose) before a kernel is written.
    pub lacking: &'static [Op],
    /// The forms that a kernel is rewritten into before it is written.
    pub wanted: WantedPasses,
}

/// The ops that every dialect lacks, plus these.
macro_rules! lacking {
    ($($more:path),*) => {
        &[
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
            $($more),*
        ]
    };
}

/// The forms that every dialect wants.
const WANTED: WantedPasses =
    WantedPasses { steps: Steps::One, nan_stores: true, half_floats: true, exits: false };

/// A function that an op calls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Called {
    /// A function of the language, for types of 32 and of 64 bits.
    Language([&'static str; 2]),
    /// A function that the text defines, by its stem.
    Own(&'static str),
}

/// How the lanes of a subgroup exchange values. In the texts, `{mask}` has a bit for each existing
/// lane.
#[derive(Debug)]
pub(super) struct LaneExchange {
    /// The number of lanes in a subgroup.
    pub(super) size: u32,
    /// An integer with a bit for each lane whose `{x}` is true.
    pub(super) ballot: &'static str,
    /// The `{x}` of the existing lane `{k}`.
    pub(super) shuffle: &'static str,
}

/// OpenCL C 1.2, which every later version and every full-profile device accepts.
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
    function: "static",
    global: "__global ",
    local: "__local",
    restrict: "restrict",
    invocation: Some(["get_global_id(0)", "get_global_id(1)", "get_global_id(2)"]),
    workgroup: ["get_group_id(0)", "get_group_id(1)", "get_group_id(2)"],
    local_id: ["get_local_id(0)", "get_local_id(1)", "get_local_id(2)"],
    grid: ["get_num_groups(0)", "get_num_groups(1)", "get_num_groups(2)"],
    barrier: "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    // A dispatch has at most three dimensions.
    zero: Some("get_work_dim() >> 2"),
    wide_suffix: ["UL", "L"],
    reinterpret: [["as_uint", "as_float"], ["as_ulong", "as_double"]],
    // Only a few: PoCL (3.1) misfolds `rint`, `floor`, `abs_diff` and others with constant
    // arguments, because its implementation of them overflows.
    calls: &[
        (Op::Fma, Called::Language(["fma"; 2])),
        (Op::Sqrt, Called::Language(["sqrt"; 2])),
        (Op::Popcount, Called::Language(["popcount"; 2])),
        (Op::Clz, Called::Language(["clz"; 2])),
    ],
    atomics: &[
        (AtomicOp::Add, Called::Language(["atomic_add", "atom_add"])),
        (AtomicOp::Min, Called::Language(["atomic_min", "atom_min"])),
        (AtomicOp::Max, Called::Language(["atomic_max", "atom_max"])),
        (AtomicOp::And, Called::Language(["atomic_and", "atom_and"])),
        (AtomicOp::Or, Called::Language(["atomic_or", "atom_or"])),
        (AtomicOp::Xor, Called::Language(["atomic_xor", "atom_xor"])),
        (AtomicOp::Exchange, Called::Language(["atomic_xchg", "atom_xchg"])),
        (AtomicOp::CompareExchange, Called::Language(["atomic_cmpxchg", "atom_cmpxchg"])),
        // Before version 2 the language has no atomic loads and stores.
        (AtomicOp::Load, Called::Language(["atomic_or", "atom_or"])),
        (AtomicOp::Store, Called::Language(["atomic_xchg", "atom_xchg"])),
    ],
    // The language leaves the order of lanes to the device.
    lanes: None,
    functions: &[DialectFunction {
        stem: "trap",
        takes: Takes::Anything,
        // The code of the first trap is kept.
        text: "void trap_u32(volatile __global u32 *control, u32 code) {
  if (atomic_cmpxchg(&control[0], 0u, 1u) == 0u) control[1] = code;
}
",
    }],
    lacking: lacking!(),
    wanted: WantedPasses { exits: true, ..WANTED },
};

/// CUDA C++, as accepted by NVRTC and nvcc, without toolkit headers.
///
/// Requires `--fmad=false`, and the defaults `--ftz=false`, `--prec-div=true` and
/// `--prec-sqrt=true`. Devices have compute capability 7.0 or higher, on which barriers and lane
/// exchanges do not wait for invocations that have returned.
pub static CUDA: Dialect = Dialect {
    name: "cuda",
    header: "typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned int u32; typedef int i32; typedef unsigned long long u64; typedef long long i64; typedef float f32;
",
    optional: &[(
        |needs| needs.f64,
        "typedef double f64;
static __device__ __forceinline__ u64 f64_bits(f64 x) { return (u64)__double_as_longlong(x); }
static __device__ __forceinline__ f64 f64_of_bits(u64 x) { return __longlong_as_double((i64)x); }
",
    )],
    kernel: "extern \"C\" __global__ void __launch_bounds__({n})",
    function: "static __device__ __forceinline__",
    global: "",
    local: "__shared__",
    restrict: "__restrict__",
    invocation: None,
    workgroup: ["blockIdx.x", "blockIdx.y", "blockIdx.z"],
    local_id: ["threadIdx.x", "threadIdx.y", "threadIdx.z"],
    grid: ["gridDim.x", "gridDim.y", "gridDim.z"],
    barrier: "__syncthreads();",
    zero: None,
    wide_suffix: ["ULL", "LL"],
    reinterpret: [["__float_as_uint", "__uint_as_float"], ["f64_bits", "f64_of_bits"]],
    calls: &[
        (Op::Fma, Called::Language(["__fmaf_rn", "__fma_rn"])),
        (Op::Sqrt, Called::Own("sqrt")),
        (Op::Popcount, Called::Own("popcount")),
        (Op::Clz, Called::Own("clz")),
    ],
    atomics: OWN_ATOMICS,
    // A warp has 32 consecutive threads, in the order in which vyre numbers them.
    lanes: Some(LaneExchange {
        size: 32,
        ballot: "__ballot_sync({mask}, {x})",
        shuffle: "__shfl_sync({mask}, {x}, {k})",
    }),
    functions: &[
        DialectFunction {
            stem: "trap",
            takes: Takes::Anything,
            text: "void trap_u32(volatile u32 *control, u32 code) {
  if (atomicCAS((u32 *)control, 0u, 1u) == 0u) control[1] = code;
}
",
        },
        // After the language's own `f64` function, NVRTC drops tests for NaN from sm_100 on.
        DialectFunction {
            stem: "sqrt",
            takes: Takes::Only(ValueType::F32),
            text: "$t sqrt_$t($t x) { $t y; asm(\"sqrt.rn.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y; }\n",
        },
        DialectFunction {
            stem: "sqrt",
            takes: Takes::Only(ValueType::F64),
            text: "$t sqrt_$t($t x) { $t y; asm(\"sqrt.rn.f64 %0, %1;\" : \"=d\"(y) : \"d\"(x)); return y; }\n",
        },
        // The language's own functions are sometimes compiled to calls.
        DialectFunction {
            stem: "popcount",
            takes: Takes::Only(ValueType::U32),
            text: "u32 popcount_$t($t x) { u32 n; asm(\"popc.b32 %0, %1;\" : \"=r\"(n) : \"r\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "popcount",
            takes: Takes::Only(ValueType::I32),
            text: "u32 popcount_$t($t x) { u32 n; asm(\"popc.b32 %0, %1;\" : \"=r\"(n) : \"r\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "popcount",
            takes: Takes::Only(ValueType::U64),
            text: "u32 popcount_$t($t x) { u32 n; asm(\"popc.b64 %0, %1;\" : \"=r\"(n) : \"l\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "popcount",
            takes: Takes::Only(ValueType::I64),
            text: "u32 popcount_$t($t x) { u32 n; asm(\"popc.b64 %0, %1;\" : \"=r\"(n) : \"l\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "clz",
            takes: Takes::Only(ValueType::U32),
            text: "u32 clz_$t($t x) { u32 n; asm(\"clz.b32 %0, %1;\" : \"=r\"(n) : \"r\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "clz",
            takes: Takes::Only(ValueType::I32),
            text: "u32 clz_$t($t x) { u32 n; asm(\"clz.b32 %0, %1;\" : \"=r\"(n) : \"r\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "clz",
            takes: Takes::Only(ValueType::U64),
            text: "u32 clz_$t($t x) { u32 n; asm(\"clz.b64 %0, %1;\" : \"=r\"(n) : \"l\"(x)); return n; }\n",
        },
        DialectFunction {
            stem: "clz",
            takes: Takes::Only(ValueType::I64),
            text: "u32 clz_$t($t x) { u32 n; asm(\"clz.b64 %0, %1;\" : \"=r\"(n) : \"l\"(x)); return n; }\n",
        },
        // The language's own functions support only a few of the types.
        DialectFunction {
            stem: "atomic_add",
            takes: Takes::Anything,
            text: "$t atomic_add_$t($t *at, $t x) { return ($t)atomicAdd(($u *)at, ($u)x); }\n",
        },
        DialectFunction {
            stem: "atomic_min",
            takes: Takes::Anything,
            text: "$t atomic_min_$t($t *at, $t x) { return atomicMin(at, x); }\n",
        },
        DialectFunction {
            stem: "atomic_max",
            takes: Takes::Anything,
            text: "$t atomic_max_$t($t *at, $t x) { return atomicMax(at, x); }\n",
        },
        DialectFunction {
            stem: "atomic_and",
            takes: Takes::Anything,
            text: "$t atomic_and_$t($t *at, $t x) { return ($t)atomicAnd(($u *)at, ($u)x); }\n",
        },
        DialectFunction {
            stem: "atomic_or",
            takes: Takes::Anything,
            text: "$t atomic_or_$t($t *at, $t x) { return ($t)atomicOr(($u *)at, ($u)x); }\n",
        },
        DialectFunction {
            stem: "atomic_xor",
            takes: Takes::Anything,
            text: "$t atomic_xor_$t($t *at, $t x) { return ($t)atomicXor(($u *)at, ($u)x); }\n",
        },
        DialectFunction {
            stem: "atomic_exchange",
            takes: Takes::Anything,
            text: "$t atomic_exchange_$t($t *at, $t x) { return ($t)atomicExch(($u *)at, ($u)x); }\n",
        },
        DialectFunction {
            stem: "atomic_compare_exchange",
            takes: Takes::Anything,
            text: "$t atomic_compare_exchange_$t($t *at, $t expected, $t x) {
  return ($t)atomicCAS(($u *)at, ($u)expected, ($u)x);
}
",
        },
        // A volatile access is never merged with another access.
        DialectFunction {
            stem: "atomic_load",
            takes: Takes::Anything,
            text: "$t atomic_load_$t($t *at, $t) { return *(volatile $t *)at; }\n",
        },
    ],
    lacking: lacking!(),
    wanted: WANTED,
};

/// HIP, as accepted by clang for AMD devices, without ROCm headers or libraries. Tests compile the
/// text, but no backend runs it.
pub static HIP: Dialect = Dialect {
    name: "hip",
    header: "#pragma clang fp contract(off)
typedef unsigned char u8; typedef signed char i8; typedef unsigned short u16; typedef short i16;
typedef unsigned int u32; typedef int i32; typedef unsigned long long u64; typedef long long i64; typedef float f32;
static __attribute__((device)) inline u32 f32_bits(f32 x) { return __builtin_bit_cast(u32, x); }
static __attribute__((device)) inline f32 f32_of_bits(u32 x) { return __builtin_bit_cast(f32, x); }
",
    optional: &[(
        |needs| needs.f64,
        "typedef double f64;
static __attribute__((device)) inline u64 f64_bits(f64 x) { return __builtin_bit_cast(u64, x); }
static __attribute__((device)) inline f64 f64_of_bits(u64 x) { return __builtin_bit_cast(f64, x); }
",
    )],
    kernel: "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size({n}, {n}))) void",
    function: "static __attribute__((device)) inline",
    global: "",
    local: "__attribute__((shared))",
    restrict: "__restrict__",
    invocation: None,
    workgroup: [
        "__builtin_amdgcn_workgroup_id_x()",
        "__builtin_amdgcn_workgroup_id_y()",
        "__builtin_amdgcn_workgroup_id_z()",
    ],
    local_id: [
        "__builtin_amdgcn_workitem_id_x()",
        "__builtin_amdgcn_workitem_id_y()",
        "__builtin_amdgcn_workitem_id_z()",
    ],
    grid: [
        "(__builtin_amdgcn_grid_size_x() / {x}u)",
        "(__builtin_amdgcn_grid_size_y() / {y}u)",
        "(__builtin_amdgcn_grid_size_z() / {z}u)",
    ],
    barrier: "__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"); __builtin_amdgcn_s_barrier(); \
              __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");",
    zero: None,
    wide_suffix: ["ULL", "LL"],
    reinterpret: [["f32_bits", "f32_of_bits"], ["f64_bits", "f64_of_bits"]],
    calls: &[
        (Op::Fma, Called::Language(["__builtin_fmaf", "__builtin_fma"])),
        (Op::Sqrt, Called::Own("sqrt")),
        (Op::Popcount, Called::Language(["__builtin_popcount", "__builtin_popcountll"])),
    ],
    atomics: OWN_ATOMICS,
    // A wave has 32 or 64 lanes, depending on the device and the compiler.
    lanes: None,
    functions: HIP_FUNCTIONS,
    // `__builtin_clz` is undefined for zero.
    lacking: lacking!(Op::Clz),
    wanted: WANTED,
};

/// Every dialect.
pub static ALL: [&Dialect; 3] = [&OPENCL, &CUDA, &HIP];

impl Dialect {
    /// The dialect with this name, if any.
    pub fn from_name(name: &str) -> Option<&'static Dialect> {
        ALL.into_iter().find(|dialect| dialect.name == name)
    }

    /// Whether the text for a part of a grid uses a [folded](super::Settings::folded) grid, because
    /// a launch can start only at the first workgroup.
    pub fn folds(&self) -> bool {
        self.invocation.is_none()
    }

    /// The number of lanes in a subgroup; `None` if the dialect does not support subgroup ops.
    pub fn subgroup_size(&self) -> Option<u32> {
        self.lanes.as_ref().map(|lanes| lanes.size)
    }
}

const OWN_ATOMICS: &[(AtomicOp, Called)] = &[
    (AtomicOp::Add, Called::Own("atomic_add")),
    (AtomicOp::Min, Called::Own("atomic_min")),
    (AtomicOp::Max, Called::Own("atomic_max")),
    (AtomicOp::And, Called::Own("atomic_and")),
    (AtomicOp::Or, Called::Own("atomic_or")),
    (AtomicOp::Xor, Called::Own("atomic_xor")),
    (AtomicOp::Exchange, Called::Own("atomic_exchange")),
    (AtomicOp::CompareExchange, Called::Own("atomic_compare_exchange")),
    (AtomicOp::Load, Called::Own("atomic_load")),
    (AtomicOp::Store, Called::Own("atomic_exchange")),
];

const HIP_FUNCTIONS: &[DialectFunction] = &[
    // The device's square root is off by at most one unit, so the correct one is it or a neighbour.
    // Of two neighbours, the lower is too low if their product is below the number.
    DialectFunction {
        stem: "sqrt",
        takes: Takes::Only(ValueType::F32),
        text: "f32 sqrt_f32(f32 x) {
  const bool tiny = x < 0x1p-96f;
  const f32 y = tiny ? x * 0x1p+32f : x;
  const f32 near = __builtin_amdgcn_sqrtf(y);
  const f32 below = f32_of_bits(f32_bits(near) - 1u), above = f32_of_bits(f32_bits(near) + 1u);
  const f32 low = __builtin_fmaf(-below, near, y) <= 0.0f ? below : near;
  const f32 root = __builtin_fmaf(-above, near, y) > 0.0f ? above : low;
  return x == 0.0f || x == f32_of_bits(0x7f800000u) ? x : tiny ? root * 0x1p-16f : root;
}
",
    },
    // Goldschmidt iterations from the device's reciprocal square root, which has half of the bits,
    // then two corrections by the remainder, which `fma` computes exactly.
    DialectFunction {
        stem: "sqrt",
        takes: Takes::Only(ValueType::F64),
        text: "f64 sqrt_f64(f64 x) {
  const bool tiny = x < 0x1p-767;
  const f64 y = tiny ? x * 0x1p+256 : x;
  const f64 r = __builtin_amdgcn_rsq(y), rough = y * r, half = 0.5 * r;
  const f64 error = __builtin_fma(-half, rough, 0.5);
  const f64 near = __builtin_fma(rough, error, rough), slope = __builtin_fma(half, error, half);
  const f64 nearer = __builtin_fma(__builtin_fma(-near, near, y), slope, near);
  const f64 root = __builtin_fma(__builtin_fma(-nearer, nearer, y), slope, nearer);
  return x == 0.0 || x == f64_of_bits(0x7ff0000000000000ULL) ? x : tiny ? root * 0x1p-128 : root;
}
",
    },
    DialectFunction {
        stem: "trap",
        takes: Takes::Anything,
        text: "void trap_u32(volatile u32 *control, u32 code) {
  u32 running = 0u;
  if (__hip_atomic_compare_exchange_strong(
        (u32 *)control, &running, 1u, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))
    control[1] = code;
}
",
    },
    DialectFunction {
        stem: "atomic_add",
        takes: Takes::Anything,
        text: "$t atomic_add_$t($t *at, $t x) {
  return __hip_atomic_fetch_add(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_min",
        takes: Takes::Anything,
        text: "$t atomic_min_$t($t *at, $t x) {
  return __hip_atomic_fetch_min(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_max",
        takes: Takes::Anything,
        text: "$t atomic_max_$t($t *at, $t x) {
  return __hip_atomic_fetch_max(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_and",
        takes: Takes::Anything,
        text: "$t atomic_and_$t($t *at, $t x) {
  return __hip_atomic_fetch_and(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_or",
        takes: Takes::Anything,
        text: "$t atomic_or_$t($t *at, $t x) {
  return __hip_atomic_fetch_or(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_xor",
        takes: Takes::Anything,
        text: "$t atomic_xor_$t($t *at, $t x) {
  return __hip_atomic_fetch_xor(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_exchange",
        takes: Takes::Anything,
        text: "$t atomic_exchange_$t($t *at, $t x) {
  return __hip_atomic_exchange(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    },
    DialectFunction {
        stem: "atomic_compare_exchange",
        takes: Takes::Anything,
        text: "$t atomic_compare_exchange_$t($t *at, $t expected, $t x) {
  __hip_atomic_compare_exchange_strong(
    at, &expected, x, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}
",
    },
    DialectFunction {
        stem: "atomic_load",
        takes: Takes::Anything,
        text: "$t atomic_load_$t($t *at, $t) { return __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
",
    },
];
