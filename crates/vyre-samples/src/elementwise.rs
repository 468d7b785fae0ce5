//! Samples of maps, fill, iota, gather, scatter, hashing and option prices.

use crate::sample::{Agreement, Numbers, Sample, float_bytes, floats, stored, values, word_bytes, words};
use vyre::catalogue::elementwise::{
    binary, black_scholes, fill, gather, iota, murmur3, saxpy, scatter, unary,
};
use vyre_foundation::ir::{DataType, Op, Value};
use vyre_foundation::ops::eval;

pub(crate) fn unary_samples(length: u32) -> Vec<Sample> {
    let cases = [
        (Op::Neg, DataType::I32),
        (Op::Sqrt, DataType::F32),
        (Op::Exp, DataType::F32),
        (Op::Not, DataType::U32),
        (Op::Popcount, DataType::U32),
        (Op::ToF32, DataType::U8),
        (Op::Floor, DataType::F64),
    ];
    let sample = |(op, element): (Op, DataType)| {
        let input = Numbers::new(u64::from(length)).elements(element, length);
        let results: Vec<Value> = values(element, &input)
            .into_iter()
            .filter_map(|x| eval(op, &[x]))
            .map(Value::canonical)
            .collect();
        let result = op.row().signature.result(&[element.value_type()]);
        let expected = result.map_or_else(Vec::new, |ty| stored(ty.data_type(), &results));
        Sample {
            label: format!("{} {}", op.row().name, element.name()),
            plan: Box::new(move |_| unary(op, element, length)),
            inputs: vec![input],
            expected: vec![expected],
            agreement: Agreement::Bits,
        }
    };
    cases.into_iter().map(sample).collect()
}

pub(crate) fn binary_samples(length: u32) -> Vec<Sample> {
    let cases = [
        (Op::Add, DataType::F32),
        (Op::Div, DataType::I32),
        (Op::Min, DataType::F64),
        (Op::Xor, DataType::U64),
        (Op::Lt, DataType::I16),
    ];
    let sample = |(op, element): (Op, DataType)| {
        let mut numbers = Numbers::new(u64::from(length));
        let (x, y) = (numbers.elements(element, length), numbers.elements(element, length));
        let pairs = values(element, &x).into_iter().zip(values(element, &y));
        let results: Vec<Value> =
            pairs.filter_map(|(x, y)| eval(op, &[x, y])).map(Value::canonical).collect();
        let ty = element.value_type();
        let result = op.row().signature.result(&[ty, ty]);
        let expected = result.map_or_else(Vec::new, |ty| stored(ty.data_type(), &results));
        Sample {
            label: format!("{} {}", op.row().name, element.name()),
            plan: Box::new(move |_| binary(op, element, length)),
            inputs: vec![x, y],
            expected: vec![expected],
            agreement: Agreement::Bits,
        }
    };
    cases.into_iter().map(sample).collect()
}

/// One sample of [`saxpy`].
pub fn saxpy_sample(length: u32) -> Sample {
    let a = 2.5;
    let mut numbers = Numbers::new(u64::from(length));
    let (x, y) = (numbers.floats(length, -1.0, 1.0), numbers.floats(length, -1.0, 1.0));
    let expected = floats(&x).into_iter().zip(floats(&y)).map(|(x, y)| a * x + y);
    Sample {
        label: "f32".into(),
        expected: vec![float_bytes(expected)],
        plan: Box::new(move |_| Ok(saxpy(a, length))),
        inputs: vec![x, y],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn fill_samples(length: u32) -> Vec<Sample> {
    let cases = [Value::F32(-0.0), Value::U32(7), Value::I64(-3), Value::Bool(true)];
    let sample = |value: Value| Sample {
        label: value.ty().name().into(),
        plan: Box::new(move |_| Ok(fill(value, length))),
        inputs: Vec::new(),
        expected: vec![stored(value.ty().data_type(), &vec![value; length as usize])],
        agreement: Agreement::Bits,
    };
    cases.into_iter().map(sample).collect()
}

pub(crate) fn iota_samples(length: u32) -> Vec<Sample> {
    let expected = (0..length).map(|i| 5_u32.wrapping_add(i.wrapping_mul(3_000_000_019)));
    vec![Sample {
        label: "u32".into(),
        plan: Box::new(move |_| Ok(iota(5, 3_000_000_019, length))),
        inputs: Vec::new(),
        expected: vec![word_bytes(expected)],
        agreement: Agreement::Bits,
    }]
}

/// Random indices for a scatter: most of those below `length`, each once and in random order, the
/// others out of range.
fn scattered_indices(length: u32) -> Vec<u32> {
    let mut numbers = Numbers::new(7);
    let mut indices: Vec<u32> = (0..length).collect();
    for k in (1..indices.len()).rev() {
        indices.swap(k, (numbers.draw() % (k as u64 + 1)) as usize);
    }
    for index in indices.iter_mut().filter(|index| **index % 5 == 4) {
        *index = u32::MAX - *index;
    }
    indices
}

pub(crate) fn gather_samples(length: u32) -> Vec<Sample> {
    let sample = |element: DataType| {
        let x = Numbers::new(u64::from(length)).elements(element, length);
        let indices = scattered_indices(length);
        let source = values(element, &x);
        let zero = Value::zero(element.value_type());
        let taken: Vec<Value> =
            indices.iter().map(|&i| source.get(i as usize).copied().unwrap_or(zero)).collect();
        Sample {
            label: element.name().into(),
            plan: Box::new(move |_| Ok(gather(element, length, length))),
            inputs: vec![x, word_bytes(indices)],
            expected: vec![stored(element, &taken)],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32, DataType::I64].into_iter().map(sample).collect()
}

pub(crate) fn scatter_samples(length: u32) -> Vec<Sample> {
    let sample = |element: DataType| {
        let mut numbers = Numbers::new(u64::from(length));
        let (x, y) = (numbers.elements(element, length), numbers.elements(element, length));
        let indices = scattered_indices(length);
        let mut target = values(element, &y);
        for (&index, value) in indices.iter().zip(values(element, &x)) {
            if let Some(slot) = target.get_mut(index as usize) {
                *slot = value;
            }
        }
        Sample {
            label: element.name().into(),
            plan: Box::new(move |_| Ok(scatter(element, length, length))),
            inputs: vec![x, word_bytes(indices), y],
            expected: vec![stored(element, &target)],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32].into_iter().map(sample).collect()
}

/// One sample of [`murmur3`].
pub fn murmur3_sample(length: u32) -> Sample {
    let x = Numbers::new(3).elements(DataType::U32, length);
    let finalize = |h: u32| {
        let mut x = h ^ (h >> 16);
        x = x.wrapping_mul(0x85eb_ca6b);
        x ^= x >> 13;
        x = x.wrapping_mul(0xc2b2_ae35);
        x ^ (x >> 16)
    };
    Sample {
        label: "u32".into(),
        plan: Box::new(move |_| Ok(murmur3(length))),
        expected: vec![word_bytes(words(&x).into_iter().map(finalize))],
        inputs: vec![x],
        agreement: Agreement::Bits,
    }
}

/// One sample of [`black_scholes`].
pub fn black_scholes_sample(length: u32) -> Sample {
    let (rate, volatility) = (0.02_f32, 0.3_f32);
    let mut numbers = Numbers::new(11);
    let inputs =
        [(5.0, 30.0), (1.0, 100.0), (0.25, 10.0)].map(|(low, high)| numbers.floats(length, low, high));
    let [spot, strike, years] = inputs.each_ref().map(|input| floats(input));
    let (mut call, mut put) = (Vec::new(), Vec::new());
    for ((s, k), t) in spot.into_iter().zip(strike).zip(years) {
        let (s, k, t) = (f64::from(s), f64::from(k), f64::from(t));
        let (rate, volatility) = (f64::from(rate), f64::from(volatility));
        let spread = volatility * t.sqrt();
        let d1 = ((s / k).ln() + (rate + 0.5 * volatility * volatility) * t) / spread;
        let (n1, n2) = (normal(d1), normal(d1 - spread));
        let discounted = k * (-rate * t).exp();
        call.push((s * n1 - discounted * n2) as f32);
        put.push((discounted * (1.0 - n2) - s * (1.0 - n1)) as f32);
    }
    Sample {
        label: "f32".into(),
        plan: Box::new(move |_| Ok(black_scholes(rate, volatility, length))),
        inputs: inputs.to_vec(),
        expected: vec![float_bytes(call), float_bytes(put)],
        agreement: Agreement::Within { absolute: 1e-4, relative: 1e-5 },
    }
}

/// Normal distribution by Marsaglia's series, which converges for all arguments that affect a
/// price.
fn normal(x: f64) -> f64 {
    if x.abs() > 8.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut sum, mut term, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() && odd < 400.0 {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}
