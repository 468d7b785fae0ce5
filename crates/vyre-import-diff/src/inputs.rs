//! Generates contents for the buffers of a shader.

use vyre_foundation::ir::{DataType, Program};
use vyre_import::{Layout, ShaderBinding};

/// Parameters of the generated inputs.
#[derive(Clone, Copy)]
pub(crate) struct Draw {
    /// Maximum integer: shaders index, divide and loop with these.
    pub(crate) most: u64,
    /// Number of elements of run-time sized arrays.
    pub(crate) elements: u32,
    pub(crate) seed: u64,
}

/// SplitMix64.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Bytes of every buffer, in the order of the program's bindings.
pub(crate) fn draw(program: &Program, bindings: &[ShaderBinding], draw: Draw) -> Vec<Vec<u8>> {
    let mut state = draw.seed;
    let bytes = |binding: &ShaderBinding| {
        let declared = program.buffers().iter().find(|buffer| *buffer.name == *binding.name);
        let fixed = declared.map_or(0, |buffer| buffer.count as usize * buffer.element.size());
        let size = match binding.layout.tail() {
            Some((at, stride)) => {
                (at as usize + stride as usize * draw.elements as usize).next_multiple_of(4)
            }
            None => fixed,
        };
        let mut bytes = vec![0; size];
        fill(&binding.layout, &mut bytes, draw.most, &mut state);
        bytes
    };
    bindings.iter().map(bytes).collect()
}

/// The same inputs with every f32 moved one step up or down.
pub(crate) fn nudge(bindings: &[ShaderBinding], inputs: &[Vec<u8>], up: bool) -> Vec<Vec<u8>> {
    let mut nudged = inputs.to_vec();
    for (binding, bytes) in bindings.iter().zip(&mut nudged) {
        nudge_in(&binding.layout, bytes, up);
    }
    nudged
}

fn nudge_in(layout: &Layout, bytes: &mut [u8], up: bool) {
    match layout {
        Layout::Scalar(DataType::F32) => {
            if let Some(word) = bytes.first_chunk_mut() {
                let number = f32::from_le_bytes(*word);
                *word = if up { number.next_up() } else { number.next_down() }.to_le_bytes();
            }
        }
        Layout::Scalar(_) => {}
        Layout::Struct(members) => {
            for (at, member) in members {
                if let Some(bytes) = bytes.get_mut(*at as usize..) {
                    nudge_in(member, bytes, up);
                }
            }
        }
        Layout::Array { stride, count, element } => {
            let count = count.map_or(usize::MAX, |count| count as usize);
            for part in bytes.chunks_mut((*stride).max(1) as usize).take(count) {
                nudge_in(element, part, up);
            }
        }
    }
}

fn fill(layout: &Layout, bytes: &mut [u8], most: u64, state: &mut u64) {
    match layout {
        Layout::Scalar(ty) => {
            let number = scalar(*ty, most, state);
            let size = ty.size().min(bytes.len());
            bytes[..size].copy_from_slice(&number.to_le_bytes()[..size]);
        }
        Layout::Struct(members) => {
            for (at, member) in members {
                if let Some(bytes) = bytes.get_mut(*at as usize..) {
                    fill(member, bytes, most, state);
                }
            }
        }
        Layout::Array { stride, count, element } => {
            let count = count.map_or(usize::MAX, |count| count as usize);
            for part in bytes.chunks_mut((*stride).max(1) as usize).take(count) {
                if part.len() >= smallest(element) {
                    fill(element, part, most, state);
                }
            }
        }
    }
}

/// Minimum size of a value in bytes.
fn smallest(layout: &Layout) -> usize {
    match layout {
        Layout::Scalar(ty) => ty.size(),
        Layout::Struct(members) => members.last().map_or(0, |(at, last)| *at as usize + smallest(last)),
        Layout::Array { element, .. } => smallest(element),
    }
}

fn scalar(ty: DataType, most: u64, state: &mut u64) -> u64 {
    let random = next(state);
    let unit = (random >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match ty {
        DataType::F32 => u64::from((unit as f32 * 2.0).to_bits()),
        DataType::F64 => (unit * 2.0).to_bits(),
        DataType::F16 | DataType::Bf16 => {
            let value = vyre_foundation::ir::Value::F32(unit as f32 * 2.0);
            ty.narrow(value)
        }
        DataType::Bool => random & 1,
        DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64 => random % (most + 1),
    }
}
