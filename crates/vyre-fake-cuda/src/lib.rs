//! Test doubles for `vyre-cuda` on machines without a GPU: an interpreter of PTX ([`ptx`]), and on
//! top of it a CUDA driver ([`driver`]) and an NVRTC ([`nvrtc`]) that load like the real ones.
//!
//! The library is loaded at run time; a test names it as libcuda and as NVRTC. The environment
//! variable `VYRE_FAKE_CUDA` ([`setting`]) configures the devices and injected faults, and
//! `VYRE_REAL_NVRTC` names the real NVRTC.

// These are the functions of a C interface; every block states who upholds what.
#![allow(unsafe_code)]

pub mod driver;
pub mod nvrtc;
pub mod ptx;

/// Numeric setting from `VYRE_FAKE_CUDA`, a list such as `devices=2,sm=90,memory=1048576`.
///
/// | name | meaning | default |
/// |---|---|---|
/// | `devices` | number of devices; the second has a newer architecture | 1 |
/// | `sm` | architecture of the first device | 75 |
/// | `version` | driver version, as `cuDriverGetVersion` counts | 12090 |
/// | `memory` | bytes of device memory | 2^30 |
/// | `pools` | whether stream-ordered allocation is supported | 1 |
/// | `fault`, `at` | error that breaks the context, and the launch at which it does | none |
/// | `hang` | launch that never ends | none |
pub fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var("VYRE_FAKE_CUDA").unwrap_or_default();
    let value = text.split(',').filter_map(|item| item.split_once('=')).find(|(other, _)| *other == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(default)
}
