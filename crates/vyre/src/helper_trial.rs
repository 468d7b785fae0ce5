//! Programs that a driver may not survive are tried in a helper process first.
//!
//! A driver's compiler that recurses too deep, or a workgroup that needs more stack than its threads have, ends the whole
//! process. The conformance set shows that a driver survives small programs. One that is larger in some respect (its
//! [`Extent`]) than everything the driver has been seen to survive is first compiled and run once by a helper, on little data;
//! if that ends by a signal the backend refuses the program. Without a helper nothing is tried.

use crate::backend::Backend;
use crate::conformance;
use crate::core::{Pair, Work};
use crate::helper::{Answer, Helper};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use vyre_driver::messages::quietly;
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::{BackendError, DispatchConfig, pipeline, registry};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{KernelBody, Stmt};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::wire;

/// How large a program is, in the respects that drivers die of, each to the next power of two: its values, bytes of the
/// private arrays of a workgroup, nesting, buffers.
type Extent = [u64; 4];

fn extent_of(kernel: &KernelBody, workgroup: [u32; 3]) -> Extent {
    let bytes = kernel.arrays.iter().map(|array| 8 * u64::from(array.count)).sum::<u64>();
    let private = workgroup.iter().fold(bytes, |all, &axis| all.saturating_mul(axis.into()));
    let (values, buffers) = (kernel.values.len() as u64, kernel.buffers.len() as u64);
    let up = |n: u64| n.checked_next_power_of_two().unwrap_or(u64::MAX);
    [values, private, depth(&kernel.body), buffers].map(up)
}

fn covers(extent: &Extent, other: &Extent) -> bool {
    extent.iter().zip(other).all(|(own, other)| own >= other)
}

fn depth(block: &[Stmt]) -> u64 {
    let inner = |stmt: &Stmt| stmt.kind.blocks().into_iter().map(|block| 1 + depth(block)).max();
    block.iter().filter_map(inner).max().unwrap_or(0)
}

/// What every driver that is in use has survived. Programs that are small in all respects count as that, too.
static CERTIFIED: LazyLock<Extent> = LazyLock::new(|| {
    let kernels = conformance::programs().filter_map(|program| program.validate().ok());
    kernels.fold([2048, 1 << 18, 16, 16], |all, kernel| {
        let own = extent_of(&kernel, kernel.workgroup_size);
        std::array::from_fn(|k| all[k].max(own[k]))
    })
});

/// What was found out in this process.
#[derive(Default)]
struct Known {
    survived: Vec<Extent>,
    /// Fingerprints, and what happened.
    fatal: HashMap<[u8; 32], String>,
}

static KNOWN: LazyLock<Mutex<HashMap<&'static str, Known>>> = LazyLock::new(Mutex::default);

fn known<T>(backend: &Backend, look: impl FnOnce(&mut Known) -> T) -> T {
    look(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).entry(backend.id).or_default())
}

/// An error if the driver is known not to survive the program, or is found not to now.
pub(crate) fn survives(Pair { core, backend }: Pair<'_>) -> Result<(), BackendError> {
    // The ops are vyre's own.
    let Work::Program { program, kernel, .. } = &core.work else { return Ok(()) };
    if !backend.is_driven {
        return Ok(());
    }
    let extent = extent_of(kernel, core.config.workgroup_override.unwrap_or(kernel.workgroup_size));
    let fatal = |reason: String| BackendError::UnsupportedFeature {
        name: format!("kernel `{}`: {reason}", kernel.display_name()),
        backend: backend.id.into(),
    };
    if let Some(reason) = known(backend, |known| known.fatal.get(&kernel.fingerprint).cloned()) {
        return Err(fatal(reason));
    }
    let covered = |known: &mut Known| known.survived.iter().any(|other| covers(other, &extent));
    if covers(&CERTIFIED, &extent) || known(backend, covered) {
        return Ok(());
    }
    match ask(&core.shared.helper, backend.id, program, &core.config) {
        None => Ok(()),
        Some(Ok(())) => {
            known(backend, |known| {
                known.survived.retain(|other| !covers(&extent, other));
                known.survived.push(extent);
            });
            Ok(())
        }
        Some(Err(reason)) => {
            tracing::warn!(
                backend = backend.id,
                kernel = kernel.display_name(),
                reason,
                "the program is refused"
            );
            known(backend, |known| known.fatal.insert(kernel.fingerprint, reason.clone()));
            Err(fatal(reason))
        }
    }
}

/// What a helper is told, in one line.
#[derive(Serialize, Deserialize)]
struct Request {
    config: DispatchConfig,
    /// In its wire form.
    program: Vec<u8>,
}

/// What it prints when it has survived.
#[derive(Serialize, Deserialize)]
struct Survived {
    survived: bool,
    compiler_version: String,
}

/// Whether a helper survives the program; `None` without a helper of this build that has the backend and comes back in time.
fn ask(helper: &Helper, id: &str, program: &Program, config: &DispatchConfig) -> Option<Result<(), String>> {
    let request = Request { config: config.code_policy(), program: wire::encode(program) };
    let mut line = serde_json::to_vec(&request).ok()?;
    line.push(b'\n');
    let answer = helper.ask(&[id, "--program"], &line);
    match answer.ok()?? {
        Answer::Text(text) => {
            let answer: Survived = serde_json::from_str(text.trim()).ok()?;
            (answer.survived && answer.compiler_version == COMPILER_VERSION).then_some(Ok(()))
        }
        Answer::Crash(_) => Some(Err("its driver ended a helper process that tried it first".into())),
    }
}

/// The helper's part: reads a program, compiles it and runs it once on little data. Gives what to print; errors of the
/// backend are survived.
pub fn try_program(backend: &str) -> Result<String, String> {
    let (program, config) = read_request().map_err(|error| format!("no program: {error}"))?;
    thread::spawn(|| {
        // Whoever asked is gone once the input ends.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    let driver = registry::acquire(backend).map_err(|error| error.to_string())?;
    if let Ok(kernel) = program.validate()
        && let Ok(compiled) = pipeline::compile(driver.into(), &program, &config)
    {
        let inputs = conformance::inputs_of(&program);
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let _ = quietly(|| compiled.dispatch_borrowed(&borrowed, &small(&kernel, &inputs, config)));
    }
    let answer = Survived { survived: true, compiler_version: COMPILER_VERSION.into() };
    serde_json::to_string(&answer).map_err(|error| error.to_string())
}

/// A call that is short whatever the program's grid and loops are.
fn small(kernel: &KernelBody, inputs: &[Vec<u8>], config: DispatchConfig) -> DispatchConfig {
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let overrides = Overrides { grid: None, ..config.overrides() };
    let launch = Launch::from_inputs(kernel, &borrowed, overrides);
    let large = launch.is_ok_and(|launch| launch.invocations() > MOST_INVOCATIONS);
    let grid_override = if large { Some([1, 1, 1]) } else { None };
    DispatchConfig { timeout: Some(RUN_LIMIT), grid_override, ..config }
}

const MOST_INVOCATIONS: u64 = 1 << 16;
const RUN_LIMIT: std::time::Duration = std::time::Duration::from_millis(200);
/// A program of this many bytes is larger than any text.
const MOST_BYTES: u64 = 64 << 20;

fn read_request() -> Result<(Program, DispatchConfig), String> {
    let mut line = Vec::new();
    let read = std::io::stdin().lock().take(MOST_BYTES).read_until(b'\n', &mut line);
    read.map_err(|error| error.to_string())?;
    let Request { config, program } = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
    Ok((wire::decode(&program).map_err(|error| error.to_string())?, config))
}
