//! For tests of `vyre-cuda` on machines without a GPU: an interpreter of PTX ([`ptx`]), and on top of it a CUDA driver
//! ([`driver`]) and an NVRTC ([`nvrtc`]) that load like the real ones.
//!
//! The library is built as one that is loaded at run time; a test names it as libcuda and as NVRTC. What the devices are
//! and what goes wrong is in the environment variable `VYRE_FAKE_CUDA` ([`setting`]), the real NVRTC in
//! `VYRE_REAL_NVRTC`.

#![allow(unsafe_code)] // The functions are those of a C interface; every block says who upholds what.

pub mod driver;
pub mod nvrtc;
pub mod ptx;

/// A number from `VYRE_FAKE_CUDA`, which is a list such as `devices=2,sm=90,memory=1048576`.
///
/// | name | meaning | default |
/// |---|---|---|
/// | `devices` | how many there are; the second has a newer architecture | 1 |
/// | `sm` | the first one's architecture | 75 |
/// | `version` | the driver's, as `cuDriverGetVersion` counts | 12090 |
/// | `memory` | bytes that a device has | 2^30 |
/// | `pools` | whether memory can be allocated in a stream's order | 1 |
/// | `fault`, `at` | the error that breaks the context, at which launch | none |
/// | `hang` | the launch that never ends | none |
pub fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var("VYRE_FAKE_CUDA").unwrap_or_default();
    let value = text.split(',').filter_map(|item| item.split_once('=')).find(|(other, _)| *other == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(default)
}
