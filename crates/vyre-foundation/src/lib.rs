//! The pure core of vyre: no unsafe code, no I/O, no device library.
//!
//! Data flows through the modules in this order: [`text`] and [`wire`] read an [`ir::Program`],
//! [`validate`] checks it and creates a [`kernel::Kernel`], which everything downstream
//! (interpreter, optimizer, backends) takes. [`types`] and [`ops`] define values and operations;
//! [`diagnostics`] reports a program's faults.

#![forbid(unsafe_code)]
// Some code is called only by the optimizer.
#![cfg_attr(not(feature = "compiler"), allow(dead_code, unused_imports))]

pub mod diagnostics;
#[cfg(feature = "compiler")]
pub mod docs;
#[cfg(feature = "compiler")]
pub mod elementwise;
#[cfg(feature = "compiler")]
pub mod emit;
#[cfg(any(test, feature = "arbitrary"))]
pub mod fuzzing;
mod half_float;
#[cfg(feature = "compiler")]
pub mod hints;
pub mod ir;
pub mod kernel;
pub mod launch;
#[cfg(feature = "compiler")]
pub mod legalise;
pub mod math;
#[cfg(feature = "compiler")]
pub mod messages;
pub mod ops;
#[cfg(feature = "compiler")]
pub mod optimize;
pub mod text;
pub mod types;
mod validate;
mod visible;
pub mod wire;

pub use visible::visible;
