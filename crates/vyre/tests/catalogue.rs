//! Every op of the catalogue, on every backend that is here, at many sizes: against its reference check, against the
//! interpreter by bits, and without data races.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use vyre::catalogue::{OPS, Sample, find};
use vyre::driver::registry::{backend_dispatches, registered_backends};
use vyre::driver::{BackendError, DeviceProfile, DispatchConfig, VyreBackend};
use vyre::foundation::ir::Program;
use vyre::foundation::launch::Overrides;
use vyre_reference::{CpuRef, Fault, Options, run};

const SIZES: [u32; 9] = [0, 1, 2, 7, 63, 64, 65, 1000, 4097];
/// Sizes that need several levels of blocks.
const LARGE: [u32; 1] = [70_001];

type Done = Result<(), Box<dyn std::error::Error>>;

/// The interpreter with the sanitizer, as a backend with another backend's profile. Any data race is an error.
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
        let options = Options {
            overrides: Overrides { workgroup: config.workgroup_override, grid: config.grid_override },
            subgroup_size: self.0.subgroup_size.max(1),
            sanitize: true,
            ..Options::default()
        };
        let done = run(&program.validate()?, &borrowed, &options)
            .map_err(|error| BackendError::new(error.to_string()))?;
        match done.reports.iter().find(|report| matches!(report.fault, Fault::Race)) {
            Some(race) => Err(BackendError::new(race.to_string())),
            None => Ok(done.outputs),
        }
    }
}

/// What a backend lacks is its right; what it does wrong is not.
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

/// The sample on a backend: right by its check, and by bits what the interpreter gives with the same plan.
fn check(backend: &Arc<dyn VyreBackend>, op: &str, size: u32, sample: &Sample) -> Result<bool, String> {
    let profile = backend.device_profile();
    let name = format!("{op} of {size}, {}, on {}", sample.label, backend.id());
    let plan = (sample.plan)(&profile).map_err(|error| format!("{name}: {error}"))?;
    let compiled = match plan.compile(backend.clone(), &DispatchConfig::default()) {
        Ok(compiled) => compiled,
        Err(error) if lacks(&error) => return Ok(false),
        Err(error) => return Err(format!("{name}: {error}")),
    };
    let outputs = compiled.run(&borrowed(sample)).map_err(|error| format!("{name}: {error}"))?;
    if let Some(fault) = sample.fault(&outputs) {
        return Err(format!("{name}: {fault}"));
    }
    // Another run of the same plan, with the temporaries of the first.
    let again = compiled.run(&borrowed(sample)).map_err(|error| format!("{name}: {error}"))?;
    if again != outputs {
        return Err(format!("{name}: the second run differs from the first"));
    }
    if profile.strict_float {
        let subgroup_size = (profile.subgroup_size > 0).then_some(profile.subgroup_size);
        let config = DispatchConfig { subgroup_size, ..DispatchConfig::default() };
        let oracle = plan.compile(Arc::new(CpuRef), &config).and_then(|plan| plan.run(&borrowed(sample)));
        if oracle.map_err(|error| format!("{name}, interpreted: {error}"))? != outputs {
            return Err(format!("{name}: the interpreter gives other bits"));
        }
    }
    Ok(true)
}

fn check_ops(sizes: &[u32], wanted: impl Fn(&str) -> bool + Sync) -> Done {
    let backends = backends();
    let ops: Vec<_> = OPS.iter().filter(|op| wanted(op.id)).collect();
    let next = Mutex::new(ops.iter());
    let (faults, skipped) = (Mutex::new(Vec::new()), Mutex::new(0));
    let lock = |m: &Mutex<Vec<String>>, fault: String| m.lock().map(|mut all| all.push(fault)).is_ok();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(op) = next.lock().ok().and_then(|mut next| next.next()) {
                    for &size in sizes {
                        for sample in (op.samples)(size) {
                            for backend in &backends {
                                match check(backend, op.id, size, &sample) {
                                    Ok(true) => {}
                                    Ok(false) => *skipped.lock().unwrap_or_else(|e| e.into_inner()) += 1,
                                    Err(fault) => drop(lock(&faults, fault)),
                                }
                            }
                        }
                    }
                }
            });
        }
    });
    let skipped = skipped.into_inner().unwrap_or_default();
    if skipped > 0 {
        println!("SKIP {skipped} samples that a backend lacks a capability for");
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
    // A device without subgroups, as far from the processor as shapes get.
    let plain = DeviceProfile { subgroup_size: 32, ..DeviceProfile::conservative("plain") };
    for op in OPS {
        for size in [1, 65, 1000] {
            for sample in (op.samples)(size) {
                for profile in profiles.iter().chain([&plain]) {
                    let plan = (sample.plan)(profile)?;
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
        assert!(op.summary.ends_with('.') && !op.parameters.is_empty() && !op.sizes.is_empty(), "{}", op.id);
    }
    assert!(find("no.such.op").is_none());
}

/// docs/catalogue.md as the table has it.
fn page() -> String {
    let mut text = String::from(
        "# The op catalogue\n\n\
         Ready ops in `vyre::catalogue`, under ids that keep their meaning. An op of several programs is a plan: its\n\
         intermediate buffers stay on the device, and one call runs it. Every op takes any size, 0 and 1 included.\n\n\
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
