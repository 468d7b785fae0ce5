//! Expressions.

use super::Name;
use crate::ops::{AtomicOp, Op, SubgroupOp, WorkgroupOp};
use crate::types::{Value, ValueType};
use std::ops::Deref;

/// Maximum nesting depth of an expression. Blocks and expressions of the benchmarks and filetests
/// together nest at most 14 deep.
pub const MAX_EXPR_DEPTH: usize = 256;

/// A coordinate or size of the grid, for each of the axes 0, 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Builtin {
    /// The invocation's position in the whole grid.
    InvocationId,
    /// The position of the invocation's workgroup in the grid.
    WorkgroupId,
    /// The invocation's position in its workgroup.
    LocalId,
    /// The number of workgroups in the dispatch.
    GridSize,
    /// The number of invocations in a workgroup.
    WorkgroupSize,
}

impl Builtin {
    /// Every builtin, in the order of their wire tags.
    pub const ALL: [Builtin; 5] = [
        Builtin::InvocationId,
        Builtin::WorkgroupId,
        Builtin::LocalId,
        Builtin::GridSize,
        Builtin::WorkgroupSize,
    ];

    /// The builtin's name in kernel text, without `.x`, `.y` or `.z`.
    pub fn name(self) -> &'static str {
        match self {
            Builtin::InvocationId => "invocation",
            Builtin::WorkgroupId => "workgroup",
            Builtin::LocalId => "local",
            Builtin::GridSize => "grid_size",
            Builtin::WorkgroupSize => "workgroup_size",
        }
    }
}

/// An expression: a tree whose leaves are literals, variables and builtins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant.
    Literal(Value),
    /// The value of a variable or loop counter.
    Var(Name),
    /// A coordinate or size of the grid on an axis, a `u32`.
    Builtin(Builtin, u8),
    /// The number of elements in a buffer, a `u32`.
    BufLen(Name),
    /// An element of a buffer or private array: `[index]`.
    Load(Name, Args),
    /// A table op on its operands.
    Op(Op, Args),
    /// An atomic access to an element of a buffer: `[index]`, `[index, value]`, or `[index,
    /// expected, new]`.
    Atomic(AtomicOp, Name, Args),
    /// An exchange within the subgroup.
    Subgroup(SubgroupOp, Args),
    /// An exchange within the workgroup.
    Workgroup(WorkgroupOp, Args),
    /// A call to one of the program's functions.
    Call(Name, Args),
}

/// A list of operands that tracks its nesting depth, at most [`MAX_EXPR_DEPTH`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Args {
    items: Vec<Expr>,
    depth: usize,
}

impl Args {
    /// Operands in evaluation order. A tree that would be too deep is dropped, which
    /// [`is_too_deep`](Args::is_too_deep) reports.
    pub fn new(items: Vec<Expr>) -> Args {
        let depth = 1 + items.iter().map(Expr::depth).max().unwrap_or(0);
        // Depth 0 marks dropped operands: a list that was kept has a depth of at least 1.
        if depth > MAX_EXPR_DEPTH { Args { items: Vec::new(), depth: 0 } } else { Args { items, depth } }
    }

    /// Whether operands were dropped because the tree was too deep.
    pub fn is_too_deep(&self) -> bool {
        self.depth == 0
    }

    /// Converts the list into its operands.
    pub fn into_vec(self) -> Vec<Expr> {
        self.items
    }
}

impl Default for Args {
    fn default() -> Args {
        Args::new(Vec::new())
    }
}

impl Deref for Args {
    type Target = [Expr];
    fn deref(&self) -> &[Expr] {
        &self.items
    }
}

impl From<Vec<Expr>> for Args {
    fn from(items: Vec<Expr>) -> Args {
        Args::new(items)
    }
}

impl<const N: usize> From<[Expr; N]> for Args {
    fn from(items: [Expr; N]) -> Args {
        Args::new(items.into())
    }
}

impl<'a> IntoIterator for &'a Args {
    type Item = &'a Expr;
    type IntoIter = std::slice::Iter<'a, Expr>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl Expr {
    /// A `bool` constant.
    pub fn bool(value: bool) -> Expr {
        Expr::Literal(Value::Bool(value))
    }

    /// A `u32` constant.
    pub fn u32(value: u32) -> Expr {
        Expr::Literal(Value::U32(value))
    }

    /// An `i32` constant.
    pub fn i32(value: i32) -> Expr {
        Expr::Literal(Value::I32(value))
    }

    /// A `u64` constant.
    pub fn u64(value: u64) -> Expr {
        Expr::Literal(Value::U64(value))
    }

    /// An `i64` constant.
    pub fn i64(value: i64) -> Expr {
        Expr::Literal(Value::I64(value))
    }

    /// An `f32` constant.
    pub fn f32(value: f32) -> Expr {
        Expr::Literal(Value::F32(value))
    }

    /// An `f64` constant.
    pub fn f64(value: f64) -> Expr {
        Expr::Literal(Value::F64(value))
    }

    /// The value of the variable `name`.
    pub fn var(name: impl Into<Name>) -> Expr {
        Expr::Var(name.into())
    }

    /// The element of the buffer or private array `from` at `index`.
    pub fn load(from: impl Into<Name>, index: impl Into<Expr>) -> Expr {
        Expr::Load(from.into(), [index.into()].into())
    }

    /// The value of the single-element uniform `name`.
    pub fn uniform(name: impl Into<Name>) -> Expr {
        Expr::load(name, Expr::u32(0))
    }

    /// The number of elements in the buffer.
    pub fn buf_len(buffer: impl Into<Name>) -> Expr {
        Expr::BufLen(buffer.into())
    }

    /// The invocation's position in the grid on axis 0, 1 or 2.
    pub fn invocation_id(axis: u8) -> Expr {
        Expr::Builtin(Builtin::InvocationId, axis)
    }

    /// The position of the invocation's workgroup on axis 0, 1 or 2.
    pub fn workgroup_id(axis: u8) -> Expr {
        Expr::Builtin(Builtin::WorkgroupId, axis)
    }

    /// The invocation's position in its workgroup on axis 0, 1 or 2.
    pub fn local_id(axis: u8) -> Expr {
        Expr::Builtin(Builtin::LocalId, axis)
    }

    /// The number of workgroups on axis 0, 1 or 2.
    pub fn grid_size(axis: u8) -> Expr {
        Expr::Builtin(Builtin::GridSize, axis)
    }

    /// The number of invocations in a workgroup on axis 0, 1 or 2.
    pub fn workgroup_size(axis: u8) -> Expr {
        Expr::Builtin(Builtin::WorkgroupSize, axis)
    }

    /// A table op on its operands.
    pub fn op(op: Op, args: impl Into<Args>) -> Expr {
        Expr::Op(op, args.into())
    }

    /// `if_true` if `condition` holds, otherwise `if_false`; both are evaluated.
    pub fn select(condition: impl Into<Expr>, if_true: impl Into<Expr>, if_false: impl Into<Expr>) -> Expr {
        Expr::op(Op::Select, [condition.into(), if_true.into(), if_false.into()])
    }

    /// Applies the atomic `op` to an element and yields its previous value.
    pub fn atomic(
        op: AtomicOp,
        buffer: impl Into<Name>,
        index: impl Into<Expr>,
        value: impl Into<Expr>,
    ) -> Expr {
        Expr::Atomic(op, buffer.into(), [index.into(), value.into()].into())
    }

    /// Adds to an element atomically and yields its previous value.
    pub fn atomic_add(buffer: impl Into<Name>, index: impl Into<Expr>, value: impl Into<Expr>) -> Expr {
        Expr::atomic(AtomicOp::Add, buffer, index, value)
    }

    /// Replaces an element with `new` if it equals `expected`, and yields its previous value.
    pub fn atomic_compare_exchange(
        buffer: impl Into<Name>,
        index: impl Into<Expr>,
        expected: impl Into<Expr>,
        new: impl Into<Expr>,
    ) -> Expr {
        let args = [index.into(), expected.into(), new.into()].into();
        Expr::Atomic(AtomicOp::CompareExchange, buffer.into(), args)
    }

    /// An exchange within the subgroup.
    pub fn subgroup(op: SubgroupOp, args: impl Into<Args>) -> Expr {
        Expr::Subgroup(op, args.into())
    }

    /// Atomically reads an element that other invocations can modify concurrently.
    pub fn atomic_load(buffer: impl Into<Name>, index: impl Into<Expr>) -> Expr {
        Expr::Atomic(AtomicOp::Load, buffer.into(), [index.into()].into())
    }

    /// The value of `value` in invocation 0 of the workgroup; also a barrier.
    pub fn workgroup_broadcast(value: impl Into<Expr>) -> Expr {
        Expr::Workgroup(WorkgroupOp::Broadcast, [value.into()].into())
    }

    /// A call to the program's function `name`.
    pub fn call(name: impl Into<Name>, args: impl Into<Args>) -> Expr {
        Expr::Call(name.into(), args.into())
    }

    /// Converts this value to the type `to`.
    #[must_use]
    pub fn cast(self, to: ValueType) -> Expr {
        Expr::op(Op::cast(to), [self])
    }

    /// The expression's operands; none for a leaf.
    pub fn args(&self) -> &[Expr] {
        self.arg_list().map_or(&[], |args| args)
    }

    pub(crate) fn arg_list(&self) -> Option<&Args> {
        match self {
            Expr::Literal(_) | Expr::Var(_) | Expr::Builtin(..) | Expr::BufLen(_) => None,
            Expr::Load(_, args)
            | Expr::Op(_, args)
            | Expr::Atomic(_, _, args)
            | Expr::Subgroup(_, args)
            | Expr::Workgroup(_, args)
            | Expr::Call(_, args) => Some(args),
        }
    }

    pub(crate) fn arg_list_mut(&mut self) -> Option<&mut Args> {
        match self {
            Expr::Literal(_) | Expr::Var(_) | Expr::Builtin(..) | Expr::BufLen(_) => None,
            Expr::Load(_, args)
            | Expr::Op(_, args)
            | Expr::Atomic(_, _, args)
            | Expr::Subgroup(_, args)
            | Expr::Workgroup(_, args)
            | Expr::Call(_, args) => Some(args),
        }
    }

    /// Whether operands were dropped because the tree was too deep.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.arg_list().is_some_and(Args::is_too_deep)
    }

    fn depth(&self) -> usize {
        self.arg_list().map_or(0, |args| args.depth)
    }
}

/// Generates methods that apply one table op to `self` and further operands.
macro_rules! op_methods {
    ($($(#[$doc:meta])* $method:ident ( $($arg:ident),* ) $op:ident;)*) => {
        impl Expr {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $method(self, $($arg: impl Into<Expr>),*) -> Expr {
                    Expr::op(Op::$op, [self, $($arg.into()),*])
                }
            )*
        }
    };
}

op_methods! {
    /// `self == other`.
    equals(other) Eq;
    /// `self != other`.
    differs(other) Ne;
    /// `self < other`.
    lt(other) Lt;
    /// `self <= other`.
    le(other) Le;
    /// `self > other`.
    gt(other) Gt;
    /// `self >= other`.
    ge(other) Ge;
    /// The smaller of the two.
    min(other) Min;
    /// The larger of the two.
    max(other) Max;
    /// `min(max(self, low), high)`.
    clamp(low, high) Clamp;
    /// The absolute value.
    abs() Abs;
    /// -1, 0 or 1 by sign.
    sign() Sign;
    /// The sum, saturated to the type's range.
    sat_add(other) SatAdd;
    /// The difference, saturated to the type's range.
    sat_sub(other) SatSub;
    /// The absolute difference of two integers.
    abs_diff(other) AbsDiff;
    /// The upper half of the product.
    mul_hi(other) MulHi;
    /// `self * y + z`, rounded once.
    fma(y, z) Fma;
    /// The square root.
    sqrt() Sqrt;
    /// `1 / sqrt(self)`.
    rsqrt() Rsqrt;
    /// Rounds down.
    floor() Floor;
    /// Rounds up.
    ceil() Ceil;
    /// Rounds towards zero.
    trunc() Trunc;
    /// Rounds to nearest, ties to even.
    round() Round;
    /// The magnitude of `self` with the sign of `sign`.
    copysign(sign) Copysign;
    /// Whether the value is a NaN.
    is_nan() IsNan;
    /// Whether the value is an infinity.
    is_inf() IsInf;
    /// Whether the value is finite.
    is_finite() IsFinite;
    /// e to the power of `self`.
    exp() Exp;
    /// 2 to the power of `self`.
    exp2() Exp2;
    /// The natural logarithm.
    log() Log;
    /// The logarithm to base 2.
    log2() Log2;
    /// `self` to the power of `exponent`.
    pow(exponent) Pow;
    /// The sine.
    sin() Sin;
    /// The cosine.
    cos() Cos;
    /// The tangent.
    tan() Tan;
    /// The arc sine.
    asin() Asin;
    /// The arc cosine.
    acos() Acos;
    /// The arc tangent.
    atan() Atan;
    /// The angle of the point (`x`, `self`).
    atan2(x) Atan2;
    /// The hyperbolic sine.
    sinh() Sinh;
    /// The hyperbolic cosine.
    cosh() Cosh;
    /// The hyperbolic tangent.
    tanh() Tanh;
    /// `exp(self) - 1`.
    exp_m1() ExpM1;
    /// The logarithm to base 10.
    log10() Log10;
    /// `log(1 + self)`.
    log_1p() Log1p;
    /// The inverse hyperbolic sine.
    asinh() Asinh;
    /// The inverse hyperbolic cosine.
    acosh() Acosh;
    /// The inverse hyperbolic tangent.
    atanh() Atanh;
    /// `sqrt(self * self + y * y)`.
    hypot(y) Hypot;
    /// The error function.
    erf() Erf;
    /// The cube root.
    cbrt() Cbrt;
    /// `self - floor(self)`.
    fract() Fract;
    /// The fractional part, with the operand's sign.
    modf() Modf;
    /// The fraction of the decomposition into a fraction and a power of two.
    frexp() Frexp;
    /// The exponent of the decomposition into a fraction and a power of two.
    frexp_exponent() FrexpExponent;
    /// `self` times 2 to the power of `exponent`, an `i32`.
    ldexp(exponent) Ldexp;
    /// The bit field of width `count` that starts at bit `offset`.
    extract_bits(offset, count) ExtractBits;
    /// `self` with the bit field of width `count` at bit `offset` replaced by the low bits of
    /// `bits`.
    insert_bits(bits, offset, count) InsertBits;
    /// The bits of the nearest `f16`.
    f16_bits() F16Bits;
    /// The number with these `f16` bits.
    bits_f16() BitsF16;
    /// The bits of the nearest `bf16`.
    bf16_bits() Bf16Bits;
    /// The number with these `bf16` bits.
    bits_bf16() BitsBf16;
    /// Rotates bits left.
    rotate_left(count) RotateLeft;
    /// Rotates bits right.
    rotate_right(count) RotateRight;
    /// The number of set bits.
    popcount() Popcount;
    /// The number of leading zero bits.
    clz() Clz;
    /// The number of trailing zero bits.
    ctz() Ctz;
    /// The bits in reverse order.
    reverse_bits() ReverseBits;
}

macro_rules! operators {
    ($($operator:ident $method:ident $op:ident),*) => { $(
        impl<R: Into<Expr>> std::ops::$operator<R> for Expr {
            type Output = Expr;
            fn $method(self, other: R) -> Expr {
                Expr::op(Op::$op, [self, other.into()])
            }
        }
    )* };
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem, BitAnd bitand And, BitOr bitor Or,
    BitXor bitxor Xor, Shl shl Shl, Shr shr Shr);

impl std::ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Expr::op(Op::Neg, [self])
    }
}

impl std::ops::Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        Expr::op(Op::Not, [self])
    }
}

impl<T: Into<Value>> From<T> for Expr {
    fn from(value: T) -> Expr {
        Expr::Literal(value.into())
    }
}

impl From<&Expr> for Expr {
    fn from(expr: &Expr) -> Expr {
        expr.clone()
    }
}
