//! Literals: numbers with their types, and quoted text. Reading and writing stand side by side so that they agree.

use crate::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, Value, ValueType};
use std::fmt::{self, Write};

/// The types that a number can name as its suffix.
const SUFFIXES: [ValueType; 6] =
    [ValueType::U32, ValueType::I32, ValueType::U64, ValueType::I64, ValueType::F32, ValueType::F64];

/// Why a number cannot be read, and what to write instead.
pub(super) struct BadNumber {
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// The value of a number such as `3`, `0xffu32`, `1_000i64`, `1.5` or `2e-3f64`, with a minus before it or not.
pub(super) fn read_number(text: &str, negative: bool) -> Result<Value, BadNumber> {
    let plain: String = text.chars().filter(|&c| c != '_').collect();
    let hexadecimal = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X"));
    let (body, radix) = hexadecimal.map_or((plain.as_str(), 10), |digits| (digits, 16));
    // `f32` at the end of a hexadecimal number is three digits.
    let suffixes = SUFFIXES.into_iter().filter(|ty| radix == 10 || ty.is_integer());
    let suffix = suffixes.clone().find(|ty| body.ends_with(ty.name()));
    let digits = suffix.map_or(body, |ty| &body[..body.len() - ty.name().len()]);
    let fractional = radix == 10 && digits.contains(['.', 'e', 'E']);
    let ty = suffix.unwrap_or(if fractional { ValueType::F32 } else { ValueType::U32 });
    let shown = if negative { format!("-{text}") } else { text.to_string() };
    if ty.is_float() {
        read_float(digits, ty, negative, &shown)
    } else if fractional {
        Err(BadNumber {
            message: format!("`{shown}` is not a whole number, but {ty} is its type"),
            help: None,
        })
    } else {
        read_integer(digits, radix, ty, negative)
            .ok_or_else(|| bad_integer(&shown, ty, suffix.is_none(), negative))
    }
}

fn read_integer(digits: &str, radix: u32, ty: ValueType, negative: bool) -> Option<Value> {
    if negative && !ty.is_signed_integer() {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let number = if negative { -magnitude } else { magnitude };
    match ty {
        ValueType::U32 => u32::try_from(number).ok().map(Value::U32),
        ValueType::I32 => i32::try_from(number).ok().map(Value::I32),
        ValueType::U64 => u64::try_from(number).ok().map(Value::U64),
        ValueType::I64 => i64::try_from(number).ok().map(Value::I64),
        ValueType::Bool | ValueType::F32 | ValueType::F64 => None,
    }
}

fn bad_integer(shown: &str, ty: ValueType, by_default: bool, negative: bool) -> BadNumber {
    let help = match (negative, by_default) {
        (true, true) => {
            Some(format!("give it a signed type, as in `{shown}i32`, or a point, as in `{shown}.0`"))
        }
        (true, false) if !ty.is_signed_integer() => {
            Some("give it a signed type, or negate with parentheses".into())
        }
        (false, true) => Some("give it a wider type by a suffix, as in `7u64`".into()),
        (true | false, false) => None,
    };
    let message = if negative && !ty.is_signed_integer() {
        format!("`{shown}` is negative, but {ty} has no negative numbers")
    } else {
        format!("`{shown}` is not a number of type {ty}")
    };
    BadNumber { message, help }
}

fn read_float(digits: &str, ty: ValueType, negative: bool, shown: &str) -> Result<Value, BadNumber> {
    let bad = |message: String| BadNumber { message, help: None };
    let unreadable = || bad(format!("`{shown}` is not a number"));
    let (value, finite) = if ty == ValueType::F32 {
        let x: f32 = digits.parse().map_err(|_| unreadable())?;
        (Value::F32(if negative { -x } else { x }), x.is_finite())
    } else {
        let x: f64 = digits.parse().map_err(|_| unreadable())?;
        (Value::F64(if negative { -x } else { x }), x.is_finite())
    };
    if finite { Ok(value) } else { Err(bad(format!("`{shown}` is beyond the range of {ty}"))) }
}

/// The number that the word stands for, such as `inf`.
pub(super) fn read_word(word: &str, negative: bool) -> Option<Value> {
    let sign32 = if negative { 1 << 31 } else { 0 };
    let sign64 = if negative { 1 << 63 } else { 0 };
    match word {
        "inf" => Some(Value::F32(f32::from_bits(f32::INFINITY.to_bits() | sign32))),
        "nan" => Some(Value::F32(f32::from_bits(CANONICAL_NAN_F32 | sign32))),
        "inf_f64" => Some(Value::F64(f64::from_bits(f64::INFINITY.to_bits() | sign64))),
        "nan_f64" => Some(Value::F64(f64::from_bits(CANONICAL_NAN_F64 | sign64))),
        _ => None,
    }
}

/// Writes a literal so that reading gives the same bits.
pub(super) fn write_value(out: &mut impl Write, value: Value) -> fmt::Result {
    match value {
        Value::Bool(x) => write!(out, "{x}"),
        Value::U32(x) => write!(out, "{x}"),
        Value::I32(x) => write!(out, "{x}i32"),
        Value::U64(x) => write!(out, "{x}u64"),
        Value::I64(x) => write!(out, "{x}i64"),
        Value::F32(x) if x.is_finite() => write!(out, "{x:?}"),
        Value::F64(x) if x.is_finite() => write!(out, "{x:?}f64"),
        Value::F32(x) if x.to_bits() == CANONICAL_NAN_F32 => out.write_str("nan"),
        Value::F64(x) if x.to_bits() == CANONICAL_NAN_F64 => out.write_str("nan_f64"),
        Value::F32(x) if x.is_nan() => write!(out, "f32_bits({:#010x})", x.to_bits()),
        Value::F64(x) if x.is_nan() => write!(out, "f64_bits({:#018x}u64)", x.to_bits()),
        Value::F32(x) => write!(out, "{}inf", if x < 0.0 { "-" } else { "" }),
        Value::F64(x) => write!(out, "{}inf_f64", if x < 0.0 { "-" } else { "" }),
    }
}

/// What stands between the quotes, its escapes replaced; `None` if one of them is unknown.
pub(super) fn unquote(inside: &str) -> Option<String> {
    let mut text = String::with_capacity(inside.len());
    let mut rest = inside;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let escape = after.chars().next()?;
        rest = &after[escape.len_utf8()..];
        match escape {
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            '\\' | '"' | '`' => text.push(escape),
            'u' => {
                let (digits, after) = rest.strip_prefix('{')?.split_once('}')?;
                text.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
                rest = after;
            }
            _ => return None,
        }
    }
    text.push_str(rest);
    Some(text)
}

/// Writes text between two `quote`s so that [`unquote`] gives it back; what would not show is escaped.
pub(super) fn write_quoted(out: &mut impl Write, text: &str, quote: char) -> fmt::Result {
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\\' => out.write_str("\\\\")?,
            _ if c == quote => write!(out, "\\{c}")?,
            '\'' | '"' | '`' => out.write_char(c)?,
            _ if c.escape_debug().len() > 1 => write!(out, "{}", c.escape_unicode())?,
            _ => out.write_char(c)?,
        }
    }
    out.write_char(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Value> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        read_word(digits, negative).or_else(|| read_number(digits, negative).ok())
    }

    #[test]
    fn numbers_have_the_type_of_their_suffix_or_shape() {
        let check = |text: &str, expected: Value| assert_eq!(read(text), Some(expected), "{text}");
        check("3", Value::U32(3));
        check("0xffu32", Value::U32(255));
        check("0xf32", Value::U32(0xF32));
        check("1_000_000", Value::U32(1_000_000));
        check("4294967295", Value::U32(u32::MAX));
        check("-2147483648i32", Value::I32(i32::MIN));
        check("-0x80000000i32", Value::I32(i32::MIN));
        check("18446744073709551615u64", Value::U64(u64::MAX));
        check("-9223372036854775808i64", Value::I64(i64::MIN));
        check("1.0", Value::F32(1.0));
        check("-0.0", Value::F32(-0.0));
        check("1e-3", Value::F32(1e-3));
        check("3f32", Value::F32(3.0));
        check("2.5e+2f64", Value::F64(250.0));
        check("1e-45", Value::F32(f32::from_bits(1)));
        check("-inf", Value::F32(f32::NEG_INFINITY));
        check("nan_f64", Value::F64(f64::from_bits(CANONICAL_NAN_F64)));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        for text in [
            "4294967296",
            "-1",
            "-1u64",
            "2147483648i32",
            "0x",
            "1e39",
            "1.5u32",
            "3x",
            "1e",
            "99999999999999999999",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn values_read_back_with_the_same_bits() {
        let mut bits = 1u64;
        for k in 0..20_000u64 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(k);
            for ty in ValueType::ALL {
                let value = Value::from_bits(ty, bits >> (k % 48));
                let mut text = String::new();
                write_value(&mut text, value).expect("a String takes all");
                if ty != ValueType::Bool && !text.contains("bits") {
                    assert_eq!(read(&text), Some(value), "{text}");
                }
            }
        }
    }

    #[test]
    fn quoted_text_survives() {
        for text in
            ["", "plain", "q\"`'\\", "\n\r\t\u{0}\u{7f}", "\u{202e}ü\u{301}€😀", "\u{2028}", "{}\\u{41}"]
        {
            for quote in ['"', '`'] {
                let mut written = String::new();
                write_quoted(&mut written, text, quote).expect("a String takes all");
                assert!(!written.contains('\n'));
                assert_eq!(unquote(&written[1..written.len() - 1]).as_deref(), Some(text), "{written}");
            }
        }
        for bad in ["\\", "\\x", "\\u", "\\u{", "\\u{d800}", "\\u{110000}", "\\u{}"] {
            assert_eq!(unquote(bad), None, "{bad}");
        }
    }
}
