//! One row: who takes part, that each is right, then rounds in which each runs once, in random order.

use super::native::{Peer, Peers};
use super::report::{Entry, Row};
use super::workloads::{Limit, Workload};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre::catalogue::sample::Numbers;
use vyre::catalogue::{CompiledPlan, Role, Sample};
use vyre::{Argument, BackendError, Routine, Runtime};
use vyre_driver::{Binding, DeviceClass, DispatchConfig, VyreBackend};

/// How long a row may take, and how often each takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub rounds: usize,
    pub seconds: f64,
}

/// A call shorter than this is repeated within a round, so that the clock does not show.
const SHORTEST_NS: u64 = 300_000;

/// Someone who takes part in a row.
struct Contestant<'a> {
    entry: Entry,
    runner: Runner<'a>,
    /// Calls per round.
    repeats: u64,
}

enum Runner<'a> {
    Peer(Peer),
    /// Everything in the backend's own memory.
    Resident {
        plan: Arc<CompiledPlan>,
        handles: Vec<(u64, &'a Role)>,
    },
    /// Host memory in, host memory out.
    EndToEnd {
        plan: Arc<CompiledPlan>,
        inputs: Vec<&'a [u8]>,
        outputs: Vec<Vec<u8>>,
        roles: Vec<&'a Role>,
    },
    /// Host memory, on the backend that the runtime picks.
    Routed(Box<Routed>),
}

/// A plan of one program, called through the runtime.
struct Routed {
    routine: Routine,
    /// Per buffer of the program: its name and its memory; what the program writes is written there.
    memory: Vec<(String, Vec<u8>)>,
    writes: Vec<bool>,
}

impl Routed {
    fn run(&mut self) -> Result<(), BackendError> {
        let mut call = self.routine.call();
        for ((name, bytes), &writes) in self.memory.iter_mut().zip(&self.writes) {
            let argument = if writes { Argument::bytes_mut(bytes) } else { Argument::bytes(bytes) };
            call = call.bind(name, argument);
        }
        call.run().map(drop)
    }
}

impl Runner<'_> {
    /// The nanoseconds of so many calls.
    fn run(&mut self, times: u64) -> Result<u64, String> {
        let start = Instant::now();
        match self {
            Runner::Peer(peer) => return peer.run(times),
            Runner::Resident { plan, handles } => {
                let mut bindings: Vec<Binding<'_>> =
                    handles.iter().map(|(h, _)| Binding::Resident(*h)).collect();
                for _ in 0..times {
                    plan.run_bound(&mut bindings).map_err(|error| error.to_string())?;
                }
                wait(plan, handles)?;
            }
            Runner::EndToEnd { plan, inputs, outputs, roles } => {
                let mut bindings = host_bindings(inputs, outputs, roles);
                for _ in 0..times {
                    plan.run_bound(&mut bindings).map_err(|error| error.to_string())?;
                }
            }
            Runner::Routed(routed) => {
                for _ in 0..times {
                    routed.run().map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(start.elapsed().as_nanos() as u64)
    }
}

/// A device that works on after a dispatch has returned is done when a byte can be read.
fn wait(plan: &CompiledPlan, handles: &[(u64, &Role)]) -> Result<(), String> {
    if plan.backend().device_profile().device_class == DeviceClass::Cpu {
        return Ok(());
    }
    let Some((handle, _)) = handles.iter().rev().find(|(_, role)| **role != Role::Input) else {
        return Ok(());
    };
    plan.backend().download_resident(*handle, 0, &mut [0; 4]).map_err(|error| error.to_string())
}

fn host_bindings<'b>(inputs: &[&'b [u8]], outputs: &'b mut [Vec<u8>], roles: &[&Role]) -> Vec<Binding<'b>> {
    let mut inputs = inputs.iter();
    let mut outputs = outputs.iter_mut();
    let mut bindings = Vec::with_capacity(roles.len());
    for role in roles {
        match role {
            Role::Input => bindings.extend(inputs.next().map(|bytes| Binding::Read(bytes))),
            Role::Updated | Role::Output => {
                bindings.extend(outputs.next().map(|bytes| Binding::ReadWrite(bytes)));
            }
            Role::Temporary | Role::Constant(_) => {}
        }
    }
    bindings
}

/// Measures a workload. `tick` is called after every round with the share of the row that is done.
pub(crate) fn row(
    workload: &Workload,
    peers: Result<&Peers, &String>,
    backends: &[Arc<dyn VyreBackend>],
    runtime: Option<&Runtime>,
    effort: Effort,
    tick: &mut dyn FnMut(f64) -> bool,
) -> Row {
    let sample = (workload.sample)();
    let operations = (workload.operations)(&sample);
    let mut faults = Vec::new();
    let mut contestants = Vec::new();
    let mut limit_operations = 0.0;
    let plans = compile_all(&sample, backends, &mut faults);
    match peers {
        Ok(peers) => {
            match limit_peer(workload, peers) {
                Ok((contestant, done)) => {
                    limit_operations = done;
                    contestants.push(contestant);
                }
                Err(fault) => faults.push(format!("limit: {fault}")),
            }
            match native_peer(workload, peers, &sample) {
                Ok(contestant) => contestants.push(contestant),
                Err(fault) => faults.push(format!("C: {fault}")),
            }
        }
        Err(fault) => faults.push(format!("C: {fault}")),
    }
    let buffers: Vec<Vec<Role>> = plans
        .iter()
        .map(|plan| plan.plan.buffers().iter().map(|buffer| buffer.role.clone()).collect())
        .collect();
    for (plan, roles) in plans.iter().zip(&buffers) {
        for made in [resident(plan, roles, &sample), end_to_end(plan, roles, &sample)] {
            match made {
                Ok(contestant) => contestants.push(contestant),
                Err(fault) => faults.push(format!("{}: {fault}", plan.plan.backend().id())),
            }
        }
    }
    match routed(&sample, backends, runtime) {
        Ok(contestant) => contestants.extend(contestant),
        Err(fault) => faults.push(format!("routed: {fault}")),
    }
    contest(&mut contestants, effort, &mut faults, tick);
    for contestant in &contestants {
        if let Runner::Resident { plan, handles } = &contestant.runner {
            for (handle, _) in handles {
                // The row is over; a buffer that the backend has lost is no loss.
                let _ = plan.backend().free_resident(*handle);
            }
        }
    }
    Row {
        name: workload.name.into(),
        limit: workload.limit.name().into(),
        bytes: workload.bytes,
        operations,
        limit_scale: match workload.limit {
            Limit::MultiplyAdd if limit_operations > 0.0 => operations / limit_operations,
            Limit::MultiplyAdd | Limit::Copy | Limit::Update | Limit::Read => 1.0,
        },
        entries: contestants.into_iter().map(|contestant| contestant.entry).collect(),
        faults,
    }
}

/// Rounds until there are enough or the time is up, but never fewer than three.
fn contest(
    contestants: &mut [Contestant<'_>],
    effort: Effort,
    faults: &mut Vec<String>,
    tick: &mut dyn FnMut(f64) -> bool,
) {
    let started = Instant::now();
    let mut numbers = Numbers::new(started.elapsed().as_nanos() as u64 ^ u64::from(std::process::id()));
    let limit = Duration::from_secs_f64(effort.seconds);
    for round in 0..effort.rounds {
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        for k in (1..order.len()).rev() {
            order.swap(k, (numbers.draw() % (k as u64 + 1)) as usize);
        }
        for number in order {
            let contestant = &mut contestants[number];
            match contestant.runner.run(contestant.repeats) {
                Ok(taken) => contestant.entry.samples_ns.push(taken as f64 / contestant.repeats as f64),
                Err(fault) => faults.push(format!("{}: {fault}", contestant.entry.who)),
            }
        }
        let spent = started.elapsed().as_secs_f64() / effort.seconds.max(1e-9);
        let share = spent.max((round + 1) as f64 / effort.rounds as f64);
        if !tick(share.min(1.0)) || (started.elapsed() > limit && round >= 2) {
            return;
        }
    }
}

struct Compiled {
    plan: Arc<CompiledPlan>,
    compile_ns: f64,
    programs: usize,
}

fn compile_all(
    sample: &Sample,
    backends: &[Arc<dyn VyreBackend>],
    faults: &mut Vec<String>,
) -> Vec<Compiled> {
    let mut plans = Vec::new();
    for backend in backends {
        let compiled =
            (sample.plan)(&backend.device_profile()).map_err(|error| error.to_string()).and_then(|plan| {
                let programs: std::collections::HashSet<[u8; 32]> =
                    plan.steps.iter().map(|step| step.program.fingerprint()).collect();
                let start = Instant::now();
                let made = plan.compile(backend.clone(), &DispatchConfig::default());
                let compile_ns = start.elapsed().as_nanos() as f64;
                made.map(|plan| Compiled { plan: Arc::new(plan), compile_ns, programs: programs.len() })
                    .map_err(|error| error.to_string())
            });
        match compiled {
            Ok(compiled) => plans.push(compiled),
            Err(fault) => faults.push(format!("{}: {fault}", backend.id())),
        }
    }
    plans
}

/// Calls per round such that a round is long enough to time.
fn repeats(first_ns: u64) -> u64 {
    (SHORTEST_NS / first_ns.max(1)).clamp(1, 2000)
}

fn contestant<'a>(who: String, mut runner: Runner<'a>) -> Result<Contestant<'a>, String> {
    let first = runner.run(1)?;
    let second = runner.run(1)?;
    let mut entry = Entry::new(who);
    entry.first_call_ns = first as f64;
    Ok(Contestant { entry, runner, repeats: repeats(second) })
}

fn limit_peer(workload: &Workload, peers: &Peers) -> Result<(Contestant<'static>, f64), String> {
    let mut peer = peers.start_limit(workload.limit, workload.bytes)?;
    let mut operations = 0.0;
    if workload.limit == Limit::MultiplyAdd {
        peer.run(1)?;
        operations = u64::from_le_bytes(peer.array(1)?.try_into().unwrap_or_default()) as f64;
    }
    Ok((contestant("limit".into(), Runner::Peer(peer))?, operations))
}

fn native_peer<'a>(workload: &Workload, peers: &Peers, sample: &Sample) -> Result<Contestant<'a>, String> {
    let mut peer = peers.start(workload, &(workload.arrays)(sample))?;
    peer.run(1)?;
    for &(array, output) in workload.results {
        if let Some(fault) = workload.agreement.fault(&sample.expected[output], &peer.array(array)?) {
            return Err(format!("wrong result: {fault}"));
        }
    }
    contestant("C".into(), Runner::Peer(peer))
}

fn resident<'a>(compiled: &Compiled, roles: &'a [Role], sample: &Sample) -> Result<Contestant<'a>, String> {
    let plan = compiled.plan.clone();
    let backend = plan.backend().clone();
    let mut inputs = sample.inputs.iter();
    let mut handles = Vec::new();
    for (buffer, role) in plan.buffers().iter().zip(roles) {
        if matches!(role, Role::Temporary | Role::Constant(_)) {
            continue;
        }
        let handle = backend.allocate_resident(buffer.bytes).map_err(|error| error.to_string())?;
        handles.push((handle, role));
        if matches!(role, Role::Input | Role::Updated)
            && let Some(input) = inputs.next()
        {
            backend.upload_resident(handle, 0, input).map_err(|error| error.to_string())?;
        }
    }
    let mut runner = Runner::Resident { plan: plan.clone(), handles: handles.clone() };
    let first = runner.run(1)?;
    let mut outputs = Vec::new();
    let bound = plan.buffers().iter().filter(|b| !matches!(b.role, Role::Temporary | Role::Constant(_)));
    for (buffer, (handle, role)) in bound.zip(&handles) {
        if **role != Role::Input {
            let mut bytes = vec![0; buffer.bytes];
            backend.download_resident(*handle, 0, &mut bytes).map_err(|error| error.to_string())?;
            outputs.push(bytes);
        }
    }
    if let Some(fault) = sample.fault(&outputs) {
        return Err(format!("wrong result: {fault}"));
    }
    let mut made = contestant(backend.id().to_string(), runner)?;
    made.entry.first_call_ns = first as f64;
    made.entry.compile_ns = compiled.compile_ns;
    made.entry.programs = compiled.programs;
    made.entry.dispatches = plan.dispatches();
    Ok(made)
}

fn end_to_end<'a>(
    compiled: &Compiled,
    roles: &'a [Role],
    sample: &'a Sample,
) -> Result<Contestant<'a>, String> {
    let plan = compiled.plan.clone();
    let mut given = sample.inputs.iter();
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for (buffer, role) in plan.buffers().iter().zip(roles) {
        match role {
            Role::Input => inputs.extend(given.next().map(Vec::as_slice)),
            Role::Updated => outputs.extend(given.next().cloned()),
            Role::Output => outputs.push(vec![0; buffer.bytes]),
            Role::Temporary | Role::Constant(_) => {}
        }
    }
    let name = format!("{} end to end", plan.backend().id());
    let mut runner = Runner::EndToEnd { plan: plan.clone(), inputs, outputs, roles: roles.iter().collect() };
    let first = runner.run(1)?;
    if let Runner::EndToEnd { outputs, .. } = &runner
        && let Some(fault) = sample.fault(outputs)
    {
        return Err(format!("wrong result: {fault}"));
    }
    let mut made = contestant(name, runner)?;
    made.entry.first_call_ns = first as f64;
    made.entry.dispatches = plan.dispatches();
    Ok(made)
}

/// How often a routed call is made before it is timed: the router learns in its first calls.
const ROUTED_WARM_UP: usize = 5;

/// The sample through the runtime, if it is one program: a plan of several is made for one device.
fn routed<'a>(
    sample: &Sample,
    backends: &[Arc<dyn VyreBackend>],
    runtime: Option<&Runtime>,
) -> Result<Option<Contestant<'a>>, String> {
    let (Some(runtime), Some(backend)) = (runtime, backends.first()) else { return Ok(None) };
    let plan = (sample.plan)(&backend.device_profile()).map_err(|error| error.to_string())?;
    let [step] = &plan.steps[..] else { return Ok(None) };
    let config = DispatchConfig { grid_override: step.grid, ..DispatchConfig::default() };
    let routine = runtime.load_with(step.program.clone(), &config).map_err(|error| error.to_string())?;
    let kernel = step.program.validate().map_err(|faults| faults.to_string())?;
    let mut given = sample.inputs.iter();
    let contents: Vec<Vec<u8>> = plan
        .buffers
        .iter()
        .map(|buffer| match &buffer.role {
            Role::Input | Role::Updated => given.next().cloned().unwrap_or_default(),
            Role::Output | Role::Temporary => vec![0; buffer.bytes],
            Role::Constant(bytes) => bytes.clone(),
        })
        .collect();
    let bound = kernel.bound_buffers().into_iter().map(|id| &kernel.buffer(id).decl);
    let (mut memory, mut writes) = (Vec::new(), Vec::new());
    for (decl, buffer) in bound.zip(&step.bindings) {
        memory.push((decl.name.to_string(), contents[buffer.0].clone()));
        writes.push(decl.access.is_output());
    }
    let mut routed = Routed { routine, memory, writes };
    routed.run().map_err(|error| error.to_string())?;
    let written = routed.memory.iter().zip(&routed.writes).filter(|(_, writes)| **writes);
    let outputs: Vec<Vec<u8>> = written.map(|((_, bytes), _)| bytes.clone()).collect();
    if let Some(fault) = sample.fault(&outputs) {
        return Err(format!("wrong result: {fault}"));
    }
    for _ in 0..ROUTED_WARM_UP {
        routed.run().map_err(|error| error.to_string())?;
    }
    // What the runtime does behind the calls (verifying, tuning) is done before the rounds begin.
    runtime.settle();
    contestant("routed".into(), Runner::Routed(Box::new(routed))).map(Some)
}
