//! The benchmark's workloads: one row each, with the machine limit it is measured against and its
//! native peer.

use super::native::PeerSource;
use std::sync::Arc;
use vyre::catalogue::matmul::Sizes;
use vyre::catalogue::scan::ScanKind;
use vyre::catalogue::sort::Key;
use vyre_foundation::ir::{Combine, DataType};
use vyre_samples::{
    Agreement, Sample, elementwise, grid, histogram, matmul, reduce, scan, softmax, sort, words,
};

/// Kind of machine limit that a row is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Memory copy.
    Copy,
    /// In-place memory update.
    Update,
    /// Memory read.
    Read,
    /// `f32` multiply-add.
    MultiplyAdd,
}

impl Limit {
    /// Name of the limit; its C file has the same name after `limit_`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Limit::Copy => "copy",
            Limit::Update => "update",
            Limit::Read => "read",
            Limit::MultiplyAdd => "multiply_add",
        }
    }
}

/// Array passed to a native peer.
pub(crate) enum PeerArray<'s> {
    /// Bytes of a parameter, and the element size in bytes.
    Value(Vec<u8>, usize),
    /// Bytes of one of the sample's inputs, and the element size in bytes.
    Input(&'s [u8], usize),
    /// Input that the peer overwrites and that is restored before each run: its bytes and element
    /// size.
    Restored(&'s [u8], usize),
    /// Zeroed array: element count and element size in bytes.
    Zeros(usize, usize),
}

/// Row of the benchmark.
pub(crate) struct Workload {
    /// Name shown in tables and matched by `--only`.
    pub name: &'static str,
    /// Name of the native peer's C file, without extension.
    pub native: &'static str,
    pub limit: Limit,
    pub sample: fn() -> Sample,
    /// Arrays passed to the peer, in its argument order.
    pub arrays: fn(&Sample) -> Vec<PeerArray<'_>>,
    /// Pairs of a peer array and the output that it must match within `agreement`.
    pub results: &'static [(usize, usize)],
    pub agreement: Agreement,
    /// Least number of bytes that any implementation reads and writes.
    pub bytes: u64,
    /// Number of float operations, or of the integer operations that replace them.
    pub operations: fn(&Sample) -> f64,
}

impl Workload {
    /// Builds the [`BenchTask`] for this row.
    pub(crate) fn task(&'static self) -> BenchTask {
        let sample = Arc::new((self.sample)());
        BenchTask {
            name: self.name.into(),
            native: Some(PeerSource::BuiltIn(self.native.into())),
            limit: self.limit,
            bytes: self.bytes,
            operations: (self.operations)(&sample),
            sample,
            arrays: Box::new(self.arrays),
            results: self.results.to_vec(),
            fault: Box::new(|_, expected, given| self.agreement.fault(expected, given)),
        }
    }
}

/// Builds the peer's arrays from a sample.
pub(crate) type Arrays = Box<dyn for<'s> Fn(&'s Sample) -> Vec<PeerArray<'s>>>;
/// Compares a peer's output with the expected bytes and describes any mismatch. The arguments are
/// the output's index, the expected bytes and the actual bytes.
pub(crate) type Fault = Box<dyn Fn(usize, &[u8], &[u8]) -> Option<String>>;

/// Row that is ready to be measured.
pub(crate) struct BenchTask {
    pub name: String,
    pub native: Option<PeerSource>,
    pub limit: Limit,
    pub bytes: u64,
    pub operations: f64,
    pub sample: Arc<Sample>,
    pub arrays: Arrays,
    /// Pairs of a peer array and the output that it must match.
    pub results: Vec<(usize, usize)>,
    pub fault: Fault,
}

const NEAR: Agreement = Agreement::Within { absolute: 1e-3, relative: 1e-3 };
const M: u64 = 1 << 20;

fn saxpy_arrays(sample: &Sample) -> Vec<PeerArray<'_>> {
    let [x, y] = [0, 1].map(|k| PeerArray::Input(&sample.inputs[k], 4));
    vec![PeerArray::Value(2.5_f32.to_le_bytes().into(), 4), x, y]
}

fn to_one(sample: &Sample) -> Vec<PeerArray<'_>> {
    vec![PeerArray::Input(&sample.inputs[0], 4), PeerArray::Zeros(1, 4)]
}

fn square_product(side: u32) -> Sample {
    matmul::matmul_sample(Sizes { rows: side, depth: side, columns: side })
}

fn product_arrays(sample: &Sample) -> Vec<PeerArray<'_>> {
    let count = sample.expected[0].len() / 4;
    let side = count.isqrt() as u32;
    let [a, b] = [0, 1].map(|k| PeerArray::Input(&sample.inputs[k], 4));
    vec![PeerArray::Value(side.to_le_bytes().into(), 4), a, b, PeerArray::Zeros(count, 4)]
}

fn saxpy_operations(sample: &Sample) -> f64 {
    sample.inputs[0].len() as f64 / 2.0
}

fn per_word(sample: &Sample) -> f64 {
    sample.inputs[0].len() as f64 / 4.0
}

/// All rows. `--only` selects by substring of the name.
pub(crate) const WORKLOADS: &[Workload] = &[
    saxpy("saxpy 2^10", 1 << 10, || elementwise::saxpy_sample(1 << 10)),
    saxpy("saxpy 2^16", 1 << 16, || elementwise::saxpy_sample(1 << 16)),
    saxpy("saxpy 2^20", 1 << 20, || elementwise::saxpy_sample(1 << 20)),
    saxpy("saxpy 2^24", 1 << 24, || elementwise::saxpy_sample(1 << 24)),
    Workload {
        name: "sum f32 2^24",
        native: "sum_f32",
        limit: Limit::Read,
        sample: || reduce::reduce_sample(Combine::Add, DataType::F32, 1 << 24),
        arrays: to_one,
        results: &[(1, 0)],
        // The peer sums sequentially.
        agreement: Agreement::Within { absolute: 16.0, relative: 1e-2 },
        bytes: 64 * M,
        operations: per_word,
    },
    Workload {
        name: "sum u32 2^24",
        native: "sum_u32",
        limit: Limit::Read,
        sample: || reduce::reduce_sample(Combine::Add, DataType::U32, 1 << 24),
        arrays: to_one,
        results: &[(1, 0)],
        agreement: Agreement::Bits,
        bytes: 64 * M,
        operations: per_word,
    },
    Workload {
        name: "scan u32 2^24",
        native: "scan_u32",
        limit: Limit::Copy,
        sample: || scan::scan_sample(ScanKind::Inclusive, DataType::U32, 1 << 24),
        arrays: |sample| {
            vec![PeerArray::Input(&sample.inputs[0], 4), PeerArray::Zeros(1, 4), PeerArray::Zeros(1 << 24, 4)]
        },
        results: &[(2, 0)],
        agreement: Agreement::Bits,
        bytes: 128 * M,
        operations: per_word,
    },
    Workload {
        name: "histogram u8 2^24",
        native: "histogram",
        limit: Limit::Read,
        sample: || histogram::histogram_sample(DataType::U8, 256, 1 << 24),
        arrays: |sample| vec![PeerArray::Input(&sample.inputs[0], 1), PeerArray::Zeros(256, 4)],
        results: &[(1, 0)],
        agreement: Agreement::Bits,
        bytes: 16 * M,
        operations: |sample| sample.inputs[0].len() as f64,
    },
    Workload {
        name: "jacobi 4096x4096",
        native: "jacobi",
        limit: Limit::Copy,
        sample: || grid::jacobi_sample(4096, 4096),
        arrays: |sample| {
            let side = PeerArray::Value(4096_u32.to_le_bytes().into(), 4);
            vec![side, PeerArray::Input(&sample.inputs[0], 4), PeerArray::Zeros(1 << 24, 4)]
        },
        results: &[(2, 0)],
        agreement: Agreement::Bits,
        bytes: 128 * M,
        operations: |sample| 4.0 * per_word(sample),
    },
    product("matmul 512", 3 * M, || square_product(512), |_| 2.0 * 512_f64.powi(3)),
    product("matmul 1024", 12 * M, || square_product(1024), |_| 2.0 * 1024_f64.powi(3)),
    Workload {
        name: "mandelbrot 1024x1024",
        native: "mandelbrot",
        limit: Limit::MultiplyAdd,
        sample: || grid::mandelbrot_sample(1024, 1024, 256),
        arrays: |_| vec![PeerArray::Value(1024_u32.to_le_bytes().into(), 4), PeerArray::Zeros(1 << 20, 4)],
        results: &[(1, 0)],
        agreement: Agreement::Bits,
        bytes: 4 * M,
        // One iteration has four products, three sums and a comparison.
        operations: |sample| 8.0 * words(&sample.expected[0]).iter().map(|&n| f64::from(n)).sum::<f64>(),
    },
    Workload {
        name: "black_scholes 2^20",
        native: "options",
        limit: Limit::Copy,
        sample: || elementwise::black_scholes_sample(1 << 20),
        arrays: |sample| {
            let parameters = [0.02_f32, 0.3].map(|value| PeerArray::Value(value.to_le_bytes().into(), 4));
            let inputs = sample.inputs.iter().map(|input| PeerArray::Input(input, 4));
            let outputs = [(); 2].map(|()| PeerArray::Zeros(1 << 20, 4));
            parameters.into_iter().chain(inputs).chain(outputs).collect()
        },
        results: &[(5, 0), (6, 1)],
        agreement: NEAR,
        bytes: 20 * M,
        // Counted from the expansions of log, exp and erf.
        operations: |sample| 150.0 * per_word(sample),
    },
    Workload {
        name: "softmax 4096x1024",
        native: "softmax",
        limit: Limit::Copy,
        sample: || softmax::rows_sample(4096, 1024),
        arrays: |sample| {
            let columns = PeerArray::Value(1024_u32.to_le_bytes().into(), 4);
            vec![columns, PeerArray::Input(&sample.inputs[0], 4), PeerArray::Zeros(4 << 20, 4)]
        },
        results: &[(2, 0)],
        agreement: NEAR,
        bytes: 32 * M,
        // Counted from the expansion of exp.
        operations: |sample| 35.0 * per_word(sample),
    },
    Workload {
        name: "murmur3 2^24",
        native: "murmur3",
        limit: Limit::Copy,
        sample: || elementwise::murmur3_sample(1 << 24),
        arrays: |sample| vec![PeerArray::Input(&sample.inputs[0], 4), PeerArray::Zeros(1 << 24, 4)],
        results: &[(1, 0)],
        agreement: Agreement::Bits,
        bytes: 128 * M,
        operations: |sample| 8.0 * per_word(sample),
    },
    Workload {
        name: "sort u32 2^22",
        native: "sort_u32",
        limit: Limit::Copy,
        sample: || sort::keys_sample(Key::U32, 1 << 22),
        arrays: |sample| vec![PeerArray::Restored(&sample.inputs[0], 4), PeerArray::Zeros(1 << 22, 4)],
        results: &[(0, 0)],
        agreement: Agreement::Bits,
        bytes: 32 * M,
        operations: per_word,
    },
];

const fn saxpy(name: &'static str, length: u64, sample: fn() -> Sample) -> Workload {
    Workload {
        name,
        native: "saxpy",
        limit: Limit::Update,
        sample,
        arrays: saxpy_arrays,
        results: &[(2, 0)],
        agreement: Agreement::Bits,
        bytes: 12 * length,
        operations: saxpy_operations,
    }
}

const fn product(
    name: &'static str,
    bytes: u64,
    sample: fn() -> Sample,
    operations: fn(&Sample) -> f64,
) -> Workload {
    Workload {
        name,
        native: "matmul",
        limit: Limit::MultiplyAdd,
        sample,
        arrays: product_arrays,
        results: &[(3, 0)],
        agreement: NEAR,
        bytes,
        operations,
    }
}
