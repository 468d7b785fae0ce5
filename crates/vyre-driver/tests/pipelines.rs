//! Admission, pass-through and native pipelines, prewarming, manifests.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use vyre_conform::backends::NullBackend;
use vyre_driver::pipeline::{
    COMPILER_VERSION, DEFAULT_1D_WORKGROUP_SIZE, ManifestError, PipelineCacheSnapshot, PipelineReproManifest,
    compile, compile_owned, compile_owned_with_telemetry, prewarm, prewarm_owned,
};
use vyre_driver::{
    BackendError, CompiledPipeline, DeviceClass, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend,
    default_supported_ops, registry,
};
use vyre_foundation::ir::{BufferDecl, DataType, Domain, Expr, Node, OpId, Program};

/// A backend that records the requests it receives.
struct Witness {
    profile: DeviceProfile,
    ops: HashSet<OpId>,
    native: bool,
    /// Hits and misses of a cache that it pretends to have.
    counters: Option<[AtomicU64; 2]>,
    compiled: Mutex<HashSet<[u8; 32]>>,
    configs: Mutex<Vec<DispatchConfig>>,
    input_addresses: Mutex<Vec<usize>>,
}

impl Witness {
    fn new() -> Witness {
        Witness {
            profile: DeviceProfile::conservative("witness"),
            ops: default_supported_ops().clone(),
            native: false,
            counters: None,
            compiled: Mutex::default(),
            configs: Mutex::default(),
            input_addresses: Mutex::default(),
        }
    }

    fn on(profile: DeviceProfile) -> Arc<Witness> {
        Arc::new(Witness { profile, ..Witness::new() })
    }
}

impl VyreBackend for Witness {
    fn id(&self) -> &'static str {
        "witness"
    }

    fn dispatch(
        &self,
        _: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        self.configs.lock().unwrap().push(config.clone());
        Ok(inputs.to_vec())
    }

    fn dispatch_borrowed(
        &self,
        _: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        self.configs.lock().unwrap().push(config.clone());
        *self.input_addresses.lock().unwrap() = inputs.iter().map(|input| input.as_ptr().addr()).collect();
        Ok(inputs.iter().map(|input| input.to_vec()).collect())
    }

    fn compile_native(
        &self,
        program: &Program,
        _: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        let new = self.compiled.lock().unwrap().insert(program.fingerprint());
        if let Some(counters) = &self.counters {
            counters[usize::from(new)].fetch_add(1, SeqCst);
        }
        if self.native {
            NullBackend::default().compile_native(program, &DispatchConfig::default())
        } else {
            Ok(None)
        }
    }

    fn pipeline_cache_snapshot(&self) -> Option<PipelineCacheSnapshot> {
        let [hits, misses] = self.counters.as_ref()?;
        Some(PipelineCacheSnapshot { hits: hits.load(SeqCst), misses: misses.load(SeqCst) })
    }

    fn device_profile(&self) -> DeviceProfile {
        self.profile
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        &self.ops
    }
}

fn store_program(value: Expr, element: DataType) -> Program {
    let out = BufferDecl::output("out", 0, element).with_count(1);
    Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), value)])
}

fn nine() -> Program {
    store_program(Expr::u32(9), DataType::U32)
}

/// A program whose invocations need their workgroup, so that its shape fixes its grid.
fn grouped(workgroup: [u32; 3], domain: [u32; 3]) -> Program {
    let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
    let body = vec![Node::store("out", Expr::u32(0), Expr::workgroup_id(0))];
    Program::wrapped(vec![out], workgroup, body).with_domain(Domain::Counts(domain))
}

fn refusal(backend: Arc<Witness>, program: &Program, config: &DispatchConfig) -> BackendError {
    match compile(backend.clone(), program, config) {
        Ok(pipeline) => panic!("{} was made", pipeline.id()),
        Err(error) => {
            assert!(backend.compiled.lock().unwrap().is_empty(), "a refused program reached the backend");
            error
        }
    }
}

fn check_refused(profile: DeviceProfile, program: &Program, config: &DispatchConfig, expected: &str) {
    let error = refusal(Witness::on(profile), program, config);
    assert!(matches!(error, BackendError::UnsupportedFeature { .. }), "{error:?}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn admission_goes_in_order() {
    let config = DispatchConfig::default();
    // Several faults at once: no region, an unknown name, an unsupported op, too large a workgroup.
    let bad_store = Node::store("nowhere", Expr::u32(0), Expr::u32(1) + Expr::u32(2));
    let profile = DeviceProfile { max_workgroup_size: [1, 1, 1], ..DeviceProfile::conservative("witness") };
    let backend = || Arc::new(Witness { profile, ops: HashSet::new(), ..Witness::new() });
    let raw = Program::new(Vec::new(), [2, 1, 1], vec![bad_store.clone()]);
    let text = refusal(backend(), &raw, &config).to_string();
    assert!(text.contains("top-level Region-wrapped Program") && !text.contains("nowhere"), "{text}");
    let text = refusal(backend(), &Program::new(Vec::new(), [1, 1, 1], Vec::new()), &config).to_string();
    assert!(text.contains("top-level Region-wrapped Program"), "{text}");

    let error = refusal(backend(), &Program::wrapped(Vec::new(), [2, 1, 1], vec![bad_store]), &config);
    assert!(matches!(&error, BackendError::InvalidProgram { diagnostics } if !diagnostics.is_empty()));
    assert!(error.to_string().contains("nowhere"), "{error}");

    let sum = Expr::load("x", Expr::u32(0)) + Expr::load("x", Expr::u32(1));
    let buffers = vec![
        BufferDecl::read("x", 0, DataType::U32),
        BufferDecl::output("out", 1, DataType::U32).with_count(1),
    ];
    let program = Program::wrapped(buffers, [2, 1, 1], vec![Node::store("out", Expr::u32(0), sum)]);
    let error = refusal(backend(), &program, &config);
    let BackendError::UnsupportedFeature { name, backend } = error else { panic!("{error:?}") };
    assert!(name.starts_with("primitive.math.add") && backend == "witness", "{name}");
    check_refused(profile, &program, &config, "workgroup size [2, 1, 1] (at most [1, 1, 1] on its device)");
}

#[test]
fn limits_of_the_device_hold_for_programs_and_overrides() {
    let unknown = DeviceProfile::conservative("witness");
    let plain = DispatchConfig::default();
    let (program, workgroup) =
        (nine(), |size| DispatchConfig { workgroup_override: Some(size), ..Default::default() });
    let grid = |size| DispatchConfig { grid_override: Some(size), ..Default::default() };

    let limited = DeviceProfile { max_workgroup_size: [64, 0, 1], ..unknown };
    check_refused(limited, &program, &workgroup([65, 1, 1]), "workgroup size [65, 1, 1]");
    check_refused(limited, &program, &workgroup([1, 9, 2]), "workgroup size [1, 9, 2]");
    let limited = DeviceProfile { max_invocations_per_workgroup: 64, ..unknown };
    check_refused(limited, &program, &workgroup([8, 8, 2]), "128 invocations per workgroup (at most 64");
    check_refused(limited, &program, &workgroup([u32::MAX; 3]), "invocations per workgroup");
    let limited = DeviceProfile { max_workgroups_per_dimension: 4, ..unknown };
    check_refused(limited, &program, &grid([1, 5, 1]), "a grid of [1, 5, 1] workgroups (at most 4 per axis");
    check_refused(limited, &grouped([2, 1, 1], [9, 1, 1]), &plain, "a grid of [5, 1, 1]");
    // The override replaces the domain; a larger workgroup needs fewer groups.
    assert!(compile(Witness::on(limited), &grouped([2, 1, 1], [9, 1, 1]), &grid([4, 4, 4])).is_ok());
    assert!(compile(Witness::on(limited), &grouped([2, 1, 1], [9, 1, 1]), &workgroup([3, 1, 1])).is_ok());
    // A shape-free kernel's grid can be spread over all axes, but has to fit there.
    let wide = |domain| nine().with_domain(Domain::Counts([domain, 1, 1]));
    assert!(compile(Witness::on(limited), &wide(64), &plain).is_ok());
    check_refused(limited, &wide(65), &plain, "a grid of 65 workgroups");
    let coarse = DispatchConfig { elements_per_invocation: Some(2), ..Default::default() };
    assert!(compile(Witness::on(limited), &wide(65), &coarse).is_ok());
    let limited = DeviceProfile { max_storage_buffer_binding_size: 3, ..unknown };
    check_refused(limited, &program, &plain, "the 4 bytes of buffer `out` (at most 3");

    for config in
        [workgroup([0, 1, 1]), DispatchConfig { elements_per_invocation: Some(0), ..Default::default() }]
    {
        let error = refusal(Witness::on(unknown), &program, &config);
        assert!(matches!(error, BackendError::InvalidProgram { .. }), "{error}");
        assert!(error.to_string().contains("D005"), "{error}");
    }
    // Unknown limits are not enforced.
    assert!(compile(Witness::on(unknown), &program, &workgroup([1 << 20, 1, 1])).is_ok());
    assert!(compile(Witness::on(unknown), &program, &grid([u32::MAX; 3])).is_ok());
}

#[test]
fn a_described_device_is_held_to_its_abilities() {
    let plain = DispatchConfig::default();
    let poor =
        DeviceProfile { device_class: DeviceClass::Discrete, ..DeviceProfile::conservative("witness") };
    let tile = |count| {
        let buffers = vec![
            BufferDecl::output("out", 0, DataType::U32).with_count(1),
            BufferDecl::workgroup("tile", count, DataType::U32),
        ];
        let body = vec![Node::store("out", Expr::u32(0), Expr::load("tile", Expr::u32(0)))];
        Program::wrapped(buffers, [1, 1, 1], body)
    };
    let cases = [
        (
            store_program(Expr::u64(1), DataType::U64),
            "64-bit integers",
            DeviceProfile { supports_int64: true, ..poor },
        ),
        (store_program(Expr::f64(1.0), DataType::F64), "f64", DeviceProfile { supports_f64: true, ..poor }),
        (
            store_program(Expr::u32(1), DataType::U8),
            "elements of one or two bytes",
            DeviceProfile { supports_narrow_storage: true, ..poor },
        ),
        (
            store_program(Expr::f32(1.0), DataType::F16),
            "f16 elements, elements of one or two bytes",
            DeviceProfile { supports_f16: true, supports_narrow_storage: true, ..poor },
        ),
        (tile(4), "workgroup memory", DeviceProfile { has_shared_memory: true, ..poor }),
    ];
    for (program, missing, rich) in cases {
        check_refused(poor, &program, &plain, &format!("`witness` does not support {missing}"));
        assert!(compile(Witness::on(rich), &program, &plain).is_ok(), "{missing}");
        let undescribed = DeviceProfile::conservative("witness");
        assert!(compile(Witness::on(undescribed), &program, &plain).is_ok(), "{missing}");
    }
    let small = DeviceProfile { has_shared_memory: true, max_shared_memory_bytes: 16, ..poor };
    assert!(compile(Witness::on(small), &tile(4), &plain).is_ok());
    check_refused(small, &tile(6), &plain, "24 bytes of workgroup memory (at most 16");
}

#[test]
fn a_refusal_names_the_linked_backends_that_can() {
    let without_ops = Arc::new(Witness { ops: HashSet::new(), ..Witness::new() });
    let x = Expr::load("x", Expr::u32(0));
    let buffers = vec![
        BufferDecl::read("x", 0, DataType::U32),
        BufferDecl::output("y", 1, DataType::U32).with_count(1),
    ];
    let program = Program::wrapped(buffers, [1, 1, 1], vec![Node::store("y", Expr::u32(0), x.clone() * x)]);
    let text = refusal(without_ops, &program, &DispatchConfig::default()).to_string();
    // The interpreter is linked together with the backends for tests.
    let expected =
        "backend `witness` does not support primitive.math.mul; linked backends that do: capable, cpu-ref";
    assert_eq!(text, expected);
    assert!(registry::registered_backends().iter().any(|registration| registration.id == "capable"));
}

vyre_driver::inventory::submit! {
    registry::BackendRegistration {
        id: "capable",
        factory: || Ok(Box::new(NullBackend::default())),
        supported_ops: default_supported_ops,
    }
}

#[test]
fn pass_through_ids_tell_programs_apart() {
    let config = DispatchConfig::default();
    let make =
        |program: &Program| compile(Arc::new(Witness::new()), program, &config).unwrap().id().to_string();
    let (a, b) = (nine(), store_program(Expr::u32(8), DataType::U32));
    assert_ne!(make(&a), make(&b));
    assert_eq!(make(&a), make(&nine()));
    let digest: String = a.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    let id = make(&a);
    let prefix = id.strip_prefix("witness:").unwrap();
    assert!(prefix.len() >= 16 && digest.starts_with(prefix), "{id}");
}

#[test]
fn a_call_overrides_field_by_field_and_inputs_stay_borrowed() {
    let backend = Arc::new(Witness {
        profile: DeviceProfile { max_workgroup_size: [64; 3], ..DeviceProfile::conservative("witness") },
        ..Witness::new()
    });
    let compiled =
        DispatchConfig { label: Some("compiled".into()), ulp_budget: Some(4), ..Default::default() };
    let pipeline = compile(backend.clone(), &nine(), &compiled).unwrap();
    let input = vec![1u8, 2, 3];

    pipeline.dispatch_borrowed(&[&input], &DispatchConfig::default()).unwrap();
    assert_eq!(*backend.input_addresses.lock().unwrap(), [input.as_ptr().addr()]);
    let call = DispatchConfig { ulp_budget: Some(0), max_output_bytes: Some(7), ..Default::default() };
    pipeline.dispatch(std::slice::from_ref(&input), &call).unwrap();
    let mut slots = Vec::new();
    pipeline.dispatch_borrowed_into(&[&input], &call, &mut slots).unwrap();
    assert_eq!(*backend.input_addresses.lock().unwrap(), [input.as_ptr().addr()]);
    let merged = DispatchConfig { ulp_budget: Some(0), max_output_bytes: Some(7), ..compiled.clone() };
    assert_eq!(*backend.configs.lock().unwrap(), [compiled, merged.clone(), merged]);

    // Overrides passed to a call are checked like those passed to the compile.
    let too_wide = DispatchConfig { workgroup_override: Some([65, 1, 1]), ..Default::default() };
    let error = pipeline.dispatch_borrowed(&[&input], &too_wide).unwrap_err();
    assert!(error.to_string().contains("workgroup size [65, 1, 1]"), "{error}");
    assert_eq!(backend.configs.lock().unwrap().len(), 3);
}

#[test]
fn native_pipelines_are_returned_as_they_are() {
    let config = DispatchConfig::default();
    let backend = Arc::new(Witness { native: true, ..Witness::new() });
    let pipeline = compile_owned(backend.clone(), nine(), &config).unwrap();
    assert!(pipeline.id().starts_with("null:"));
    // Every compile calls the backend.
    compile(backend.clone(), &nine(), &config).unwrap();
    assert_eq!(pipeline.dispatch_borrowed(&[], &config).unwrap(), [vec![0; 4]]);
}

#[test]
fn prewarming_compiles_and_never_dispatches() {
    let config = DispatchConfig::default();
    let null = Arc::new(NullBackend::default());
    let warmed = prewarm(null.clone(), &nine(), &config).unwrap();
    assert_eq!((null.compiles(), null.dispatches()), (1, 0));
    assert_eq!(warmed.cache_hit, None);
    assert_eq!(warmed.pipeline_id, warmed.manifest.pipeline_id);

    let backend = Arc::new(Witness { counters: Some(Default::default()), ..Witness::new() });
    let outcome = |program: Program| prewarm_owned(backend.clone(), program, &config).unwrap().cache_hit;
    assert_eq!(outcome(nine()), Some(false));
    assert_eq!(outcome(nine()), Some(true));
    assert_eq!(outcome(store_program(Expr::u32(1), DataType::U32)), Some(false));
    let made = compile_owned_with_telemetry(backend.clone(), nine(), &config).unwrap();
    assert_eq!(made.cache_hit, Some(true));
    assert_eq!(made.pipeline.id(), made.manifest.pipeline_id);
    assert!(backend.configs.lock().unwrap().is_empty(), "prewarming dispatched");
    assert!(prewarm(backend, &Program::new(vec![], [1, 1, 1], vec![]), &config).is_err());
}

#[test]
fn manifests_can_be_replayed() {
    let profile = DeviceProfile {
        device_name: "toy 9000",
        driver_version: "1.2.3",
        ..DeviceProfile::conservative("witness")
    };
    let config =
        DispatchConfig { label: Some("quote \" and \n".into()), ulp_budget: Some(1), ..Default::default() };
    let manifest = compile_owned_with_telemetry(Witness::on(profile), nine(), &config).unwrap().manifest;
    assert_eq!(manifest.schema, PipelineReproManifest::SCHEMA);
    assert_eq!(manifest.backend_id, "witness");
    assert_eq!((&*manifest.device, &*manifest.driver), ("toy 9000", "1.2.3"));
    assert_eq!(manifest.compiler_version, COMPILER_VERSION);
    assert_eq!(manifest.program_digest.len(), 64);

    let json = manifest.to_json().unwrap();
    let back = PipelineReproManifest::from_json(&json).unwrap();
    assert_eq!(back, manifest);
    assert_eq!(back.program().unwrap(), nine());
    assert_eq!(back.dispatch_policy, config);
    let again =
        compile_owned_with_telemetry(Witness::on(profile), back.program().unwrap(), &back.dispatch_policy);
    assert_eq!(again.unwrap().manifest, manifest);
}

#[test]
fn damaged_manifests_say_what_is_wrong() {
    let made =
        compile_owned_with_telemetry(Arc::new(Witness::new()), nine(), &DispatchConfig::default()).unwrap();
    let manifest = made.manifest;
    let json = manifest.to_json().unwrap();
    for (text, expected) in
        [("", "not the JSON"), ("{}", "missing field `schema`"), (&json[..json.len() / 2], "EOF")]
    {
        let error = PipelineReproManifest::from_json(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let other = json.replace(PipelineReproManifest::SCHEMA, "vyre.pipeline-repro.v0");
    let found = String::from("vyre.pipeline-repro.v0");
    assert_eq!(PipelineReproManifest::from_json(&other), Err(ManifestError::Schema { found }));

    let with =
        |program: &str| PipelineReproManifest { program: program.into(), ..manifest.clone() }.program();
    assert!(with("xyz").unwrap_err().to_string().contains("hexadecimal"));
    assert!(with(&manifest.program[2..]).unwrap_err().to_string().contains("does not start with"));
    let elsewhere = PipelineReproManifest { program_digest: "00".repeat(32), ..manifest.clone() };
    assert!(matches!(elsewhere.program(), Err(ManifestError::Digest { .. })));
}

#[test]
fn the_default_workgroup_is_64_wide() {
    assert_eq!(DEFAULT_1D_WORKGROUP_SIZE, [64, 1, 1]);
}
