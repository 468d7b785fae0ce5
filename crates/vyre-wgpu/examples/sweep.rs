//! Large dispatches at every workgroup size that the device allows: each gives correct results, or
//! an error that names the size.
//!
//! ```text
//! cargo run --release -p vyre-wgpu --example sweep \
//!     [log2 of the elements, 24] [first size] [last size]
//! ```

use std::error::Error;
use std::time::Instant;
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::text::parse;
use vyre_wgpu::Wgpu;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|argument| argument.parse()).collect();
    let numbers = numbers?;
    let count = 1_usize << numbers.first().copied().unwrap_or(24);
    let gpu = Wgpu::new()?;
    let limit = gpu.device_profile().max_invocations_per_workgroup;
    let first = numbers.get(1).copied().unwrap_or(1);
    let last = numbers.get(2).copied().unwrap_or(limit).min(limit);
    let program = parse(&format!(
        "kernel count(y: output u32[{count}]) workgroup 64 {{
           region \"r\" {{ y[invocation.x] = invocation.x * 3 }} }}"
    ))?;
    for size in first..=last {
        let start = Instant::now();
        let config = DispatchConfig { workgroup_override: Some([size, 1, 1]), ..DispatchConfig::default() };
        let outputs = gpu.dispatch_borrowed(&program, &[], &config)?;
        let words = outputs[0].as_chunks::<4>().0;
        let right = |(k, word): (usize, &[u8; 4])| u32::from_le_bytes(*word) == (k as u32).wrapping_mul(3);
        if words.len() != count || !words.iter().enumerate().all(right) {
            return Err(format!("wrong with workgroups of {size}").into());
        }
        println!("workgroups of {size}: {count} elements right, {:.1?}", start.elapsed());
    }
    Ok(())
}
