//! Kernels with more live values than there are registers.

use vyre_cpu::Cpu;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::Program;
use vyre_foundation::text::parse;

/// Each invocation reads `values` elements, combines them, stores the result over one of them, and
/// then combines the values again in reverse order: all of them stay live in between.
fn hoarder(values: usize) -> Result<Program, BackendError> {
    let reads: String = (0..values).map(|k| format!("let a{k} = y[i * {values} + {k}]\n")).collect();
    let use_of = |k: usize| format!("s = s * 0.5 + a{k}\n");
    let (first, again): (String, String) =
        ((0..values).map(use_of).collect(), (0..values).rev().map(use_of).collect());
    let source = format!(
        "kernel hoarder(z: read_write f32[], y: read_write f32[]) over z workgroup 64 {{
           region \"r\" {{ let i = invocation.x
             {reads} let s = 0.0
             {first} y[i * {values}] = s
             {again} z[i] = s }} }}"
    );
    Ok(parse(&source)?)
}

#[test]
fn values_without_a_register_survive_on_a_stack_of_several_pages() -> Result<(), BackendError> {
    let (count, values) = (64, 150);
    let number = |i: usize, k: usize| ((i * 7 + k * 3) % 16) as f32;
    let y: Vec<u8> =
        (0..count).flat_map(|i| (0..values).flat_map(move |k| number(i, k).to_le_bytes())).collect();
    let outputs =
        Cpu::new()?.dispatch(&hoarder(values)?, &[vec![0; 4 * count], y], &DispatchConfig::default())?;
    for (i, given) in outputs[0].chunks(4).enumerate() {
        let expected = (0..values).chain((0..values).rev()).fold(0.0_f32, |sum, k| sum * 0.5 + number(i, k));
        assert_eq!(given, expected.to_le_bytes());
    }
    Ok(())
}
