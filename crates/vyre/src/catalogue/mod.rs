//! Ready ops: programs, families of programs, and plans of several programs, under stable ids.
//!
//! [`OPS`] is the table: every op with its id, what it computes, its parameters, and the sizes it
//! takes. The modules have the functions that make the plans. The shape of a plan (lanes, tiles,
//! chunks) follows from the device's profile; the results do not depend on it: every strict device
//! gives the same bits.
//!
//! Any size works: 0, 1, and lengths that no lane or tile size divides.
//!
//! ```
//! use std::sync::Arc;
//! use vyre::catalogue::scan::{ScanKind, scan};
//! use vyre::unstable::driver::{DispatchConfig, VyreBackend, registry};
//! use vyre::DataType;
//!
//! let backend: Arc<dyn VyreBackend> = registry::acquire("cpu-ref")?.into();
//! let plan = scan(ScanKind::Inclusive, DataType::U32, 4, &backend.device_profile())?;
//! let x: Vec<u8> = [1_u32, 2, 3, 4].iter().flat_map(|v| v.to_le_bytes()).collect();
//! let sums = plan.compile(backend, &DispatchConfig::default())?.run(&[&x])?;
//! let expected: Vec<u8> = [1_u32, 3, 6, 10].iter().flat_map(|v| v.to_le_bytes()).collect();
//! assert_eq!(sums, [expected]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod elementwise;
pub mod family;
pub mod grid;
pub mod histogram;
pub mod matmul;
pub mod plan;
pub mod reduce;
pub mod scan;
pub mod softmax;
pub mod sort;
mod text;

pub use plan::{CompiledPlan, Plan, PlanBuffer, PlanBufferId, PlanError, Role, Step};

/// An op of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct CatalogueOp {
    /// The id, whose meaning never changes.
    pub id: &'static str,
    /// What it computes.
    pub summary: &'static str,
    /// The parameters that a caller chooses.
    pub parameters: &'static str,
    /// Which sizes it takes, and how long its outputs are.
    pub sizes: &'static str,
}

/// The op with this id.
pub fn find(id: &str) -> Option<&'static CatalogueOp> {
    OPS.iter().find(|op| op.id == id)
}

macro_rules! ops {
    ($($id:literal: $summary:literal; $parameters:literal; $sizes:literal;)*) => {
        /// Every op of the catalogue.
        pub const OPS: &[CatalogueOp] = &[$(CatalogueOp {
            id: $id,
            summary: $summary,
            parameters: $parameters,
            sizes: $sizes,
        },)*];
    };
}

ops! {
    "map.unary": "y[i] = op(x[i]).";
        "any op of the op table with one operand; element type"; "any length; y as long as x";
    "map.binary": "z[i] = op(x[i], y[i]).";
        "any op of the op table with two operands of one type; element type"; "any length; x, y and z alike";
    "saxpy": "y[i] = a * x[i] + y[i], rounded twice.";
        "a"; "any length; x and y alike";
    "fill": "y[i] = value.";
        "value, of any value type"; "any length";
    "iota": "y[i] = start + i * step, wrapping.";
        "start; step"; "any length";
    "gather": "y[i] = x[index[i]], zero for an index out of range.";
        "element type"; "any lengths; y as long as index";
    "scatter": "y[index[i]] = x[i], nothing for an index out of range; indices in range are distinct.";
        "element type"; "any lengths; index as long as x";
    "transpose": "y[c * height + r] = x[r * width + c].";
        "element type"; "any width and height with fewer than 2^32 elements";
    "reduce.sum": "The sum of all elements, integers wrapping, floats in the order that the module `reduce` documents.";
        "element type, any number type"; "any length; 0 for none";
    "reduce.min": "The least element; NaNs are skipped.";
        "element type, any number type"; "any length; the greatest value or infinity for none";
    "reduce.max": "The greatest element; NaNs are skipped.";
        "element type, any number type"; "any length; the least value or -infinity for none";
    "dot": "The sum of x[i] * y[i], in the order of reduce.sum.";
        "element type, any number type"; "any length; x and y alike";
    "argmax": "The index of the greatest element, the first of equals; NaNs are skipped.";
        "element type, any number type"; "any length; 2^32 - 1 if there is no number";
    "scan.inclusive": "y[i] = x[0] + … + x[i], floats in the order that the module `scan` documents.";
        "element type, any number type"; "any length, in one block or many";
    "scan.exclusive": "y[i] = x[0] + … + x[i - 1], y[0] = 0.";
        "element type, any number type"; "any length, in one block or many";
    "compact": "The elements x[i] with keep[i] != 0 in order, followed by zeros, and their number.";
        "element type"; "any length; y as long as x";
    "histogram": "counts[v] is how many elements equal v.";
        "element type u8, u16 or u32; 1 to 1024 bins"; "any length; values without a bin are not counted";
    "sort.keys": "The keys in ascending order.";
        "key type u32, i32 or f32 (in the total order of IEEE-754)"; "any length";
    "sort.pairs": "Keys in ascending order with their values of 32 bits; equal keys keep their order.";
        "key type u32, i32 or f32 (in the total order of IEEE-754)"; "any length; keys and values alike";
    "stencil.1d": "y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3; the ends are copied.";
        "none"; "any length";
    "jacobi.2d": "Inner elements become a quarter of the sum of their four neighbours; the border is copied.";
        "none"; "any width and height with fewer than 2^32 elements";
    "convolve.1d": "y[i] = Σ w[k] * x[i + k - taps / 2], zero outside x.";
        "1 to 1024 taps"; "any length";
    "convolve.2d": "The same with a grid of weights on a grid, zero outside.";
        "1 to 1024 weights"; "any width and height with fewer than 2^32 elements";
    "matmul": "c = a b, each element summed along k in order.";
        "shape: panels or tiles; products separate or fused"; "any sizes with fewer than 2^32 elements per matrix";
    "softmax.rows": "y = exp(x - max) / Σ exp(x - max) within each row.";
        "none"; "any rows and columns with fewer than 2^32 elements";
    "mandelbrot": "How many rounds of z² + c each point of a grid stays within |z| ≤ 2.";
        "iterations"; "any width and height with fewer than 2^32 elements";
    "black_scholes": "Prices of European call and put options.";
        "rate; volatility"; "any length; all five buffers alike";
    "murmur3": "The finaliser of MurmurHash3 of every element.";
        "none"; "any length";
}
