//! Determines a device's float behaviour by running kernels on it.
//!
//! A kernel computes each of [`ROWS`] on special and random operands, compiled like any other
//! kernel, and the processor computes the same. A device is strict if all bits agree and it was
//! asked to preserve them. Otherwise the rows that disagree show how the device departs from IEEE
//! arithmetic. `fma` is tested the same way: if the device's own rounds twice, `emit` builds it
//! from other operations. The nesting depth of conditions is tested if no limit of the driver is
//! known, and so is whether the driver mistakes integers for floats.

use crate::backend::Wgpu;
use crate::device::{Adapter, BACKEND_ID, ShaderLanguage};
use crate::emit::Traits;
use crate::spirv::FloatControls;
use crate::wgpu_device::{Identity, WgpuDevice};
use std::sync::Arc;
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, DispatchConfig, FloatDepartures, VyreBackend};
use vyre_foundation::ir::Program;
use vyre_foundation::text::parse;
use vyre_foundation::types::Value;

/// Results of the self-test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Findings {
    pub(crate) traits: Traits,
    pub(crate) language: ShaderLanguage,
    pub(crate) strict: bool,
    pub(crate) departures: FloatDepartures,
}

/// Examines the device of an adapter, trying its dialects from the strictest on.
pub(crate) fn examine(adapter: &Arc<Adapter>, features: wgpu::Features, traits: Traits) -> Findings {
    let languages: &[ShaderLanguage] = if features.contains(wgpu::Features::PASSTHROUGH_SHADERS)
        && adapter.info.backend == wgpu::Backend::Vulkan
    {
        &[
            ShaderLanguage::StrictSpirv(FloatControls::Requested),
            ShaderLanguage::StrictSpirv(FloatControls::Absent),
            ShaderLanguage::Module,
        ]
    } else {
        &[ShaderLanguage::Module]
    };
    let has_f64 = features.contains(wgpu::Features::SHADER_F64 | wgpu::Features::SHADER_INT64);
    let bench = |language: ShaderLanguage, traits: Traits| Bench {
        adapter: adapter.clone(),
        has_f64,
        language,
        traits,
    };
    let mut best =
        Findings { traits, language: ShaderLanguage::Module, strict: false, departures: EVERYTHING };
    for &language in languages {
        let traits = Traits { rewrites_floats: language == ShaderLanguage::Module, ..traits };
        let mut departures = bench(language, traits).departures(ROWS);
        // Nothing prevents a driver from rewriting a module that wgpu translates, even if these
        // rows agree.
        departures.contracts |= language == ShaderLanguage::Module;
        if departures == FloatDepartures::default() {
            best = Findings { traits, language, strict: true, departures };
            break;
        }
        if best.departures == EVERYTHING {
            best = Findings { traits, language, departures, ..best };
        }
    }
    let fusing = Traits { fused_fma: true, ..best.traits };
    if bench(best.language, fusing).departures(FUSED) == FloatDepartures::default() {
        best.traits = fusing;
    }
    best.traits.nesting_limit = bench(best.language, best.traits).nesting_limit();
    best.traits.confuses_zeros |= bench(best.language, best.traits).confuses_zeros();
    best
}

/// Departures assumed for a device that could not be tested.
const EVERYTHING: FloatDepartures = FloatDepartures {
    flushes_subnormals: true,
    contracts: true,
    ignores_zero_sign: true,
    ignores_non_finite: true,
    approximate_division: true,
};

/// An expression in `a`, `b` and `c`, and its expected value.
type Row = (&'static str, fn(f32, f32, f32) -> f32);

/// The operations themselves, and expressions that drivers are known to rewrite.
const ROWS: &[Row] = &[
    ("a + b", |a, b, _| a + b),
    ("a - b", |a, b, _| a - b),
    ("a * b", |a, b, _| a * b),
    (DIVISION, |a, b, _| a / b),
    (ROOT, |a, _, _| a.sqrt()),
    ("a * b + c", |a, b, c| a * b + c),
    ("a * b - c", |a, b, c| a * b - c),
    ("(a + b) - b", |a, b, _| (a + b) - b),
    ("(a + 12582912.0) - 12582912.0", |a, _, _| (a + 12_582_912.0) - 12_582_912.0),
    ("a - a", |a, _, _| if a.is_finite() { 0.0 } else { f32::NAN }),
    ("a + 0.0", |a, _, _| a + 0.0),
    ("0.0 - a", |a, _, _| 0.0 - a),
    ("a * 0.0", |a, _, _| a * 0.0),
    ("0.0 / a", |a, _, _| 0.0 / a),
    ("-(a - b)", |a, b, _| -(a - b)),
    ("a * 3.0 - a * 2.0", |a, _, _| a * 3.0 - a * 2.0),
    ("select(a == a, 1.0, 2.0)", |a, _, _| if a.is_nan() { 2.0 } else { 1.0 }),
    ("select(a != b, 1.0, 2.0)", |a, b, _| if a != b { 1.0 } else { 2.0 }),
    ("select(a < b, a, b)", |a, b, _| if a < b { a } else { b }),
    ("min(a, b)", |a, b, _| minimum(a, b)),
    ("floor(a)", |a, _, _| a.floor()),
    ("round(a)", |a, _, _| a.round_ties_even()),
    ("f32(i32(a))", |a, _, _| a as i32 as f32),
];

const FUSED: &[Row] = &[("fma(a, b, c)", |a, b, c| a.mul_add(b, c))];
const DIVISION: &str = "a / b";
const ROOT: &str = "sqrt(a)";

fn minimum(a: f32, b: f32) -> f32 {
    let args = [Value::F32(a), Value::F32(b)];
    match vyre_foundation::ops::eval(vyre_foundation::ops::Op::Min, &args) {
        Some(Value::F32(least)) => least,
        Some(_) | None => unreachable!("the smaller of two f32 is one"),
    }
}

/// A configuration under test.
struct Bench {
    adapter: Arc<Adapter>,
    has_f64: bool,
    language: ShaderLanguage,
    traits: Traits,
}

impl Bench {
    /// How the device departs from the expected values; every departure if it fails to run.
    fn departures(&self, rows: &[Row]) -> FloatDepartures {
        let operands = operands();
        let found = match self.run(rows, &operands) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("the self-test of `{}` failed: {error}", self.adapter.info.name);
                return EVERYTHING;
            }
        };
        let mut departures = FloatDepartures::default();
        let expected = operands.iter().flat_map(|&[a, b, c]| rows.iter().map(move |row| (row, [a, b, c])));
        for ((&(text, row), [a, b, c]), found) in expected.zip(found) {
            let expected = row(a, b, c);
            if Value::F32(expected).canonical() == Value::F32(found).canonical() {
                continue;
            }
            if [a, b, c, expected].iter().any(|x| x.is_subnormal()) {
                departures.flushes_subnormals = true;
            } else if expected == 0.0 && found == 0.0 {
                departures.ignores_zero_sign = true;
            } else if [a, b, c, expected].iter().any(|x| !x.is_finite()) {
                departures.ignores_non_finite = true;
            } else if [DIVISION, ROOT].contains(&text) {
                departures.approximate_division = true;
            } else {
                departures.contracts = true;
            }
        }
        departures
    }

    fn run(&self, rows: &[Row], operands: &[[f32; 3]]) -> Result<Vec<f32>, BackendError> {
        let stores: String = rows
            .iter()
            .enumerate()
            .map(|(number, (text, _))| format!("out[i * {} + {number}] = {text}\n", rows.len()))
            .collect();
        let count = operands.len();
        let outputs = count * rows.len();
        let program = parse(&format!(
            "kernel self_test(x: read f32[{count}], y: read f32[{count}], z: read f32[{count}], out: output f32[{outputs}])
               over x workgroup 64 {{ region \"self_test\" {{
                 let i = invocation.x
                 let a = x[i]
                 let b = y[i]
                 let c = z[i]
                 {stores} }} }}"
        ))?;
        let column = |k: usize| -> Vec<u8> { operands.iter().flat_map(|row| row[k].to_le_bytes()).collect() };
        let words = self.words(&program, &[column(0), column(1), column(2)])?;
        Ok(words.into_iter().map(f32::from_bits).collect())
    }

    /// Runs a program and returns its outputs as words.
    fn words(&self, program: &Program, inputs: &[Vec<u8>]) -> Result<Vec<u32>, BackendError> {
        let profile = DeviceProfile {
            device_class: DeviceClass::Software,
            supports_f64: self.has_f64,
            supports_int64: self.has_f64,
            ..DeviceProfile::conservative(BACKEND_ID)
        };
        let identity = Identity { profile, traits: self.traits, language: self.language };
        let device = Wgpu::on(WgpuDevice::new(self.adapter.clone(), &identity));
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs = device.dispatch_borrowed(program, &inputs, &DispatchConfig::default())?;
        let words = outputs.iter().flat_map(|output| output.as_chunks::<4>().0);
        Ok(words.map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }

    /// Limit on the nesting of conditions, tested if none is known for the driver: `None` if the
    /// deepest nesting that a program can have works, otherwise half of the deepest tested depth
    /// that does. The other half is room for what emission adds to a kernel.
    fn nesting_limit(&self) -> Option<u32> {
        let wrong = self.traits.nesting_limit.is_none() && !self.nests(DEPTHS[0]);
        let right = || DEPTHS[1..].iter().copied().find(|&depth| self.nests(depth)).unwrap_or(0);
        if wrong { Some(right() / 2) } else { self.traits.nesting_limit }
    }

    /// Whether the driver turns one integer zero into another in a select.
    fn confuses_zeros(&self) -> bool {
        let program = parse(
            "kernel self_test(y: output u32[8]) over [4, 1, 1] workgroup 4 { region \"self_test\" {
               let x = invocation.x
               y[x] = select(x < 2, 0xBF800000, 0)
               y[x + 4] = select(x < 2, 0x80000000, 0x3F800000) } }",
        );
        let found = program.map_err(BackendError::from).and_then(|program| self.words(&program, &[]));
        let (minus, one, zero) = (0xBF80_0000, 0x3F80_0000, 0x8000_0000);
        !found.is_ok_and(|found| found == [minus, minus, 0, 0, zero, zero, one, one])
    }

    /// Whether the device takes the right arm of an `else if` chain of this depth.
    fn nests(&self, depth: u32) -> bool {
        let arms: Vec<String> = (0..depth).map(|k| format!("if x == {k} {{ y[x] = {k} + 7 }}")).collect();
        let program = parse(&format!(
            "kernel self_test(y: output u32[128]) workgroup 64 {{ region \"self_test\" {{
               let x = invocation.x
               {} else {{ y[x] = 3 }} }} }}",
            arms.join(" else ")
        ));
        let found = program.map_err(BackendError::from).and_then(|program| self.words(&program, &[]));
        let expected = (0..128).map(|x| if x < depth { x + 7 } else { 3 });
        found.is_ok_and(|found| found.into_iter().eq(expected))
    }
}

/// Depths to test: about the deepest that a program can have, and less.
const DEPTHS: [u32; 4] = [120, 64, 32, 16];

/// Operands: every pair of special numbers, and numbers of all magnitudes.
fn operands() -> Vec<[f32; 3]> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        2.5,
        -3.5,
        1e10,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        -f32::from_bits(1),
        f32::MAX,
    ];
    let mut state = 0x9E37_79B9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let mut rows = Vec::new();
    for a in special {
        for b in special {
            rows.push([a, b, special[next() as usize % special.len()]]);
        }
    }
    rows.extend((0..256).map(|_| [next(), next(), next()].map(f32::from_bits)));
    // Numbers of similar magnitude, whose sums and products round.
    let near = |bits: u32| f32::from_bits(bits >> 9 | 0x3F80_0000) - 1.5;
    rows.extend((0..256).map(|_| [next(), next(), next()].map(near)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{adapters, known_traits};

    #[test]
    fn confused_zeros_are_found() {
        for adapter in adapters() {
            let adapter = Arc::new(Adapter::new(adapter.clone()));
            let known = known_traits(&adapter.info);
            let bench = |confuses_zeros| Bench {
                adapter: adapter.clone(),
                has_f64: false,
                language: ShaderLanguage::Module,
                traits: Traits { confuses_zeros, rewrites_floats: true, ..known },
            };
            assert_eq!(bench(false).confuses_zeros(), known.confuses_zeros);
            assert!(!bench(true).confuses_zeros());
        }
    }

    /// The self-test finds on its own what is known about drivers.
    #[test]
    fn limits_of_nesting_are_found() {
        for adapter in adapters() {
            let adapter = Arc::new(Adapter::new(adapter.clone()));
            let known = known_traits(&adapter.info);
            let traits = Traits { nesting_limit: None, rewrites_floats: true, ..known };
            let bench = Bench { adapter, has_f64: false, language: ShaderLanguage::Module, traits };
            let found = bench.nesting_limit();
            assert_eq!(found.is_some(), known.nesting_limit.is_some(), "{found:?}");
            assert!(found <= known.nesting_limit, "{found:?}");
        }
    }
}
