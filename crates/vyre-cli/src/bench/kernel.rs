//! Kernels outside the catalogue, measured against equivalent C: those of `bench/user`, and
//! `--kernel`.
//!
//! A line of the kernel's file specifies its inputs with the options of `vyre run`: `// bench --in
//! x=rand:f32:1M`.

use super::native::PeerSource;
use super::workloads::{BenchTask, Limit, PeerArray};
use crate::inputs::InputArguments;
use crate::output::Ending;
use crate::source::{LoadedProgram, SetArguments, of_bytes};
use crate::{files, quantity};
use clap::{Args, Parser};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vyre::catalogue::Plan;
use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::ir::{Access, BufferDecl, DataType, Program};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_samples::{Agreement, Sample};

/// Inputs, constants and tolerance for measuring a kernel.
#[derive(Debug, Args)]
pub(crate) struct Conditions {
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    set: SetArguments,
    /// Accept C floats within this relative difference of vyre's [default: equal bits]
    #[arg(long, value_name = "R", value_parser = quantity::fraction)]
    within: Option<f64>,
}

/// The same options on a line in a kernel's file.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    conditions: Conditions,
}

impl Conditions {
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.set.constants().is_empty() && self.within.is_none()
    }
}

/// A kernel to measure.
pub(crate) struct BenchKernel {
    name: String,
    loaded: LoadedProgram,
    inputs: Vec<Vec<u8>>,
    native: Option<PeerSource>,
    within: Option<f64>,
}

/// Loads a kernel of `bench/user`.
pub(crate) fn of_user(name: &'static str, source: &str) -> Result<BenchKernel, Ending> {
    let conditions = conditions(source)?;
    let loaded = of_bytes(format!("{name}.vyre"), source.as_bytes().to_vec(), &conditions.set)?;
    let native = Some(PeerSource::BuiltIn(format!("user_{name}")));
    BenchKernel::new(format!("user: {name}"), loaded, &conditions, native)
}

/// Loads a kernel from a file. Options on the command line override those in the file.
pub(crate) fn of_file(file: &Path, native: &[PathBuf], given: &Conditions) -> Result<BenchKernel, Ending> {
    let bytes = files::read(file)?;
    let own = conditions(&String::from_utf8_lossy(&bytes))?;
    let inputs = if given.inputs.is_empty() { own.inputs } else { given.inputs.clone() };
    let set = if given.set.constants().is_empty() { own.set } else { given.set.clone() };
    let conditions = Conditions { inputs, set, within: given.within.or(own.within) };
    let loaded = of_bytes(file.display().to_string(), bytes, &conditions.set)?;
    let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let native = (!native.is_empty()).then(|| PeerSource::Files(native.to_vec()));
    BenchKernel::new(name, loaded, &conditions, native)
}

/// Parses the `// bench` line of a file.
fn conditions(source: &str) -> Result<Conditions, Ending> {
    let line = source.lines().find_map(|line| line.strip_prefix("// bench "));
    Line::try_parse_from(line.unwrap_or_default().split_whitespace())
        .map(|line| line.conditions)
        .map_err(|error| Ending::Usage(format!("the line `// bench {}`: {error}", line.unwrap_or_default())))
}

impl BenchKernel {
    fn new(
        name: String,
        loaded: LoadedProgram,
        conditions: &Conditions,
        native: Option<PeerSource>,
    ) -> Result<BenchKernel, Ending> {
        let inputs = conditions.inputs.gather(&loaded)?;
        Ok(BenchKernel { name, loaded, inputs, native, within: conditions.within })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Builds the row. The first backend's results are the reference for the other backends and the
    /// C peer.
    pub(crate) fn task(&self, backends: &[Arc<dyn VyreBackend>]) -> Result<BenchTask, String> {
        let backend = backends.first().ok_or("there is no backend")?;
        let (program, kernel) = (&self.loaded.program, &self.loaded.kernel);
        let config = DispatchConfig::default();
        let fault = |error: BackendError| error.to_string();
        let compiled = pipeline::compile(backend.clone(), program, &config).map_err(fault)?;
        let expected = compiled.dispatch(&self.inputs, &config).map_err(fault)?;
        let borrowed: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let launch = Launch::from_inputs(kernel, &borrowed, Overrides::default());
        let launch = launch.map_err(|faults| faults.to_string())?;
        let bound: Vec<(BufferDecl, usize)> = kernel
            .bound_buffers()
            .into_iter()
            .map(|id| (kernel.buffer(id).decl.clone(), launch.bytes(kernel, id)))
            .collect();
        let results: Vec<(usize, usize)> = bound
            .iter()
            .enumerate()
            .filter(|(_, (decl, _))| decl.access.is_output())
            .map(|(k, _)| k)
            .zip(0..)
            .collect();
        let elements: Vec<DataType> = results.iter().map(|&(array, _)| bound[array].0.element).collect();
        let within = self.within;
        let bytes = bound.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>().max(1);
        let sample = self.sample(program, &bound, expected);
        let uniforms: Vec<Vec<u8>> = self.given(&bound, true).cloned().collect();
        Ok(BenchTask {
            name: self.name.clone(),
            native: self.native.clone(),
            limit: Limit::Copy,
            bytes,
            operations: 0.0,
            sample: Arc::new(sample),
            arrays: Box::new(move |sample| arrays_of(&bound, &uniforms, sample)),
            results,
            fault: Box::new(move |output, expected, given| match (elements[output], within) {
                (DataType::F32 | DataType::F64, Some(relative)) => {
                    far_apart(elements[output], relative, expected, given)
                }
                (_, _) => Agreement::Bits.fault(expected, given),
            }),
        })
    }

    /// Inputs for the uniforms, or for the other buffers.
    fn given(&self, bound: &[(BufferDecl, usize)], uniforms: bool) -> impl Iterator<Item = &Vec<u8>> {
        let inputs = bound.iter().filter(|(decl, _)| decl.access.is_input());
        let wanted: Vec<bool> =
            inputs.map(|(decl, _)| (decl.access == Access::Uniform) == uniforms).collect();
        self.inputs.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(bytes, _)| bytes)
    }

    fn sample(&self, program: &Program, bound: &[(BufferDecl, usize)], expected: Vec<Vec<u8>>) -> Sample {
        let uniforms: Vec<Vec<u8>> = self.given(bound, true).cloned().collect();
        let inputs = self.given(bound, false).cloned().collect();
        let open = bound.iter().filter(|(decl, _)| decl.access != Access::Uniform);
        let lengths: Vec<u32> = open.map(|(decl, bytes)| (bytes / decl.element.size()) as u32).collect();
        let program = program.clone();
        let plan = move |_: &DeviceProfile| {
            let uniforms: Vec<&[u8]> = uniforms.iter().map(Vec::as_slice).collect();
            Ok(Plan::of("kernel", program.clone(), &lengths, &uniforms))
        };
        Sample {
            label: self.name.clone(),
            plan: Box::new(plan),
            inputs,
            expected,
            agreement: Agreement::Bits,
        }
    }
}

/// Arrays for the C peer: every parameter of the kernel, in order.
fn arrays_of<'s>(
    bound: &[(BufferDecl, usize)],
    uniforms: &[Vec<u8>],
    sample: &'s Sample,
) -> Vec<PeerArray<'s>> {
    let (mut uniforms, mut inputs) = (uniforms.iter(), sample.inputs.iter());
    let array = |(decl, bytes): &(BufferDecl, usize)| {
        let size = decl.element.size();
        match decl.access {
            Access::Uniform => PeerArray::Value(uniforms.next().cloned().unwrap_or_default(), size),
            Access::Read | Access::ReadWrite => {
                PeerArray::Input(inputs.next().map_or(&[], Vec::as_slice), size)
            }
            Access::Output | Access::Workgroup => PeerArray::Zeros(bytes / size, size),
        }
    };
    bound.iter().map(array).collect()
}

/// Describes the first pair of floats whose relative difference exceeds `relative`.
fn far_apart(element: DataType, relative: f64, expected: &[u8], given: &[u8]) -> Option<String> {
    let number = |bytes: &[u8]| match element {
        DataType::F64 => f64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        _ => f64::from(f32::from_le_bytes(bytes.try_into().unwrap_or_default())),
    };
    if expected.len() != given.len() {
        return Some(format!("{} bytes instead of {}", given.len(), expected.len()));
    }
    let size = element.size();
    let pairs = expected.chunks(size).zip(given.chunks(size)).map(|(a, b)| (number(a), number(b)));
    // The error of a cancelling sum is relative to its terms, so values below 1 are compared as if
    // they were 1.
    let is_far =
        |a: f64, b: f64| a.is_nan() != b.is_nan() || (a != b && (a - b).abs() > relative * a.abs().max(1.0));
    let (at, (a, b)) = pairs.enumerate().find(|(_, (a, b))| is_far(*a, *b))?;
    Some(format!("element {at}: {b:?} instead of {a:?}; --within sets a tolerance"))
}
