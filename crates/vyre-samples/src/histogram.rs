//! Samples of histograms.

use crate::sample::{Agreement, Numbers, Sample, values, word_bytes};
use vyre::catalogue::histogram::histogram;
use vyre_foundation::ir::DataType;

/// One sample of [`histogram`].
pub fn histogram_sample(element: DataType, bins: u32, length: u32) -> Sample {
    let mut input = Numbers::new(u64::from(length)).elements(element, length);
    if element != DataType::U8 {
        // Most values are in range, some are not.
        for slot in input.chunks_exact_mut(element.size()) {
            slot[1] &= 3;
            slot[2 % element.size()..].fill(0);
        }
    }
    let mut counts = vec![0_u32; bins as usize];
    for value in values(element, &input).into_iter().filter_map(|value| value.as_u32()) {
        if let Some(count) = counts.get_mut(value as usize) {
            *count += 1;
        }
    }
    Sample {
        label: format!("{} in {bins}", element.name()),
        plan: Box::new(move |device| histogram(element, bins, length, device)),
        inputs: vec![input],
        expected: vec![word_bytes(counts)],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn samples(length: u32) -> Vec<Sample> {
    let cases = [(DataType::U8, 256), (DataType::U32, 256), (DataType::U16, 1000), (DataType::U8, 3)];
    cases.map(|(element, bins)| histogram_sample(element, bins, length)).into()
}
