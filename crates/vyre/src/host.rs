//! Support for `on_host`: positions of invocations, and operations that differ between Rust and
//! kernels.

use std::cell::Cell;
pub use vyre_foundation::ops::Op;
use vyre_foundation::ops::eval;
use vyre_foundation::types::Value;

/// Position of an invocation, on each axis.
#[derive(Clone, Copy, Default)]
pub(crate) struct Position {
    pub(crate) invocation: [usize; 3],
    pub(crate) local: [usize; 3],
    pub(crate) workgroup: [usize; 3],
    pub(crate) size: [usize; 3],
    pub(crate) count: [usize; 3],
}

thread_local! {
    static POSITION: Cell<Position> = const {
        Cell::new(Position { invocation: [0; 3], local: [0; 3], workgroup: [0; 3], size: [1; 3], count: [1; 3] })
    };
}

/// Position of the invocation that runs on this thread.
pub(crate) fn position() -> Position {
    POSITION.get()
}

/// Runs a body once per invocation: of the domain or, if `shaped`, of all workgroups that cover it.
pub fn run(domain: &[usize], workgroup: &[usize], shaped: bool, mut body: impl FnMut()) {
    let axes =
        |sizes: &[usize]| -> [usize; 3] { std::array::from_fn(|axis| sizes.get(axis).copied().unwrap_or(1)) };
    let (domain, size) = (axes(domain), axes(workgroup));
    let count: [usize; 3] = std::array::from_fn(|axis| domain[axis].div_ceil(size[axis].max(1)));
    let extent = if shaped { std::array::from_fn(|axis| count[axis] * size[axis]) } else { domain };
    let before = POSITION.get();
    for z in 0..extent[2] {
        for y in 0..extent[1] {
            for x in 0..extent[0] {
                let invocation = [x, y, z];
                let local = std::array::from_fn(|axis| invocation[axis] % size[axis].max(1));
                let workgroup = std::array::from_fn(|axis| invocation[axis] / size[axis].max(1));
                POSITION.set(Position { invocation, local, workgroup, size, count });
                body();
            }
        }
    }
    POSITION.set(before);
}

/// A number that ops compute with.
pub trait Operand: Copy {
    /// The number as a value.
    fn value(self) -> Value;
    /// The number in a value; zero if the value has another type.
    fn from_value(value: Value) -> Self;
}

macro_rules! operands {
    ($($ty:ident $variant:ident;)*) => { $(
        impl Operand for $ty {
            fn value(self) -> Value {
                Value::$variant(self)
            }

            fn from_value(value: Value) -> Self {
                if let Value::$variant(number) = value { number } else { $ty::default() }
            }
        }
    )* };
}

operands! {
    bool Bool;
    u32 U32;
    i32 I32;
    u64 U64;
    i64 I64;
    f32 F32;
    f64 F64;
}

/// The op's result in a kernel.
pub fn op<T: Operand, const N: usize>(op: Op, operands: [T; N]) -> T {
    of_values(op, &operands.map(Operand::value))
}

/// The op's result in a kernel, for operands of several types.
pub(crate) fn of_values<R: Operand>(op: Op, operands: &[Value]) -> R {
    R::from_value(eval(op, operands).unwrap_or(Value::Bool(false)))
}

/// A float.
pub trait StoredFloat: Operand {
    /// The integer type of its bits.
    type Bits: Operand;
    /// The op that gives its bits.
    const BITS: Op;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// The bits that a kernel stores for a NaN.
    const NAN: Self;
}

impl StoredFloat for f32 {
    type Bits = u32;
    const BITS: Op = Op::BitsU32;
    const NAN: f32 = f32::from_bits(0x7fc0_0000);
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

impl StoredFloat for f64 {
    type Bits = u64;
    const BITS: Op = Op::BitsU64;
    const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

/// The float as a kernel stores it, with canonical NaN bits.
pub fn stored<T: StoredFloat>(value: T) -> T {
    if value.is_nan() { T::NAN } else { value }
}

/// The bits of a float, with those of a kernel for a NaN.
pub fn bits<T: StoredFloat>(value: T) -> T::Bits {
    of_values(T::BITS, &[value.value()])
}

/// Checks that a kernel can have a `usize` of this value.
///
/// # Panics
/// If it needs more than 32 bits.
pub fn size(value: usize) -> usize {
    assert!(value <= u32::MAX as usize, "{value} overflows `usize`, which has 32 bits in a kernel");
    value
}

/// Checks the length of an output.
///
/// # Panics
/// If the output `name` is not as long as the kernel requires.
pub fn same_length(name: &str, given: usize, wanted: usize) {
    assert!(given == wanted, "`{name}` has {given} elements, not {wanted}");
}
