//! Functions for kernels in Rust: the position of an invocation, atomics, and the ops that Rust's
//! numbers have no method for.
//!
//! In a function with [`#[vyre::kernel]`](macro@crate::kernel) these are ops of the kernel. The
//! functions here define their types and are what `on_host` calls: one invocation after the other.
//! Barriers and exchanges then treat each as its own workgroup and subgroup.

use crate::host::{Operand, of_values, op, position};
use crate::typed::{Float, Integer, Number};
use vyre_foundation::ops::{Combine, Op};
use vyre_foundation::types::Value;

macro_rules! places {
    ($($(#[$doc:meta])* $x:ident $y:ident $z:ident $field:ident;)*) => { $(
        $(#[$doc])*
        pub fn $x() -> usize {
            position().$field[0]
        }
        #[doc = concat!("[`", stringify!($x), "`] on the second axis.")]
        pub fn $y() -> usize {
            position().$field[1]
        }
        #[doc = concat!("[`", stringify!($x), "`] on the third axis.")]
        pub fn $z() -> usize {
            position().$field[2]
        }
    )* };
}

places! {
    /// The invocation's position in the domain, on the first axis.
    index index_y index_z invocation;
    /// The invocation's position in its workgroup, on the first axis.
    local_index local_index_y local_index_z local;
    /// The position of the invocation's workgroup, on the first axis.
    workgroup_index workgroup_index_y workgroup_index_z workgroup;
    /// The number of invocations of a workgroup on the first axis.
    workgroup_size workgroup_size_y workgroup_size_z size;
    /// The number of workgroups on the first axis.
    workgroup_count workgroup_count_y workgroup_count_z count;
}

/// Waits for every invocation of the workgroup; each then sees what all of them wrote before it.
pub fn barrier() {}

/// An integer that atomics work on: `u32`, `i32`, `u64` or `i64`.
pub trait Atomic: Integer + Ord {
    #[doc(hidden)]
    fn wrapping_sum(self, other: Self) -> Self;
    #[doc(hidden)]
    fn bits(self, other: Self, combine: fn(u64, u64) -> u64) -> Self;
}

macro_rules! atomics {
    ($($ty:ident)*) => { $(
        impl Atomic for $ty {
            fn wrapping_sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn bits(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
                combine(self as u64, other as u64) as $ty
            }
        }
    )* };
}
atomics!(u32 i32 u64 i64);

macro_rules! updates {
    ($($(#[$doc:meta])* $name:ident |$old:ident, $value:ident| $new:expr;)*) => { $(
        $(#[$doc])*
        /// Returns the previous value.
        pub fn $name<T: Atomic>(element: &mut T, $value: T) -> T {
            let $old = *element;
            *element = $new;
            $old
        }
    )* };
}

updates! {
    /// Atomically adds to an element, wrapping.
    atomic_add |old, value| old.wrapping_sum(value);
    /// Atomically replaces an element by its minimum with a value.
    atomic_min |old, value| old.min(value);
    /// Atomically replaces an element by its maximum with a value.
    atomic_max |old, value| old.max(value);
    /// Atomically clears the bits of an element that the value lacks.
    atomic_and |old, value| old.bits(value, |a, b| a & b);
    /// Atomically sets the bits of an element that the value has.
    atomic_or |old, value| old.bits(value, |a, b| a | b);
    /// Atomically flips the bits of an element that the value has.
    atomic_xor |old, value| old.bits(value, |a, b| a ^ b);
    /// Atomically replaces an element.
    atomic_exchange |_old, value| value;
    /// Atomically stores an element that others may read at the same time.
    atomic_store |_old, value| value;
}

/// Atomically replaces an element by `new` if it equals `expected`. Returns the previous value.
pub fn atomic_compare_exchange<T: Atomic>(element: &mut T, expected: T, new: T) -> T {
    let old = *element;
    if old == expected {
        *element = new;
    }
    old
}

/// Atomically loads an element that others may change at the same time.
pub fn atomic_load<T: Atomic>(element: &mut T) -> T {
    *element
}

/// 1 / sqrt(x), both steps rounded.
pub fn rsqrt<T: Float + Operand>(x: T) -> T {
    op(Op::Rsqrt, [x])
}

/// x - floor(x); never negative, unlike Rust's `fract`.
pub fn fract<T: Float + Operand>(x: T) -> T {
    op(Op::Fract, [x])
}

/// -1, 0 or 1 by the sign; a zero is unchanged, unlike with Rust's `signum`.
pub fn sign<T: Number + Operand>(x: T) -> T {
    op(Op::Sign, [x])
}

/// The error function.
pub fn erf<T: Float + Operand>(x: T) -> T {
    op(Op::Erf, [x])
}

/// The fraction x - trunc(x) with the operand's sign, zero for infinities.
pub fn modf<T: Float + Operand>(x: T) -> T {
    op(Op::Modf, [x])
}

/// The fraction m, 0.5 <= abs(m) < 1, of x = m * 2^e.
pub fn frexp<T: Float + Operand>(x: T) -> T {
    op(Op::Frexp, [x])
}

/// The exponent e of x = m * 2^e with 0.5 <= abs(m) < 1.
pub fn frexp_exponent<T: Float + Operand>(x: T) -> i32 {
    of_values(Op::FrexpExponent, &[x.value()])
}

/// x * 2^exponent, rounded once.
pub fn ldexp<T: Float + Operand>(x: T, exponent: i32) -> T {
    of_values(Op::Ldexp, &[x.value(), Value::I32(exponent)])
}

/// The upper half of the product.
pub fn mul_hi<T: Integer + Operand>(x: T, y: T) -> T {
    op(Op::MulHi, [x, y])
}

/// `count` bits from the offset up, as a number.
pub fn extract_bits<T: Integer + Operand>(x: T, offset: u32, count: u32) -> T {
    of_values(Op::ExtractBits, &[x.value(), Value::U32(offset), Value::U32(count)])
}

/// The first operand with `count` bits from the offset up replaced by the lowest of `bits`.
pub fn insert_bits<T: Integer + Operand>(x: T, bits: T, offset: u32, count: u32) -> T {
    of_values(Op::InsertBits, &[x.value(), bits.value(), Value::U32(offset), Value::U32(count)])
}

/// The bits of the nearest `f16`.
pub fn f16_bits(x: f32) -> u32 {
    of_values(Op::F16Bits, &[x.value()])
}

/// The number whose `f16` bits are the operand's low 16.
pub fn bits_f16(bits: u32) -> f32 {
    of_values(Op::BitsF16, &[bits.value()])
}

/// The bits of the nearest `bf16`.
pub fn bf16_bits(x: f32) -> u32 {
    of_values(Op::Bf16Bits, &[x.value()])
}

/// The number whose `bf16` bits are the operand's low 16.
pub fn bits_bf16(bits: u32) -> f32 {
    of_values(Op::BitsBf16, &[bits.value()])
}

/// The value in the workgroup's first invocation; also a barrier.
pub fn workgroup_broadcast<T: Copy>(value: T) -> T {
    value
}

/// The number of lanes of a subgroup.
pub fn subgroup_size() -> u32 {
    1
}

/// This invocation's lane.
pub fn subgroup_lane() -> u32 {
    0
}

/// The index of this invocation's subgroup in its workgroup.
pub fn subgroup_id() -> u32 {
    0
}

/// The number of subgroups of a workgroup.
pub fn subgroup_count() -> u32 {
    1
}

/// The lanes whose condition is true, as bits.
pub fn subgroup_ballot(condition: bool) -> u64 {
    condition.into()
}

/// The value of that lane, which must be the same lane for the whole subgroup.
pub fn subgroup_broadcast<T: Copy>(value: T, _lane: u32) -> T {
    value
}

/// The value of that lane.
pub fn subgroup_shuffle<T: Copy>(value: T, _lane: u32) -> T {
    value
}

macro_rules! combined {
    ($($bound:ident $combine:ident $reduce:ident $inclusive:ident $exclusive:ident $what:literal;)*) => { $(
        #[doc = concat!($what, " of all lanes, in their order.")]
        pub fn $reduce<T: $bound>(value: T) -> T {
            value
        }
        #[doc = concat!($what, " of this lane and those below it, in their order.")]
        pub fn $inclusive<T: $bound>(value: T) -> T {
            value
        }
        #[doc = concat!($what, " of the lanes below this one, in their order.")]
        pub fn $exclusive<T: $bound + Operand>(value: T) -> T {
            T::from_value(Combine::$combine.identity(value.value().ty()))
        }
    )* };
}

combined! {
    Number Add subgroup_reduce_add subgroup_inclusive_add subgroup_exclusive_add "The sum";
    Number Mul subgroup_reduce_mul subgroup_inclusive_mul subgroup_exclusive_mul "The product";
    Number Min subgroup_reduce_min subgroup_inclusive_min subgroup_exclusive_min "The least value";
    Number Max subgroup_reduce_max subgroup_inclusive_max subgroup_exclusive_max "The greatest value";
    Integer And subgroup_reduce_and subgroup_inclusive_and subgroup_exclusive_and "The common bits";
    Integer Or subgroup_reduce_or subgroup_inclusive_or subgroup_exclusive_or "The bits of any";
    Integer Xor subgroup_reduce_xor subgroup_inclusive_xor subgroup_exclusive_xor "The exclusive or";
}
