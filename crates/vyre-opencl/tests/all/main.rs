//! Tests of `opencl` that share a process; the one outside this folder stresses the driver alone.

mod absent;
mod differential;
mod dispatch;
mod emitted;
mod oracle;
