//! Links the command at a fixed address on Linux with glibc.
//!
//! A position-independent command has 25,000 relocations, nearly all for the places of panics; the
//! dynamic linker writes them before `main` and touches 140 pages. Without them a fresh process has
//! its first result after 3.7 ms instead of 4.3 (`vyre bench --cold-start cpu` under `perf stat -r
//! 60`, page faults 252 instead of 365). The heap, the stack, libraries and the code of kernels
//! stay at random addresses.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    let is_static = env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|all| all.contains("crt-static"));
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static {
        println!("cargo::rustc-link-arg-bin=vyre=-no-pie");
    }
}
