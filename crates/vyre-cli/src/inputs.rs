//! `--in name=data`: what a buffer is given on the command line.

use vyre_conform::choices::next_random;
use vyre_conform::data;
use vyre_foundation::ir::{BufferDecl, DataType, Value, ValueType};

/// More elements than memory holds are a typing error.
const MAX_ELEMENTS: u64 = 1 << 30;

/// One `--in` argument.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    data: String,
}

/// Splits `name=data`.
pub(crate) fn parse(argument: &str) -> Result<Input, String> {
    let (name, data) = argument.split_once('=').ok_or("write name=data, as in x=1,2,3")?;
    Ok(Input { name: name.trim().into(), data: data.trim().into() })
}

impl Input {
    /// The bytes for a buffer; `seed` decides what `rand` gives.
    pub(crate) fn bytes(&self, decl: &BufferDecl, seed: u64) -> Result<Vec<u8>, String> {
        let fault = |message: String| format!("--in {}: {message}", self.name);
        if let Some(path) = self.data.strip_prefix('@') {
            return std::fs::read(path).map_err(|error| fault(format!("cannot read `{path}`: {error}")));
        }
        if let Some(random) = self.data.strip_prefix("rand:") {
            return random_bytes(decl, random, seed).map_err(fault);
        }
        data::parse(decl.element, &self.data).map_err(fault)
    }
}

/// `type:count` elements: any bits for integers, numbers from -1 up to 1 for floats.
fn random_bytes(decl: &BufferDecl, text: &str, seed: u64) -> Result<Vec<u8>, String> {
    let (ty, count) = text.split_once(':').ok_or("write rand:type:count, as in rand:f32:1000")?;
    let element = DataType::from_name(ty).ok_or(format!("`{ty}` is no element type"))?;
    if element != decl.element {
        return Err(format!("the buffer has elements of {}, not {element}", decl.element));
    }
    let count = count.parse::<u64>().map_err(|_| format!("`{count}` is not a count"))?;
    if count > MAX_ELEMENTS {
        return Err(format!("{count} elements are more than {MAX_ELEMENTS}"));
    }
    // Two buffers of one run should not be given the same numbers.
    let mut state = decl.name.bytes().fold(seed, |state, byte| state.rotate_left(8) ^ u64::from(byte));
    let mut bytes = Vec::with_capacity(count as usize * element.size());
    for _ in 0..count {
        let bits = element.narrow(random_value(&mut state, element.value_type()));
        bytes.extend_from_slice(&bits.to_le_bytes()[..element.size()]);
    }
    Ok(bytes)
}

fn random_value(state: &mut u64, ty: ValueType) -> Value {
    let bits = next_random(state);
    let number = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match ty {
        ValueType::F32 => Value::F32(number as f32),
        ValueType::F64 => Value::F64(number),
        ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => {
            Value::from_bits(ty, bits)
        }
    }
}
