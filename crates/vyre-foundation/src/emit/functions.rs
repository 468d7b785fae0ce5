//! Functions that the emitted text defines for ops without a C expression.
//!
//! A text begins with the result type, and the dialect's prefix is added before it. One text serves
//! several types, with these placeholders: `$t` is the type of the operands, `$u` the unsigned type
//! of the same width, `$nan` the bits of the float's canonical NaN, `$sign` its sign bit, `$whole`
//! the least power of two from which all floats are integers, `$i` an integer type that holds all
//! numbers below it, and `$bits` and `$float` the functions that convert a float to its bits and
//! back.

use super::dialect::Dialect;
use crate::types::ValueType;

/// A function for all its types; its name is `<stem>_<type>`.
#[derive(Debug)]
pub(super) struct DialectFunction {
    pub(super) stem: &'static str,
    pub(super) takes: Takes,
    pub(super) text: &'static str,
}

/// The types that a function's text supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Signed,
    Unsigned,
    Float,
    Only(ValueType),
    Anything,
}

impl Takes {
    fn contains(self, ty: ValueType) -> bool {
        match self {
            Takes::Signed => ty.is_signed_integer(),
            Takes::Unsigned => ty.is_integer() && !ty.is_signed_integer(),
            Takes::Float => ty.is_float(),
            Takes::Only(one) => ty == one,
            Takes::Anything => true,
        }
    }
}

/// The functions shared by all dialects.
static FUNCTIONS: &[DialectFunction] = &[
    DialectFunction {
        stem: "div",
        takes: Takes::Unsigned,
        text: "$t div_$t($t x, $t y) { return y == 0 ? x : x / y; }\n",
    },
    DialectFunction {
        stem: "div",
        takes: Takes::Signed,
        text: "$t div_$t($t x, $t y) { return y == 0 ? x : y == -1 ? ($t)(0 - ($u)x) : x / y; }\n",
    },
    DialectFunction {
        stem: "rem",
        takes: Takes::Unsigned,
        text: "$t rem_$t($t x, $t y) { return y == 0 ? 0 : x % y; }\n",
    },
    DialectFunction {
        stem: "rem",
        takes: Takes::Signed,
        text: "$t rem_$t($t x, $t y) { return y == 0 || y == -1 ? 0 : x % y; }\n",
    },
    DialectFunction {
        stem: "abs",
        takes: Takes::Signed,
        text: "$t abs_$t($t x) { return x < 0 ? ($t)(0 - ($u)x) : x; }\n",
    },
    DialectFunction {
        stem: "abs",
        takes: Takes::Float,
        text: "$t abs_$t($t x) { return $float($bits(x) & ~$sign); }\n",
    },
    DialectFunction {
        stem: "sign",
        takes: Takes::Unsigned,
        text: "$t sign_$t($t x) { return x == 0 ? 0 : 1; }\n",
    },
    DialectFunction {
        stem: "sign",
        takes: Takes::Signed,
        text: "$t sign_$t($t x) { return x == 0 ? 0 : x < 0 ? -1 : 1; }\n",
    },
    DialectFunction {
        stem: "sign",
        takes: Takes::Float,
        text: "$t sign_$t($t x) { return x == 0 ? x : x < 0 ? -1 : 1; }\n",
    },
    // Equal floats differ at most in the sign of zero.
    DialectFunction {
        stem: "min",
        takes: Takes::Float,
        text: "$t min_$t($t x, $t y) {
  const $t least = x == y ? $float($bits(x) | $bits(y)) : x < y ? x : y;
  return x != x ? y : y != y ? x : least;
}
",
    },
    DialectFunction {
        stem: "max",
        takes: Takes::Float,
        text: "$t max_$t($t x, $t y) {
  const $t most = x == y ? $float($bits(x) & $bits(y)) : x > y ? x : y;
  return x != x ? y : y != y ? x : most;
}
",
    },
    // The sign of a NaN counts as positive.
    DialectFunction {
        stem: "copysign",
        takes: Takes::Float,
        text: "$t copysign_$t($t x, $t y) {
  return $float(($bits(x) & ~$sign) | (y != y ? 0 : $bits(y) & $sign));
}
",
    },
    // From `$whole` on, every float is an integer. Below it, the conversion to `$i` is exact, and
    // adding and subtracting `$whole` leaves the nearest integer, ties to even.
    DialectFunction {
        stem: "trunc",
        takes: Takes::Float,
        text: "$t trunc_$t($t x) {
  if (!(x < $whole && x > -$whole)) return x;
  return $float($bits(($t)($i)x) | ($bits(x) & $sign));
}
",
    },
    DialectFunction {
        stem: "floor",
        takes: Takes::Float,
        text: "$t floor_$t($t x) {
  if (!(x < $whole && x > -$whole)) return x;
  const $t near = ($t)($i)x;
  return $float($bits(near > x ? near - 1 : near) | ($bits(x) & $sign));
}
",
    },
    DialectFunction {
        stem: "ceil",
        takes: Takes::Float,
        text: "$t ceil_$t($t x) {
  if (!(x < $whole && x > -$whole)) return x;
  const $t near = ($t)($i)x;
  return $float($bits(near < x ? near + 1 : near) | ($bits(x) & $sign));
}
",
    },
    DialectFunction {
        stem: "round",
        takes: Takes::Float,
        text: "$t round_$t($t x) {
  if (!(x < $whole && x > -$whole)) return x;
  const $t size = $float($bits(x) & ~$sign);
  return $float($bits((size + $whole) - $whole) | ($bits(x) & $sign));
}
",
    },
    DialectFunction {
        stem: "bits",
        takes: Takes::Float,
        text: "$u bits_$t($t x) { return x != x ? $nan : $bits(x); }\n",
    },
    DialectFunction {
        stem: "to_u32",
        takes: Takes::Float,
        text: "u32 to_u32_$t($t x) {
  return !(x > 0) ? 0u : x >= 4294967296.0f ? 4294967295u : (u32)x;
}
",
    },
    DialectFunction {
        stem: "to_i32",
        takes: Takes::Float,
        text: "i32 to_i32_$t($t x) {
  if (x != x) return 0;
  return x <= -2147483648.0f ? -2147483647 - 1 : x >= 2147483648.0f ? 2147483647 : (i32)x;
}
",
    },
    DialectFunction {
        stem: "to_u64",
        takes: Takes::Float,
        text: "u64 to_u64_$t($t x) {
  return !(x > 0) ? (u64)0 : x >= 18446744073709551616.0f ? ~(u64)0 : (u64)x;
}
",
    },
    DialectFunction {
        stem: "to_i64",
        takes: Takes::Float,
        text: "i64 to_i64_$t($t x) {
  if (x != x) return 0;
  const i64 most = (i64)(~(u64)0 >> 1);
  return x <= -9223372036854775808.0f ? -most - 1 : x >= 9223372036854775808.0f ? most : (i64)x;
}
",
    },
];

/// The text of the function with this stem for this type.
pub(super) fn text(dialect: &Dialect, stem: &str, ty: ValueType) -> String {
    let all = FUNCTIONS.iter().chain(dialect.functions);
    let Some(function) = all.into_iter().find(|f| f.stem == stem && f.takes.contains(ty)) else {
        unreachable!("the writer calls only functions of the table: {stem}_{ty}")
    };
    let wide = ty.bits() == 64;
    let suffix = dialect.wide_suffix[0];
    let nan = if wide { format!("0x7ff8000000000000{suffix}") } else { "0x7fc00000u".into() };
    let sign = if wide { format!("0x8000000000000000{suffix}") } else { "0x80000000u".into() };
    let [bits, float] = dialect.reinterpret[usize::from(wide)];
    format!("{} {}", dialect.function, function.text)
        .replace("$bits", bits)
        .replace("$float", float)
        .replace("$nan", &nan)
        .replace("$sign", &sign)
        .replace("$whole", if wide { "4503599627370496.0" } else { "8388608.0f" })
        .replace("$i", if wide { "i64" } else { "i32" })
        .replace("$t", ty.name())
        .replace("$u", unsigned(ty).name())
}

/// The unsigned integer type of the same width.
pub(super) fn unsigned(ty: ValueType) -> ValueType {
    if ty.bits() == 64 { ValueType::U64 } else { ValueType::U32 }
}
