//! The backend `wgpu`: Vulkan, Metal and DX12 through wgpu, on any adapter, software ones included.
//!
//! A kernel is optimized and emitted as a naga module (`emit`), written as SPIR-V that keeps drivers from rewriting float
//! arithmetic (`spirv`) or handed to wgpu as it is, compiled once per form of dispatch (`variant`), and run with memory
//! that is kept between dispatches (`run`). What a device does with floats is tried before it is claimed
//! (`self_test`).

#![allow(unsafe_code)] // Shaders and cache data are given to drivers unchecked; every block says who upholds what.

mod backend;
mod compiled;
mod core;
mod device;
mod driver_cache;
mod emit;
mod memory;
mod run;
mod self_test;
mod shader;
mod spirv;

pub use backend::{LINKED, Wgpu};
pub use device::BACKEND_ID;
pub use shader::{spirv, wgsl};
