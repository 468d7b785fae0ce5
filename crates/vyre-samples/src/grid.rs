//! Samples of transposition, stencils, convolution and the Mandelbrot set.

use crate::sample::{Agreement, Numbers, Sample, float_bytes, floats, stored, values, word_bytes};
use vyre::catalogue::grid::{convolve, convolve_grid, jacobi, mandelbrot, stencil, transpose};
use vyre_foundation::ir::{DataType, Value};

/// Sides of a grid of about `length` elements.
fn sides(length: u32) -> (u32, u32) {
    let width = length.isqrt() + u32::from(length.isqrt().pow(2) < length);
    (width, length.checked_div(width).unwrap_or(0))
}

pub(crate) fn transpose_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    let sample = |element: DataType| {
        let input = Numbers::new(u64::from(length)).elements(element, width * height);
        let source = values(element, &input);
        let places = (0..width).flat_map(|c| (0..height).map(move |r| (r * width + c) as usize));
        let turned: Vec<Value> = places.filter_map(|place| source.get(place).copied()).collect();
        Sample {
            label: element.name().into(),
            plan: Box::new(move |device| transpose(element, width, height, device)),
            inputs: vec![input],
            expected: vec![stored(element, &turned)],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32, DataType::F64].map(sample).into()
}

pub(crate) fn stencil_samples(length: u32) -> Vec<Sample> {
    let input = Numbers::new(u64::from(length)).floats(length, -1.0, 1.0);
    let x = floats(&input);
    let result = (0..x.len()).map(|i| match (i.checked_sub(1), x.get(i + 1)) {
        (Some(before), Some(after)) => (x[before] + x[i] + after) / 3.0,
        _ => x[i],
    });
    vec![Sample {
        label: "f32".into(),
        plan: Box::new(move |_| Ok(stencil(length))),
        expected: vec![float_bytes(result)],
        inputs: vec![input],
        agreement: Agreement::Bits,
    }]
}

/// One sample of [`jacobi`].
pub fn jacobi_sample(width: u32, height: u32) -> Sample {
    let (w, h) = (width as usize, height as usize);
    let input = Numbers::new(5).floats(width * height, -1.0, 1.0);
    let x = floats(&input);
    let mut y = x.clone();
    for row in 1..h.saturating_sub(1) {
        for column in 1..w.saturating_sub(1) {
            let i = row * w + column;
            y[i] = 0.25 * (x[i - 1] + x[i + 1] + x[i - w] + x[i + w]);
        }
    }
    Sample {
        label: format!("{width} by {height}"),
        plan: Box::new(move |_| jacobi(width, height)),
        inputs: vec![input],
        expected: vec![float_bytes(y)],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn jacobi_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    vec![jacobi_sample(width, height), jacobi_sample(length.min(1000), 1), jacobi_sample(1, length.min(1000))]
}

pub(crate) fn convolve_samples(length: u32) -> Vec<Sample> {
    let sample = |taps: u32| {
        let mut numbers = Numbers::new(u64::from(length));
        let (input, weights) = (numbers.floats(length, -1.0, 1.0), numbers.floats(taps, -1.0, 1.0));
        let (x, w) = (floats(&input), floats(&weights));
        let tap = |i: usize, k: usize| (i + k).checked_sub(w.len() / 2).and_then(|at| x.get(at).copied());
        let result =
            (0..x.len()).map(|i| (0..w.len()).fold(0.0_f32, |sum, k| sum + w[k] * tap(i, k).unwrap_or(0.0)));
        let expected = float_bytes(result);
        Sample {
            label: format!("{taps} taps"),
            plan: Box::new(move |_| convolve(taps, length)),
            inputs: vec![input, weights],
            expected: vec![expected],
            agreement: Agreement::Bits,
        }
    };
    [1, 5, 8].map(sample).into()
}

pub(crate) fn convolve_grid_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    let sample = |(columns, rows): (u32, u32)| {
        let mut numbers = Numbers::new(u64::from(length));
        let input = numbers.floats(width * height, -1.0, 1.0);
        let weights = numbers.floats(columns * rows, -1.0, 1.0);
        let (x, w) = (floats(&input), floats(&weights));
        let at = |column: i64, row: i64| {
            let inside = (0..i64::from(width)).contains(&column) && (0..i64::from(height)).contains(&row);
            if inside { x[(row * i64::from(width) + column) as usize] } else { 0.0 }
        };
        let mut result = Vec::with_capacity(x.len());
        for row in 0..i64::from(height) {
            for column in 0..i64::from(width) {
                let mut sum = 0.0;
                for j in 0..i64::from(rows) {
                    for i in 0..i64::from(columns) {
                        let weight = w[(j * i64::from(columns) + i) as usize];
                        sum +=
                            weight * at(column + i - i64::from(columns / 2), row + j - i64::from(rows / 2));
                    }
                }
                result.push(sum);
            }
        }
        let expected = float_bytes(result);
        Sample {
            label: format!("{columns} by {rows}"),
            plan: Box::new(move |_| convolve_grid(width, height, columns, rows)),
            inputs: vec![input, weights],
            expected: vec![expected],
            agreement: Agreement::Bits,
        }
    };
    [(3, 3), (2, 5)].map(sample).into()
}

/// One sample of [`mandelbrot`].
pub fn mandelbrot_sample(width: u32, height: u32, iterations: u32) -> Sample {
    let point = |column: u32, row: u32| {
        let cx = column as f32 / width as f32 * 3.0 - 2.25;
        let cy = row as f32 / height as f32 * 2.5 - 1.25;
        let (mut x, mut y, mut n) = (0.0_f32, 0.0_f32, 0);
        while n < iterations && x * x + y * y <= 4.0 {
            let (xx, yy) = (x * x, y * y);
            y = 2.0 * x * y + cy;
            x = xx - yy + cx;
            n += 1;
        }
        n
    };
    Sample {
        label: format!("{width} by {height}"),
        plan: Box::new(move |_| mandelbrot(width, height, iterations)),
        inputs: Vec::new(),
        expected: vec![word_bytes((0..height).flat_map(|row| (0..width).map(move |c| point(c, row))))],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn mandelbrot_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    vec![mandelbrot_sample(width, height, 50)]
}
