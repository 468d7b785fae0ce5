//! The backend `wgpu`: Vulkan, Metal and DX12 through wgpu, on any adapter, including software
//! ones.
//!
//! A kernel is optimized and emitted as a naga module (`emit`), written as SPIR-V that keeps
//! drivers from rewriting float arithmetic (`spirv`) or passed to wgpu unchanged, compiled once per
//! form of dispatch (`compiled`), and run with memory that is reused between dispatches (`run`). A
//! device's float behaviour is tested before it is claimed (`self_test`).

#![allow(unsafe_code)] // Drivers get shaders and cache data unchecked; see each SAFETY.

mod backend;
mod compiled;
mod device;
mod driver_cache;
mod emit;
mod memory;
mod run;
mod self_test;
mod shader;
mod spirv;
mod wgpu_device;

pub use backend::{LINKED, Wgpu};
pub use device::BACKEND_ID;
pub use shader::{spirv, wgsl};
