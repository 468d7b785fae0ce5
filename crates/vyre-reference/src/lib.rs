//! The executable semantics of vyre: an interpreter that every backend is compared with.
//!
//! [`run`] executes a checked kernel on the caller's bytes, exactly as `docs/semantics.md`
//! specifies. Data flows through `code` (the kernel flattened to instructions), `running_dispatch`
//! (invocations, barriers, workgroups), `memory` (elements and the out-of-range rules) and
//! `subgroup` (exchange between lanes). Optionally the sanitizer watches every access and reports
//! data races and other faults. `order` decides the schedule.
//!
//! The crate also registers the backend `cpu-ref`, an oracle: it is used only by name, never
//! selected.

#![forbid(unsafe_code)]

mod backend;
mod code;
mod error;
mod memory;
mod options;
mod order;
mod running_dispatch;
mod sanitizer;
mod subgroup;

pub use backend::{BACKEND_ID, CpuRef};
pub use error::RunError;
pub use memory::BoundBytes;
pub use options::{Evaluator, MAX_SUBGROUP_SIZE, RunOptions};
pub use order::Order;
pub use sanitizer::{Action, FaultAccess, FaultKind, FaultReport};

use code::FlatKernel;
use memory::{Budget, Buffers};
use running_dispatch::RunningDispatch;
use sanitizer::Sanitizer;
use std::time::Instant;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{BufferId, Kernel, KernelBody};
use vyre_foundation::launch::{Launch, LaunchArgument};
use vyre_foundation::messages::{self, Messages, WantedMessages};

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Contents of each `output` and `read_write` buffer, in binding order; empty from
    /// [`run_bound`].
    pub outputs: Vec<Vec<u8>>,
    /// Instructions executed by all invocations together.
    pub steps: u64,
    /// Sanitizer reports, if enabled: one per kind of fault and pair of instructions, at most 64
    /// per kind.
    pub reports: Vec<FaultReport>,
}

/// Runs a kernel on inputs: one per `read`, `uniform` and `read_write` buffer, in binding order.
///
/// ```
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_reference::{RunOptions, run};
/// let x = BufferDecl::read("x", 0, DataType::U32);
/// let y = BufferDecl::output("y", 1, DataType::U32);
/// let i = || Expr::invocation_id(0);
/// let body = vec![Node::store("y", i(), Expr::load("x", i()) / Expr::u32(0))];
/// let kernel = Program::wrapped(vec![x, y], [64, 1, 1], body).validate()?;
/// let done = run(&kernel, &[&[7, 0, 0, 0]], &RunOptions::default())?;
/// assert_eq!(done.outputs, [[7, 0, 0, 0]]); // x / 0 = x
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(kernel: &Kernel, inputs: &[&[u8]], options: &RunOptions) -> Result<Run, RunError> {
    let launch = Launch::from_inputs(kernel, inputs, options.overrides).map_err(RunError::Launch)?;
    let ids = kernel.bound_buffers();
    let is_output = |id: BufferId| kernel.buffer(id).decl.access.is_output();
    let outputs = ids.iter().filter(|&&id| is_output(id));
    let output_bytes = outputs.map(|&id| launch.bytes(kernel, id)).fold(0, usize::saturating_add);
    let mut budget = Budget::new(options.memory_limit);
    budget.take(output_bytes as u64)?;

    let mut given = inputs.iter();
    let mut memory = Vec::with_capacity(ids.len());
    for &id in &ids {
        let input = kernel.buffer(id).decl.access.is_input().then(|| given.next()).flatten();
        let zeros = || vec![0; launch.bytes(kernel, id)];
        let own = is_output(id).then(|| input.map_or_else(zeros, |input| input.to_vec()));
        memory.push((input, own));
    }
    let bound = memory.iter_mut().map(|(input, own)| match own {
        Some(own) => BoundBytes::Write(own),
        None => BoundBytes::Read(input.copied().unwrap_or_default()),
    });
    let bound = bound.collect();
    let done = Dispatch { kernel, launch: &launch, options, budget }.execute(bound)?;
    Ok(Run { outputs: memory.into_iter().filter_map(|(_, own)| own).collect(), ..done })
}

/// Runs a program like [`run`] does its kernel, and also returns its messages.
///
/// ```
/// use vyre_foundation::text;
/// use vyre_reference::{RunOptions, run_speaking};
/// let hello = text::parse(
///     "kernel hello() over 2 { region \"r\" { print(\"hello from {}\", invocation.x) } }",
/// )?;
/// let (_, said) = run_speaking(&hello, &[], &RunOptions::default())?;
/// assert_eq!(said.messages[1].text, "hello from 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_speaking(
    program: &Program,
    inputs: &[&[u8]],
    options: &RunOptions,
) -> Result<(Run, Messages), RunError> {
    let original = program.validate().map_err(RunError::Launch)?;
    let mut records = 1024;
    loop {
        let lowered =
            messages::lower(program, WantedMessages { asserts: true, records }).map_err(RunError::Launch)?;
        let Some(lowered) = lowered else {
            return Ok((run(&original, inputs, options)?, Messages::default()));
        };
        // Report errors for the original program, without the buffer of the messages.
        Launch::from_inputs(&original, inputs, options.overrides).map_err(RunError::Launch)?;
        let kernel = lowered.program.validate().map_err(RunError::Launch)?;
        let (buffer, mut inputs) = (lowered.buffer(), inputs.to_vec());
        inputs.insert(lowered.position(|access| access.is_input()), &buffer);
        let mut done = run(&kernel, &inputs, options)?;
        let said = lowered.said(&done.outputs.remove(lowered.position(|access| access.is_output())));
        if said.is_complete() || records >= MOST_MESSAGES {
            return Ok((done, said));
        }
        records = said.count.next_power_of_two().min(MOST_MESSAGES);
    }
}

/// Limit on the messages kept per run: 16 MiB without operands, 144 MiB of the longest.
const MOST_MESSAGES: u32 = 1 << 20;

/// Runs a kernel in place on bound memory: one entry per buffer that is not workgroup memory, in
/// binding order. After an error the contents of writable memory are unspecified.
///
/// ```
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_reference::{BoundBytes, RunOptions, run_bound};
/// let y = BufferDecl::read_write("y", 0, DataType::U8);
/// let i = || Expr::invocation_id(0);
/// let body = vec![Node::store("y", i(), Expr::load("y", i()) + Expr::u32(1))];
/// let kernel = Program::wrapped(vec![y], [64, 1, 1], body).validate()?;
/// let mut bytes = [1, 255];
/// run_bound(&kernel, vec![BoundBytes::Write(&mut bytes)], &RunOptions::default())?;
/// assert_eq!(bytes, [2, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_bound(
    kernel: &Kernel,
    mut bound: Vec<BoundBytes<'_>>,
    options: &RunOptions,
) -> Result<Run, RunError> {
    let arguments: Vec<LaunchArgument<'_>> = bound.iter().map(|memory| memory.bytes().into()).collect();
    let launch = Launch::from_bound(kernel, &arguments, options.overrides).map_err(RunError::Launch)?;
    for (id, memory) in kernel.bound_buffers().into_iter().zip(&mut bound) {
        let decl = &kernel.buffer(id).decl;
        match memory {
            BoundBytes::Write(bytes) if decl.access == vyre_foundation::ir::Access::Output => bytes.fill(0),
            BoundBytes::Read(_) if decl.access.is_writable() => {
                return Err(RunError::NotWritable { buffer: decl.name.to_string() });
            }
            BoundBytes::Read(_) | BoundBytes::Write(_) => {}
        }
    }
    let budget = Budget::new(options.memory_limit);
    Dispatch { kernel, launch: &launch, options, budget }.execute(bound)
}

/// A run whose launch is resolved.
struct Dispatch<'a> {
    kernel: &'a KernelBody,
    launch: &'a Launch,
    options: &'a RunOptions,
    budget: Budget,
}

impl Dispatch<'_> {
    fn execute(mut self, bound: Vec<BoundBytes<'_>>) -> Result<Run, RunError> {
        let Dispatch { kernel, launch, options, .. } = self;
        if !(1..=MAX_SUBGROUP_SIZE).contains(&options.subgroup_size) {
            return Err(RunError::SubgroupSize(options.subgroup_size));
        }
        self.budget.take(kernel.needs.workgroup_bytes)?;
        let code = FlatKernel::new(kernel);
        let mut by_declaration: Vec<Option<BoundBytes<'_>>> = kernel.buffers.iter().map(|_| None).collect();
        for (id, memory) in kernel.bound_buffers().into_iter().zip(bound) {
            by_declaration[id.index()] = Some(memory);
        }
        let mut dispatch = RunningDispatch {
            kernel,
            code: &code,
            launch,
            options,
            memory: Buffers::new(kernel, &launch.lengths, by_declaration.into_iter()),
            sanitizer: options.sanitize.then(|| Sanitizer::new(kernel, &code)),
            deadline: options.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            budget: self.budget,
            steps: 0,
            epoch: 0,
        };
        dispatch.run()?;
        let reports = dispatch.sanitizer.map(|sanitizer| sanitizer.reports).unwrap_or_default();
        Ok(Run { outputs: Vec::new(), steps: dispatch.steps, reports })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vyre_foundation::kernel::StmtKind;
    use vyre_foundation::launch::Overrides;

    /// Validation rejects such kernels, so the test corrupts a valid one.
    #[test]
    fn a_divergent_barrier_is_reported_instead_of_waited_at() {
        let text = "kernel k(y: output u32[1]) workgroup 4 { region \"r\" {\nif local.x == 2 { y[0] = 1 }\nbarrier } }";
        let kernel = vyre_foundation::text::parse(text).and_then(|program| program.validate());
        let mut body: KernelBody = (*kernel.expect("valid")).clone();
        let StmtKind::Region { body: stmts, .. } = &mut body.body[0].kind else { panic!("a region") };
        let barrier = stmts.pop().expect("a barrier");
        let Some(StmtKind::If { then, .. }) = stmts.last_mut().map(|stmt| &mut stmt.kind) else {
            panic!("an if before the barrier")
        };
        then.push(barrier);
        let launch =
            Launch::from_inputs::<usize>(&body, &[], Overrides::default()).expect("it needs no inputs");
        let (options, budget, mut output) = (RunOptions::default(), Budget::new(1 << 20), [0; 4]);
        let dispatch = Dispatch { kernel: &body, launch: &launch, options: &options, budget };
        let result = dispatch.execute(vec![BoundBytes::Write(&mut output)]);
        assert_eq!(
            result.expect_err("it must not end well").to_string(),
            "divergent barrier or subgroup op in kernel `k`: wait by invocation (2, 0, 0) at 3:1, against end by \
             invocation (0, 0, 0) at instruction 8"
        );
    }
}
