//! Compute shaders in WGSL, SPIR-V and GLSL as programs.
//!
//! naga reads and checks the shader; [`import`] makes a [`Program`](vyre_foundation::ir::Program) of one of its entry points, which every backend of
//! vyre runs and whose faults are told at their places in the shader. docs/import.md says what is taken and what
//! differs from what drivers do.
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
//! A shader is not trusted: its size and nesting are limited before naga sees it (`limits.rs`), naga runs on a
//! thread with a stack of its own, and a panic in it is a diagnostic (`read.rs`).

mod fault;
mod imported;
mod limits;
mod lower;
mod mend;
mod read;
mod specialise;

use vyre_foundation::diagnostics::Diagnostics;

pub use imported::{Binding, Imported, Layout};

/// A shader in one of the languages that are read.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// WGSL text.
    Wgsl(&'a str),
    /// GLSL text of a compute shader.
    Glsl(&'a str),
    /// SPIR-V words.
    Spirv(&'a [u32]),
}

/// What to import of a shader.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The entry point; may be left out where there is one.
    pub entry: Option<String>,
    /// Values for overrides and specialisation constants, by name or number.
    pub set: Vec<(String, f64)>,
}

/// One entry point of a shader as a program. A fault has its place in the shader.
pub fn import(source: Source<'_>, options: &Options) -> Result<Imported, Diagnostics> {
    read::with_module(source, options, lower::lower)
}

/// The names of a shader's compute entry points, in order.
///
/// ```
/// use vyre_import::{Source, entry_points};
/// let shader = "@compute @workgroup_size(1) fn a() {} @compute @workgroup_size(1) fn b() {}";
/// assert_eq!(entry_points(Source::Wgsl(shader)).unwrap(), ["a", "b"]);
/// ```
pub fn entry_points(source: Source<'_>) -> Result<Vec<String>, Diagnostics> {
    read::entry_points(source)
}

/// A WGSL text with the spellings that naga refuses and that mean something here written as naga takes them: `enable
/// subgroups;`, and storage that is only written. What is changed keeps its line.
pub fn mended(text: &str) -> String {
    mend::wgsl(text)
}
