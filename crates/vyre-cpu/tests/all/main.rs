//! Tests of `cpu` that share a process; the one outside this folder counts allocations.

mod again;
mod bounds;
mod differential;
mod division;
mod frames;
#[cfg(unix)]
mod in_place;
mod oracle;
#[cfg(unix)]
mod outputs;
mod regions;
mod repeated;
#[cfg(unix)]
mod shapes;
mod small;
mod threads;
