//! Samples of matrix products.

use crate::sample::{Agreement, Numbers, Sample, float_bytes, floats};
use vyre::catalogue::matmul::{MatmulShape, Multiply, Sizes, matmul, matmul_shaped};

/// Sample of a product in the device's preferred shape.
pub fn matmul_sample(sizes: Sizes) -> Sample {
    sample(sizes, None)
}

/// Sample of a product, in a given shape or in the device's.
fn sample(sizes: Sizes, forced: Option<(Multiply, MatmulShape)>) -> Sample {
    let Sizes { rows, depth, columns } = sizes;
    let mut numbers = Numbers::new(21);
    let (left, right) = (numbers.floats(rows * depth, -1.0, 1.0), numbers.floats(depth * columns, -1.0, 1.0));
    let fused = matches!(forced, Some((Multiply::Fused, _)));
    let (a, b) = (floats(&left), floats(&right));
    let mut product = Vec::with_capacity((rows * columns) as usize);
    let mut sums = vec![0.0_f32; columns as usize];
    for row in 0..rows as usize {
        sums.fill(0.0);
        for k in 0..depth as usize {
            let factor = a[row * depth as usize + k];
            let along = &b[k * columns as usize..(k + 1) * columns as usize];
            for (sum, &b) in sums.iter_mut().zip(along) {
                *sum = if fused { factor.mul_add(b, *sum) } else { *sum + factor * b };
            }
        }
        product.extend_from_slice(&sums);
    }
    let label = match forced {
        None => format!("{rows} by {depth} by {columns}"),
        Some((multiply, shape)) => format!("{rows} by {depth} by {columns} {multiply:?} {shape:?}"),
    };
    Sample {
        label,
        plan: Box::new(move |device| match forced {
            None => matmul(sizes, device),
            Some((multiply, shape)) => matmul_shaped(sizes, multiply, shape),
        }),
        inputs: vec![left, right],
        expected: vec![float_bytes(product)],
        agreement: Agreement::Bits,
    }
}

pub(crate) fn samples(length: u32) -> Vec<Sample> {
    let side = length.isqrt();
    let sizes = [
        Sizes { rows: side, depth: side, columns: side },
        Sizes { rows: side.min(7), depth: side + 1, columns: length.min(70) },
    ];
    let shapes = [
        None,
        Some((Multiply::Fused, MatmulShape::Panels { rows: 6, lanes: 8 })),
        Some((Multiply::Separate, MatmulShape::Tiles { side: 8, each: 2 })),
        Some((Multiply::Separate, MatmulShape::Tiles { side: 16, each: 1 })),
    ];
    sizes.into_iter().flat_map(|sizes| shapes.map(|shape| sample(sizes, shape))).collect()
}
