//! Whether a backend's outputs are the oracle's, and where they first are not.

use vyre_foundation::ir::{BufferDecl, DataType, Program};

/// How close outputs must be.
pub(super) struct Comparison<'a> {
    /// The buffers that the outputs stand for, in order.
    outputs: Vec<&'a BufferDecl>,
    /// How many units in the last place an element of a float output may be off; unset compares by bits.
    ulp_budget: Option<u8>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(program: &'a Program, ulp_budget: Option<u8>) -> Comparison<'a> {
        let outputs = program.buffers().iter().filter(|buffer| buffer.access.is_output());
        let mut outputs: Vec<&BufferDecl> = outputs.collect();
        outputs.sort_by_key(|buffer| buffer.binding);
        Comparison { outputs, ulp_budget }
    }

    /// The first difference, in words; `None` if there is none.
    pub(super) fn difference(&self, expected: &[Vec<u8>], found: &[Vec<u8>]) -> Option<String> {
        if expected.len() != found.len() {
            return Some(format!("it returned {} outputs, the oracle {}", found.len(), expected.len()));
        }
        let mut pairs = expected.iter().zip(found).enumerate();
        pairs.find_map(|(position, (expected, found))| self.output_difference(position, expected, found))
    }

    fn output_difference(&self, position: usize, expected: &[u8], found: &[u8]) -> Option<String> {
        // By far the commonest case, and a comparison of whole slices is the fastest.
        if expected == found {
            return None;
        }
        let declared = self.outputs.get(position);
        let name = declared.map(|buffer| format!(" (`{}`)", buffer.name)).unwrap_or_default();
        if expected.len() != found.len() {
            let (found, expected) = (found.len(), expected.len());
            return Some(format!("output {position}{name} has {found} bytes, the oracle's {expected}"));
        }
        let element = declared.map_or(DataType::U8, |buffer| buffer.element);
        let size = element.size();
        let pairs = expected.chunks(size).zip(found.chunks(size)).map(|(a, b)| (bits(a), bits(b)));
        let wrong = |&(_, (expected, found)): &(usize, (u64, u64))| !self.close(element, expected, found);
        let (index, (expected, found)) = pairs.enumerate().find(wrong)?;
        let digits = 2 * size;
        Some(format!(
            "output {position}{name} differs first at element {index}: \
             bits 0x{found:0digits$x}, the oracle's 0x{expected:0digits$x}"
        ))
    }

    fn close(&self, element: DataType, expected: u64, found: u64) -> bool {
        let within = |budget: u8| {
            float_distance(element, expected, found).is_some_and(|distance| distance <= u64::from(budget))
        };
        expected == found || self.ulp_budget.is_some_and(within)
    }
}

/// A little-endian element of at most eight bytes.
fn bits(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}

/// How many floats lie between two, the zeros counting as one and all NaNs as equal; `None` for types that are not
/// floats, and for a NaN against a number.
fn float_distance(element: DataType, a: u64, b: u64) -> Option<u64> {
    let (sign, infinity): (u64, u64) = match element {
        DataType::F16 => (0x8000, 0x7C00),
        DataType::Bf16 => (0x8000, 0x7F80),
        DataType::F32 => (0x8000_0000, 0x7F80_0000),
        DataType::F64 => (1 << 63, 0x7FF0_0000_0000_0000),
        DataType::Bool
        | DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64 => return None,
    };
    let (magnitude_a, magnitude_b) = (a & !sign, b & !sign);
    match (magnitude_a > infinity, magnitude_b > infinity) {
        (true, true) => Some(0),
        (true, false) | (false, true) => None,
        (false, false) if a & sign == b & sign => Some(magnitude_a.abs_diff(magnitude_b)),
        (false, false) => Some(magnitude_a + magnitude_b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_distances() {
        let f32_distance =
            |a: f32, b: f32| float_distance(DataType::F32, u64::from(a.to_bits()), u64::from(b.to_bits()));
        assert_eq!(f32_distance(1.0, 1.0), Some(0));
        assert_eq!(f32_distance(1.0, 1.0_f32.next_up()), Some(1));
        assert_eq!(f32_distance(0.0, -0.0), Some(0));
        assert_eq!(f32_distance(0.0_f32.next_up(), 0.0_f32.next_down()), Some(2));
        assert_eq!(f32_distance(f32::MAX, f32::INFINITY), Some(1));
        assert_eq!(f32_distance(f32::NAN, -f32::NAN), Some(0));
        assert_eq!(f32_distance(f32::NAN, 1.0), None);
        assert_eq!(float_distance(DataType::F16, 0x3C00, 0x3C02), Some(2));
        assert_eq!(float_distance(DataType::Bf16, 0x8001, 0x0001), Some(2));
        let (low, high) = (f64::MIN.to_bits(), f64::MAX.to_bits());
        assert_eq!(float_distance(DataType::F64, low, high), Some(2 * high));
        assert_eq!(float_distance(DataType::U32, 1, 1), None);
    }

    fn check(budget: Option<u8>, expected: &[&[u8]], found: &[&[u8]], difference: Option<&str>) {
        let buffers = vec![
            BufferDecl::output("second", 7, DataType::F32),
            BufferDecl::read("input", 2, DataType::F32),
            BufferDecl::read_write("first", 1, DataType::U16),
        ];
        let program = Program::wrapped(buffers, [1, 1, 1], vec![]);
        let owned = |outputs: &[&[u8]]| outputs.iter().map(|output| output.to_vec()).collect::<Vec<_>>();
        let comparison = Comparison::new(&program, budget);
        assert_eq!(comparison.difference(&owned(expected), &owned(found)).as_deref(), difference);
    }

    #[test]
    fn the_first_difference_is_named() {
        let one = 1.0_f32.to_le_bytes();
        let near = 1.0_f32.next_up().next_up().to_le_bytes();
        check(None, &[&[1, 2], &one], &[&[1, 2], &one], None);
        check(None, &[&[1, 2], &one], &[&[1, 2]], Some("it returned 1 outputs, the oracle 2"));
        check(
            None,
            &[&[1, 2, 3, 4], &one],
            &[&[1, 2, 3, 5], &near],
            Some("output 0 (`first`) differs first at element 1: bits 0x0503, the oracle's 0x0403"),
        );
        check(
            None,
            &[&[], &one],
            &[&[], &near],
            Some("output 1 (`second`) differs first at element 0: bits 0x3f800002, the oracle's 0x3f800000"),
        );
        check(None, &[&[1, 2], &[]], &[&[1], &[]], Some("output 0 (`first`) has 1 bytes, the oracle's 2"));
        check(
            None,
            &[&[], &[], &[1, 2]],
            &[&[], &[], &[1, 3]],
            Some("output 2 differs first at element 1: bits 0x03, the oracle's 0x02"),
        );
    }

    #[test]
    fn the_budget_is_for_float_outputs_only() {
        let one = 1.0_f32.to_le_bytes();
        let near = 1.0_f32.next_up().next_up().to_le_bytes();
        let away = "output 1 (`second`) differs first at element 0: bits 0x3f800002, the oracle's 0x3f800000";
        check(Some(1), &[&[], &one], &[&[], &near], Some(away));
        check(Some(2), &[&[], &one], &[&[], &near], None);
        let integers = "output 0 (`first`) differs first at element 0: bits 0x0001, the oracle's 0x0000";
        check(Some(255), &[&[0, 0]], &[&[1, 0]], Some(integers));
    }
}
