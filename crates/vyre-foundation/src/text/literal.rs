//! Literals: numbers with their types, and quoted text. Parsing and printing are kept together so
//! that they agree.

use crate::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, Value, ValueType};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The types that a number can name as its suffix.
const SUFFIXES: [ValueType; 6] =
    [ValueType::U32, ValueType::I32, ValueType::U64, ValueType::I64, ValueType::F32, ValueType::F64];

/// Whether a minus precedes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Plus,
    Minus,
}

/// Why a number is invalid, and what to write instead.
pub(super) struct BadNumber {
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// The parts of a number.
struct Number<'t> {
    sign: Sign,
    digits: &'t str,
    radix: u32,
    /// The type named by its suffix.
    suffix: Option<ValueType>,
}

/// The value of a number such as `3`, `0xffu32`, `1_000i64`, `1.5` or `2e-3f64`, optionally
/// negated.
pub(super) fn read_number(text: &str, sign: Sign) -> Result<Value, BadNumber> {
    if let Some(inside) = text.strip_prefix('\'') {
        return read_character(inside, text, sign);
    }
    let plain: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    let number = Number::new(&plain, sign);
    number.value().ok_or_else(|| number.bad(&excerpt(text)))
}

/// Whether the text is a number without a suffix or a word such as `inf`, with or without a minus
/// before it.
pub(super) fn is_unsuffixed(text: &str) -> bool {
    let (digits, sign) = signed(text);
    matches!(digits, "inf" | "nan")
        || digits.starts_with(|c: char| c.is_ascii_digit()) && Number::new(digits, sign).suffix.is_none()
}

/// Provisional value of a number without a suffix: its value if the default type holds it, zero of
/// that type if a wider one of its kind does.
pub(super) fn read_open(text: &str, sign: Sign) -> Result<Value, BadNumber> {
    read_number(text, sign).or_else(|bad| {
        let plain = text.replace('_', "");
        let number = Number::new(&plain, sign);
        let widest = match (number.is_fractional(), sign) {
            (true, Sign::Plus | Sign::Minus) => ValueType::F64,
            (false, Sign::Plus) => ValueType::U64,
            (false, Sign::Minus) => ValueType::I64,
        };
        let by_itself = number.ty();
        let is_open = number.suffix.is_none() && Number { suffix: Some(widest), ..number }.value().is_some();
        if is_open { Ok(Value::zero(by_itself)) } else { Err(bad) }
    })
}

/// A number without a suffix, or a word for one, as a value of a type; `by_itself` is its default
/// type.
pub(super) fn read_as(text: &str, ty: ValueType, by_itself: ValueType) -> Result<Value, BadNumber> {
    let (digits, sign) = signed(text);
    let word = || if ty == ValueType::F64 { format!("{digits}_f64") } else { digits.to_string() };
    if let Some(value) = read_word(&word(), sign) {
        return Ok(value);
    }
    if ty == by_itself {
        return read_number(digits, sign);
    }
    let plain = digits.replace('_', "");
    let number = Number { suffix: Some(ty), ..Number::new(&plain, sign) };
    number.value().ok_or_else(|| {
        let mut bad = number.bad(&excerpt(digits));
        match sign == Sign::Minus && !ty.is_signed_integer() && ty.is_integer() {
            true => bad.message = format!("`-{digits}` is negative, but the operand next to it is {ty}"),
            false => bad.message += ", the type of the operand next to it",
        }
        bad
    })
}

/// Splits off a leading minus.
fn signed(text: &str) -> (&str, Sign) {
    match text.strip_prefix('-') {
        // Whitespace and comments can separate the two.
        Some(rest) => (rest.rsplit([' ', '\t', '\r', '\n', '/']).next().unwrap_or_default(), Sign::Minus),
        None => (text, Sign::Plus),
    }
}

/// The code point of a character such as `a'` or `\\n'`; the opening quote has been consumed.
fn read_character(inside: &str, text: &str, sign: Sign) -> Result<Value, BadNumber> {
    let inside = inside.strip_suffix('\'').unwrap_or_default();
    let unquoted = if inside == "\\'" { Some("'".to_string()) } else { unquote(inside) };
    let mut characters = unquoted.iter().flat_map(|text| text.chars());
    match (characters.next(), characters.next(), sign) {
        (Some(character), None, Sign::Plus) => Ok(Value::U32(character.into())),
        (Some(_) | None, Some(_) | None, Sign::Plus | Sign::Minus) => Err(BadNumber {
            message: format!("`{}` is not one character", excerpt(text)),
            help: Some("write one between the quotes, as in `'a'` or `'\\n'`; text has no type here".into()),
        }),
    }
}

impl<'t> Number<'t> {
    fn new(text: &'t str, sign: Sign) -> Number<'t> {
        let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let (body, radix) = hexadecimal.map_or((text, 10), |digits| (digits, 16));
        // `f32` at the end of a hexadecimal number is three digits.
        let possible = |ty: &ValueType| (radix == 10 || ty.is_integer()) && body.ends_with(ty.name());
        let suffix = SUFFIXES.into_iter().find(possible);
        let digits = suffix.map_or(body, |ty| &body[..body.len() - ty.name().len()]);
        Number { sign, digits, radix, suffix }
    }

    fn is_fractional(&self) -> bool {
        self.radix == 10 && self.digits.contains(['.', 'e', 'E'])
    }

    fn ty(&self) -> ValueType {
        self.suffix.unwrap_or(if self.is_fractional() { ValueType::F32 } else { ValueType::U32 })
    }

    fn value(&self) -> Option<Value> {
        match self.ty() {
            ValueType::Bool => None,
            ValueType::U32 => self.integer()?.try_into().ok().map(Value::U32),
            ValueType::I32 => self.integer()?.try_into().ok().map(Value::I32),
            ValueType::U64 => self.integer()?.try_into().ok().map(Value::U64),
            ValueType::I64 => self.integer()?.try_into().ok().map(Value::I64),
            ValueType::F32 => {
                let x: f32 = self.digits.parse().ok().filter(|x: &f32| x.is_finite())?;
                Some(Value::F32(if self.sign == Sign::Minus { -x } else { x }))
            }
            ValueType::F64 => {
                let x: f64 = self.digits.parse().ok().filter(|x: &f64| x.is_finite())?;
                Some(Value::F64(if self.sign == Sign::Minus { -x } else { x }))
            }
        }
    }

    fn integer(&self) -> Option<i128> {
        let magnitude = i128::from(u64::from_str_radix(self.digits, self.radix).ok()?);
        match self.sign {
            Sign::Plus => Some(magnitude),
            Sign::Minus => self.ty().is_signed_integer().then_some(-magnitude),
        }
    }

    /// Whether it is a well-formed number that is too large for its type.
    fn is_in_no_range(&self) -> bool {
        let digits = |c: char| c.is_digit(self.radix);
        match self.ty().is_float() {
            true => self.digits.parse::<f64>().is_ok(),
            false => !self.digits.is_empty() && self.digits.chars().all(digits),
        }
    }

    fn bad(&self, text: &str) -> BadNumber {
        let ty = self.ty();
        let minus = if self.sign == Sign::Minus { "-" } else { "" };
        let unsigned = ty.is_integer() && !ty.is_signed_integer();
        let message = if self.sign == Sign::Minus && unsigned {
            format!("`-{text}` is negative, but {ty} has no negative numbers")
        } else if self.is_in_no_range() {
            format!("`{minus}{text}` is beyond the range of {ty}")
        } else {
            format!("`{minus}{text}` is not a number of type {ty}")
        };
        let help = match (self.sign, self.suffix) {
            (Sign::Minus, None) if unsigned => {
                Some(format!("give it a signed type, as in `-{text}i32`, or a point, as in `-{text}.0`"))
            }
            (Sign::Plus, None) if unsigned => {
                Some("add the suffix of a type that it fits, as in `7u64`".into())
            }
            (Sign::Plus | Sign::Minus, _) => None,
        };
        BadNumber { message, help }
    }
}

/// The number that a word such as `inf` denotes.
pub(super) fn read_word(word: &str, sign: Sign) -> Option<Value> {
    let (sign32, sign64) = if sign == Sign::Minus { (1 << 31, 1 << 63) } else { (0, 0) };
    match word {
        "inf" => Some(Value::F32(f32::from_bits(f32::INFINITY.to_bits() | sign32))),
        "nan" => Some(Value::F32(f32::from_bits(CANONICAL_NAN_F32 | sign32))),
        "inf_f64" => Some(Value::F64(f64::from_bits(f64::INFINITY.to_bits() | sign64))),
        "nan_f64" => Some(Value::F64(f64::from_bits(CANONICAL_NAN_F64 | sign64))),
        _ => None,
    }
}

/// Writes a literal that parses to the same bits in any context.
pub(super) fn write_suffixed(out: &mut impl Write, value: Value) -> fmt::Result {
    match value {
        Value::U32(x) => write!(out, "{x}u32"),
        Value::F32(x) if x.is_finite() => write!(out, "{x:?}f32"),
        Value::F32(x) => write!(out, "f32_bits({:#010x})", x.to_bits()),
        Value::Bool(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) | Value::F64(_) => {
            write_value(out, value)
        }
    }
}

/// Writes a literal that parses to the same bits where it keeps its default type.
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

/// Decodes the contents of a quoted text; `None` if an escape is unknown.
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

/// Writes text between two `quote`s so that [`unquote`] restores it; invisible characters are
/// escaped.
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

/// The start of a text, short enough for a message.
pub(super) fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Value> {
        let (sign, digits) =
            text.strip_prefix('-').map_or((Sign::Plus, text), |digits| (Sign::Minus, digits));
        read_word(digits, sign).or_else(|| read_number(digits, sign).ok())
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
