//! Samples of sorting.

use crate::sample::{Agreement, Numbers, Sample, word_bytes, words};
use vyre::catalogue::sort::{Key, keys, pairs};
use vyre_foundation::ir::DataType;

/// Maps a key to a number with the same order.
fn rank(order: Key, key: u32) -> u32 {
    match order {
        Key::U32 => key,
        Key::I32 => key ^ 0x8000_0000,
        Key::F32 => key ^ if key >> 31 == 1 { u32::MAX } else { 0x8000_0000 },
    }
}

fn input_keys(key: Key, length: u32) -> Vec<u32> {
    let mut numbers = Numbers::new(u64::from(length));
    let mut input: Vec<u32> = (0..length).map(|_| numbers.draw() as u32).collect();
    // Equal keys and the extremes of the order.
    for (k, slot) in input.iter_mut().enumerate().filter(|(k, _)| k % 5 == 3) {
        *slot = [0, 0x8000_0000, u32::MAX, 0x7FC0_0000, 0xFF80_0000, 17][k % 6];
    }
    if key == Key::F32 {
        input.iter_mut().step_by(2).for_each(|slot| *slot = ((*slot as f32) / 1e9 - 2.0).to_bits());
    }
    input
}

/// One sample of [`keys`].
pub fn keys_sample(key: Key, length: u32) -> Sample {
    let input = input_keys(key, length);
    let mut expected = input.clone();
    expected.sort_by_key(|&k| rank(key, k));
    Sample {
        label: key.element().name().into(),
        plan: Box::new(move |device| keys(key, length, device)),
        inputs: vec![word_bytes(input)],
        expected: vec![word_bytes(expected)],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn keys_samples(length: u32) -> Vec<Sample> {
    Key::ALL.map(|key| keys_sample(key, length)).into()
}

pub(crate) fn pairs_samples(length: u32) -> Vec<Sample> {
    let sample = |key: Key| {
        let input = input_keys(key, length);
        let values = Numbers::new(9).elements(DataType::U32, length);
        let mut expected: Vec<(u32, u32)> = input.iter().copied().zip(words(&values)).collect();
        expected.sort_by_key(|&(k, _)| rank(key, k));
        Sample {
            label: key.element().name().into(),
            plan: Box::new(move |device| pairs(key, length, device)),
            inputs: vec![word_bytes(input), values],
            expected: vec![
                word_bytes(expected.iter().map(|pair| pair.0)),
                word_bytes(expected.iter().map(|pair| pair.1)),
            ],
            agreement: Agreement::Bits,
        }
    };
    Key::ALL.map(sample).into()
}
