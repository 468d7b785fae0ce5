//! Measurement of one row: sets up the contestants, checks their results, then runs rounds in which
//! each runs once, in random order.

use super::native::{Peer, Peers};
use super::report::{Row, RowEntry, duration};
use super::workloads::{BenchTask, Limit};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre::catalogue::{CompiledPlan, Plan, PlanBuffer, Role, Step};
use vyre::{Argument, BackendError, OpRoutine, Routine, Runtime};
use vyre_driver::{Binding, DeviceClass, DispatchConfig, Schedule, VyreBackend};
use vyre_samples::{Numbers, Sample};

/// Time budget of a row and the number of rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowBudget {
    pub rounds: usize,
    /// Time budget for the rounds.
    pub seconds: f64,
    /// Time budget for the whole row, including compilation, result checks and warm-up.
    pub row_seconds: f64,
    /// Whether the code that a first call gets is measured too.
    pub first_code: bool,
}

impl RowBudget {
    /// Whether a call takes more than a tenth of the row's budget.
    fn is_slow(&self, call_ns: u64) -> bool {
        call_ns as f64 > self.row_seconds * 1e9 / 10.0
    }
}

/// Calls shorter than this are repeated within a round, so that clock resolution does not matter.
const SHORTEST_NS: u64 = 300_000;

/// Participant in a row.
struct Contestant<'a> {
    entry: RowEntry,
    runner: Runner<'a>,
    /// Calls per round.
    repeats: u64,
    /// Duration of a call, measured before the rounds.
    call_ns: u64,
}

enum Runner<'a> {
    Peer(Peer),
    /// All data resident in the backend's memory.
    Resident {
        plan: Arc<CompiledPlan>,
        handles: Vec<(u64, &'a Role)>,
    },
    /// Inputs and outputs in host memory.
    EndToEnd {
        plan: Arc<CompiledPlan>,
        inputs: Vec<&'a [u8]>,
        outputs: Vec<Vec<u8>>,
        roles: Vec<&'a Role>,
    },
    /// Host memory, on the backend that the runtime selects.
    Routed(Box<Routed>),
}

/// Plan called through the runtime.
struct Routed {
    callee: Callee,
    /// Name and memory of each bound buffer; outputs are written in place.
    memory: Vec<(String, Vec<u8>)>,
    writes: Vec<bool>,
}

enum Callee {
    /// Plan with a single program.
    Program(Routine),
    /// Plan with several programs.
    Op(OpRoutine),
}

impl Routed {
    fn run(&mut self) -> Result<(), BackendError> {
        let arguments = self.memory.iter_mut().zip(&self.writes).map(|((name, bytes), &writes)| {
            (name.as_str(), if writes { Argument::bytes_mut(bytes) } else { Argument::bytes(bytes) })
        });
        match &self.callee {
            Callee::Program(routine) => {
                arguments.fold(routine.call(), |call, (name, argument)| call.bind(name, argument)).run()
            }
            Callee::Op(routine) => arguments
                .fold(routine.call(ONLY_SIZE), |call, (name, argument)| call.bind(name, argument))
                .run(),
        }
        .map(drop)
    }
}

impl Runner<'_> {
    /// Makes `times` calls and returns their total time in nanoseconds.
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

/// Waits for a device that runs asynchronously after a dispatch has returned, by reading back a few
/// bytes.
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

/// Measures a row. `tick` is called after every round with the completed share of the row.
pub(crate) fn row(
    task: &BenchTask,
    peers: Result<&Peers, &String>,
    backends: &[Arc<dyn VyreBackend>],
    runtime: Option<&Runtime>,
    budget: RowBudget,
    tick: &mut dyn FnMut(f64) -> bool,
) -> Row {
    let started = Instant::now();
    let (sample, operations) = (task.sample.clone(), task.operations);
    let mut faults = Vec::new();
    let mut contestants = Vec::new();
    let mut limit_operations = 0.0;
    let plans = compile_all(&sample, backends, Schedule::Expensive, &mut faults);
    let first_code = match budget.first_code {
        true => compile_all(&sample, backends, Schedule::Cheap, &mut faults),
        false => Vec::new(),
    };
    match peers {
        Ok(peers) => {
            match limit_peer(task, peers, budget) {
                Ok((contestant, done)) => {
                    limit_operations = done;
                    contestants.push(contestant);
                }
                Err(fault) => faults.push(format!("limit: {fault}")),
            }
            match native_peer(task, peers, budget) {
                Ok(contestant) => contestants.extend(contestant),
                Err(fault) => faults.push(format!("C: {fault}")),
            }
        }
        Err(fault) => faults.push(format!("C: {fault}")),
    }
    let roles = |plan: &Compiled| plan.plan.buffers().iter().map(|buffer| buffer.role.clone()).collect();
    let buffers: Vec<Vec<Role>> = plans.iter().map(roles).collect();
    let first_buffers: Vec<Vec<Role>> = first_code.iter().map(roles).collect();
    for (plan, roles) in first_code.iter().zip(&first_buffers) {
        match resident(plan, roles, &sample, budget) {
            Ok(contestant) => contestants.push(contestant),
            Err(fault) => faults.push(format!("{}: {fault}", plan.name)),
        }
    }
    for (plan, roles) in plans.iter().zip(&buffers) {
        let id = plan.plan.backend().id();
        let mut call_ns = 0;
        match resident(plan, roles, &sample, budget) {
            Ok(contestant) => {
                call_ns = contestant.call_ns;
                contestants.push(contestant);
            }
            Err(fault) => faults.push(format!("{id}: {fault}")),
        }
        if budget.is_slow(call_ns) {
            let taken = duration(call_ns as f64);
            faults.push(format!("{id} end to end: skipped to save time, since a call takes {taken}"));
            continue;
        }
        match end_to_end(plan, roles, &sample, budget) {
            Ok(contestant) => contestants.push(contestant),
            Err(fault) => faults.push(format!("{id}: {fault}")),
        }
    }
    match routed(&sample, backends, runtime, budget) {
        Ok(contestant) => contestants.extend(contestant),
        Err(fault) => faults.push(format!("routed: {fault}")),
    }
    // However long the preparation took, a quarter of the row's budget is left for measuring.
    let left = (budget.row_seconds - started.elapsed().as_secs_f64()).max(budget.row_seconds / 4.0);
    let budget = RowBudget { seconds: budget.seconds.min(left), ..budget };
    contest(&mut contestants, budget, &mut faults, tick);
    for contestant in &contestants {
        if let Runner::Resident { plan, handles } = &contestant.runner {
            for (handle, _) in handles {
                // The row is done, so a buffer that the backend has already lost does not matter.
                let _ = plan.backend().free_resident(*handle);
            }
        }
    }
    Row {
        name: task.name.clone(),
        limit: task.limit.name().into(),
        bytes: task.bytes,
        operations,
        limit_scale: match task.limit {
            Limit::MultiplyAdd if limit_operations > 0.0 => operations / limit_operations,
            Limit::MultiplyAdd | Limit::Copy | Limit::Update | Limit::Read => 1.0,
        },
        limit_best_ns: None,
        entries: contestants.into_iter().map(|contestant| contestant.entry).collect(),
        faults,
    }
}

/// Number of rounds for each contestant, from its cost per round. The time is divided equally; what
/// fast contestants do not need goes to slower ones.
fn turns(costs_ns: &[u64], budget: RowBudget) -> Vec<usize> {
    let mut by_cost: Vec<usize> = (0..costs_ns.len()).collect();
    by_cost.sort_by_key(|&number| costs_ns[number]);
    let mut turns = vec![0; costs_ns.len()];
    let mut left_ns = budget.seconds * 1e9;
    for (done, &number) in by_cost.iter().enumerate() {
        let share = left_ns / (costs_ns.len() - done) as f64;
        let cost = costs_ns[number].max(1) as f64;
        turns[number] = ((share / cost) as usize).min(budget.rounds);
        left_ns -= turns[number] as f64 * cost;
    }
    turns
}

/// Runs rounds until there are enough samples or the time is up. A contestant without time for a
/// single round keeps the time of its checked call.
fn contest(
    contestants: &mut [Contestant<'_>],
    budget: RowBudget,
    faults: &mut Vec<String>,
    tick: &mut dyn FnMut(f64) -> bool,
) {
    let mut costs: Vec<u64> = contestants.iter().map(|who| who.call_ns.saturating_mul(who.repeats)).collect();
    let mut turns = turns(&costs, budget);
    for (contestant, _) in contestants.iter_mut().zip(&turns).filter(|(_, turns)| **turns == 0) {
        contestant.entry.samples_ns.push(contestant.call_ns as f64);
        let (who, taken) = (&contestant.entry.who, duration(contestant.call_ns as f64));
        faults.push(format!("{who}: measured once, before the rounds, since a call takes {taken}"));
    }
    let started = Instant::now();
    let mut numbers = Numbers::new(started.elapsed().as_nanos() as u64 ^ u64::from(std::process::id()));
    let limit = Duration::from_secs_f64(budget.seconds);
    let rounds = turns.iter().copied().max().unwrap_or(0);
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..contestants.len()).filter(|&number| round < turns[number]).collect();
        for k in (1..order.len()).rev() {
            order.swap(k, (numbers.draw() % (k as u64 + 1)) as usize);
        }
        for number in order {
            let contestant = &mut contestants[number];
            let left = limit.saturating_sub(started.elapsed());
            // A busy machine can make slow calls slower still; a contestant that already has a
            // sample must not overrun the budget.
            if round > 0 && Duration::from_nanos(costs[number]) > left.max(limit / 10) {
                turns[number] = round;
                continue;
            }
            match contestant.runner.run(contestant.repeats) {
                Ok(taken) => {
                    costs[number] = taken;
                    contestant.entry.samples_ns.push(taken as f64 / contestant.repeats as f64);
                }
                Err(fault) => faults.push(format!("{}: {fault}", contestant.entry.who)),
            }
        }
        let spent = started.elapsed().as_secs_f64() / budget.seconds.max(1e-9);
        let share = spent.max((round + 1) as f64 / rounds as f64);
        if !tick(share.min(1.0)) || (started.elapsed() > limit && round >= 2) {
            return;
        }
    }
}

struct Compiled {
    /// Name of the contestant with resident data.
    name: String,
    plan: Arc<CompiledPlan>,
    compile_ns: f64,
    programs: usize,
}

/// Compiles a plan for every backend, with the schedule that a first call gets or with the best.
fn compile_all(
    sample: &Sample,
    backends: &[Arc<dyn VyreBackend>],
    schedule: Schedule,
    faults: &mut Vec<String>,
) -> Vec<Compiled> {
    let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
    let mut plans = Vec::new();
    for backend in backends {
        let compiled =
            (sample.plan)(&backend.device_profile()).map_err(|error| error.to_string()).and_then(|plan| {
                let programs: std::collections::HashSet<[u8; 32]> =
                    plan.steps.iter().map(|step| step.program.fingerprint()).collect();
                let start = Instant::now();
                let made = plan.compile(backend.clone(), &config);
                let compile_ns = start.elapsed().as_nanos() as f64;
                let name = match schedule {
                    Schedule::Cheap => format!("{} first code", backend.id()),
                    Schedule::Off | Schedule::Expensive => backend.id().to_string(),
                };
                let programs = programs.len();
                made.map(|plan| Compiled { name, plan: Arc::new(plan), compile_ns, programs })
                    .map_err(|error| error.to_string())
            });
        match compiled {
            Ok(compiled) => plans.push(compiled),
            Err(fault) => faults.push(format!("{}: {fault}", backend.id())),
        }
    }
    plans
}

/// Number of calls that makes a round long enough to time.
fn repeats(first_ns: u64) -> u64 {
    (SHORTEST_NS / first_ns.max(1)).clamp(1, 2000)
}

/// Builds a contestant whose first call took `first_ns`. A second call gives the warm time, because
/// some drivers compile during the first; it is skipped if the first took half the row's budget.
fn contestant<'a>(
    who: String,
    mut runner: Runner<'a>,
    first_ns: u64,
    budget: RowBudget,
) -> Result<Contestant<'a>, String> {
    let call_ns = if first_ns as f64 > budget.row_seconds * 1e9 / 2.0 { first_ns } else { runner.run(1)? };
    let mut entry = RowEntry::new(who);
    entry.first_call_ns = first_ns as f64;
    Ok(Contestant { entry, runner, repeats: repeats(call_ns), call_ns })
}

fn limit_peer(
    task: &BenchTask,
    peers: &Peers,
    budget: RowBudget,
) -> Result<(Contestant<'static>, f64), String> {
    let mut peer = peers.start_limit(task.limit, task.bytes)?;
    let first = peer.run(1)?;
    let mut operations = 0.0;
    if task.limit == Limit::MultiplyAdd {
        operations = u64::from_le_bytes(peer.array(1)?.try_into().unwrap_or_default()) as f64;
    }
    Ok((contestant("limit".into(), Runner::Peer(peer), first, budget)?, operations))
}

/// Starts the equivalent C peer, if there is one, and checks its results.
fn native_peer<'a>(
    task: &BenchTask,
    peers: &Peers,
    budget: RowBudget,
) -> Result<Option<Contestant<'a>>, String> {
    let Some(native) = &task.native else { return Ok(None) };
    let mut peer = peers.start(native, &(task.arrays)(&task.sample))?;
    let first = peer.run(1)?;
    for &(array, output) in &task.results {
        if let Some(fault) = (task.fault)(output, &task.sample.expected[output], &peer.array(array)?) {
            return Err(format!("wrong result: {fault}"));
        }
    }
    contestant("C".into(), Runner::Peer(peer), first, budget).map(Some)
}

fn resident<'a>(
    compiled: &Compiled,
    roles: &'a [Role],
    sample: &Sample,
    budget: RowBudget,
) -> Result<Contestant<'a>, String> {
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
    let mut made = contestant(compiled.name.clone(), runner, first, budget)?;
    made.entry.compile_ns = compiled.compile_ns;
    made.entry.programs = compiled.programs;
    made.entry.dispatches = plan.dispatches();
    Ok(made)
}

fn end_to_end<'a>(
    compiled: &Compiled,
    roles: &'a [Role],
    sample: &'a Sample,
    budget: RowBudget,
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
    let mut made = contestant(name, runner, first, budget)?;
    made.entry.dispatches = plan.dispatches();
    Ok(made)
}

/// Number of untimed routed calls, in which the router learns. The background work that they cause
/// is waited for afterwards.
const ROUTED_WARM_UP: usize = 5;

/// Size class for an op that has only one size.
const ONLY_SIZE: usize = 1;

/// Sets up the sample as a call through the runtime.
fn routed<'a>(
    sample: &Arc<Sample>,
    backends: &[Arc<dyn VyreBackend>],
    runtime: Option<&Runtime>,
    budget: RowBudget,
) -> Result<Option<Contestant<'a>>, String> {
    let (Some(runtime), Some(backend)) = (runtime, backends.first()) else { return Ok(None) };
    let plan_on = |backend: &Arc<dyn VyreBackend>| (sample.plan)(&backend.device_profile());
    let plan = plan_on(backend).map_err(|error| error.to_string())?;
    // A program that is identical on every backend is loaded once; otherwise each backend gets its
    // own plan.
    let same = |other: &Arc<dyn VyreBackend>| {
        plan_on(other).is_ok_and(|other| match (&plan.steps[..], &other.steps[..]) {
            ([step], [other]) => step.program == other.program && step.grid == other.grid,
            _ => false,
        })
    };
    let made = match &plan.steps[..] {
        [step] if backends.iter().all(same) => routed_program(sample, &plan, step, runtime),
        _ => routed_op(sample, &plan, runtime),
    };
    let mut routed = made.map_err(|error| error.to_string())?;
    routed.run().map_err(|error| error.to_string())?;
    let written = routed.memory.iter().zip(&routed.writes).filter(|(_, writes)| **writes);
    let outputs: Vec<Vec<u8>> = written.map(|((_, bytes), _)| bytes.clone()).collect();
    if let Some(fault) = sample.fault(&outputs) {
        return Err(format!("wrong result: {fault}"));
    }
    for _ in 0..ROUTED_WARM_UP {
        routed.run().map_err(|error| error.to_string())?;
    }
    // Background work of the runtime (verification, tuning) must finish before the rounds start.
    runtime.settle();
    let mut runner = Runner::Routed(Box::new(routed));
    let first = runner.run(1)?;
    contestant("routed".into(), runner, first, budget).map(Some)
}

/// Initial contents of every buffer of a plan.
fn contents(sample: &Sample, plan: &Plan) -> Vec<Vec<u8>> {
    let mut given = sample.inputs.iter();
    let content = |buffer: &PlanBuffer| match &buffer.role {
        Role::Input | Role::Updated => given.next().cloned().unwrap_or_default(),
        Role::Output | Role::Temporary => vec![0; buffer.bytes],
        Role::Constant(bytes) => bytes.clone(),
    };
    plan.buffers.iter().map(content).collect()
}

fn routed_program(
    sample: &Sample,
    plan: &Plan,
    step: &Step,
    runtime: &Runtime,
) -> Result<Routed, BackendError> {
    let config = DispatchConfig { grid_override: step.grid, ..DispatchConfig::default() };
    let routine = runtime.load_with(step.program.clone(), &config)?;
    let kernel = step.program.validate()?;
    let contents = contents(sample, plan);
    let bound = kernel.bound_buffers().into_iter().map(|id| &kernel.buffer(id).decl);
    let (mut memory, mut writes) = (Vec::new(), Vec::new());
    for (decl, buffer) in bound.zip(&step.bindings) {
        memory.push((decl.name.to_string(), contents[buffer.0].clone()));
        writes.push(decl.access.is_output());
    }
    Ok(Routed { callee: Callee::Program(routine), memory, writes })
}

fn routed_op(sample: &Arc<Sample>, plan: &Plan, runtime: &Runtime) -> Result<Routed, BackendError> {
    let owned = sample.clone();
    let routine = runtime.load_op(move |_, device| (owned.plan)(device))?;
    let (mut memory, mut writes) = (Vec::new(), Vec::new());
    for (buffer, content) in plan.buffers.iter().zip(contents(sample, plan)) {
        if !matches!(buffer.role, Role::Temporary | Role::Constant(_)) {
            memory.push((buffer.name.to_string(), content));
            writes.push(buffer.role != Role::Input);
        }
    }
    Ok(Routed { callee: Callee::Op(routine), memory, writes })
}
