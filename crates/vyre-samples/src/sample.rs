//! Samples, pseudorandom numbers, and conversion between elements and bytes.

use std::fmt;
use vyre::catalogue::{Plan, PlanError};
use vyre_driver::DeviceProfile;
use vyre_foundation::ir::{DataType, Value};

/// How closely outputs must agree with the expected ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Agreement {
    /// Bit by bit.
    Bits,
    /// `f32` elements within `absolute + relative * |expected|`: the comparison is in `f64`.
    Within {
        /// Tolerance independent of the value.
        absolute: f64,
        /// Tolerance relative to the value.
        relative: f64,
    },
}

/// Makes a plan for a device.
pub type MakePlan = Box<dyn Fn(&DeviceProfile) -> Result<Plan, PlanError> + Send + Sync>;

/// Op with parameters, inputs and expected outputs.
pub struct Sample {
    /// Distinguishes it from the op's other samples.
    pub label: String,
    /// Makes the plan for a device.
    pub plan: MakePlan,
    /// One per input and updated buffer of the plan.
    pub inputs: Vec<Vec<u8>>,
    /// One per output and updated buffer of the plan.
    pub expected: Vec<Vec<u8>>,
    /// How closely a backend must agree.
    pub agreement: Agreement,
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample").field("label", &self.label).finish_non_exhaustive()
    }
}

impl Sample {
    /// Describes the first mismatch in these outputs, if any.
    pub fn fault(&self, outputs: &[Vec<u8>]) -> Option<String> {
        if outputs.len() != self.expected.len() {
            return Some(format!("{} outputs instead of {}", outputs.len(), self.expected.len()));
        }
        let mut pairs = self.expected.iter().zip(outputs).enumerate();
        pairs.find_map(|(number, (expected, given))| {
            self.agreement.fault(expected, given).map(|fault| format!("output {number}: {fault}"))
        })
    }
}

impl Agreement {
    /// Describes the mismatch in an output, if any.
    pub fn fault(self, expected: &[u8], given: &[u8]) -> Option<String> {
        if expected.len() != given.len() {
            return Some(format!("{} bytes instead of {}", given.len(), expected.len()));
        }
        match self {
            Agreement::Bits if expected == given => None,
            Agreement::Bits => {
                let at = expected.iter().zip(given).position(|(a, b)| a != b).unwrap_or(0) & !3;
                let word = |bytes: &[u8]| bytes[at..bytes.len().min(at + 4)].to_vec();
                Some(format!("byte {at}: {:02x?} instead of {:02x?}", word(given), word(expected)))
            }
            Agreement::Within { absolute, relative } => {
                let (expected, given) = (floats(expected), floats(given));
                let wrong = |(_, (a, b)): &(usize, (&f32, &f32))| {
                    let (a, b) = (f64::from(**a), f64::from(**b));
                    a.is_nan() != b.is_nan() || (a != b && (a - b).abs() > absolute + relative * a.abs())
                };
                let (at, (a, b)) = expected.iter().zip(&given).enumerate().find(wrong)?;
                Some(format!("element {at}: {b:?} instead of {a:?}"))
            }
        }
    }
}

/// Deterministic pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Sequence for a seed.
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x2545_F491_4F6C_DD1D)
    }

    /// Next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Float in `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// Bytes of `length` elements: floats in [-1, 1), integers over the whole range.
    pub fn elements(&mut self, element: DataType, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; element.size() * length as usize];
        for slot in bytes.chunks_exact_mut(element.size()) {
            let value = match element {
                DataType::F32 | DataType::F16 | DataType::Bf16 => Value::F32(self.unit() * 2.0 - 1.0),
                DataType::F64 => Value::F64(f64::from(self.unit()) * 2.0 - 1.0),
                DataType::Bool => Value::Bool(self.draw() & 1 == 1),
                DataType::U8 | DataType::U16 | DataType::U32 => Value::U32(self.draw() as u32),
                DataType::I8 | DataType::I16 | DataType::I32 => Value::I32(self.draw() as i32),
                DataType::U64 => Value::U64(self.draw()),
                DataType::I64 => Value::I64(self.draw() as i64),
            };
            element.store(value, slot);
        }
        bytes
    }

    /// Bytes of `length` `f32` values between `low` and `high`.
    pub fn floats(&mut self, length: u32, low: f32, high: f32) -> Vec<u8> {
        (0..length).flat_map(|_| (low + (high - low) * self.unit()).to_le_bytes()).collect()
    }
}

/// Converts bytes to `f32`.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Converts bytes to `u32`.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Converts bytes to values of this element type.
pub(crate) fn values(element: DataType, bytes: &[u8]) -> Vec<Value> {
    bytes.chunks_exact(element.size()).filter_map(|slot| element.load(slot)).collect()
}

/// Converts values to bytes of this element type.
pub(crate) fn stored(element: DataType, values: &[Value]) -> Vec<u8> {
    let mut bytes = vec![0; element.size() * values.len()];
    for (slot, &value) in bytes.chunks_exact_mut(element.size()).zip(values) {
        element.store(value, slot);
    }
    bytes
}

/// Converts `f32` to bytes, with the canonical NaN as a store writes it.
pub(crate) fn float_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    let bits = |value: f32| if value.is_nan() { 0x7FC0_0000 } else { value.to_bits() };
    values.into_iter().flat_map(|value| bits(value).to_le_bytes()).collect()
}

/// Converts `u32` to bytes.
pub(crate) fn word_bytes(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Result type of ops that widen small elements.
pub(crate) fn widened(element: DataType) -> DataType {
    element.value_type().data_type()
}
