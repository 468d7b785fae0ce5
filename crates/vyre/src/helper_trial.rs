//! Trials, in a helper process, of programs that a driver may not survive.
//!
//! A driver's compiler that recurses too deep, or a workgroup that needs more stack than its
//! threads have, kills the whole process. The conformance set shows that a driver survives small
//! programs. A program larger in some respect (its [`ProgramSize`]) than everything the driver is
//! known to survive is first compiled and run once by a helper, on little data; if a signal kills
//! the helper, the backend refuses the program. Without a helper nothing is tried.

use crate::backend::Backend;
use crate::conformance;
use crate::helper::{Answer, Helper};
use crate::routine_core::{Pair, Work};
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

/// Size of a program in the respects that kill drivers, each rounded up to a power of two: its
/// values, bytes of a workgroup's private arrays, nesting, buffers.
type ProgramSize = [u64; 4];

fn size_of_program(kernel: &KernelBody, workgroup: [u32; 3]) -> ProgramSize {
    let bytes = kernel.arrays.iter().map(|array| 8 * u64::from(array.count)).sum::<u64>();
    let private = workgroup.iter().fold(bytes, |all, &axis| all.saturating_mul(axis.into()));
    let (values, buffers) = (kernel.values.len() as u64, kernel.buffers.len() as u64);
    let up = |n: u64| n.checked_next_power_of_two().unwrap_or(u64::MAX);
    [values, private, depth(&kernel.body), buffers].map(up)
}

fn covers(size: &ProgramSize, other: &ProgramSize) -> bool {
    size.iter().zip(other).all(|(own, other)| own >= other)
}

fn depth(block: &[Stmt]) -> u64 {
    let inner = |stmt: &Stmt| stmt.kind.blocks().into_iter().map(|block| 1 + depth(block)).max();
    block.iter().filter_map(inner).max().unwrap_or(0)
}

/// Size that every driver in use has survived; programs that are small in all respects count as
/// survived too.
static CERTIFIED: LazyLock<ProgramSize> = LazyLock::new(|| {
    let kernels = conformance::programs().filter_map(|program| program.validate().ok());
    kernels.fold([2048, 1 << 18, 16, 16], |all, kernel| {
        let own = size_of_program(&kernel, kernel.workgroup_size);
        std::array::from_fn(|k| all[k].max(own[k]))
    })
});

/// Findings of this process.
#[derive(Default)]
struct DriverFindings {
    survived: Vec<ProgramSize>,
    /// Fingerprints of fatal programs, with the reasons.
    fatal: HashMap<[u8; 32], String>,
}

static KNOWN: LazyLock<Mutex<HashMap<&'static str, DriverFindings>>> = LazyLock::new(Mutex::default);

fn known<T>(backend: &Backend, look: impl FnOnce(&mut DriverFindings) -> T) -> T {
    look(KNOWN.lock().unwrap_or_else(PoisonError::into_inner).entry(backend.id).or_default())
}

/// Fails if the driver is known, or now found, not to survive the program.
pub(crate) fn survives(Pair { core, backend }: Pair<'_>) -> Result<(), BackendError> {
    // The ops are vyre's own.
    let Work::Program { program, kernel, .. } = &core.work else { return Ok(()) };
    if !backend.is_driven {
        return Ok(());
    }
    let size = size_of_program(kernel, core.config.workgroup_override.unwrap_or(kernel.workgroup_size));
    let fatal = |reason: String| BackendError::UnsupportedFeature {
        name: format!("kernel `{}`: {reason}", kernel.display_name()),
        backend: backend.id.into(),
    };
    if let Some(reason) = known(backend, |known| known.fatal.get(&kernel.fingerprint).cloned()) {
        return Err(fatal(reason));
    }
    let covered = |known: &mut DriverFindings| known.survived.iter().any(|other| covers(other, &size));
    if covers(&CERTIFIED, &size) || known(backend, covered) {
        return Ok(());
    }
    match ask(&core.shared.helper, backend.id, program, &core.config) {
        None => Ok(()),
        Some(Ok(())) => {
            known(backend, |known| {
                known.survived.retain(|other| !covers(&size, other));
                known.survived.push(size);
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

/// A request to a helper, in one line.
#[derive(Serialize, Deserialize)]
struct Request {
    config: DispatchConfig,
    /// In wire form.
    program: Vec<u8>,
}

/// Whether a helper survives the program; `None` without a helper of this build that has the
/// backend and returns in time.
fn ask(helper: &Helper, id: &str, program: &Program, config: &DispatchConfig) -> Option<Result<(), String>> {
    let request = Request { config: config.code_policy(), program: wire::encode(program) };
    let mut line = serde_json::to_vec(&request).ok()?;
    line.push(b'\n');
    let answer = helper.ask(&[id, "--program"], &line);
    match answer.ok()?? {
        // A helper that survived prints its build.
        Answer::Text(text) => (text.trim() == COMPILER_VERSION).then_some(Ok(())),
        Answer::Crash(_) => Some(Err("its driver ended a helper process that tried it first".into())),
    }
}

/// The helper's side: reads a program, compiles it and runs it once on little data. Returns the
/// text to print; errors of the backend count as survived.
pub fn try_program(backend: &str) -> Result<String, String> {
    let (program, config) = read_request().map_err(|error| format!("no program: {error}"))?;
    thread::spawn(|| {
        // The input ends when the asking process is gone.
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
    Ok(COMPILER_VERSION.into())
}

/// The configuration of a call that is short, whatever the program's grid and loops.
fn small(kernel: &KernelBody, inputs: &[Vec<u8>], config: DispatchConfig) -> DispatchConfig {
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let overrides = Overrides { grid: None, ..config.overrides() };
    let launch = Launch::from_inputs(kernel, &borrowed, overrides);
    let large = launch.is_ok_and(|launch| launch.invocations() > MOST_INVOCATIONS);
    let grid_override = if large { Some([1, 1, 1]) } else { None };
    DispatchConfig { timeout: Some(RUN_LIMIT), grid_override, ..config }
}

/// A trial runs at most this many invocations, for at most this long: it is about the driver's
/// compiler and stack, which need one workgroup. Chosen, not measured: a run that is cut off counts
/// as survived.
const MOST_INVOCATIONS: u64 = 1 << 16;
const RUN_LIMIT: std::time::Duration = std::time::Duration::from_millis(200);
/// Maximum size of a request, that of a program's text. The largest program of the filetests and
/// benchmarks has 1,303 bytes in the wire format.
const MOST_BYTES: u64 = 64 << 20;

fn read_request() -> Result<(Program, DispatchConfig), String> {
    let mut line = Vec::new();
    let read = std::io::stdin().lock().take(MOST_BYTES).read_until(b'\n', &mut line);
    read.map_err(|error| error.to_string())?;
    let Request { config, program } = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
    Ok((wire::decode(&program).map_err(|error| error.to_string())?, config))
}
