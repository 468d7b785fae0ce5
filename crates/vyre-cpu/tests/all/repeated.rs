//! Consecutive calls of one pipeline: a cached plan serves only calls like the one it was made for.

use vyre_cpu::Cpu;
use vyre_driver::{BackendError, Binding, DispatchConfig, VyreBackend};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;

/// The domain and the range checks depend on uniforms, the output is fully written only if the
/// domain is as long as it, and the loop's bound comes from memory.
const SOURCE: &str =
    "kernel k(w: u32 uniform, s: u32 uniform, x: read u32[], ends: read u32[], y: output u32[] len_of x) over [w] {
        let i = invocation.x
        let sum = 0
        for k in 0..ends[0] { sum = sum + x[i * s + k] }
        y[i] = sum
    }";

struct Call {
    width: u32,
    step: u32,
    length: usize,
    end: u32,
    domain: Option<[u32; 3]>,
    workgroup: Option<[u32; 3]>,
}

fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    let mut state = 1_u32;
    let mut pick = |from: &[u32]| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        from[(state >> 16) as usize % from.len()]
    };
    for _ in 0..400 {
        let domain = match pick(&[0, 0, 0, 3, 40]) {
            0 => None,
            width => Some([width, 1, 1]),
        };
        let workgroup = if pick(&[0, 0, 1]) == 1 { Some([8, 1, 1]) } else { None };
        calls.push(Call {
            width: pick(&[0, 1, 31, 32, 64]),
            step: pick(&[0, 1, 2, u32::MAX]),
            length: pick(&[0, 1, 32, 64]) as usize,
            end: pick(&[0, 1, 4]),
            domain,
            workgroup,
        });
    }
    calls
}

#[test]
fn a_kept_plan_serves_only_calls_like_its_own() -> Result<(), BackendError> {
    let program = parse(SOURCE)?.in_regions();
    let backends: [Box<dyn VyreBackend>; 2] = [Box::new(Cpu::new()?), Box::new(CpuRef)];
    let mut pipelines = Vec::new();
    for backend in &backends {
        pipelines.extend(backend.compile_native(&program, &DispatchConfig::default())?);
    }
    assert_eq!(pipelines.len(), 2);
    for (number, call) in calls().into_iter().enumerate() {
        let (width, step, end) = (call.width.to_le_bytes(), call.step.to_le_bytes(), call.end.to_le_bytes());
        let x: Vec<u8> = (0..call.length as u32).flat_map(|k| (k * k + 1).to_le_bytes()).collect();
        let config = DispatchConfig {
            domain_override: call.domain,
            workgroup_override: call.workgroup,
            ..DispatchConfig::default()
        };
        let expected = CpuRef.dispatch_borrowed(&program, &[&width, &step, &x, &end], &config)?;
        for pipeline in &pipelines {
            let mut y = vec![0xAA; x.len()];
            let mut bindings = [
                Binding::Read(&width),
                Binding::Read(&step),
                Binding::Read(&x),
                Binding::Read(&end),
                Binding::Write(&mut y),
            ];
            pipeline.dispatch_bound(&mut bindings, &config)?;
            assert_eq!([y], *expected, "call {number} on {}", pipeline.id());
        }
    }
    Ok(())
}
