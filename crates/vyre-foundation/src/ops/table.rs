//! The op tables.

use super::id::OpId;
use super::laws::Law::{
    self, Associative, Commutative, Idempotent, Involution, LeftAbsorbing, LeftIdentity, Projection,
    RightAbsorbing, RightIdentity, SelfGives,
};
use super::laws::SpecialValue::{AllOnes, Greatest, Least, Nan, NegativeZero, One, Zero};
use super::signature::{
    Class::{Any, Bits, F32, Float, Integer, Number, U32},
    Signature::{
        self, Bitcast, Cast, Compare, Count, Distance, Field, Gives, Same, Scale, Select, Shift, Test,
    },
};
use crate::types::{Value, ValueType};
use std::sync::LazyLock;

/// How an op is written in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Between its operands, with a precedence: higher binds tighter, all associate to the left.
    Infix(&'static str, u8),
    /// Before its operand.
    Prefix(&'static str),
    /// As a call of its name.
    Call,
}
use Spelling::{Call, Infix, Prefix};

/// One row of the table of pure ops.
#[derive(Debug)]
pub struct OpRow {
    /// The op that the row describes.
    pub op: Op,
    /// Wire tag; never reused.
    pub tag: u8,
    /// The middle part of the op's id: `primitive.<family>.<name>`.
    pub family: &'static str,
    /// The op's name, unique in the table; text calls the op by it.
    pub name: &'static str,
    /// How the op is written in text.
    pub spelling: Spelling,
    /// Its type rule.
    pub signature: Signature,
    /// Laws that hold on integers and `bool`.
    pub integer_laws: &'static [Law],
    /// Laws that hold on floats.
    pub float_laws: &'static [Law],
    /// Error in units in the last place allowed to a backend that is not strict; a strict one is
    /// exact.
    pub loose_ulp: u8,
    /// Approximate cost on most devices, in additions.
    pub cost: u8,
    /// For an op defined by an [expansion](crate::math): a bound on the error of its result in
    /// units in the last place, on `f32` and on other types; 0 if the op is exact.
    /// `cargo xtask ulp` measures the inexact ones.
    pub expansion_error: Option<[f32; 2]>,
    /// What the op does, in one sentence.
    pub doc: &'static str,
}

macro_rules! bounds {
    () => {
        None
    };
    ($all:literal) => {
        Some([$all; 2])
    };
    ($single:literal, $double:literal) => {
        Some([$single, $double])
    };
}

macro_rules! cost {
    ($cost:literal expansion $error:literal) => {
        $cost
    };
    (expansion $error:literal) => {
        40
    };
    ($cost:literal) => {
        $cost
    };
    () => {
        1
    };
}

macro_rules! op_table {
    ($($op:ident $tag:literal $family:literal $name:literal $spelling:expr, $signature:expr,
       int [$($int:expr),*] float [$($float:expr),*] ulp $ulp:literal $(cost $cost:literal)?
       $(expansion $error:literal $(, $double:literal)?)? $doc:literal;)*) => {
        /// A pure operation on values: a row of the op table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op { $(#[doc = $doc] $op),* }

        impl Op {
            /// Every op, in table order.
            pub const ALL: &'static [Op] = &[$(Op::$op),*];
            const ROWS: &'static [OpRow] = &[$(OpRow {
                op: Op::$op, tag: $tag, family: $family, name: $name, spelling: $spelling, signature: $signature,
                integer_laws: &[$($int),*], float_laws: &[$($float),*], loose_ulp: $ulp,
                cost: cost!($($cost)? $(expansion $error)?), expansion_error: bounds!($($error $(, $double)?)?), doc: $doc,
            }),*];
        }
    };
}

op_table! {
    Add 1 "math" "add" Infix("+", 9), Same(2, Number),
        int [Commutative, Associative, LeftIdentity(Zero), RightIdentity(Zero)]
        float [Commutative, LeftIdentity(NegativeZero), RightIdentity(NegativeZero)] ulp 0
        "Sum; integers wrap.";
    Sub 2 "math" "sub" Infix("-", 9), Same(2, Number),
        int [RightIdentity(Zero), SelfGives(Zero)] float [RightIdentity(Zero)] ulp 0
        "Difference; integers wrap.";
    Mul 3 "math" "mul" Infix("*", 10), Same(2, Number),
        int [Commutative, Associative, LeftIdentity(One), RightIdentity(One), LeftAbsorbing(Zero), RightAbsorbing(Zero)]
        float [Commutative, LeftIdentity(One), RightIdentity(One)] ulp 0
        "Product; integers wrap.";
    Div 4 "math" "div" Infix("/", 10), Same(2, Number),
        int [RightIdentity(One), RightIdentity(Zero), LeftAbsorbing(Zero)] float [RightIdentity(One)] ulp 3 cost 8
        "Quotient; on integers it truncates, x / 0 = x and MIN / -1 = MIN.";
    Rem 5 "math" "rem" Infix("%", 10), Same(2, Integer),
        int [RightAbsorbing(Zero), LeftAbsorbing(Zero), SelfGives(Zero)] float [] ulp 0 cost 8
        "Remainder of the truncated quotient, with the sign of the dividend; x % 0 = 0 and MIN % -1 = 0.";
    Neg 6 "math" "neg" Prefix("-"), Same(1, Number), int [Involution] float [Involution] ulp 0
        "Negation; integers wrap.";
    Abs 7 "math" "abs" Call, Same(1, Number), int [Projection] float [Projection] ulp 0
        "Absolute value; on signed integers MIN stays MIN.";
    Sign 8 "math" "sign" Call, Same(1, Number), int [Projection] float [Projection] ulp 0
        "-1, 0 or 1 by the operand's sign; a float zero is kept with its sign, a NaN gives 1.";
    Min 9 "math" "min" Call, Same(2, Number),
        int [Commutative, Associative, Idempotent, LeftIdentity(Greatest), RightIdentity(Greatest),
             LeftAbsorbing(Least), RightAbsorbing(Least)]
        float [Commutative, Associative, Idempotent, LeftIdentity(Nan), RightIdentity(Nan),
               LeftAbsorbing(Least), RightAbsorbing(Least)] ulp 0
        "The smaller operand; -0.0 is below +0.0, and a number is preferred to a NaN.";
    Max 10 "math" "max" Call, Same(2, Number),
        int [Commutative, Associative, Idempotent, LeftIdentity(Least), RightIdentity(Least),
             LeftAbsorbing(Greatest), RightAbsorbing(Greatest)]
        float [Commutative, Associative, Idempotent, LeftIdentity(Nan), RightIdentity(Nan),
               LeftAbsorbing(Greatest), RightAbsorbing(Greatest)] ulp 0
        "The larger operand; +0.0 is above -0.0, and a number is preferred to a NaN.";
    Clamp 11 "math" "clamp" Call, Same(3, Number), int [] float [] ulp 0
        "min(max(x, low), high).";
    SatAdd 12 "math" "sat_add" Call, Same(2, Integer),
        int [Commutative, LeftIdentity(Zero), RightIdentity(Zero)] float [] ulp 0
        "Sum, saturating at the type's limits.";
    SatSub 13 "math" "sat_sub" Call, Same(2, Integer), int [RightIdentity(Zero), SelfGives(Zero)] float [] ulp 0
        "Difference, saturating at the type's limits.";
    AbsDiff 14 "math" "abs_diff" Call, Distance, int [Commutative, SelfGives(Zero)] float [] ulp 0
        "Distance between two integers, exact in the unsigned type of their width.";
    MulHi 15 "math" "mul_hi" Call, Same(2, Integer),
        int [Commutative, LeftAbsorbing(Zero), RightAbsorbing(Zero)] float [] ulp 0 cost 3
        "The upper half of the double-width product.";
    Fma 16 "math" "fma" Call, Same(3, Float), int [] float [] ulp 1 cost 2
        "x * y + z with one rounding.";
    Sqrt 17 "math" "sqrt" Call, Same(1, Float), int [] float [] ulp 3 cost 8
        "Square root, correctly rounded; negative numbers give NaN.";
    Rsqrt 18 "math" "rsqrt" Call, Same(1, Float), int [] float [] ulp 3 cost 16
        "1 / sqrt(x), both steps rounded.";
    Floor 19 "math" "floor" Call, Same(1, Float), int [] float [Projection] ulp 0
        "The largest integral value not above the operand.";
    Ceil 20 "math" "ceil" Call, Same(1, Float), int [] float [Projection] ulp 0
        "The smallest integral value not below the operand.";
    Trunc 21 "math" "trunc" Call, Same(1, Float), int [] float [Projection] ulp 0
        "The operand without its fraction.";
    Round 22 "math" "round" Call, Same(1, Float), int [] float [Projection] ulp 0
        "The nearest integral value, ties to even.";
    Copysign 23 "math" "copysign" Call, Same(2, Float), int [] float [Idempotent] ulp 0
        "The first operand's magnitude with the second's sign; a NaN's sign is plus.";
    IsNan 24 "math" "is_nan" Call, Test(Float), int [] float [] ulp 0
        "Whether the operand is a NaN.";
    IsInf 25 "math" "is_inf" Call, Test(Float), int [] float [] ulp 0
        "Whether the operand is plus or minus infinity.";
    IsFinite 26 "math" "is_finite" Call, Test(Float), int [] float [] ulp 0
        "Whether the operand is neither a NaN nor an infinity.";

    Fract 27 "math" "fract" Call, Same(1, Float), int [] float [] ulp 0 cost 2 expansion 0.0
        "x - floor(x), rounded, which gives 1 just below a whole number; infinities give NaN.";
    Modf 28 "math" "modf" Call, Same(1, Float), int [] float [Projection] ulp 0 cost 4 expansion 0.0
        "The fraction x - trunc(x) with the operand's sign, zero for infinities; `trunc` gives the whole part.";
    Frexp 29 "math" "frexp" Call, Same(1, Float), int [] float [Projection] ulp 0 cost 6 expansion 0.0
        "The fraction m, 0.5 <= abs(m) < 1, of x = m * 2^e; zeros, infinities and NaN give themselves.";
    FrexpExponent 90 "math" "frexp_exponent" Call, Gives(Float, ValueType::I32), int [] float [] ulp 0
        cost 6 expansion 0.0
        "The exponent e of x = m * 2^e with 0.5 <= abs(m) < 1; 0 for zeros, infinities and NaN.";
    Ldexp 91 "math" "ldexp" Call, Scale, int [] float [RightIdentity(Zero)] ulp 0 cost 12 expansion 0.0
        "x * 2^n, rounded once.";

    Exp 100 "math" "exp" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.03, 1.0
        "e to the power of the operand.";
    Exp2 101 "math" "exp2" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.08, 1.1
        "2 to the power of the operand.";
    Log 102 "math" "log" Call, Same(1, Float), int [] float [] ulp 8 expansion 0.94, 0.9
        "Natural logarithm; zeros give -infinity, negative numbers NaN.";
    Log2 103 "math" "log2" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.49, 0.9
        "Logarithm to base 2; zeros give -infinity, negative numbers NaN.";
    Pow 104 "math" "pow" Call, Same(2, Float), int [] float [] ulp 16 expansion 1.7, 1.0
        "The first operand to the power of the second, with the special cases of C's Annex F.";
    Sin 105 "math" "sin" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.21, 0.9
        "Sine of an angle in radians; infinities give NaN.";
    Cos 106 "math" "cos" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.21, 0.9
        "Cosine of an angle in radians; infinities give NaN.";
    Tan 107 "math" "tan" Call, Same(1, Float), int [] float [] ulp 8 expansion 2.5, 1.25
        "Tangent of an angle in radians; infinities give NaN.";
    Asin 108 "math" "asin" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.45, 0.9
        "Arc sine; NaN outside [-1, 1].";
    Acos 109 "math" "acos" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.5, 1.0
        "Arc cosine; NaN outside [-1, 1].";
    Atan 110 "math" "atan" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.8, 0.95
        "Arc tangent.";
    Atan2 111 "math" "atan2" Call, Same(2, Float), int [] float [] ulp 8 expansion 1.95, 1.7
        "The angle of the point with ordinate y, the first operand, and abscissa x; special cases as in C's Annex F.";
    Sinh 112 "math" "sinh" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.75, 2.3
        "Hyperbolic sine.";
    Cosh 113 "math" "cosh" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.75, 1.45
        "Hyperbolic cosine.";
    Tanh 114 "math" "tanh" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.45, 2.5
        "Hyperbolic tangent.";
    Erf 115 "math" "erf" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.42, 1.35
        "The error function.";
    Cbrt 116 "math" "cbrt" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.75, 0.95
        "Cube root, also of negative numbers.";
    ExpM1 117 "math" "exp_m1" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.85, 1.8
        "e to the power of the operand, minus 1; accurate also where the result is close to 0.";
    Log10 118 "math" "log10" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.05, 0.85
        "Logarithm to base 10; zeros give -infinity, negative numbers NaN.";
    Log1p 119 "math" "log_1p" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.05, 0.95
        "Natural logarithm of 1 plus the operand, accurate also for operands close to 0; -1 gives -infinity, operands below it NaN.";
    Asinh 120 "math" "asinh" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.9, 1.9
        "Inverse hyperbolic sine.";
    Acosh 121 "math" "acosh" Call, Same(1, Float), int [] float [] ulp 8 expansion 2.3, 2.5
        "Inverse hyperbolic cosine; NaN below 1.";
    Atanh 122 "math" "atanh" Call, Same(1, Float), int [] float [] ulp 8 expansion 1.9, 1.8
        "Inverse hyperbolic tangent; 1 and -1 give infinities, operands beyond them NaN.";
    Hypot 123 "math" "hypot" Call, Same(2, Float), int [] float [Commutative] ulp 8 expansion 1.25, 1.3
        "The root of the sum of squares, without intermediate overflow; an infinity wins over a NaN.";

    And 30 "bits" "and" Infix("&", 7), Same(2, Bits),
        int [Commutative, Associative, Idempotent, LeftIdentity(AllOnes), RightIdentity(AllOnes),
             LeftAbsorbing(Zero), RightAbsorbing(Zero)] float [] ulp 0
        "Bitwise and; on bool, logical and of two evaluated operands.";
    Or 31 "bits" "or" Infix("|", 5), Same(2, Bits),
        int [Commutative, Associative, Idempotent, LeftIdentity(Zero), RightIdentity(Zero),
             LeftAbsorbing(AllOnes), RightAbsorbing(AllOnes)] float [] ulp 0
        "Bitwise or; on bool, logical or of two evaluated operands.";
    Xor 32 "bits" "xor" Infix("^", 6), Same(2, Bits),
        int [Commutative, Associative, LeftIdentity(Zero), RightIdentity(Zero), SelfGives(Zero)] float [] ulp 0
        "Bitwise exclusive or.";
    Not 33 "bits" "not" Prefix("!"), Same(1, Bits), int [Involution] float [] ulp 0
        "Bitwise complement; on bool, negation.";
    Shl 34 "bits" "shl" Infix("<<", 8), Shift, int [LeftAbsorbing(Zero), RightIdentity(Zero)] float [] ulp 0
        "Left shift; the count is taken modulo the width.";
    Shr 35 "bits" "shr" Infix(">>", 8), Shift, int [LeftAbsorbing(Zero), RightIdentity(Zero)] float [] ulp 0
        "Right shift, arithmetic on signed integers; the count is taken modulo the width.";
    RotateLeft 36 "bits" "rotate_left" Call, Shift, int [LeftAbsorbing(Zero), RightIdentity(Zero)] float [] ulp 0
        "Left rotation; the count is taken modulo the width.";
    RotateRight 37 "bits" "rotate_right" Call, Shift, int [LeftAbsorbing(Zero), RightIdentity(Zero)] float [] ulp 0
        "Right rotation; the count is taken modulo the width.";
    Popcount 38 "bits" "popcount" Call, Count(Integer), int [] float [] ulp 0
        "The number of set bits.";
    Clz 39 "bits" "clz" Call, Count(Integer), int [] float [] ulp 0
        "The number of zero bits above the highest set bit; the width for 0.";
    Ctz 40 "bits" "ctz" Call, Count(Integer), int [] float [] ulp 0
        "The number of zero bits below the lowest set bit; the width for 0.";
    ReverseBits 41 "bits" "reverse_bits" Call, Same(1, Integer), int [Involution] float [] ulp 0
        "The bits in reverse order.";

    ExtractBits 42 "bits" "extract_bits" Call, Field(1), int [] float [] ulp 0 cost 4 expansion 0.0
        "The given number of bits from the offset up, moved to the bottom and extended by the type's sign; bits past the width are cut off.";
    InsertBits 43 "bits" "insert_bits" Call, Field(2), int [] float [] ulp 0 cost 6 expansion 0.0
        "The first operand with the given number of bits from the offset up replaced by the lowest bits of the second; bits past the width are cut off.";

    Eq 50 "compare" "eq" Infix("==", 4), Compare(Any), int [Commutative, SelfGives(One)] float [Commutative] ulp 0
        "Whether the operands are equal; false with a NaN.";
    Ne 51 "compare" "ne" Infix("!=", 4), Compare(Any), int [Commutative, SelfGives(Zero)] float [Commutative] ulp 0
        "Whether the operands differ; true with a NaN.";
    Lt 52 "compare" "lt" Infix("<", 4), Compare(Number), int [SelfGives(Zero)] float [SelfGives(Zero)] ulp 0
        "Whether the first operand is below the second; false with a NaN.";
    Le 53 "compare" "le" Infix("<=", 4), Compare(Number), int [SelfGives(One)] float [] ulp 0
        "Whether the first operand is not above the second; false with a NaN.";
    Gt 54 "compare" "gt" Infix(">", 4), Compare(Number), int [SelfGives(Zero)] float [SelfGives(Zero)] ulp 0
        "Whether the first operand is above the second; false with a NaN.";
    Ge 55 "compare" "ge" Infix(">=", 4), Compare(Number), int [SelfGives(One)] float [] ulp 0
        "Whether the first operand is not below the second; false with a NaN.";

    Select 60 "logic" "select" Call, Select, int [] float [] ulp 0
        "The second operand if the first is true, else the third; both are evaluated.";

    ToBool 70 "convert" "bool" Call, Cast(ValueType::Bool), int [] float [] ulp 0
        "Whether the operand is not zero; a NaN is not zero.";
    ToU32 71 "convert" "u32" Call, Cast(ValueType::U32), int [] float [] ulp 0
        "Conversion to u32: integers keep the low bits, floats truncate and saturate, NaN gives 0.";
    ToI32 72 "convert" "i32" Call, Cast(ValueType::I32), int [] float [] ulp 0
        "Conversion to i32: integers keep the low bits, floats truncate and saturate, NaN gives 0.";
    ToU64 73 "convert" "u64" Call, Cast(ValueType::U64), int [] float [] ulp 0
        "Conversion to u64: integers extend by their own sign, floats truncate and saturate, NaN gives 0.";
    ToI64 74 "convert" "i64" Call, Cast(ValueType::I64), int [] float [] ulp 0
        "Conversion to i64: integers extend by their own sign, floats truncate and saturate, NaN gives 0.";
    ToF32 75 "convert" "f32" Call, Cast(ValueType::F32), int [] float [] ulp 0
        "Conversion to f32, rounded once to nearest even.";
    ToF64 76 "convert" "f64" Call, Cast(ValueType::F64), int [] float [] ulp 0
        "Conversion to f64, rounded once to nearest even.";

    BitsU32 80 "convert" "bitcast_u32" Call, Bitcast(ValueType::U32), int [] float [] ulp 0
        "The operand's bits as u32; a NaN gives the bits of the canonical NaN.";
    BitsI32 81 "convert" "bitcast_i32" Call, Bitcast(ValueType::I32), int [] float [] ulp 0
        "The operand's bits as i32; a NaN gives the bits of the canonical NaN.";
    BitsU64 82 "convert" "bitcast_u64" Call, Bitcast(ValueType::U64), int [] float [] ulp 0
        "The operand's bits as u64; a NaN gives the bits of the canonical NaN.";
    BitsI64 83 "convert" "bitcast_i64" Call, Bitcast(ValueType::I64), int [] float [] ulp 0
        "The operand's bits as i64; a NaN gives the bits of the canonical NaN.";
    BitsF32 84 "convert" "bitcast_f32" Call, Bitcast(ValueType::F32), int [] float [] ulp 0
        "The operand's bits as f32.";
    BitsF64 85 "convert" "bitcast_f64" Call, Bitcast(ValueType::F64), int [] float [] ulp 0
        "The operand's bits as f64.";
    F16Bits 86 "convert" "f16_bits" Call, Count(F32), int [] float [] ulp 0 cost 8 expansion 0.0
        "The bits of the nearest f16, ties to even; a NaN gives 0x7e00.";
    BitsF16 87 "convert" "bits_f16" Call, Gives(U32, ValueType::F32), int [] float [] ulp 0 cost 8 expansion 0.0
        "The number whose f16 bits are the operand's low 16.";
    Bf16Bits 88 "convert" "bf16_bits" Call, Count(F32), int [] float [] ulp 0 cost 4 expansion 0.0
        "The bits of the nearest bf16, ties to even; a NaN gives 0x7fc0.";
    BitsBf16 89 "convert" "bits_bf16" Call, Gives(U32, ValueType::F32), int [] float [] ulp 0 expansion 0.0
        "The number whose bf16 bits are the operand's low 16.";
}

/// Pattern of all ops with an [expansion](crate::math), for consumers that run after expansion.
#[doc(hidden)]
#[macro_export]
macro_rules! expanded_op {
    () => {
        $crate::ops::Op::Exp
            | $crate::ops::Op::Exp2
            | $crate::ops::Op::Log
            | $crate::ops::Op::Log2
            | $crate::ops::Op::Pow
            | $crate::ops::Op::Sin
            | $crate::ops::Op::Cos
            | $crate::ops::Op::Tan
            | $crate::ops::Op::Asin
            | $crate::ops::Op::Acos
            | $crate::ops::Op::Atan
            | $crate::ops::Op::Atan2
            | $crate::ops::Op::Sinh
            | $crate::ops::Op::Cosh
            | $crate::ops::Op::Tanh
            | $crate::ops::Op::Erf
            | $crate::ops::Op::Cbrt
            | $crate::ops::Op::ExpM1
            | $crate::ops::Op::Log10
            | $crate::ops::Op::Log1p
            | $crate::ops::Op::Asinh
            | $crate::ops::Op::Acosh
            | $crate::ops::Op::Atanh
            | $crate::ops::Op::Hypot
            | $crate::ops::Op::Fract
            | $crate::ops::Op::Modf
            | $crate::ops::Op::Frexp
            | $crate::ops::Op::FrexpExponent
            | $crate::ops::Op::Ldexp
            | $crate::ops::Op::ExtractBits
            | $crate::ops::Op::InsertBits
            | $crate::ops::Op::F16Bits
            | $crate::ops::Op::BitsF16
            | $crate::ops::Op::Bf16Bits
            | $crate::ops::Op::BitsBf16
    };
}

impl Op {
    /// The op's row.
    pub fn row(self) -> &'static OpRow {
        &Op::ROWS[self as usize]
    }

    /// The op with that name, if there is one.
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ROWS.iter().find(|row| row.name == name).map(|row| row.op)
    }

    /// The op with that wire tag, if there is one.
    pub fn from_tag(tag: u8) -> Option<Op> {
        const BY_TAG: [Option<Op>; 256] = {
            let mut by_tag = [None; 256];
            let mut k = 0;
            while k < Op::ROWS.len() {
                by_tag[Op::ROWS[k].tag as usize] = Some(Op::ROWS[k].op);
                k += 1;
            }
            by_tag
        };
        BY_TAG[usize::from(tag)]
    }

    /// `primitive.<family>.<name>`.
    pub fn id(self) -> OpId {
        static IDS: LazyLock<Vec<OpId>> = LazyLock::new(|| {
            let id = |row: &OpRow| OpId::new(format!("primitive.{}.{}", row.family, row.name));
            Op::ROWS.iter().map(id).collect()
        });
        IDS[self as usize].clone()
    }

    /// The conversion to `to`.
    pub fn cast(to: ValueType) -> Op {
        match to {
            ValueType::Bool => Op::ToBool,
            ValueType::U32 => Op::ToU32,
            ValueType::I32 => Op::ToI32,
            ValueType::U64 => Op::ToU64,
            ValueType::I64 => Op::ToI64,
            ValueType::F32 => Op::ToF32,
            ValueType::F64 => Op::ToF64,
        }
    }

    /// The op that reinterprets bits as `to`; `None` for `bool`, which has no bit representation.
    pub fn bitcast(to: ValueType) -> Option<Op> {
        match to {
            ValueType::Bool => None,
            ValueType::U32 => Some(Op::BitsU32),
            ValueType::I32 => Some(Op::BitsI32),
            ValueType::U64 => Some(Op::BitsU64),
            ValueType::I64 => Some(Op::BitsI64),
            ValueType::F32 => Some(Op::BitsF32),
            ValueType::F64 => Some(Op::BitsF64),
        }
    }

    /// The error bound of an op with an expansion, for operands of type `ty`.
    pub fn expansion_error(self, ty: ValueType) -> Option<f32> {
        let [single, other] = self.row().expansion_error?;
        Some(if ty == ValueType::F32 { single } else { other })
    }

    /// The laws that hold on operands of type `ty`.
    pub fn laws(self, ty: ValueType) -> &'static [Law] {
        if ty.is_float() { self.row().float_laws } else { self.row().integer_laws }
    }
}

/// An atomic access to one integer in memory; each returns the previous value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AtomicOp {
    /// Adds, wrapping.
    Add,
    /// Keeps the smaller.
    Min,
    /// Keeps the larger.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Replaces.
    Exchange,
    /// Replaces the value if it equals the expected one; the operands are expected, then new.
    CompareExchange,
    /// Reads.
    Load,
    /// Writes; like [`Exchange`](AtomicOp::Exchange) with the result unused.
    Store,
}

/// One row of the table of atomics.
#[derive(Debug)]
pub struct AtomicRow {
    /// The op that the row describes.
    pub op: AtomicOp,
    /// Wire tag; never reused.
    pub tag: u8,
    /// The last part of the id `primitive.atomic.<name>`; text calls it `atomic_<name>`.
    pub name: &'static str,
    /// The pure op that combines the old value with the operand; `None` for exchanges, loads and
    /// stores.
    pub combine: Option<Op>,
    /// What the op does, in one sentence.
    pub doc: &'static str,
}

const ATOMIC_ROWS: [AtomicRow; 10] = {
    const fn row(
        op: AtomicOp,
        tag: u8,
        name: &'static str,
        combine: Option<Op>,
        doc: &'static str,
    ) -> AtomicRow {
        AtomicRow { op, tag, name, combine, doc }
    }
    [
        row(AtomicOp::Add, 1, "add", Some(Op::Add), "Adds to an element, wrapping."),
        row(AtomicOp::Min, 2, "min", Some(Op::Min), "Lowers an element to the operand."),
        row(AtomicOp::Max, 3, "max", Some(Op::Max), "Raises an element to the operand."),
        row(AtomicOp::And, 4, "and", Some(Op::And), "Clears the bits that the operand lacks."),
        row(AtomicOp::Or, 5, "or", Some(Op::Or), "Sets the bits that the operand has."),
        row(AtomicOp::Xor, 6, "xor", Some(Op::Xor), "Flips the bits that the operand has."),
        row(AtomicOp::Exchange, 7, "exchange", None, "Replaces an element."),
        row(
            AtomicOp::CompareExchange,
            8,
            "compare_exchange",
            None,
            "Replaces an element that equals the expected value.",
        ),
        row(
            AtomicOp::Load,
            9,
            "load",
            None,
            "Reads an element that other invocations may change concurrently.",
        ),
        row(
            AtomicOp::Store,
            10,
            "store",
            None,
            "Replaces an element that other invocations may read concurrently.",
        ),
    ]
};

impl AtomicOp {
    /// Every atomic, in table order.
    pub const ALL: [AtomicOp; 10] = [
        AtomicOp::Add,
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::And,
        AtomicOp::Or,
        AtomicOp::Xor,
        AtomicOp::Exchange,
        AtomicOp::CompareExchange,
        AtomicOp::Load,
        AtomicOp::Store,
    ];

    /// The op's row.
    pub fn row(self) -> &'static AtomicRow {
        &ATOMIC_ROWS[self as usize]
    }

    /// The atomic with that name (without `atomic_`), if there is one.
    pub fn from_name(name: &str) -> Option<AtomicOp> {
        ATOMIC_ROWS.iter().find(|row| row.name == name).map(|row| row.op)
    }

    /// The atomic with that wire tag, if there is one.
    pub fn from_tag(tag: u8) -> Option<AtomicOp> {
        ATOMIC_ROWS.iter().find(|row| row.tag == tag).map(|row| row.op)
    }

    /// `primitive.atomic.<name>`.
    pub fn id(self) -> OpId {
        OpId::new(format!("primitive.atomic.{}", self.row().name))
    }

    /// Operands besides the element: none for a load, two for compare-exchange, one for the others.
    pub fn operands(self) -> usize {
        match self {
            AtomicOp::Load => 0,
            AtomicOp::CompareExchange => 2,
            AtomicOp::Add | AtomicOp::Min | AtomicOp::Max | AtomicOp::And | AtomicOp::Or => 1,
            AtomicOp::Xor | AtomicOp::Exchange | AtomicOp::Store => 1,
        }
    }
}

/// How a subgroup reduction or scan combines lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Combine {
    /// Sum.
    Add,
    /// Product.
    Mul,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl Combine {
    /// Every combining op, in table order.
    pub const ALL: [Combine; 7] =
        [Combine::Add, Combine::Mul, Combine::Min, Combine::Max, Combine::And, Combine::Or, Combine::Xor];

    /// The pure op that combines two lanes.
    pub fn op(self) -> Op {
        match self {
            Combine::Add => Op::Add,
            Combine::Mul => Op::Mul,
            Combine::Min => Op::Min,
            Combine::Max => Op::Max,
            Combine::And => Op::And,
            Combine::Or => Op::Or,
            Combine::Xor => Op::Xor,
        }
    }

    /// The value that an exclusive scan gives the first lane.
    pub fn identity(self, ty: ValueType) -> Value {
        let element = match self {
            Combine::Add | Combine::Or | Combine::Xor => Zero,
            Combine::Mul => One,
            Combine::Min => Greatest,
            Combine::Max => Least,
            Combine::And => AllOnes,
        };
        // Only `AllOnes` is missing from some types, and `and` does not take floats.
        element.of(ty).unwrap_or(Value::zero(ty))
    }
}

/// An exchange between the lanes of a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SubgroupOp {
    /// Number of lanes in a subgroup, as `u32`.
    Size,
    /// This invocation's lane, as `u32`.
    Lane,
    /// Index of this invocation's subgroup in its workgroup, as `u32`.
    Id,
    /// Number of subgroups in a workgroup, as `u32`.
    Count,
    /// The lanes whose operand is true, as bits of a `u64`.
    Ballot,
    /// The first operand of the lane given by the second, which is the same in all lanes.
    Broadcast,
    /// The first operand of the lane given by the second.
    Shuffle,
    /// All lanes combined, in lane order.
    Reduce(Combine),
    /// This lane and those below it combined, in lane order.
    Inclusive(Combine),
    /// The lanes below this one combined, in lane order; the first lane gets the identity.
    Exclusive(Combine),
}

/// One row of the table of subgroup ops.
#[derive(Debug)]
pub struct SubgroupRow {
    /// Wire tag; never reused.
    pub tag: u8,
    /// The last part of the id `primitive.subgroup.<name>`; text calls it `subgroup_<name>`.
    pub name: String,
    /// Number of operands.
    pub arity: usize,
    /// What the op does, in one sentence.
    pub doc: &'static str,
}

impl SubgroupOp {
    /// Every subgroup op, in table order.
    pub fn all() -> impl Iterator<Item = SubgroupOp> {
        use SubgroupOp::{Ballot, Broadcast, Count, Exclusive, Id, Inclusive, Lane, Reduce, Shuffle, Size};
        let plain = [Size, Lane, Id, Count, Ballot, Broadcast, Shuffle];
        let combined = [Reduce as fn(Combine) -> SubgroupOp, Inclusive, Exclusive];
        plain.into_iter().chain(combined.into_iter().flat_map(|make| Combine::ALL.into_iter().map(make)))
    }

    /// Wire tag; never reused.
    pub fn tag(self) -> u8 {
        match self {
            SubgroupOp::Size => 1,
            SubgroupOp::Lane => 2,
            SubgroupOp::Ballot => 3,
            SubgroupOp::Broadcast => 4,
            SubgroupOp::Shuffle => 5,
            SubgroupOp::Id => 6,
            SubgroupOp::Count => 7,
            SubgroupOp::Reduce(combine) => 20 + combine as u8,
            SubgroupOp::Inclusive(combine) => 40 + combine as u8,
            SubgroupOp::Exclusive(combine) => 60 + combine as u8,
        }
    }

    /// The op's row.
    pub fn row(self) -> SubgroupRow {
        let row = |name: &str, arity, doc| SubgroupRow { tag: self.tag(), name: name.into(), arity, doc };
        let combined = |prefix: &str, combine: Combine, doc| {
            row(&format!("{prefix}_{}", combine.op().row().name), 1, doc)
        };
        match self {
            SubgroupOp::Size => row("size", 0, "The number of lanes in a subgroup."),
            SubgroupOp::Lane => row("lane", 0, "This invocation's lane in its subgroup."),
            SubgroupOp::Id => row("id", 0, "The number of this invocation's subgroup in its workgroup."),
            SubgroupOp::Count => {
                row("count", 0, "The number of subgroups in a workgroup, the last of which may be partial.")
            }
            SubgroupOp::Ballot => row("ballot", 1, "The lanes whose operand is true, as bits of a u64."),
            SubgroupOp::Broadcast => row(
                "broadcast",
                2,
                "The value of the lane given by the second operand, which is the same in all lanes.",
            ),
            SubgroupOp::Shuffle => row("shuffle", 2, "The value of the lane given by the second operand."),
            SubgroupOp::Reduce(c) => combined("reduce", c, "All lanes combined, in lane order."),
            SubgroupOp::Inclusive(c) => {
                combined("inclusive", c, "This lane and those below it combined, in lane order.")
            }
            SubgroupOp::Exclusive(c) => {
                combined("exclusive", c, "The lanes below this one combined, in lane order.")
            }
        }
    }

    /// The subgroup op with that name (without `subgroup_`), if there is one.
    pub fn from_name(name: &str) -> Option<SubgroupOp> {
        SubgroupOp::all().find(|op| op.row().name == name)
    }

    /// The subgroup op with that wire tag, if there is one.
    pub fn from_tag(tag: u8) -> Option<SubgroupOp> {
        SubgroupOp::all().find(|op| op.tag() == tag)
    }

    /// `primitive.subgroup.<name>`.
    pub fn id(self) -> OpId {
        OpId::new(format!("primitive.subgroup.{}", self.row().name))
    }

    /// The result type for these operand types, or `None` if the op does not take them.
    pub fn result(self, args: &[ValueType]) -> Option<ValueType> {
        match (self, args) {
            (SubgroupOp::Size | SubgroupOp::Lane | SubgroupOp::Id | SubgroupOp::Count, []) => {
                Some(ValueType::U32)
            }
            (SubgroupOp::Ballot, [ValueType::Bool]) => Some(ValueType::U64),
            (SubgroupOp::Broadcast | SubgroupOp::Shuffle, &[value, ValueType::U32]) => Some(value),
            (SubgroupOp::Reduce(c) | SubgroupOp::Inclusive(c) | SubgroupOp::Exclusive(c), &[value]) => {
                // Booleans combine through `ballot`, which also covers every use of a scan.
                (value != ValueType::Bool).then(|| c.op().row().signature.result(&[value, value])).flatten()
            }
            (SubgroupOp::Size | SubgroupOp::Lane | SubgroupOp::Id | SubgroupOp::Count, _)
            | (SubgroupOp::Ballot, _)
            | (SubgroupOp::Broadcast | SubgroupOp::Shuffle, _)
            | (SubgroupOp::Reduce(_) | SubgroupOp::Inclusive(_) | SubgroupOp::Exclusive(_), _) => None,
        }
    }
}

/// An exchange between the invocations of a workgroup; each is also a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkgroupOp {
    /// The operand of the workgroup's first invocation.
    Broadcast,
}

/// One row of the table of workgroup ops.
#[derive(Debug)]
pub struct WorkgroupRow {
    /// Wire tag; never reused.
    pub tag: u8,
    /// The last part of the id `primitive.workgroup.<name>`; text calls it `workgroup_<name>`.
    pub name: &'static str,
    /// Number of operands.
    pub arity: usize,
    /// What the op does, in one sentence.
    pub doc: &'static str,
}

impl WorkgroupOp {
    /// Every workgroup op, in table order.
    pub const ALL: [WorkgroupOp; 1] = [WorkgroupOp::Broadcast];

    /// The op's row.
    pub fn row(self) -> &'static WorkgroupRow {
        match self {
            WorkgroupOp::Broadcast => &WorkgroupRow {
                tag: 1,
                name: "broadcast",
                arity: 1,
                doc: "The value of invocation 0 of the workgroup, for all its invocations; also a barrier.",
            },
        }
    }

    /// The workgroup op with that name (without `workgroup_`), if there is one.
    pub fn from_name(name: &str) -> Option<WorkgroupOp> {
        WorkgroupOp::ALL.into_iter().find(|op| op.row().name == name)
    }

    /// The workgroup op with that wire tag, if there is one.
    pub fn from_tag(tag: u8) -> Option<WorkgroupOp> {
        WorkgroupOp::ALL.into_iter().find(|op| op.row().tag == tag)
    }

    /// `primitive.workgroup.<name>`.
    pub fn id(self) -> OpId {
        OpId::new(format!("primitive.workgroup.{}", self.row().name))
    }
}
