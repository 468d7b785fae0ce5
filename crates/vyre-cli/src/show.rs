//! Outputs of a dispatch as text and as JSON.

use crate::picture::number;
use vyre_conform::data;
use vyre_foundation::ir::{BufferDecl, DataType, ValueType};

/// Elements of an output shown in a summary.
const SHOWN: usize = 16;

/// Extent to which an output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputExtent {
    /// The first elements, and statistics.
    Summary,
    /// All elements.
    All,
}

/// Formats an output as text.
pub(crate) fn text(decl: &BufferDecl, bytes: &[u8], extent: OutputExtent) -> String {
    let size = decl.element.size();
    let length = bytes.len() / size;
    let shown = match extent {
        OutputExtent::All => bytes,
        OutputExtent::Summary => &bytes[..bytes.len().min(SHOWN * size)],
    };
    let elements = data::show(decl.element, shown);
    let head = format!("{}: {}[{length}] = {elements}", decl.name, decl.element);
    if shown.len() == bytes.len() {
        return head;
    }
    let Statistics { low, high, mean, not_a_number } = Statistics::of(decl.element, bytes);
    let nans = if not_a_number > 0 { format!(", {not_a_number} nan") } else { String::new() };
    format!("{head} …\n  smallest {low}, largest {high}, mean {mean}{nans}")
}

/// Formats an output as JSON, with its elements only for [`OutputExtent::All`].
pub(crate) fn json(decl: &BufferDecl, bytes: &[u8], extent: OutputExtent) -> serde_json::Value {
    let element = decl.element;
    let Statistics { low, high, mean, not_a_number } = Statistics::of(element, bytes);
    let mut json = serde_json::json!({
        "name": &*decl.name,
        "type": element.name(),
        "length": bytes.len() / element.size(),
        "smallest": float(low),
        "largest": float(high),
        "mean": float(mean),
        "nan": not_a_number,
    });
    if extent == OutputExtent::All {
        json["values"] = bytes.chunks(element.size()).map(|bytes| json_value(element, bytes)).collect();
    }
    json
}

/// Statistics of the elements. Infinities are included; NaNs are only counted.
struct Statistics {
    low: f64,
    high: f64,
    mean: f64,
    not_a_number: usize,
}

impl Statistics {
    fn of(element: DataType, bytes: &[u8]) -> Statistics {
        let (mut low, mut high, mut sum) = (f64::NAN, f64::NAN, 0.0);
        let (mut numbers, mut not_a_number) = (0usize, 0usize);
        for value in bytes.chunks_exact(element.size()).map(|bytes| number(element, bytes)) {
            if value.is_nan() {
                not_a_number += 1;
            } else {
                numbers += 1;
                sum += value;
                (low, high) = (low.min(value), high.max(value));
            }
        }
        Statistics { low, high, mean: sum / numbers as f64, not_a_number }
    }
}

fn float(number: f64) -> serde_json::Value {
    if number.is_finite() { number.into() } else { serde_json::Value::Null }
}

/// JSON number where possible; infinities, NaNs and unusual bit patterns as text.
fn json_value(element: DataType, bytes: &[u8]) -> serde_json::Value {
    let shown = data::show_element(element, bytes);
    match element.value_type() {
        ValueType::Bool => shown.parse::<bool>().map_or(shown.into(), Into::into),
        ValueType::F32 | ValueType::F64 => match shown.parse::<f64>() {
            Ok(number) if number.is_finite() => number.into(),
            Ok(_) | Err(_) => shown.into(),
        },
        ValueType::U32 | ValueType::U64 => shown.parse::<u64>().map_or(shown.into(), Into::into),
        ValueType::I32 | ValueType::I64 => shown.parse::<i64>().map_or(shown.into(), Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_outputs_are_summed_up() {
        let decl = BufferDecl::output("y", 0, DataType::U8);
        assert_eq!(text(&decl, &[1, 2], OutputExtent::Summary), "y: u8[2] = [1, 2]");
        let bytes: Vec<u8> = (0..20).collect();
        let summary = text(&decl, &bytes, OutputExtent::Summary);
        assert!(summary.ends_with(" …\n  smallest 0, largest 19, mean 9.5"), "{summary}");
        assert!(text(&decl, &bytes, OutputExtent::All).ends_with("18, 19]"));
        assert_eq!(json(&decl, &[], OutputExtent::All)["mean"], serde_json::Value::Null);
    }
}
