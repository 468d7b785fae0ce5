//! Samples of running sums, in the order that the op's module documents, and of compaction.

use crate::reduce::reference as sum_of;
use crate::sample::{Agreement, Numbers, Sample, stored, values, widened, word_bytes, words};
use vyre::catalogue::scan::{ScanKind, compact, scan};
use vyre_foundation::ir::{Combine, DataType, Op, Value};
use vyre_foundation::ops::eval;

/// Number of elements in a block, and in a chunk of it.
const BLOCK: u32 = 1024;
const CHUNK: usize = 16;

/// Straightforward running sums in the documented order.
fn reference(kind: ScanKind, input: &[Value], zero: Value) -> Vec<Value> {
    let add = |a: Value, b: Value| eval(Op::Add, &[a, b]).unwrap_or(a);
    let block_size = BLOCK as usize;
    let offsets = if input.len() > block_size {
        let sums: Vec<Value> =
            input.chunks(block_size).map(|block| sum_of(Combine::Add, block, zero, BLOCK)).collect();
        reference(ScanKind::Exclusive, &sums, zero)
    } else {
        vec![zero]
    };
    let mut results = Vec::with_capacity(input.len());
    for (block, &offset) in input.chunks(block_size).zip(&offsets) {
        let mut before = offset;
        for chunk in block.chunks(CHUNK) {
            let mut sum = zero;
            for &value in chunk {
                let with = add(sum, value);
                results.push(add(before, if kind == ScanKind::Inclusive { with } else { sum }));
                sum = with;
            }
            before = add(before, sum);
        }
    }
    results
}

/// One sample of [`scan`].
pub fn scan_sample(kind: ScanKind, element: DataType, length: u32) -> Sample {
    let input = Numbers::new(u64::from(length)).elements(element, length);
    let zero = Value::zero(element.value_type());
    let results = reference(kind, &values(element, &input), zero);
    Sample {
        label: element.name().into(),
        plan: Box::new(move |device| scan(kind, element, length, device)),
        inputs: vec![input],
        expected: vec![stored(widened(element), &results)],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn scan_samples(kind: ScanKind, length: u32) -> Vec<Sample> {
    use DataType::*;
    [U32, I32, F32, U64, I64, F64, U8].map(|element| scan_sample(kind, element, length)).into()
}

pub(crate) fn compact_samples(length: u32) -> Vec<Sample> {
    let sample = |element: DataType| {
        let mut numbers = Numbers::new(u64::from(length));
        let x = numbers.elements(element, length);
        let keep: Vec<u8> = word_bytes(
            (0..length).map(|_| if numbers.draw().is_multiple_of(3) { numbers.draw() as u32 | 1 } else { 0 }),
        );
        let kept = words(&keep).into_iter().zip(values(element, &x));
        let mut result: Vec<Value> = kept.filter(|(keep, _)| *keep != 0).map(|(_, value)| value).collect();
        let count = result.len() as u32;
        result.resize(length as usize, Value::zero(element.value_type()));
        Sample {
            label: element.name().into(),
            plan: Box::new(move |device| Ok(compact(element, length, device))),
            inputs: vec![x, keep],
            expected: vec![stored(element, &result), word_bytes([count])],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32].map(sample).into()
}
