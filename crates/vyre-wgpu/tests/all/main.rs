//! Tests of `wgpu` that share a process; the one outside this folder stresses the driver alone.

mod differential;
mod oracle;
mod surroundings;
mod translated;
