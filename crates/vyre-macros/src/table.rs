//! Table of what kernels can call: methods of Rust's numbers, and functions of the crate `vyre`.
//! One row each.
//!
//! A method is listed if Rust and a kernel agree on it bit for bit, or if the host copy can be made
//! to agree ([`HostCall::Op`]). Methods on which they differ are listed with an alternative.

/// Types that an operand can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Float,
    /// `u32`, `i32`, `u64`, `i64`.
    Integer,
    /// Integers, including `usize`: the result does not depend on the width.
    Whole,
    /// The types of [`Integer`](Class::Integer), and floats.
    Number,
    /// Integers of any width, and floats: only their order matters.
    Ordered,
    Bool,
    /// Any value.
    Any,
    F32,
    U32,
}

/// Type of a result or further operand, relative to that of the first operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelativeType {
    Same,
    Bool,
    U32,
    I32,
    U64,
    F32,
    Usize,
    /// The unsigned integer of the same width.
    Unsigned,
}

/// What the host copy calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostCall {
    /// Rust's own method.
    Rust,
    /// The op of that name in the op table for floats; Rust's own method for integers.
    Op(&'static str),
    /// The bits of a float, with NaNs as a kernel has them.
    Bits,
}

/// A method of a number.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    /// How the text calls it: the name of an op, or a template in which `$` is replaced by the
    /// operands.
    pub(crate) text: &'static str,
    pub(crate) receiver: Class,
    pub(crate) operands: &'static [RelativeType],
    pub(crate) result: RelativeType,
    pub(crate) host: HostCall,
}

macro_rules! methods {
    ($($name:literal $text:literal $receiver:ident [$($operand:ident)*] $result:ident $host:expr;)*) => {
        static METHODS: &[Method] = &[$(Method {
            name: $name,
            text: $text,
            receiver: Class::$receiver,
            operands: &[$(RelativeType::$operand),*],
            result: RelativeType::$result,
            host: $host,
        },)*];
    };
}

methods! {
    "abs" "abs" Number [] Same HostCall::Rust;
    "min" "min" Ordered [Same] Same HostCall::Op("Min");
    "max" "max" Ordered [Same] Same HostCall::Op("Max");
    "clamp" "clamp" Ordered [Same Same] Same HostCall::Op("Clamp");
    "sqrt" "sqrt" Float [] Same HostCall::Rust;
    "floor" "floor" Float [] Same HostCall::Rust;
    "ceil" "ceil" Float [] Same HostCall::Rust;
    "trunc" "trunc" Float [] Same HostCall::Rust;
    "round_ties_even" "round" Float [] Same HostCall::Rust;
    "mul_add" "fma" Float [Same Same] Same HostCall::Rust;
    "copysign" "copysign" Float [Same] Same HostCall::Op("Copysign");
    "is_nan" "is_nan" Float [] Bool HostCall::Rust;
    "is_infinite" "is_inf" Float [] Bool HostCall::Rust;
    "is_finite" "is_finite" Float [] Bool HostCall::Rust;
    "exp" "exp" Float [] Same HostCall::Op("Exp");
    "exp2" "exp2" Float [] Same HostCall::Op("Exp2");
    "exp_m1" "exp_m1" Float [] Same HostCall::Op("ExpM1");
    "ln" "log" Float [] Same HostCall::Op("Log");
    "ln_1p" "log_1p" Float [] Same HostCall::Op("Log1p");
    "log2" "log2" Float [] Same HostCall::Op("Log2");
    "log10" "log10" Float [] Same HostCall::Op("Log10");
    "powf" "pow" Float [Same] Same HostCall::Op("Pow");
    "sin" "sin" Float [] Same HostCall::Op("Sin");
    "cos" "cos" Float [] Same HostCall::Op("Cos");
    "tan" "tan" Float [] Same HostCall::Op("Tan");
    "asin" "asin" Float [] Same HostCall::Op("Asin");
    "acos" "acos" Float [] Same HostCall::Op("Acos");
    "atan" "atan" Float [] Same HostCall::Op("Atan");
    "atan2" "atan2" Float [Same] Same HostCall::Op("Atan2");
    "sinh" "sinh" Float [] Same HostCall::Op("Sinh");
    "cosh" "cosh" Float [] Same HostCall::Op("Cosh");
    "tanh" "tanh" Float [] Same HostCall::Op("Tanh");
    "asinh" "asinh" Float [] Same HostCall::Op("Asinh");
    "acosh" "acosh" Float [] Same HostCall::Op("Acosh");
    "atanh" "atanh" Float [] Same HostCall::Op("Atanh");
    "cbrt" "cbrt" Float [] Same HostCall::Op("Cbrt");
    "hypot" "hypot" Float [Same] Same HostCall::Op("Hypot");
    "to_bits" "bitcast" Float [] Unsigned HostCall::Bits;
    "wrapping_add" "add" Integer [Same] Same HostCall::Rust;
    "wrapping_sub" "sub" Integer [Same] Same HostCall::Rust;
    "wrapping_mul" "mul" Integer [Same] Same HostCall::Rust;
    "wrapping_neg" "neg" Integer [] Same HostCall::Rust;
    "wrapping_shl" "shl" Integer [U32] Same HostCall::Rust;
    "wrapping_shr" "shr" Integer [U32] Same HostCall::Rust;
    "saturating_add" "sat_add" Integer [Same] Same HostCall::Rust;
    "saturating_sub" "sat_sub" Whole [Same] Same HostCall::Rust;
    "abs_diff" "abs_diff" Whole [Same] Unsigned HostCall::Rust;
    "rotate_left" "rotate_left" Integer [U32] Same HostCall::Rust;
    "rotate_right" "rotate_right" Integer [U32] Same HostCall::Rust;
    "count_ones" "popcount" Integer [] U32 HostCall::Rust;
    "leading_zeros" "clz" Integer [] U32 HostCall::Rust;
    "trailing_zeros" "ctz" Integer [] U32 HostCall::Rust;
    "reverse_bits" "reverse_bits" Integer [] Same HostCall::Rust;
}

impl Method {
    /// Whether it expands to many ops.
    pub(crate) fn is_long(&self) -> bool {
        self.receiver == Class::Float && matches!(self.host, HostCall::Op(_)) && self.text != "copysign"
    }
}

/// Finds a method by name.
pub(crate) fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// Why a Rust method is not allowed in a kernel, and what to write instead.
pub(crate) fn refused_method(name: &str) -> String {
    match name {
        "round" => "`round` takes ties away from zero in Rust and to even in a kernel; write `round_ties_even`",
        "signum" => "`signum` of 0.0 is 1.0 in Rust and 0.0 in a kernel; write `vyre::sign(x)`, or compare with zero",
        "fract" => "`fract` is `x - x.trunc()` in Rust and `x - x.floor()` in a kernel; write `vyre::fract(x)`, or one of these",
        "recip" => "kernels have no method `recip`; write `1.0 / x`",
        "powi" => "the bits of `powi` are not defined in Rust; write the product, or `powf`",
        "pow" => "kernels have no integer powers; write the product, or a loop",
        "sin_cos" => "kernels have no pairs; write `x.sin()` and `x.cos()`",
        "rem_euclid" | "div_euclid" => "kernels have no Euclidean division; write `%` and add what is missing",
        "is_sign_negative" | "is_sign_positive" => "the sign of a NaN cannot be seen in a kernel; compare with zero",
        "iter" | "iter_mut" | "into_iter" => "kernels have no iterators; write `for i in 0..x.len()`",
        "log" => "kernels have no logarithm to any base; write `ln`, `log2` or `log10`",
        "checked_add" | "checked_sub" | "checked_mul" | "checked_div" => {
            "kernels have no `Option`; compare, or write `wrapping_…` or `saturating_…`"
        }
        _ => return format!("kernels have no method `{name}`"),
    }
    .into()
}

/// A function of the crate `vyre` that kernels call.
#[derive(Debug)]
pub(crate) struct Intrinsic {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// Class of the first operand; `operands` gives the types of the others relative to it.
    pub(crate) first: Option<Class>,
    pub(crate) operands: &'static [RelativeType],
    pub(crate) result: RelativeType,
    /// Whether the text is a value, such as `invocation.x`, rather than the name of an op.
    pub(crate) place: bool,
    /// Whether it exchanges data between invocations, which `on_host` cannot do.
    pub(crate) exchanges: bool,
}

macro_rules! intrinsics {
    (
        places { $($place:literal $place_text:literal;)* }
        ops { $($op:literal $first:ident [$($operand:ident)*] $result:ident;)* }
        exchanges { $($exchange:literal ($($exchanged:ident)? $([$($further:ident)+])?) $gives:ident;)* }
    ) => {
        static INTRINSICS: &[Intrinsic] = &[
            $(Intrinsic {
                name: $place,
                text: $place_text,
                first: None,
                operands: &[],
                result: RelativeType::Usize,
                place: true,
                exchanges: false,
            },)*
            $(Intrinsic {
                name: $op,
                text: $op,
                first: Some(Class::$first),
                operands: &[$(RelativeType::$operand),*],
                result: RelativeType::$result,
                place: false,
                exchanges: false,
            },)*
            $(Intrinsic {
                name: $exchange,
                text: $exchange,
                first: intrinsics!(@first $($exchanged)?),
                operands: &[$($(RelativeType::$further),+)?],
                result: RelativeType::$gives,
                place: false,
                exchanges: true,
            },)*
        ];
    };
    (@first) => { None };
    (@first $class:ident) => { Some(Class::$class) };
}

intrinsics! {
    places {
        "index" "invocation.x";
        "index_y" "invocation.y";
        "index_z" "invocation.z";
        "local_index" "local.x";
        "local_index_y" "local.y";
        "local_index_z" "local.z";
        "workgroup_index" "workgroup.x";
        "workgroup_index_y" "workgroup.y";
        "workgroup_index_z" "workgroup.z";
        "workgroup_size" "workgroup_size.x";
        "workgroup_size_y" "workgroup_size.y";
        "workgroup_size_z" "workgroup_size.z";
        "workgroup_count" "grid_size.x";
        "workgroup_count_y" "grid_size.y";
        "workgroup_count_z" "grid_size.z";
    }
    ops {
        "rsqrt" Float [] Same;
        "fract" Float [] Same;
        "sign" Number [] Same;
        "erf" Float [] Same;
        "modf" Float [] Same;
        "frexp" Float [] Same;
        "frexp_exponent" Float [] I32;
        "ldexp" Float [I32] Same;
        "mul_hi" Integer [Same] Same;
        "extract_bits" Integer [U32 U32] Same;
        "insert_bits" Integer [Same U32 U32] Same;
        "f16_bits" F32 [] U32;
        "bits_f16" U32 [] F32;
        "bf16_bits" F32 [] U32;
        "bits_bf16" U32 [] F32;
    }
    exchanges {
        "workgroup_broadcast" (Any) Same;
        "subgroup_size" () U32;
        "subgroup_lane" () U32;
        "subgroup_id" () U32;
        "subgroup_count" () U32;
        "subgroup_ballot" (Bool) U64;
        "subgroup_broadcast" (Any [U32]) Same;
        "subgroup_shuffle" (Any [U32]) Same;
        "subgroup_reduce_add" (Number) Same;
        "subgroup_reduce_mul" (Number) Same;
        "subgroup_reduce_min" (Number) Same;
        "subgroup_reduce_max" (Number) Same;
        "subgroup_reduce_and" (Integer) Same;
        "subgroup_reduce_or" (Integer) Same;
        "subgroup_reduce_xor" (Integer) Same;
        "subgroup_inclusive_add" (Number) Same;
        "subgroup_inclusive_mul" (Number) Same;
        "subgroup_inclusive_min" (Number) Same;
        "subgroup_inclusive_max" (Number) Same;
        "subgroup_inclusive_and" (Integer) Same;
        "subgroup_inclusive_or" (Integer) Same;
        "subgroup_inclusive_xor" (Integer) Same;
        "subgroup_exclusive_add" (Number) Same;
        "subgroup_exclusive_mul" (Number) Same;
        "subgroup_exclusive_min" (Number) Same;
        "subgroup_exclusive_max" (Number) Same;
        "subgroup_exclusive_and" (Integer) Same;
        "subgroup_exclusive_or" (Integer) Same;
        "subgroup_exclusive_xor" (Integer) Same;
    }
}

impl Intrinsic {
    /// Whether the result depends on how invocations are grouped.
    pub(crate) fn is_shaped(&self) -> bool {
        self.exchanges || (self.place && !self.text.starts_with("invocation"))
    }

    /// Number of operands.
    pub(crate) fn arity(&self) -> usize {
        usize::from(self.first.is_some()) + self.operands.len()
    }
}

/// Finds an intrinsic by name.
pub(crate) fn intrinsic(name: &str) -> Option<&'static Intrinsic> {
    INTRINSICS.iter().find(|intrinsic| intrinsic.name == name)
}
