//! Executes the instructions of a kernel.
//!
//! Workgroups run one after another. Within one, every invocation runs until it ends or waits at a
//! barrier or subgroup op; once all that must arrive have arrived, they continue together. A kernel
//! without such waits needs the state of only one invocation. Between waits, the [`Scheduler`]
//! decides the order.

use crate::code::{ElementAccess, FlatKernel, Instr};
use crate::memory::{Budget, Buffers, load_element, store_element};
use crate::order::Scheduler;
use crate::sanitizer::{AccessTarget, Action, FaultKind, Finding, RecordedAccess, Sanitizer};
use crate::subgroup::exchange;
use crate::{Evaluator, RunError, RunOptions};
use std::time::Instant;
use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{KernelBody, Place};
use vyre_foundation::launch::Launch;
use vyre_foundation::ops::{AtomicOp, Op};
use vyre_foundation::types::{Value, ValueType};

/// Steps between two checks of the limits: 1.5 ms at most, since a round of a loop with a product
/// and a sum, which is several steps, takes 0.18 µs.
const STEPS_PER_CHECK: u64 = 1 << 13;

/// Evaluates a table op on operands of valid types.
pub(crate) fn apply(evaluator: Evaluator, op: Op, args: &[Value]) -> Value {
    evaluator(op, args).unwrap_or_else(|| unreachable!("{op:?} was validated on {args:?}"))
}

/// Position of an invocation in the grid.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    group: [u32; 3],
    group_number: u64,
    local: [u32; 3],
    /// The local id as one number, x fastest.
    local_number: u32,
}

/// Why an invocation stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Its turn ended.
    Ready,
    /// It waits at the barrier just before its program counter.
    Barrier,
    /// It waits at the subgroup op just before its program counter.
    Subgroup,
    /// It has ended.
    Ended,
}

/// The state of one invocation.
#[derive(Clone, Debug)]
struct Invocation {
    position: Position,
    stop: Stop,
    pc: usize,
    registers: Vec<Value>,
    /// Remaining iterations of each open counted loop.
    remaining: Vec<u64>,
    /// The private arrays, concatenated.
    arrays: Vec<u8>,
}

impl Invocation {
    fn new(code: &FlatKernel) -> Invocation {
        Invocation {
            position: Position::default(),
            stop: Stop::Ready,
            pc: 0,
            registers: vec![Value::U32(0); code.registers],
            remaining: vec![0; code.loops],
            arrays: vec![0; code.array_bytes],
        }
    }

    /// Size of an invocation's state in bytes.
    fn bytes(code: &FlatKernel) -> u64 {
        let registers = code.registers * size_of::<Value>() + code.loops * size_of::<u64>();
        (size_of::<Invocation>() + registers + code.array_bytes) as u64
    }

    fn start(&mut self, position: Position) {
        self.position = position;
        self.stop = Stop::Ready;
        self.pc = 0;
    }

    fn get(&self, register: u32) -> Value {
        self.registers[register as usize]
    }

    fn set(&mut self, register: u32, value: Value) {
        self.registers[register as usize] = value;
    }

    fn index(&self, register: u32) -> u32 {
        let Some(index) = self.get(register).as_u32() else { unreachable!("validated: indices are u32") };
        index
    }
}

/// An access and whether it was in range.
#[derive(Clone, Copy, Debug)]
struct Seen {
    action: Action,
    in_range: bool,
}

/// One running dispatch.
pub(crate) struct RunningDispatch<'a> {
    pub(crate) kernel: &'a KernelBody,
    pub(crate) code: &'a FlatKernel,
    pub(crate) launch: &'a Launch,
    pub(crate) options: &'a RunOptions,
    pub(crate) memory: Buffers<'a>,
    pub(crate) sanitizer: Option<Sanitizer<'a>>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) budget: Budget,
    pub(crate) steps: u64,
    /// Barriers passed by the current workgroup.
    pub(crate) epoch: u32,
}

impl RunningDispatch<'_> {
    /// Runs the whole grid.
    pub(crate) fn run(&mut self) -> Result<(), RunError> {
        let mut scheduler = Scheduler::new(self.options.order);
        let [columns, rows, layers] = self.launch.grid.map(u64::from);
        // A grid of 2^64 workgroups would exceed any deadline, so the saturation is not observable.
        let groups = columns.saturating_mul(rows).saturating_mul(layers);
        let together = self.code.waits || scheduler.interleaves();
        let most = if together { self.launch.workgroup.map(u64::from).iter().product() } else { 1 };
        let alive = if groups == 0 { 0 } else { most };
        self.budget.take(Invocation::bytes(self.code).saturating_mul(alive))?;
        let mut invocations = vec![Invocation::new(self.code); alive as usize];
        for number in scheduler.permutation(groups).iter() {
            let layer = number / columns;
            let group = [number % columns, layer % rows, layer / rows].map(|axis| axis as u32);
            self.start_group()?;
            let extent = self.extent(group);
            let at = |local_number: u64| position(group, number, extent, local_number);
            if together {
                self.run_together(&mut invocations, &mut scheduler, at)?;
            } else {
                let count = extent.map(u64::from).iter().product();
                for invocation in scheduler.permutation(count).iter() {
                    invocations[0].start(at(invocation));
                    self.advance(&mut invocations[0], u64::MAX)?;
                }
            }
        }
        Ok(())
    }

    fn start_group(&mut self) -> Result<(), RunError> {
        self.check_limits()?;
        self.memory.start_group();
        self.epoch = 0;
        if let Some(sanitizer) = &mut self.sanitizer {
            sanitizer.start_group();
        }
        Ok(())
    }

    /// Invocations of a workgroup that run on each axis: for a shape-free kernel, those inside the
    /// domain.
    fn extent(&self, group: [u32; 3]) -> [u32; 3] {
        let workgroup = self.launch.workgroup;
        let Some(limit) = self.launch.limit else { return workgroup };
        std::array::from_fn(|k| {
            let before = u64::from(group[k]) * u64::from(workgroup[k]);
            u64::from(limit[k]).saturating_sub(before).min(workgroup[k].into()) as u32
        })
    }

    /// Runs a workgroup with all its invocations live at once; `invocations` has one for each.
    fn run_together(
        &mut self,
        invocations: &mut [Invocation],
        scheduler: &mut Scheduler,
        at: impl Fn(u64) -> Position,
    ) -> Result<(), RunError> {
        let extent = self.extent(at(0).group).map(u64::from).iter().product::<u64>() as usize;
        let invocations = &mut invocations[..extent];
        for (number, invocation) in invocations.iter_mut().enumerate() {
            invocation.start(at(number as u64));
        }
        loop {
            if scheduler.interleaves() {
                self.run_interleaved(invocations, scheduler)?;
            } else {
                for number in scheduler.permutation(extent as u64).iter() {
                    let invocation = &mut invocations[number as usize];
                    if invocation.stop == Stop::Ready {
                        self.advance(invocation, u64::MAX)?;
                    }
                }
            }
            if invocations.iter().all(|invocation| invocation.stop == Stop::Ended) {
                return Ok(());
            }
            let exchanged = self.exchange_in_subgroups(invocations);
            if !exchanged && !self.pass_barrier(invocations) {
                return Err(self.divergence(invocations));
            }
        }
    }

    /// Gives invocations short random turns until all wait or have ended.
    fn run_interleaved(
        &mut self,
        invocations: &mut [Invocation],
        scheduler: &mut Scheduler,
    ) -> Result<(), RunError> {
        let mut ready: Vec<usize> =
            (0..invocations.len()).filter(|&k| invocations[k].stop == Stop::Ready).collect();
        while !ready.is_empty() {
            let chosen = scheduler.below(ready.len());
            let turn = 1 + scheduler.below(4) as u64;
            let invocation = &mut invocations[ready[chosen]];
            self.advance(invocation, turn)?;
            if invocation.stop != Stop::Ready {
                ready.swap_remove(chosen);
            }
        }
        Ok(())
    }

    /// Resumes every subgroup whose lanes have all arrived at one op. Returns whether there was
    /// any.
    fn exchange_in_subgroups(&mut self, invocations: &mut [Invocation]) -> bool {
        let mut any = false;
        for lanes in invocations.chunks_mut(self.options.subgroup_size as usize) {
            let pc = lanes[0].pc;
            if !lanes.iter().all(|lane| lane.stop == Stop::Subgroup && lane.pc == pc) {
                continue;
            }
            let Instr::Subgroup { to, op, args } = self.code.instrs[pc - 1] else {
                unreachable!("lanes wait for their subgroup only at subgroup ops")
            };
            let operands: Vec<[Value; 2]> =
                lanes.iter().map(|lane| args.map(|register| lane.get(register))).collect();
            let results = exchange(op, &operands, self.options.evaluator);
            for (lane, result) in lanes.iter_mut().zip(results) {
                lane.set(to, result);
                lane.stop = Stop::Ready;
            }
            any = true;
        }
        any
    }

    /// Resumes the workgroup if all of it has arrived at one barrier. Returns whether it did.
    fn pass_barrier(&mut self, invocations: &mut [Invocation]) -> bool {
        let pc = invocations[0].pc;
        let arrived =
            invocations.iter().all(|invocation| invocation.stop == Stop::Barrier && invocation.pc == pc);
        if arrived {
            self.epoch += 1;
            invocations.iter_mut().for_each(|invocation| invocation.stop = Stop::Ready);
        }
        arrived
    }

    fn divergence(&self, invocations: &[Invocation]) -> RunError {
        let touch = |invocation: &Invocation| {
            let action = if invocation.stop == Stop::Ended { Action::End } else { Action::Wait };
            self.touch(invocation, action)
        };
        let waits = invocations.iter().find(|invocation| invocation.stop != Stop::Ended);
        let Some(waiting) = waits else { unreachable!("a group that has ended does not diverge") };
        let other = invocations
            .iter()
            .find(|invocation| invocation.stop != waiting.stop || invocation.pc != waiting.pc);
        let finding = Finding {
            fault: FaultKind::Divergence,
            target: None,
            touch: touch(waiting),
            other: other.map(touch),
        };
        RunError::Diverged(Box::new(finding.report(self.kernel, self.code)))
    }

    /// Runs one invocation until it waits, ends, or has taken `turn` steps; `stop` records which.
    fn advance(&mut self, invocation: &mut Invocation, turn: u64) -> Result<(), RunError> {
        invocation.stop = Stop::Ready;
        let end_of_turn = self.steps.saturating_add(turn);
        while invocation.stop == Stop::Ready && self.steps < end_of_turn {
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_PER_CHECK) {
                self.check_limits()?;
            }
            let instr = self.code.instrs[invocation.pc];
            invocation.pc += 1;
            self.step(invocation, instr)?;
        }
        Ok(())
    }

    fn step(&mut self, invocation: &mut Invocation, instr: Instr) -> Result<(), RunError> {
        match instr {
            Instr::Const { to, value } => invocation.set(to, value),
            Instr::Copy { to, from } => invocation.set(to, invocation.get(from)),
            Instr::Op { to, op, args, count } => {
                let args = args.map(|register| invocation.get(register));
                invocation.set(to, apply(self.options.evaluator, op, &args[..count.into()]));
            }
            Instr::Load { to, access } => {
                let value = self.load(invocation, access);
                invocation.set(to, value);
            }
            Instr::Store { access, value } => self.store(invocation, access, value),
            Instr::Clear(array) => {
                let span = self.code.arrays[array.index()];
                invocation.arrays[span.start..span.start + span.bytes].fill(0);
                // Clearing this much takes longer than an ordinary step.
                if span.bytes >= 4096 {
                    self.check_limits()?;
                }
            }
            Instr::Len { to, buffer } => invocation.set(to, Value::U32(self.memory.length(buffer))),
            Instr::Builtin { to, builtin, axis } => {
                let value = self.builtin(invocation.position, builtin, axis.into());
                invocation.set(to, Value::U32(value));
            }
            Instr::Atomic { to, op, access, operands } => {
                let operands = operands.map(|register| invocation.get(register));
                let old = self.atomic(invocation, op, access, operands);
                invocation.set(to, old);
            }
            Instr::SubgroupSize { to } => invocation.set(to, Value::U32(self.options.subgroup_size)),
            Instr::SubgroupLane { to } => {
                let lane = invocation.position.local_number % self.options.subgroup_size;
                invocation.set(to, Value::U32(lane));
            }
            Instr::SubgroupId { to } => {
                let id = invocation.position.local_number / self.options.subgroup_size;
                invocation.set(to, Value::U32(id));
            }
            Instr::SubgroupCount { to } => {
                let invocations: u32 = self.launch.workgroup.iter().product();
                invocation.set(to, Value::U32(invocations.div_ceil(self.options.subgroup_size)));
            }
            Instr::Subgroup { .. } => invocation.stop = Stop::Subgroup,
            Instr::Jump(target) => invocation.pc = target,
            Instr::JumpUnless { condition, target } => {
                if invocation.get(condition).as_bool() != Some(true) {
                    invocation.pc = target;
                }
            }
            Instr::ForStart { counter, bounds, remaining, exit } => {
                let [from, to, step] = bounds.map(|register| invocation.get(register));
                invocation.remaining[remaining] = trip_count(from, to, step);
                invocation.set(counter, from);
                if invocation.remaining[remaining] == 0 {
                    invocation.pc = exit;
                }
            }
            Instr::ForNext { counter, step, remaining, head } => {
                invocation.remaining[remaining] -= 1;
                if invocation.remaining[remaining] > 0 {
                    invocation.set(counter, next_count(invocation.get(counter), invocation.get(step)));
                    invocation.pc = head;
                }
            }
            Instr::Barrier => invocation.stop = Stop::Barrier,
            Instr::Return => invocation.stop = Stop::Ended,
            Instr::Trap(code) => return Err(RunError::Trapped { code }),
        }
        Ok(())
    }

    fn load(&mut self, invocation: &Invocation, access: ElementAccess) -> Value {
        let index = invocation.index(access.index);
        let value = match access.place {
            Place::Buffer(id) => self.memory.load(id, index),
            Place::Array(id) => {
                let span = self.code.arrays[id.index()];
                load_element(span.element, &invocation.arrays[span.start..span.start + span.bytes], index)
            }
        };
        self.watch(invocation, access, Seen { action: Action::Load, in_range: value.is_some() });
        value.unwrap_or_else(|| Value::zero(self.kernel.element(access.place).value_type()))
    }

    fn store(&mut self, invocation: &mut Invocation, access: ElementAccess, value: u32) {
        let (index, value) = (invocation.index(access.index), invocation.get(value));
        let in_range = match access.place {
            Place::Buffer(id) => self.memory.store(id, index, value),
            Place::Array(id) => {
                let span = self.code.arrays[id.index()];
                let bytes = &mut invocation.arrays[span.start..span.start + span.bytes];
                store_element(span.element, bytes, index, value)
            }
        };
        self.watch(invocation, access, Seen { action: Action::Store, in_range });
    }

    fn atomic(
        &mut self,
        invocation: &Invocation,
        op: AtomicOp,
        access: ElementAccess,
        operands: [Value; 2],
    ) -> Value {
        let Place::Buffer(buffer) = access.place else { unreachable!("atomics work on buffers") };
        let index = invocation.index(access.index);
        let old = self.memory.load(buffer, index);
        let action = if op == AtomicOp::Load { Action::AtomicLoad } else { Action::Atomic };
        self.watch(invocation, access, Seen { action, in_range: old.is_some() });
        let Some(old) = old else {
            return Value::zero(self.kernel.buffer(buffer).decl.element.value_type());
        };
        let new = match op {
            AtomicOp::Load => return old,
            AtomicOp::Exchange | AtomicOp::Store => operands[0],
            AtomicOp::CompareExchange if old == operands[0] => operands[1],
            AtomicOp::CompareExchange => old,
            AtomicOp::Add | AtomicOp::Min | AtomicOp::Max | AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
                let Some(combine) = op.row().combine else { unreachable!("{op:?} combines") };
                apply(self.options.evaluator, combine, &[old, operands[0]])
            }
        };
        self.memory.store(buffer, index, new);
        old
    }

    fn builtin(&self, position: Position, builtin: Builtin, axis: usize) -> u32 {
        match builtin {
            Builtin::InvocationId => invocation_id(position, self.launch.workgroup)[axis],
            Builtin::WorkgroupId => position.group[axis],
            Builtin::LocalId => position.local[axis],
            Builtin::GridSize => self.launch.grid[axis],
            Builtin::WorkgroupSize => self.launch.workgroup[axis],
        }
    }

    /// Reports an access to the sanitizer, if there is one.
    fn watch(&mut self, invocation: &Invocation, access: ElementAccess, seen: Seen) {
        if self.sanitizer.is_none() {
            return;
        }
        let touch = self.touch(invocation, seen.action);
        let index = invocation.index(access.index);
        let target = AccessTarget { place: access.place, index, in_bounds: access.in_bounds };
        let Some(sanitizer) = &mut self.sanitizer else { return };
        match access.place {
            Place::Buffer(buffer) if seen.in_range => sanitizer.touch(buffer, target, touch),
            Place::Array(_) if seen.in_range => {}
            Place::Buffer(_) | Place::Array(_) => sanitizer.out_of_range(target, touch),
        }
    }

    /// Describes an invocation's access by the instruction that it has just fetched.
    fn touch(&self, invocation: &Invocation, action: Action) -> RecordedAccess {
        RecordedAccess {
            action,
            group: invocation.position.group_number,
            epoch: self.epoch,
            invocation: invocation_id(invocation.position, self.launch.workgroup),
            instruction: invocation.pc - 1,
        }
    }

    /// Checks the deadline, and the memory budget of the sanitizer.
    fn check_limits(&self) -> Result<(), RunError> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(RunError::Timeout);
        }
        self.sanitizer.as_ref().map_or(Ok(()), |sanitizer| self.budget.check(sanitizer.bytes()))
    }
}

fn position(group: [u32; 3], group_number: u64, extent: [u32; 3], local_number: u64) -> Position {
    let [columns, rows, _] = extent.map(|axis| u64::from(axis.max(1)));
    let layer = local_number / columns;
    let local = [local_number % columns, layer % rows, layer / rows].map(|axis| axis as u32);
    Position { group, group_number, local, local_number: local_number as u32 }
}

/// The launch guarantees that each axis of the grid has at most 2^32 invocations.
fn invocation_id(position: Position, workgroup: [u32; 3]) -> [u32; 3] {
    let Position { group, local, .. } = position;
    std::array::from_fn(|k| group[k].wrapping_mul(workgroup[k]).wrapping_add(local[k]))
}

/// ⌈(to − from) / step⌉ in exact arithmetic; 0 if that is negative or `step` is 0.
fn trip_count(from: Value, to: Value, step: Value) -> u64 {
    let exact = |value: Value| {
        let Some(integer) = value.as_integer() else { unreachable!("validated: loop bounds are integers") };
        integer
    };
    let (distance, step) = (exact(to) - exact(from), exact(step));
    if step == 0 || distance.signum() != step.signum() {
        return 0;
    }
    // At most 2^64 − 1: two integers of one type are at most that far from each other, and a step
    // is at least 1.
    distance.unsigned_abs().div_ceil(step.unsigned_abs()) as u64
}

/// `count + step`; this does not overflow within the trip count, so adding the bits is enough.
fn next_count(count: Value, step: Value) -> Value {
    let ty: ValueType = count.ty();
    Value::from_bits(ty, count.to_bits().wrapping_add(step.to_bits()))
}
