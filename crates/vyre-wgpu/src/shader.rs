//! Turns a checked program into device code: optimized, emitted, and written in the device's
//! language.

use crate::emit::{Emitted, LACKING, Layout, Traits, WANTED, emit};
use crate::spirv::{FloatControls, strict};
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use vyre_driver::native::Form;
use vyre_driver::{BackendError, DispatchConfig};
use vyre_foundation::ir::{Op, Program};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::legalise::legalise;
use vyre_foundation::optimize::{self, Pass, Target, optimize};

use crate::device::BACKEND_ID;

/// A kernel ready for a device.
#[derive(Debug)]
pub(crate) struct Shader {
    /// The kernel in the form that was emitted.
    pub(crate) kernel: Kernel,
    pub(crate) emitted: Emitted,
    pub(crate) info: ModuleInfo,
}

impl Shader {
    /// Optimizes and emits a kernel.
    pub(crate) fn new(kernel: &Kernel, form: Form, traits: &Traits) -> Result<Shader, BackendError> {
        let kernel = optimized(kernel, form, traits);
        let emitted = emit(&legalise(&kernel, &WANTED), form, traits);
        check_nesting(&kernel, &emitted, traits)?;
        let info = validate(&kernel, &emitted.module)?;
        Ok(Shader { kernel, emitted, info })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.emitted.layout
    }

    /// The module as strict SPIR-V.
    pub(crate) fn spirv(&self, controls: FloatControls) -> Result<Vec<u32>, BackendError> {
        let options = spv::Options {
            // The first version with subgroups; every Vulkan 1.1 device accepts it.
            lang_version: (1, 3),
            flags: spv::WriterFlags::empty(),
            fake_missing_bindings: true,
            // Accesses are in range by construction, and loops end by the kernel's own rules.
            bounds_check_policies: BoundsCheckPolicies {
                index: BoundsCheckPolicy::Unchecked,
                buffer: BoundsCheckPolicy::Unchecked,
                ..BoundsCheckPolicies::default()
            },
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: false,
            ..spv::Options::default()
        };
        let words = spv::write_vec(&self.emitted.module, &self.info, &options, None)
            .map_err(|error| refused(&self.kernel, format!("naga cannot write the SPIR-V: {error}")))?;
        strict(&words, controls)
            .ok_or_else(|| refused(&self.kernel, "naga wrote SPIR-V that cannot be read".into()))
    }
}

/// Refuses nesting that the driver would run incorrectly.
fn check_nesting(kernel: &Kernel, emitted: &Emitted, traits: &Traits) -> Result<(), BackendError> {
    let depth = emitted.nesting();
    match traits.nesting_limit.filter(|&limit| depth > limit) {
        None => Ok(()),
        Some(limit) => {
            let name = format!(
                "the conditions and loops of kernel `{}`: they nest {depth} deep, and its driver gives wrong results \
                 beyond {limit}",
                kernel.display_name()
            );
            Err(BackendError::UnsupportedFeature { name, backend: BACKEND_ID.into() })
        }
    }
}

/// Runs the optimizer's passes, then those that the emitter needs whatever the schedule.
fn optimized(kernel: &Kernel, form: Form, traits: &Traits) -> Kernel {
    let transcendental = Op::ALL.iter().copied().filter(|op| op.row().expansion_error.is_some());
    let fma = (!traits.fused_fma).then_some(Op::Fma);
    let lacking = LACKING.iter().copied().chain(transcendental).chain(fma);
    let target = Target { lacking: lacking.collect(), ..Target::default() };
    let kernel = optimize(kernel.clone(), &form.passes().with_target(target.clone()));
    // Constants are folded on every schedule: drivers fold the remaining ones by their own rules.
    let needed = optimize::Schedule::of(&[Pass::Expand, Pass::Decompose, Pass::Fold]);
    optimize(kernel, &needed.with_assumptions(form.assume()).with_target(target))
}

fn validate(kernel: &Kernel, module: &naga::Module) -> Result<ModuleInfo, BackendError> {
    // Vyre has checked uniformity by its own, finer rules.
    let flags = ValidationFlags::all() - ValidationFlags::CONTROL_FLOW_UNIFORMITY;
    Validator::new(flags, Capabilities::all())
        .validate(module)
        .map_err(|error| refused(kernel, format!("naga refuses the module: {:?}", error.into_inner())))
}

fn refused(kernel: &Kernel, message: String) -> BackendError {
    BackendError::KernelCompileFailed {
        backend: BACKEND_ID.into(),
        message: format!("kernel `{}`: {message}", kernel.display_name()),
    }
}

/// The program as WGSL, to show the kernel as naga sees it. Not meant for a browser: WGSL compilers
/// can reject its 64-bit types and constant arithmetic.
///
/// ```
/// use vyre_driver::DispatchConfig;
/// use vyre_foundation::text::parse;
/// let program =
///     parse("kernel k(y: output u32[]) over [8, 1, 1] { region \"r\" { y[invocation.x] = 7 } }")?;
/// let text = vyre_wgpu::wgsl(&program, &DispatchConfig::default())?;
/// assert!(text.contains("@compute @workgroup_size(64, 1, 1)"), "{text}");
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
pub fn wgsl(program: &Program, config: &DispatchConfig) -> Result<String, BackendError> {
    let mut shader = for_any_device(program, config)?;
    // Definitions that this kernel does not use only clutter the text.
    naga::compact::compact(&mut shader.emitted.module, naga::compact::KeepUnused::No);
    let info = validate(&shader.kernel, &shader.emitted.module)?;
    let flags = naga::back::wgsl::WriterFlags::empty();
    naga::back::wgsl::write_string(&shader.emitted.module, &info, flags)
        .map_err(|error| refused(&shader.kernel, format!("naga cannot write the WGSL: {error}")))
}

/// The program as SPIR-V for a strict Vulkan device: little-endian words.
///
/// ```
/// use vyre_driver::DispatchConfig;
/// use vyre_foundation::text::parse;
/// let program =
///     parse("kernel k(y: output u32[]) over [8, 1, 1] { region \"r\" { y[invocation.x] = 7 } }")?;
/// let bytes = vyre_wgpu::spirv(&program, &DispatchConfig::default())?;
/// assert_eq!(bytes[..4], 0x0723_0203_u32.to_le_bytes());
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
pub fn spirv(program: &Program, config: &DispatchConfig) -> Result<Vec<u8>, BackendError> {
    let words = for_any_device(program, config)?.spirv(FloatControls::Requested)?;
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// Compiles the program for a device without known driver bugs.
fn for_any_device(program: &Program, config: &DispatchConfig) -> Result<Shader, BackendError> {
    let kernel = program.validate()?;
    let traits = Traits {
        fused_fma: true,
        folds_floats: false,
        rewrites_floats: false,
        inlines_uniforms: false,
        miscounts_exits: false,
        confuses_zeros: false,
        subgroup_size: config.subgroup_size.unwrap_or(32).clamp(1, 64),
        loop_limit: None,
        nesting_limit: None,
    };
    let form = Form { selective: false, ..Form::new(&kernel, config) };
    Shader::new(&kernel, form, &traits)
}
