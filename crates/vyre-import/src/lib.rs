//! Imports compute shaders in WGSL, SPIR-V and GLSL as programs.
//!
//! naga reads and validates the shader; [`import`] turns one of its entry points into a
//! [`Program`](vyre_foundation::ir::Program), which every backend of vyre runs and whose faults are
//! reported at their positions in the shader. docs/import.md lists what is supported and what
//! differs from drivers.
//!
//! ```
//! use vyre_import::{Options, Source, import};
//! let shader = "
//!     @group(0) @binding(0) var<storage, read_write> x: array<f32>;
//!     @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3<u32>) {
//!         if (id.x < arrayLength(&x)) { x[id.x] = 2.0 * x[id.x]; }
//!     }";
//! let imported = import(Source::Wgsl(shader), &Options::default()).unwrap();
//! assert_eq!(imported.program.name().map(|name| &**name), Some("double"));
//! assert_eq!(imported.bindings[0].name, "x");
//! assert!(imported.program.validate().is_ok());
//! ```
//!
//! Shaders are untrusted: their size and nesting are limited before naga sees them (`limits.rs`),
//! naga runs on a dedicated thread with a large stack, and a panic in it becomes a diagnostic
//! (`read.rs`).

mod fault;
mod imported;
mod limits;
mod lower;
mod read;
mod specialise;
mod wgsl_spellings;

use vyre_foundation::diagnostics::Diagnostics;

pub use imported::{Imported, Layout, ShaderBinding};

/// A shader in one of the supported languages.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// WGSL text.
    Wgsl(&'a str),
    /// GLSL text of a compute shader.
    Glsl(&'a str),
    /// SPIR-V words.
    Spirv(&'a [u32]),
}

/// Options for importing a shader.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the entry point; optional if there is only one.
    pub entry: Option<String>,
    /// Values for overrides and specialisation constants, by name or number.
    pub set: Vec<(String, f64)>,
}

/// Imports one entry point of a shader as a program. Faults carry their position in the shader.
pub fn import(source: Source<'_>, options: &Options) -> Result<Imported, Diagnostics> {
    read::with_module(source, options, lower::lower)
}

/// Names of a shader's compute entry points, in order.
///
/// ```
/// use vyre_import::{Source, entry_points};
/// let shader = "@compute @workgroup_size(1) fn a() {} @compute @workgroup_size(1) fn b() {}";
/// assert_eq!(entry_points(Source::Wgsl(shader)).unwrap(), ["a", "b"]);
/// ```
pub fn entry_points(source: Source<'_>) -> Result<Vec<String>, Diagnostics> {
    read::entry_points(source)
}

/// Rewrites spellings in a WGSL text that are supported here but that naga rejects:
/// `enable subgroups;`, and write-only storage. Line numbers are preserved.
pub fn mended(text: &str) -> String {
    wgsl_spellings::rewrite(text)
}
