//! The tests of `wgpu` that share a process; the one beside this folder stresses the driver, alone.

mod differential;
mod oracle;
mod surroundings;
mod translated;
