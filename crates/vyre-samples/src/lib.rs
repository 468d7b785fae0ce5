//! Inputs and expected results for the ready-made ops, for tests and `vyre bench`. Never linked by
//! users.
//!
//! Every op has samples of any size: inputs, the outputs of a straightforward computation in Rust,
//! and how closely a backend must agree.

#![forbid(unsafe_code)]

pub mod elementwise;
pub mod grid;
pub mod histogram;
pub mod matmul;
pub mod reduce;
mod sample;
pub mod scan;
pub mod softmax;
pub mod sort;

pub use sample::{Agreement, MakePlan, Numbers, Sample, floats, words};

use vyre::catalogue::scan::ScanKind;
use vyre_foundation::ir::Combine;

/// Samples of the op with this ID, with about `length` elements; empty for an unknown ID.
pub fn of(op: &str, length: u32) -> Vec<Sample> {
    match op {
        "map.unary" => elementwise::unary_samples(length),
        "map.binary" => elementwise::binary_samples(length),
        "saxpy" => vec![elementwise::saxpy_sample(length)],
        "fill" => elementwise::fill_samples(length),
        "iota" => elementwise::iota_samples(length),
        "gather" => elementwise::gather_samples(length),
        "scatter" => elementwise::scatter_samples(length),
        "transpose" => grid::transpose_samples(length),
        "reduce.sum" => reduce::reduce_samples(Combine::Add, length),
        "reduce.min" => reduce::reduce_samples(Combine::Min, length),
        "reduce.max" => reduce::reduce_samples(Combine::Max, length),
        "dot" => reduce::dot_samples(length),
        "argmax" => reduce::argmax_samples(length),
        "scan.inclusive" => scan::scan_samples(ScanKind::Inclusive, length),
        "scan.exclusive" => scan::scan_samples(ScanKind::Exclusive, length),
        "compact" => scan::compact_samples(length),
        "histogram" => histogram::samples(length),
        "sort.keys" => sort::keys_samples(length),
        "sort.pairs" => sort::pairs_samples(length),
        "stencil.1d" => grid::stencil_samples(length),
        "jacobi.2d" => grid::jacobi_samples(length),
        "convolve.1d" => grid::convolve_samples(length),
        "convolve.2d" => grid::convolve_grid_samples(length),
        "matmul" => matmul::samples(length),
        "softmax.rows" => softmax::samples(length),
        "mandelbrot" => grid::mandelbrot_samples(length),
        "black_scholes" => vec![elementwise::black_scholes_sample(length)],
        "murmur3" => vec![elementwise::murmur3_sample(length)],
        _ => Vec::new(),
    }
}
