//! Samples of reductions, in the order that the op's module documents.

use crate::sample::{Agreement, Numbers, Sample, stored, values, widened, word_bytes};
use vyre::catalogue::reduce::{BLOCK, argmax, dot, reduce};
use vyre_foundation::ir::{Combine, DataType, Op, Value};
use vyre_foundation::ops::eval;

/// Number of running results in a block.
const STRANDS: usize = 32;

/// Straightforward reduction in the documented order.
pub(crate) fn reference(combine: Combine, input: &[Value], identity: Value, block: u32) -> Value {
    let op = |a: Value, b: Value| eval(combine.op(), &[a, b]).unwrap_or(a);
    let mut level = input.to_vec();
    loop {
        let mut results: Vec<Value> = level
            .chunks(block as usize)
            .map(|block| {
                let mut strands = [identity; STRANDS];
                for (i, &value) in block.iter().enumerate() {
                    let strand = &mut strands[i % STRANDS];
                    *strand = op(*strand, value);
                }
                for half in [16, 8, 4, 2, 1] {
                    for s in 0..half {
                        strands[s] = op(strands[s], strands[s + half]);
                    }
                }
                strands[0]
            })
            .collect();
        match results.len() {
            0 => return identity,
            1 => return results.remove(0),
            _ => level = results,
        }
    }
}

/// One sample of [`reduce`].
pub fn reduce_sample(combine: Combine, element: DataType, length: u32) -> Sample {
    let input = Numbers::new(u64::from(length) + 1).elements(element, length);
    let identity = combine.identity(element.value_type());
    let result = reference(combine, &values(element, &input), identity, BLOCK).canonical();
    Sample {
        label: element.name().into(),
        plan: Box::new(move |device| reduce(combine, element, length, device)),
        inputs: vec![input],
        expected: vec![stored(widened(element), &[result])],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn reduce_samples(combine: Combine, length: u32) -> Vec<Sample> {
    use DataType::*;
    [F32, U32, I32, F64, U64, I64, U8, F16].map(|element| reduce_sample(combine, element, length)).into()
}

pub(crate) fn dot_samples(length: u32) -> Vec<Sample> {
    let sample = |element: DataType| {
        let mut numbers = Numbers::new(u64::from(length));
        let (x, y) = (numbers.elements(element, length), numbers.elements(element, length));
        let product = |(x, y)| eval(Op::Mul, &[x, y]);
        let products: Vec<Value> =
            values(element, &x).into_iter().zip(values(element, &y)).filter_map(product).collect();
        let identity = Combine::Add.identity(element.value_type());
        let result = reference(Combine::Add, &products, identity, BLOCK);
        Sample {
            label: element.name().into(),
            plan: Box::new(move |device| dot(element, length, device)),
            inputs: vec![x, y],
            expected: vec![stored(widened(element), &[result])],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32, DataType::F64].map(sample).into()
}

pub(crate) fn argmax_samples(length: u32) -> Vec<Sample> {
    let sample = |element: DataType| {
        let mut input = Numbers::new(u64::from(length)).elements(element, length);
        if element == DataType::F32 {
            // Ties for the maximum, NaNs and infinities.
            let mut every = |step: usize, from: usize, value: f32| {
                for slot in input.chunks_exact_mut(4).skip(from).step_by(step) {
                    slot.copy_from_slice(&value.to_le_bytes());
                }
            };
            every(3, 0, f32::NAN);
            every(13, 5, f32::INFINITY);
            every(17, 1, f32::NEG_INFINITY);
        }
        let all = values(element, &input);
        let number = |value: &Value| eval(Op::Eq, &[*value, *value]) == Some(Value::Bool(true));
        let mut best: Option<usize> = None;
        for (i, value) in all.iter().enumerate().filter(|(_, value)| number(value)) {
            let above = |b: usize| eval(Op::Gt, &[*value, all[b]]) == Some(Value::Bool(true));
            if best.is_none_or(above) {
                best = Some(i);
            }
        }
        Sample {
            label: element.name().into(),
            plan: Box::new(move |device| argmax(element, length, device)),
            inputs: vec![input],
            expected: vec![word_bytes([best.map_or(u32::MAX, |i| i as u32)])],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32, DataType::I32, DataType::F64].map(sample).into()
}
