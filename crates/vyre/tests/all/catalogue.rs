//! Every op of the catalogue, on every available backend, at many sizes: checked against its
//! reference, compared with the interpreter bit for bit, and checked for data races.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use vyre::catalogue::{OPS, Plan, find};
use vyre::ir::Program;
use vyre_driver::registry::{backend_dispatches, registered_backends};
use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend};
use vyre_reference::{CpuRef, FaultKind, RunOptions, run};
use vyre_samples::Sample;

const SIZES: [u32; 9] = [0, 1, 2, 7, 63, 64, 65, 1000, 4097];
/// Sizes for backends whose driver compiles; `VYRE_CASES` enables all sizes.
const FEW_SIZES: [u32; 3] = [0, 1, 1000];
/// The only size at which every sample of an op runs on a driver whose compiler takes tenths of a
/// second per kernel.
const ONE_SIZE: u32 = 1000;
/// Sizes that need several levels of blocks.
const LARGE: [u32; 1] = [70_001];

const CPU_REF: &str = "cpu-ref";

type Done = Result<(), Box<dyn std::error::Error>>;

/// The interpreter with the sanitizer, as a backend with another backend's profile. A data race is
/// an error.
struct Sanitized(DeviceProfile);

impl VyreBackend for Sanitized {
    fn id(&self) -> &'static str {
        "sanitized"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let options = RunOptions {
            overrides: config.overrides(),
            subgroup_size: self.0.subgroup_size.max(1),
            sanitize: true,
            ..RunOptions::default()
        };
        let done = run(&program.validate()?, &borrowed, &options)
            .map_err(|error| BackendError::new(error.to_string()))?;
        match done.reports.iter().find(|report| matches!(report.fault, FaultKind::Race)) {
            Some(race) => Err(BackendError::new(race.to_string())),
            None => Ok(done.outputs),
        }
    }
}

/// Whether the error is a missing feature, which is allowed, rather than a wrong result.
fn lacks(error: &BackendError) -> bool {
    matches!(error, BackendError::UnsupportedFeature { .. })
}

fn backends() -> Vec<Arc<dyn VyreBackend>> {
    let mut found: Vec<Arc<dyn VyreBackend>> = Vec::new();
    for registration in registered_backends().iter().filter(|r| backend_dispatches(r.id)) {
        match registration.acquire() {
            Ok(backend) => found.push(backend.into()),
            Err(error) => println!("SKIP 1 backend: {}: {error}", registration.id),
        }
    }
    found
}

fn borrowed(sample: &Sample) -> Vec<&[u8]> {
    sample.inputs.iter().map(Vec::as_slice).collect()
}

/// Whether a backend runs an op's sample of this number at this size.
fn is_tried(backend: &dyn VyreBackend, size: u32, number: usize) -> bool {
    let few = FEW_SIZES.contains(&size) && (backend.id() != "opencl" || size == ONE_SIZE || number == 0);
    matches!(backend.id(), "cpu" | CPU_REF) || few || std::env::var_os("VYRE_CASES").is_some()
}

/// A plan, its subgroup size, and the interpreter's outputs for it on one sample.
type Interpreted = (Plan, Option<u32>, OutputBuffers);

/// The interpreter's outputs for a plan, computed once for all backends that share it.
fn interpreted<'i>(
    known: &'i mut Vec<Interpreted>,
    plan: &Plan,
    profile: &DeviceProfile,
    sample: &Sample,
) -> Result<&'i OutputBuffers, BackendError> {
    let subgroup_size = (profile.subgroup_size > 0).then_some(profile.subgroup_size);
    let same = |(other, size, _): &Interpreted| other == plan && *size == subgroup_size;
    let at = match known.iter().position(same) {
        Some(at) => at,
        None => {
            let config = DispatchConfig { subgroup_size, ..DispatchConfig::default() };
            let outputs = plan.compile(Arc::new(CpuRef), &config)?.run(&borrowed(sample))?;
            known.push((plan.clone(), subgroup_size, outputs));
            known.len() - 1
        }
    };
    Ok(&known[at].2)
}

/// Runs the sample on a backend: it passes its check, and equals the interpreter's result for the
/// same plan bit for bit; or reports what the backend lacks.
fn check(
    backend: &Arc<dyn VyreBackend>,
    sample: &Sample,
    known: &mut Vec<Interpreted>,
) -> Result<Option<BackendError>, String> {
    let says = |error: BackendError| error.to_string();
    let profile = backend.device_profile();
    let plan = (sample.plan)(&profile).map_err(|error| error.to_string())?;
    if backend.id() == CPU_REF {
        let fault = sample.fault(interpreted(known, &plan, &profile, sample).map_err(says)?);
        return fault.map_or(Ok(None), Err);
    }
    let compiled = match plan.compile(backend.clone(), &DispatchConfig::default()) {
        Ok(compiled) => compiled,
        Err(error) if lacks(&error) => return Ok(Some(error)),
        Err(error) => return Err(error.to_string()),
    };
    let outputs = compiled.run(&borrowed(sample)).map_err(says)?;
    if let Some(fault) = sample.fault(&outputs) {
        return Err(fault);
    }
    // Runs the same plan again, with the temporaries of the first run.
    if compiled.run(&borrowed(sample)).map_err(says)? != outputs {
        return Err("the second run differs from the first".into());
    }
    if profile.strict_float && *interpreted(known, &plan, &profile, sample).map_err(says)? != outputs {
        return Err("the interpreter gives other bits".into());
    }
    Ok(None)
}

fn check_ops(sizes: &[u32], wanted: impl Fn(&str) -> bool + Sync) -> Done {
    let backends = backends();
    let ops: Vec<_> = OPS.iter().filter(|op| wanted(op.id)).collect();
    let next = Mutex::new(ops.iter());
    let (faults, lacking) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(op) = next.lock().ok().and_then(|mut next| next.next()) {
                    let samples =
                        |&size| vyre_samples::of(op.id, size).into_iter().enumerate().map(move |s| (size, s));
                    for (size, (number, sample)) in sizes.iter().flat_map(samples) {
                        let mut known = Vec::new();
                        for backend in backends.iter().filter(|backend| is_tried(&***backend, size, number)) {
                            let name = format!("{}, {}, on {}", op.id, sample.label, backend.id());
                            match check(backend, &sample, &mut known) {
                                Ok(None) => {}
                                Ok(Some(lack)) => {
                                    drop(lacking.lock().map(|mut all| all.insert(format!("{name}: {lack}"))));
                                }
                                Err(fault) => {
                                    let fault = format!("{name}, at {size}: {fault}");
                                    drop(faults.lock().map(|mut all| all.push(fault)));
                                }
                            }
                        }
                    }
                }
            });
        }
    });
    for lack in lacking.into_inner().unwrap_or_default() {
        println!("SKIP {lack}");
    }
    let faults = faults.into_inner().unwrap_or_default();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

#[test]
fn every_op_on_every_backend_at_every_size() -> Done {
    check_ops(&SIZES, |_| true)
}

#[test]
fn ops_with_blocks_at_sizes_of_several_levels() -> Done {
    let blocked = [
        "reduce.sum",
        "dot",
        "argmax",
        "scan.inclusive",
        "scan.exclusive",
        "compact",
        "histogram",
        "sort.pairs",
    ];
    check_ops(&LARGE, |id| blocked.contains(&id))
}

#[test]
fn no_op_races() -> Done {
    let profiles: Vec<DeviceProfile> = backends().iter().map(|backend| backend.device_profile()).collect();
    // A device without subgroups, as different from the processor as shapes get.
    let plain = DeviceProfile { subgroup_size: 32, ..DeviceProfile::conservative("plain") };
    for op in OPS {
        for size in [1, 65, 1000] {
            for sample in vyre_samples::of(op.id, size) {
                let mut seen: Vec<(Plan, u32)> = Vec::new();
                for profile in profiles.iter().chain([&plain]) {
                    let plan = (sample.plan)(profile)?;
                    let shape = (plan.clone(), profile.subgroup_size);
                    if seen.contains(&shape) {
                        continue;
                    }
                    seen.push(shape);
                    let compiled = plan.compile(Arc::new(Sanitized(*profile)), &DispatchConfig::default())?;
                    let run = compiled.run(&borrowed(&sample));
                    let outputs =
                        run.map_err(|error| format!("{} of {size}, {}: {error}", op.id, sample.label))?;
                    assert_eq!(sample.fault(&outputs), None, "{} of {size}, {}", op.id, sample.label);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn ids_are_unique_and_found() {
    let ids: HashSet<&str> = OPS.iter().map(|op| op.id).collect();
    assert_eq!(ids.len(), OPS.len());
    for op in OPS {
        assert_eq!(find(op.id).map(|found| found.id), Some(op.id));
        assert!(!vyre_samples::of(op.id, 1).is_empty(), "{} has no samples", op.id);
        assert!(op.summary.ends_with('.') && !op.parameters.is_empty() && !op.sizes.is_empty(), "{}", op.id);
    }
    assert!(find("no.such.op").is_none());
}

/// The expected text of docs/catalogue.md.
fn page() -> String {
    let mut text = String::from(
        "# The op catalogue\n\n\
         Ready ops in `vyre::catalogue`, each under an id whose meaning never changes. An op that consists of several\n\
         programs is a plan: one call runs all of them (`Runtime::load_op`), and intermediate buffers stay on the device.\n\
         Every op accepts any size, including 0 and 1.\n\n\
         | op | what it computes | parameters | sizes |\n|---|---|---|---|\n",
    );
    for op in OPS {
        let cells = [op.summary, op.parameters, op.sizes].map(|cell| cell.replace('|', "\\|"));
        text += &format!("| `{}` | {} | {} | {} |\n", op.id, cells[0], cells[1], cells[2]);
    }
    text
}

#[test]
fn the_page_is_current() -> Done {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/catalogue.md");
    if std::env::var_os("VYRE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, page())?;
    }
    assert_eq!(std::fs::read_to_string(&path)?, page(), "docs/catalogue.md: run this test with VYRE_BLESS=1");
    Ok(())
}
