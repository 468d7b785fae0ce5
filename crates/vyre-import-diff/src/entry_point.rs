//! One entry point, unmodified and imported, compared or measured.

use crate::compare::{Difference, compare};
use crate::inputs::{Draw, draw, nudge};
use crate::shader::Shader;
use crate::unmodified::Unmodified;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_cpu as _;
use vyre_driver::registry::acquire;
use vyre_driver::{DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::launch::Overrides;
use vyre_import::{Imported, ShaderBinding};
use vyre_opencl as _;
use vyre_reference::{FaultKind, Order, RunError, run as interpret};
use vyre_wgpu as _;

/// Result for an entry point.
pub(crate) struct EntryVerdict {
    pub(crate) verdict: &'static str,
    pub(crate) detail: String,
}

fn row(verdict: &'static str, detail: impl Into<String>) -> EntryVerdict {
    EntryVerdict { verdict, detail: detail.into() }
}

pub(crate) fn run(file: &Path, entry: &str, time: bool) -> EntryVerdict {
    let shader = match Shader::read(file) {
        Ok(shader) => shader,
        Err(message) => return row("unread", message),
    };
    let (imported, options) = match shader.import(entry) {
        Ok(imported) => imported,
        Err(message) => return row("refused", message),
    };
    let kernel = match imported.program.validate() {
        Ok(kernel) => kernel,
        Err(faults) => return row("invalid", faults.to_string()),
    };
    let unmodified = shader.module().and_then(|module| Unmodified::new(module, &options));
    let one = One { imported, kernel };
    match unmodified {
        Ok(unmodified) if time => one.time(&unmodified),
        Ok(unmodified) => one.check(Ok(&unmodified)),
        Err(message) if time => row("not run", message),
        Err(message) => one.check(Err(message)),
    }
}

struct One {
    imported: Imported,
    kernel: Kernel,
}

/// Inputs for which the sanitizer reports nothing that could change results, or the last ones
/// tried.
struct Tried {
    inputs: Vec<Vec<u8>>,
    grid: [u32; 3],
    /// Summary of the sanitizer's reports.
    said: Vec<String>,
    changes: bool,
}

/// Input parameters to try, from those that exercise the most to the most cautious.
const DRAWS: [(u64, u32, [u32; 3]); 6] = [
    (7, 4096, [2, 1, 1]),
    (3, 16384, [2, 2, 1]),
    (40, 65536, [1, 1, 1]),
    (1, 16384, [1, 1, 1]),
    (200, 65536, [1, 1, 1]),
    (0, 4096, [1, 1, 1]),
];
const SEEDS: u64 = 4;
const PLAIN: (Order, bool) = (Order::Ascending, false);
const ORDER: &str = "the result depends on the order of atomics";
/// Time limit for the search for inputs.
const SEARCH: Duration = Duration::from_secs(12);

impl One {
    /// Buffers that a caller binds, in the order of the program's bindings.
    fn bound(&self) -> Vec<(&ShaderBinding, Access)> {
        let access = |binding: &ShaderBinding| {
            let declared =
                self.imported.program.buffers().iter().find(|buffer| *buffer.name == *binding.name);
            declared.map_or(Access::Read, |buffer| buffer.access)
        };
        self.imported.bindings.iter().map(|binding| (binding, access(binding))).collect()
    }

    fn interpret(
        &self,
        inputs: &[Vec<u8>],
        grid: [u32; 3],
        lanes: u32,
        (order, sanitize): (Order, bool),
    ) -> Result<vyre_reference::Run, RunError> {
        let options = vyre_reference::RunOptions {
            overrides: Overrides { grid: Some(grid), ..Overrides::default() },
            subgroup_size: lanes.clamp(1, 64),
            order,
            timeout: Some(Duration::from_secs(4)),
            sanitize,
            ..vyre_reference::RunOptions::default()
        };
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        interpret(&self.kernel, &inputs, &options)
    }

    fn inputs(&self, lanes: u32, groups: u32) -> Tried {
        let bound = self.bound();
        let mut best: Option<Tried> = None;
        let began = Instant::now();
        let draws = DRAWS.into_iter().filter(|(_, _, grid)| grid.iter().product::<u32>() <= groups);
        for (most, elements, grid) in draws {
            for seed in 0..SEEDS {
                let how = Draw { most, elements, seed };
                let inputs = draw(&self.imported.program, &self.imported.bindings, how);
                let (said, changes) = match self.interpret(&inputs, grid, lanes, (Order::Ascending, true)) {
                    Err(error) => (vec![format!("{error:?}").chars().take(60).collect()], false),
                    Ok(run) => {
                        let matters =
                            run.reports.iter().filter(|report| report.fault != FaultKind::Unwritten);
                        let mut said: Vec<String> = matters.map(|report| report.fault.to_string()).collect();
                        said.dedup();
                        if self.depends_on_order(&inputs, grid, lanes, &run.outputs) {
                            said.push(ORDER.into());
                        }
                        let before = inputs.iter().zip(&bound).filter(|(_, (_, access))| access.is_output());
                        let changes = before.zip(&run.outputs).any(|((before, _), after)| before != after);
                        (said, changes)
                    }
                };
                let tried = Tried { inputs, grid, said, changes };
                if tried.said.is_empty() && tried.changes {
                    return tried;
                }
                let better = best.as_ref().is_none_or(|best| !best.said.is_empty() && tried.said.is_empty());
                if better {
                    best = Some(tried);
                }
                if let Some(best) = best.take_if(|_| began.elapsed() > SEARCH) {
                    return best;
                }
            }
        }
        best.unwrap_or_else(|| unreachable!("there are draws"))
    }

    /// Compares results. With atomics in several workgroups, results can depend on which one is
    /// first, so a difference is checked again with a single workgroup.
    fn check(&self, unmodified: Result<&Unmodified, String>) -> EntryVerdict {
        let row = self.check_groups(unmodified.clone(), u32::MAX);
        if row.verdict != "differs" || !self.kernel.buffers.iter().any(|buffer| buffer.atomic) {
            return row;
        }
        let one = self.check_groups(unmodified, 1);
        let detail = format!("with one workgroup; with several {}; {}", row.detail, one.detail);
        if one.verdict == "differs" { row } else { EntryVerdict { detail, ..one } }
    }

    fn check_groups(&self, unmodified: Result<&Unmodified, String>, groups: u32) -> EntryVerdict {
        let lanes = unmodified.as_ref().map_or(8, |unmodified| unmodified.lanes);
        let tried = self.inputs(lanes, groups);
        let expected = match self.interpret(&tried.inputs, tried.grid, lanes, PLAIN) {
            Ok(run) => run.outputs,
            Err(error) => return row("not run", format!("cpu-ref: {error:?}")),
        };
        let mut notes = Vec::new();
        if !tried.changes {
            notes.push("changes nothing".to_string());
        }
        let mut worst = Difference::default();
        match unmodified {
            Err(message) => notes.push(format!("unmodified shader not run: {}", message.replace('\n', " "))),
            Ok(unmodified) => match unmodified.run(&self.bound(), &tried.inputs, tried.grid, 1) {
                Err(message) => {
                    notes.push(format!("unmodified shader not run: {}", message.replace('\n', " ")))
                }
                Ok((outputs, _)) => self.compare(&outputs, &expected, &mut worst),
            },
        }
        for backend in ["cpu", "wgpu", "opencl"] {
            match self.backend(backend, &tried) {
                Ok(None) => {}
                Ok(Some(message)) => return row("differs", format!("{backend} from cpu-ref: {message}")),
                Err(message) => notes.push(message),
            }
        }
        if !tried.said.is_empty() {
            let differs = worst.first.map(|first| format!(", {first}")).unwrap_or_default();
            return row("unsilent", format!("{}{differs} {}", tried.said.join(", "), notes.join("; ")));
        }
        match (worst.first, worst.bits) {
            (Some(first), _) if self.is_sensitive(&tried, lanes, &expected) => {
                let notes = notes.join("; ");
                row("sensitive", format!("{first}; the last bit of an input changes as much {notes}"))
            }
            (Some(first), _) => {
                row("differs", format!("{first}, greatest {:.1e} {}", worst.greatest, notes.join("; ")))
            }
            (None, 0) if notes.iter().any(|note| note.starts_with("not run as")) => {
                row("only here", notes.join("; "))
            }
            (None, 0) => row("agrees", notes.join("; ")),
            (None, bits) => row("near", format!("{bits} floats within bounds {}", notes.join("; "))),
        }
    }

    /// Whether atomics give other results if invocations run in another order.
    fn depends_on_order(&self, inputs: &[Vec<u8>], grid: [u32; 3], lanes: u32, outputs: &[Vec<u8>]) -> bool {
        [Order::Descending, Order::Interleaved(1)].into_iter().any(|order| {
            let other = self.interpret(inputs, grid, lanes, (order, false));
            other.is_ok_and(|other| other.outputs != outputs)
        })
    }

    /// Whether moving the input floats one step up or down changes results beyond the tolerance.
    fn is_sensitive(&self, tried: &Tried, lanes: u32, expected: &[Vec<u8>]) -> bool {
        [true, false].into_iter().any(|up| {
            let nudged = nudge(&self.imported.bindings, &tried.inputs, up);
            let Ok(run) = self.interpret(&nudged, tried.grid, lanes, PLAIN) else { return false };
            let mut worst = Difference::default();
            self.compare(&run.outputs, expected, &mut worst);
            worst.first.is_some()
        })
    }

    fn compare(&self, found: &[Vec<u8>], expected: &[Vec<u8>], worst: &mut Difference) {
        let written: Vec<_> = self.bound().into_iter().filter(|(_, access)| access.is_output()).collect();
        for ((binding, _), (found, expected)) in written.iter().zip(found.iter().zip(expected)) {
            compare(&binding.layout, found, expected, 0, worst);
        }
    }

    /// First difference between a backend's result for the imported program and the interpreter's.
    fn backend(&self, id: &str, tried: &Tried) -> Result<Option<String>, String> {
        let backend: Arc<dyn VyreBackend> =
            acquire(id).map(Arc::from).map_err(|error| format!("{id}: {error}"))?;
        let lanes = backend.device_profile().subgroup_size.max(1);
        let expected = self.interpret(&tried.inputs, tried.grid, lanes, PLAIN);
        let expected = expected.map_err(|error| format!("cpu-ref: {error:?}"))?.outputs;
        let config = DispatchConfig {
            grid_override: Some(tried.grid),
            timeout: Some(Duration::from_secs(20)),
            ..DispatchConfig::default()
        };
        let inputs: Vec<&[u8]> = tried.inputs.iter().map(Vec::as_slice).collect();
        let ran = pipeline::compile(backend, &self.imported.program, &config)
            .and_then(|pipeline| pipeline.dispatch_borrowed(&inputs, &DispatchConfig::default()));
        let found =
            ran.map_err(|error| format!("{id}: {}", error.to_string().lines().next().unwrap_or("")))?;
        let mut worst = Difference::default();
        self.compare(&found, &expected, &mut worst);
        let is_strict = id == "cpu" && tried.said.is_empty();
        Ok(match worst.first {
            Some(first) if tried.said.is_empty() => Some(first),
            None if is_strict && worst.bits > 0 => Some(format!("{} floats by bits", worst.bits)),
            _ => None,
        })
    }

    /// Time of `cpu` compared with the unmodified shader.
    fn time(&self, unmodified: &Unmodified) -> EntryVerdict {
        const INVOCATIONS: u32 = 1 << 20;
        const ROUNDS: usize = 7;
        let size = self.imported.program.workgroup_size();
        let groups = (INVOCATIONS / size.iter().product::<u32>().max(1)).max(1);
        let grid = [groups.min(1 << 15), groups.div_ceil(1 << 15), 1];
        let how = Draw { most: 40, elements: INVOCATIONS, seed: 1 };
        let inputs = draw(&self.imported.program, &self.imported.bindings, how);
        let theirs = match unmodified.run(&self.bound(), &inputs, grid, ROUNDS) {
            Ok((_, times)) => median(times),
            Err(message) => return row("not run", message),
        };
        match self.time_cpu(&inputs, grid, ROUNDS) {
            Err(message) => row("not run", message),
            Ok(ours) => {
                let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
                row("measured", format!("{ratio:.2}x unmodified {theirs:.2?}, cpu {ours:.2?}"))
            }
        }
    }

    fn time_cpu(&self, inputs: &[Vec<u8>], grid: [u32; 3], rounds: usize) -> Result<Duration, String> {
        let backend: Arc<dyn VyreBackend> =
            acquire("cpu").map(Arc::from).map_err(|error| error.to_string())?;
        let config = DispatchConfig { grid_override: Some(grid), ..DispatchConfig::default() };
        let pipeline =
            pipeline::compile(backend, &self.imported.program, &config).map_err(|error| error.to_string())?;
        let mut times = Vec::new();
        for _ in 0..rounds {
            let mut memory = inputs.to_vec();
            let accesses: Vec<Access> = self.bound().into_iter().map(|(_, access)| access).collect();
            let mut bindings: Vec<vyre_driver::Binding<'_>> = memory
                .iter_mut()
                .zip(accesses)
                .map(|(bytes, access)| vyre_driver::Binding::new(access, bytes))
                .collect();
            let start = Instant::now();
            let ran = pipeline.dispatch_bound(&mut bindings, &DispatchConfig::default());
            times.push(start.elapsed());
            ran.map_err(|error| error.to_string())?;
        }
        Ok(median(times))
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
