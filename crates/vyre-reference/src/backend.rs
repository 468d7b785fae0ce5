//! The backend `cpu-ref`: the interpreter behind the driver's traits.
//!
//! An oracle: other backends are compared with it, and it runs only where it is named. It has no limits of its own but
//! memory, supports everything that validation accepts, and takes the subgroup size from the configuration, so that it
//! can be compared with devices of any subgroup size.

use crate::{Bound, Options, RunError, run, run_bound};
use std::sync::Arc;
use vyre_driver::observability::{LaunchRecord, observe_launch};
use vyre_driver::registry::{BackendCapability, BackendPrecedence, BackendRegistration};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DeviceClass, DeviceProfile, DispatchConfig, OutputBuffers,
    VyreBackend, default_supported_ops,
};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::launch::{Launch, Overrides};

/// The id under which the interpreter is registered.
pub const BACKEND_ID: &str = "cpu-ref";

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(CpuRef)), supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: true } }
// Last in every list: it is there to be compared with.
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: u32::MAX - 1 } }

/// The interpreter as a backend.
///
/// ```
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_reference::CpuRef;
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), Expr::u32(9))]);
/// let outputs = CpuRef.dispatch(&program, &[], &DispatchConfig::default())?;
/// assert_eq!(outputs, [[9, 0, 0, 0]]);
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuRef;

impl VyreBackend for CpuRef {
    fn id(&self) -> &'static str {
        BACKEND_ID
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(program, &borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        observe_launch(BACKEND_ID, config, || interpret(&program.validate()?, inputs, config))
    }

    fn compile_native(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        let kernel = program.validate()?;
        let digest: String = kernel.fingerprint[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let id = format!("{BACKEND_ID}:{digest}");
        Ok(Some(Arc::new(Interpreted { id, kernel, config: config.clone() })))
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile {
            device_name: "vyre reference interpreter",
            driver_version: env!("VYRE_BUILD_ID"),
            device_class: DeviceClass::Cpu,
            supports_subgroup_ops: true,
            has_subgroup_shuffle: true,
            subgroup_size: Options::default().subgroup_size,
            has_shared_memory: true,
            supports_f16: true,
            supports_bf16: true,
            supports_f64: true,
            supports_int64: true,
            supports_atomic64: true,
            supports_narrow_storage: true,
            compute_units: 1,
            strict_float: true,
            ..DeviceProfile::conservative(BACKEND_ID)
        }
    }
}

/// A checked program with the configuration that it was compiled with.
#[derive(Debug)]
struct Interpreted {
    id: String,
    kernel: Kernel,
    config: DispatchConfig,
}

impl CompiledPipeline for Interpreted {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(&borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || interpret(&self.kernel, inputs, &config.merged(&self.config)))
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            let config = config.merged(&self.config);
            let mut record = LaunchRecord::default();
            for binding in bindings.iter() {
                match binding {
                    Binding::Read(bytes) => record.read(bytes.len()),
                    Binding::ReadWrite(bytes) => {
                        record.read(bytes.len());
                        record.wrote(bytes.len());
                    }
                    Binding::Write(bytes) => record.wrote(bytes.len()),
                    Binding::Resident(_) => return Err(unsupported("resident buffers".into())),
                }
            }
            let bound = bindings.iter_mut().filter_map(|binding| match binding {
                Binding::Read(bytes) => Some(Bound::Read(bytes)),
                Binding::ReadWrite(bytes) | Binding::Write(bytes) => Some(Bound::Write(bytes)),
                Binding::Resident(_) => None,
            });
            let done = run_bound(&self.kernel, bound.collect(), &options(&config));
            done.map_err(|error| backend_error(&self.kernel, &config, error))?;
            Ok(((), record))
        })
    }
}

fn interpret(
    kernel: &Kernel,
    inputs: &[&[u8]],
    config: &DispatchConfig,
) -> Result<(OutputBuffers, LaunchRecord), BackendError> {
    let options = options(config);
    if let Some(most) = config.max_output_bytes {
        check_output_bytes(kernel, inputs, options.overrides, most)?;
    }
    let done = run(kernel, inputs, &options).map_err(|error| backend_error(kernel, config, error))?;
    let bytes = |buffers: &mut dyn Iterator<Item = usize>| buffers.map(|length| length as u64).sum();
    let record = LaunchRecord {
        input_bytes: bytes(&mut inputs.iter().map(|input| input.len())),
        output_bytes: bytes(&mut done.outputs.iter().map(Vec::len)),
        output_slots: done.outputs.len() as u64,
        ..LaunchRecord::default()
    };
    Ok((done.outputs, record))
}

fn options(config: &DispatchConfig) -> Options {
    let defaults = Options::default();
    Options {
        overrides: config.overrides(),
        subgroup_size: config.subgroup_size.unwrap_or(defaults.subgroup_size),
        timeout: config.timeout,
        ..defaults
    }
}

fn check_output_bytes(
    kernel: &Kernel,
    inputs: &[&[u8]],
    overrides: Overrides,
    most: usize,
) -> Result<(), BackendError> {
    let launch = Launch::from_inputs(kernel, inputs, overrides)?;
    let outputs = kernel.bound_buffers().into_iter().filter(|&id| kernel.buffer(id).decl.access.is_output());
    let bytes = outputs.map(|id| launch.bytes(kernel, id)).fold(0, usize::saturating_add);
    if bytes > most {
        return Err(failed(format!(
            "the outputs take {bytes} bytes, and `max_output_bytes` allows {most}; raise it or split the work"
        )));
    }
    Ok(())
}

fn backend_error(kernel: &Kernel, config: &DispatchConfig, error: RunError) -> BackendError {
    let backend = BACKEND_ID.to_string();
    match error {
        RunError::Launch(diagnostics) => BackendError::InvalidProgram { diagnostics },
        RunError::SubgroupSize(size) => unsupported(format!("a subgroup size of {size}")),
        RunError::Trapped { code } => {
            BackendError::Trapped { kernel: kernel.display_name().to_string(), code }
        }
        RunError::Timeout => BackendError::Timeout { backend, limit: config.timeout.unwrap_or_default() },
        RunError::Memory { needed, .. } => {
            BackendError::DeviceOutOfMemory { backend, requested_bytes: needed }
        }
        RunError::NotWritable { .. } | RunError::Diverged(_) => failed(error.to_string()),
    }
}

fn failed(message: String) -> BackendError {
    BackendError::DispatchFailed { backend: BACKEND_ID.into(), message }
}

fn unsupported(name: String) -> BackendError {
    BackendError::UnsupportedFeature { name, backend: BACKEND_ID.into() }
}
