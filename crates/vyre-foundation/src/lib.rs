//! The pure core of vyre: no unsafe code, no input or output, no device library.
//!
//! The data flows through the modules in this order: [`text`] and [`wire`] read a [`ir::Program`], [`validate`]
//! checks it and makes a [`kernel::Kernel`], which everything downstream (interpreter, optimizer, backends) takes.
//! [`types`] and [`ops`] define what values and operations are; [`diagnostics`] is how a program's faults are told.

#![forbid(unsafe_code)]

pub mod diagnostics;
pub mod docs;
pub mod emit;
#[cfg(any(test, feature = "arbitrary"))]
pub mod fuzzing;
mod half_float;
pub mod hints;
pub mod ir;
pub mod kernel;
pub mod launch;
pub mod legalise;
pub mod math;
pub mod messages;
pub mod ops;
pub mod optimize;
pub mod text;
pub mod types;
mod validate;
mod visible;
pub mod wire;

pub use visible::visible;
