//! Samples of softmax over rows.

use crate::sample::{Agreement, Numbers, Sample, float_bytes, floats};
use vyre::catalogue::softmax::rows;

/// One sample of [`rows`].
pub fn rows_sample(row_count: u32, columns: u32) -> Sample {
    let input = Numbers::new(13).floats(row_count * columns, -10.0, 10.0);
    let mut result = Vec::with_capacity(input.len() / 4);
    for row in floats(&input).chunks(columns.max(1) as usize) {
        let peak = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - f64::from(peak)).exp()).collect();
        let total: f64 = powers.iter().sum();
        result.extend(powers.iter().map(|power| (power / total) as f32));
    }
    Sample {
        label: format!("{row_count} by {columns}"),
        plan: Box::new(move |device| rows(row_count, columns, device)),
        inputs: vec![input],
        expected: vec![float_bytes(result)],
        agreement: Agreement::Within { absolute: 1e-12, relative: 1e-5 },
    }
}

pub(crate) fn samples(length: u32) -> Vec<Sample> {
    vec![
        rows_sample(length.min(3), length),
        rows_sample(length.div_ceil(64), 64),
        rows_sample(length.div_ceil(33), 33),
    ]
}
