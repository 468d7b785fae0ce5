//! Buffer contents as text: the syntax of inputs and outputs in filetests and on the command line.
//!
//! ```text
//! data    = "bytes" hex-byte* | "zero" count | items | "[" items "]"
//! items   = item { "," item }
//! item    = element | element ".." element | "repeat(" element "," count ")"
//! element = number | "nan" | "inf" | "-inf" | "true" | "false" | "bits" hex-number
//! ```
//! Numbers have the buffer's element type. [`parse`] restores the exact bytes from the output of
//! [`show`].

use vyre_foundation::types::{DataType, Value, ValueType};

/// More elements than any test needs; keeps a typo in a count from exhausting memory.
const MAX_ELEMENTS: usize = 1 << 24;

/// The bytes that `text` describes, as elements of type `element`.
///
/// ```
/// use vyre_conform::data::parse;
/// use vyre_foundation::types::DataType;
/// assert_eq!(parse(DataType::U16, "[1, 0xff, 2..4]"), Ok(vec![1, 0, 0xff, 0, 2, 0, 3, 0]));
/// assert!(parse(DataType::U8, "256").is_err());
/// ```
pub fn parse(element: DataType, text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("bytes") {
        let byte = |digits: &str| {
            u8::from_str_radix(digits, 16).map_err(|_| format!("`{digits}` is not a byte in hex"))
        };
        return hex.split_whitespace().map(byte).collect();
    }
    if let Some(count) = text.strip_prefix("zero ") {
        return Ok(vec![0; parse_count(count)? * element.size()]);
    }
    let items = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or("the list is not closed by `]`")?,
        None => text,
    };
    let mut bytes = Vec::new();
    for item in split_items(items) {
        parse_item(element, item.trim(), &mut bytes)?;
    }
    Ok(bytes)
}

/// Splits at the commas outside parentheses.
fn split_items(items: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    items.split(outside).filter(|item| !item.trim().is_empty()).collect()
}

fn parse_item(element: DataType, item: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    if let Some(inner) = item.strip_prefix("repeat(").and_then(|rest| rest.strip_suffix(')')) {
        let (value, count) = inner.rsplit_once(',').ok_or("write repeat(value, count)")?;
        let bits = parse_element(element, value.trim())?;
        for _ in 0..parse_count(count)? {
            push(element, bits, bytes);
        }
        return Ok(());
    }
    if let Some((from, to)) = item.split_once("..") {
        return parse_range(element, from.trim(), to.trim(), bytes);
    }
    push(element, parse_element(element, item)?, bytes);
    Ok(())
}

fn push(element: DataType, bits: u64, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&bits.to_le_bytes()[..element.size()]);
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.trim().parse::<usize>().map_err(|_| format!("`{}` is not a count", text.trim()))?;
    if count > MAX_ELEMENTS {
        Err(format!("{count} elements are more than {MAX_ELEMENTS}"))
    } else {
        Ok(count)
    }
}

fn parse_range(element: DataType, from: &str, to: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let bound = |text: &str| text.parse::<i64>().map_err(|_| format!("`{text}` is not a whole number"));
    let (from, to) = (bound(from)?, bound(to)?);
    if to.checked_sub(from).is_none_or(|count| count > MAX_ELEMENTS as i64) {
        return Err(format!("{from}..{to} has more than {MAX_ELEMENTS} elements"));
    }
    if to < from {
        return Err(format!("{from}..{to} runs backwards"));
    }
    for number in from..to {
        push(element, parse_element(element, &number.to_string())?, bytes);
    }
    Ok(())
}

fn parse_element(element: DataType, text: &str) -> Result<u64, String> {
    let fault = || format!("`{text}` is not a value of {element}");
    if let Some(digits) = text.strip_prefix("bits ") {
        let digits = digits.trim();
        let bits =
            u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).map_err(|_| fault())?;
        return if element.size() < 8 && bits >> (8 * element.size()) != 0 { Err(fault()) } else { Ok(bits) };
    }
    match element.value_type() {
        ValueType::Bool => match text {
            "true" | "1" => Ok(1),
            "false" | "0" => Ok(0),
            _ => Err(fault()),
        },
        ValueType::F32 => text.parse::<f32>().map(|x| element.narrow(Value::F32(x))).map_err(|_| fault()),
        ValueType::F64 => text.parse::<f64>().map(|x| element.narrow(Value::F64(x))).map_err(|_| fault()),
        ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => {
            integer(element, text).ok_or_else(fault)
        }
    }
}

fn integer(element: DataType, text: &str) -> Option<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok()?,
        None => text.parse::<i128>().ok()?,
    };
    let bits = 8 * element.size() as u32;
    let (low, high) = if element.value_type().is_signed_integer() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    (low..=high).contains(&number).then_some(number as u64)
}

/// The text of these bytes; runs of equal elements become `repeat(…)`.
///
/// ```
/// use vyre_conform::data::show;
/// use vyre_foundation::types::DataType;
/// assert_eq!(show(DataType::F32, &1.5f32.to_le_bytes()), "[1.5]");
/// assert_eq!(show(DataType::I8, &[255; 9]), "[repeat(-1, 9)]");
/// ```
pub fn show(element: DataType, bytes: &[u8]) -> String {
    if !bytes.len().is_multiple_of(element.size()) {
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        return format!("bytes {}", hex.join(" "));
    }
    let elements: Vec<&[u8]> = bytes.chunks_exact(element.size()).collect();
    let items: Vec<String> = elements
        .chunk_by(|a, b| a == b)
        .flat_map(|run| {
            let shown = show_element(element, run[0]);
            if run.len() >= 8 {
                vec![format!("repeat({shown}, {})", run.len())]
            } else {
                vec![shown; run.len()]
            }
        })
        .collect();
    format!("[{}]", items.join(", "))
}

/// One element in the syntax of [`parse`].
pub fn show_element(element: DataType, bytes: &[u8]) -> String {
    let mut word = [0; 8];
    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(word);
    let Some(value) = element.load(bytes) else { return format!("bits {bits:#x}") };
    // A number would lose bits that no store produces (a NaN payload, a bool of 7).
    if element.narrow(value) != bits {
        return format!("bits {bits:#x}");
    }
    match value {
        Value::Bool(x) => x.to_string(),
        Value::U32(x) => x.to_string(),
        Value::I32(x) => x.to_string(),
        Value::U64(x) => x.to_string(),
        Value::I64(x) => x.to_string(),
        Value::F32(x) if x.is_nan() => "nan".into(),
        Value::F64(x) if x.is_nan() => "nan".into(),
        Value::F32(x) => format!("{x:?}"),
        Value::F64(x) => format!("{x:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::bytes_from_seed;

    #[test]
    fn what_is_shown_reads_back() {
        for element in DataType::ALL {
            for seed in 0..200 {
                let bytes = bytes_from_seed(seed, element.size() * 9);
                assert_eq!(parse(element, &show(element, &bytes)), Ok(bytes), "{element}");
            }
        }
    }

    #[test]
    fn forms_of_data() {
        let check = |element: DataType, text: &str, expected: Result<&[u8], &str>| {
            let parsed = parse(element, text);
            assert_eq!(parsed.as_deref().map_err(String::as_str), expected, "{text}");
        };
        check(DataType::U8, "zero 3", Ok(&[0, 0, 0]));
        check(DataType::U8, "bytes 00 ff", Ok(&[0, 255]));
        check(DataType::U8, "[]", Ok(&[]));
        check(DataType::U8, "[repeat(7, 2), 1..3,]", Ok(&[7, 7, 1, 2]));
        check(DataType::F16, "[nan, -0.0, inf]", Ok(&[0, 0x7E, 0, 0x80, 0, 0x7C]));
        check(DataType::F32, "bits 0x7fc00001", Ok(&[1, 0, 0xC0, 0x7F]));
        check(DataType::I8, "-128", Ok(&[0x80]));
        check(DataType::I8, "128", Err("`128` is not a value of i8"));
        check(DataType::U8, "[1", Err("the list is not closed by `]`"));
        check(DataType::U8, "zero 99999999999", Err("99999999999 elements are more than 16777216"));
        check(DataType::U8, "repeat(1)", Err("write repeat(value, count)"));
        check(DataType::U8, "5..0", Err("5..0 runs backwards"));
        check(DataType::U8, "0..99999999999", Err("0..99999999999 has more than 16777216 elements"));
    }
}
