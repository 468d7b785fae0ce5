//! Results do not depend on the number of threads, which is fixed per process, so each count runs
//! in a separate one.

use std::process::Command;
use std::sync::Arc;
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, Binding, DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::text::parse;

#[test]
fn any_number_of_threads_gives_the_same() -> std::io::Result<()> {
    for threads in ["1", "2", "8", "0", "many"] {
        let output = Command::new(std::env::current_exe()?)
            .args(["--exact", "threads::large_dispatches", "--nocapture"])
            .env("VYRE_THREADS", threads)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{threads} threads: {text}");
    }
    Ok(())
}

/// Dispatches large enough to share among threads: long rows, many rows, many workgroups, atomics
/// on shared memory.
#[test]
fn large_dispatches() -> Result<(), BackendError> {
    let backend = Arc::new(Cpu::new()?);
    let wanted =
        std::env::var("VYRE_THREADS").ok().and_then(|text| text.parse::<u32>().ok()).filter(|&n| n > 0);
    if let Some(wanted) = wanted {
        assert_eq!(backend.device_profile().compute_units, wanted);
    }
    let count = 1_000_003_u32;
    let x: Vec<u8> = (0..count).flat_map(|k| (k % 1009).to_le_bytes()).collect();
    let run = |source: &str, outputs: usize| -> Result<Vec<u32>, BackendError> {
        let program = parse(source)?;
        let compiled = pipeline::compile(backend.clone(), &program, &DispatchConfig::default())?;
        let mut y = vec![0; 4 * outputs];
        for _ in 0..3 {
            y.fill(0);
            let mut bindings = [Binding::Read(&x), Binding::ReadWrite(&mut y)];
            compiled.dispatch_bound(&mut bindings, &DispatchConfig::default())?;
        }
        Ok(y.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    };
    let elements = run(
        "kernel row(x: read u32[], y: read_write u32[]) over y workgroup 64 {
           region \"r\" { let i = invocation.x
             y[i] = y[i] + x[i] * 3 + i } }",
        count as usize,
    )?;
    assert!((0..count).zip(&elements).all(|(k, &y)| y == (k % 1009) * 3 + k));
    let rows = run(
        "kernel rows(x: read u32[], y: read_write u32[]) over [1000, 700] workgroup [8, 8] {
           region \"r\" { let i = invocation.y * 1000 + invocation.x
             y[i] = x[i] ^ invocation.y } }",
        700_000,
    )?;
    assert!((0..700_000).zip(&rows).all(|(k, &y)| y == (k % 1009) ^ (k / 1000)));
    let bins = run(
        "kernel bins(x: read u32[], y: read_write u32[], own: workgroup u32[16]) over x workgroup 128 {
           region \"r\" { let i = invocation.x
             if i < len(x) { atomic_add(own, x[i] & 15, 1) }
             barrier
             if local.x < 16 { atomic_add(y, local.x, own[local.x]) } } }",
        16,
    )?;
    let mut expected = vec![0; 16];
    (0..count).for_each(|k| expected[((k % 1009) & 15) as usize] += 1);
    assert_eq!(bins, expected);
    Ok(())
}
