//! A program compiled for a device, and the execution of its calls.
//!
//! The form that the pipeline was compiled for is built eagerly; other forms are built once each,
//! when a call first needs them.

pub(super) mod sequence;

use super::argument::element;
use super::code_cache::CodeCache;
use super::plan::{Asked, LaunchPlan, Recognition};
use super::resident::{InstanceState, Lent, lent, lock_and_lend};
use super::slots::Outputs;
use super::{BoundArgument, Failed, Few, Form, Job, Memory, NativeDevice, Start, Variant};
use crate::containment::{contain, contain_call};
use crate::observability::{LaunchRecord, device_time_wanted, observe_launch, record_device_time};
use crate::pipeline::pipeline_id;
use crate::{
    BackendError, Binding, CompiledPipeline, DeviceProfile, DispatchConfig, OutputBuffers, Resource,
    TimedOutputs, check_shape,
};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{BufferId, Doubts, Kernel};
use vyre_foundation::launch::{Launch, LaunchArgument, Overrides};

pub(super) struct Pipeline<D: NativeDevice> {
    id: String,
    kernel: Kernel,
    /// Whether the kernel has traps.
    traps: bool,
    /// Elements per invocation, unless a call specifies it.
    usual_elements: u32,
    config: DispatchConfig,
    profile: DeviceProfile,
    shared: Arc<InstanceState<D>>,
    /// The buffers that a dispatch binds, in binding order.
    bound: Vec<BufferId>,
    recognition: Recognition,
    usual: Arc<Variant<D::Code>>,
    forms: Arc<CodeCache<D>>,
    /// The accesses that some dispatch did not prove in range, as the bits of a [`Doubts`].
    doubted: AtomicU64,
}

/// Approximate limit on the input bytes of a batch that are in flight at a time, which bounds the
/// memory that a device allocates for it. Calls up to the same size go through pinned memory on
/// `cuda`. Chosen, not measured.
const BATCH_BYTES: usize = 64 << 20;

/// An input of a call.
#[derive(Clone, Copy)]
enum Input<'a> {
    Host(&'a [u8]),
    Resident(u64),
}

impl<'a> Input<'a> {
    fn of(resource: &'a Resource) -> Input<'a> {
        match resource {
            Resource::Borrowed(bytes) => Input::Host(bytes),
            Resource::Resident(handle) => Input::Resident(*handle),
        }
    }

    fn host_bytes(&self) -> u64 {
        match self {
            Input::Host(bytes) => bytes.len() as u64,
            Input::Resident(_) => 0,
        }
    }
}

fn host_inputs<'a>(inputs: &[&'a [u8]]) -> Few<Input<'a>> {
    inputs.iter().map(|input| Input::Host(input)).collect()
}

// Code.
impl<D: NativeDevice> Pipeline<D> {
    pub(super) fn new(
        shared: Arc<InstanceState<D>>,
        kernel: Kernel,
        profile: DeviceProfile,
        config: &DispatchConfig,
    ) -> Result<Pipeline<D>, BackendError> {
        let usual_elements = shared.device.usual_elements(&kernel);
        let form = form_of(&shared.device, &kernel, usual_elements, config);
        let forms = Arc::new(CodeCache::new(shared.clone(), kernel.clone()));
        // No limit here: the configured time limit applies to the compilation as a whole.
        let usual = forms.get(form, None)?;
        let bound = kernel.bound_buffers();
        Ok(Pipeline {
            id: pipeline_id(shared.device.id(), &kernel.fingerprint),
            traps: kernel.traps(),
            usual_elements,
            recognition: Recognition::new(&kernel, &bound),
            bound,
            kernel,
            config: config.clone(),
            profile,
            shared,
            usual,
            forms,
            doubted: AtomicU64::default(),
        })
    }

    /// Approximate memory use.
    pub(super) fn bytes(&self) -> u64 {
        self.usual.bytes
    }

    fn device(&self) -> &D {
        &self.shared.device
    }

    fn of_form(&self, form: Form, limit: Option<Duration>) -> Result<Arc<Variant<D::Code>>, BackendError> {
        match form == self.usual.form && !self.device().is_stale(&self.usual.code) {
            true => Ok(self.usual.clone()),
            false => self.forms.get(form, limit),
        }
    }

    /// Chooses the code for a dispatch, and sizes the launch to the arguments.
    fn plan(
        &self,
        plan: &mut LaunchPlan,
        arguments: &[BoundArgument<'_, D::Memory>],
        config: &DispatchConfig,
    ) -> Result<Arc<Variant<D::Code>>, BackendError> {
        let form = form_of(self.device(), &self.kernel, self.usual_elements, config);
        let asked = Asked::new(form, config);
        match plan.form_for(&self.recognition, &asked, self.device(), arguments) {
            Some(form) => self.of_form(form, config.timeout),
            None => self.plan_anew(plan, arguments, (asked, form), config),
        }
    }

    /// Plans a dispatch that has no reusable plan. A dispatch that does not complete the proof of
    /// the code gets code with more checks; a dispatch with an empty grid needs no other code.
    fn plan_anew(
        &self,
        plan: &mut LaunchPlan,
        arguments: &[BoundArgument<'_, D::Memory>],
        (asked, mut form): (Asked, Form),
        config: &DispatchConfig,
    ) -> Result<Arc<Variant<D::Code>>, BackendError> {
        plan.begin();
        if config.is_shaped() {
            check_shape(&self.profile, &self.kernel, config)?;
        }
        let given: Few<LaunchArgument<'_>> =
            arguments.iter().map(|argument| argument.for_launch(self.device())).collect();
        let mut repeatable = self.recognition.repeatable;
        let mut known = |id, index| {
            repeatable &= self.recognition.is_number(arguments, id);
            element(self.device(), &self.kernel, arguments, id, index)
        };
        let variant = loop {
            let variant = self.of_form(form, config.timeout)?;
            let workgroup = config.workgroup_override.unwrap_or(form.workgroup);
            let overrides = Overrides { workgroup: Some(workgroup), ..config.overrides() };
            let launch = &mut plan.launch;
            launch.fit_bound(&variant.kernel, &self.bound, &given, overrides)?;
            let mut wanted = self.device().form_of_launch(form, launch)?;
            if !launch.grid.contains(&0) {
                self.settle_doubts(&mut wanted, launch.doubts(&variant.kernel.proof, &mut known));
            }
            if wanted == form {
                break variant;
            }
            form = wanted;
        };
        for &BoundArgument { buffer, start, .. } in arguments {
            let coverage = &variant.coverage[buffer.index()];
            let is_zero = matches!(start, Start::Zero | Start::Zeroed);
            plan.push_covered(is_zero && coverage.holds(buffer, &plan.launch, &mut known));
        }
        if repeatable {
            plan.repeat(&self.recognition, (asked, form), self.device(), arguments);
        }
        Ok(variant)
    }

    /// Changes the form to one that leaves these accesses checked. It leaves all accesses checked
    /// that any dispatch left in doubt, so that there are few forms, and those that remain need no
    /// second attempt.
    fn settle_doubts(&self, form: &mut Form, doubts: Doubts) {
        if doubts == Doubts::NONE {
            return;
        }
        if form.doubtful == Doubts::NONE {
            let before = self.doubted.fetch_or(doubts.bits(), Ordering::Relaxed);
            form.doubtful = doubts.with(Doubts::from_bits(before));
        } else {
            (form.selective, form.doubtful) = (false, Doubts::NONE);
        }
    }
}

/// The value of a batch item; an error is stored in `failure`.
fn kept<T>(outcome: Result<T, BackendError>, failure: &mut Option<BackendError>) -> Option<T> {
    outcome.map_err(|error| *failure = Some(error)).ok()
}

/// Runs jobs in order and returns how many completed; the error of the next is stored in `failure`.
fn run_jobs<D: NativeDevice>(
    device: &D,
    jobs: Vec<Job<'_, '_, D>>,
    failure: &mut Option<BackendError>,
) -> usize {
    let count = jobs.len();
    let ran = contain(|| device.run_all(jobs))
        .unwrap_or_else(|message| Err(Failed { done: 0, error: BackendError::failed(device.id(), message) }));
    ran.map_or_else(
        |Failed { done, error }| {
            *failure = Some(error);
            done
        },
        |()| count,
    )
}

/// The form for calls with this configuration.
fn form_of<D: NativeDevice>(
    device: &D,
    kernel: &Kernel,
    usual_elements: u32,
    config: &DispatchConfig,
) -> Form {
    let form = device.form(kernel, config);
    match config.elements_per_invocation {
        None if form.within_domain => Form { elements: usual_elements, ..form },
        Some(_) | None => form,
    }
}

// Execution.
impl<D: NativeDevice> Pipeline<D> {
    /// Runs on memory for every bound buffer, in binding order. Returns the kernel's time if
    /// `timed`.
    fn run(
        &self,
        arguments: &mut [BoundArgument<'_, D::Memory>],
        config: &DispatchConfig,
        timed: bool,
    ) -> Result<Option<Duration>, BackendError> {
        let mut plan = LaunchPlan::last(&self.recognition);
        let began = config.timeout.map(|_| Instant::now());
        let ran = self.plan(&mut plan, arguments, config).and_then(|variant| {
            plan.settle_starts(arguments);
            let left = config.after(began.map_or(Duration::ZERO, |began| began.elapsed()));
            let job = Job { variant: &variant, launch: &plan.launch, arguments, config: &left, timed };
            let ran = contain_call(self.device().id(), || self.device().run(job));
            ran.map_err(|error| error.of_call(config.timeout))
        });
        plan.keep(&self.recognition);
        if let Ok(Some(time)) = ran {
            record_device_time(time);
        }
        ran
    }

    fn access(&self, id: BufferId) -> Access {
        self.kernel.buffer(id).decl.access
    }

    fn failed(&self, message: String) -> BackendError {
        BackendError::failed(self.device().id(), message)
    }
}

// Calls on inputs.
impl<D: NativeDevice> Pipeline<D> {
    /// Runs on inputs, into the caller's slots.
    fn run_inputs(
        &self,
        inputs: &[Input<'_>],
        slots: &mut OutputBuffers,
        config: &DispatchConfig,
        timed: bool,
    ) -> Result<(Option<Duration>, LaunchRecord), BackendError> {
        let uses = inputs.iter().filter_map(|input| match input {
            Input::Host(_) => None,
            Input::Resident(handle) => Some((*handle, false)),
        });
        let (mut held, mut locked, mut lent) = (Few::new(), Few::new(), Few::new());
        self.shared.residents.hold(uses, &mut held)?;
        lock_and_lend(&held, &mut locked, &mut lent);
        let mut outputs = self.outputs(inputs, &mut lent, slots, config)?;
        let arguments = self.arguments(inputs, &mut lent, &mut outputs, slots);
        match arguments.and_then(|mut arguments| self.run(&mut arguments, config, timed)) {
            Ok(device) => {
                let bytes = inputs.iter().map(Input::host_bytes).sum();
                Ok((device, outputs.finish(bytes, slots)))
            }
            Err(error) => {
                outputs.drop_in(slots);
                Err(error)
            }
        }
    }

    /// Allocates the outputs of a call on these inputs.
    fn outputs(
        &self,
        inputs: &[Input<'_>],
        lent_memory: &mut [Lent<'_, D::Memory>],
        slots: &mut OutputBuffers,
        config: &DispatchConfig,
    ) -> Result<Outputs, BackendError> {
        let given = inputs.iter().map(|input| match input {
            Input::Host(bytes) => LaunchArgument::from(*bytes),
            Input::Resident(handle) => match lent(lent_memory, *handle) {
                (Memory::Resident(memory), length) => {
                    LaunchArgument { length, contents: self.device().host_bytes(memory) }
                }
                (Memory::Read(_) | Memory::Write(_) | Memory::ResidentMut(_), length) => length.into(),
            },
        });
        let given: Few<LaunchArgument<'_>> = given.collect();
        let launch = Launch::from_inputs(&self.kernel, &given, config.overrides())?;
        let written = self.bound.iter().filter(|&&id| self.access(id).is_output());
        let sizes: Few<usize> = written.map(|&id| launch.bytes(&self.kernel, id)).collect();
        let total = sizes.iter().copied().fold(0, usize::saturating_add);
        if let Some(most) = config.max_output_bytes.filter(|&most| total > most) {
            return Err(self.failed(format!(
                "the outputs take {total} bytes, and `max_output_bytes` allows {most}; raise it or split the work"
            )));
        }
        let (backend, requested_bytes) = (self.device().id(), total as u64);
        if requested_bytes > self.device().output_limit() {
            return Err(BackendError::DeviceOutOfMemory { backend: backend.into(), requested_bytes });
        }
        Outputs::new(backend, &sizes, slots, !self.device().may_spoil(self.traps, config))
    }

    /// The memory of every buffer: inputs to read, outputs to write.
    fn arguments<'a, 'l: 'a>(
        &self,
        inputs: &[Input<'l>],
        lent_memory: &mut [Lent<'l, D::Memory>],
        outputs: &'a mut Outputs,
        slots: &'a mut OutputBuffers,
    ) -> Result<Few<BoundArgument<'a, D::Memory>>, BackendError> {
        let (mut inputs, mut outputs) = (inputs.iter(), outputs.memory(slots));
        let mut bind = |&buffer: &BufferId| {
            let input = if self.access(buffer).is_input() { inputs.next() } else { None };
            let output = if self.access(buffer).is_output() { outputs.next() } else { None };
            let (memory, bytes, start) = match (input, output) {
                (None, Some((bytes, zeroed))) => {
                    let start = if zeroed { Start::Zeroed } else { Start::Zero };
                    let length = bytes.len();
                    (Memory::Write(bytes), length, start)
                }
                (Some(Input::Host(source)), Some((bytes, _))) => {
                    (Memory::Write(bytes), source.len(), Start::Copy(source))
                }
                (Some(Input::Resident(handle)), Some((bytes, _))) => {
                    if let (Memory::Resident(memory), 1..) = lent(lent_memory, *handle) {
                        self.device().read(memory, 0, bytes)?;
                    }
                    let length = bytes.len();
                    (Memory::Write(bytes), length, Start::Own)
                }
                (Some(Input::Host(bytes)), None) => (Memory::Read(bytes), bytes.len(), Start::Own),
                (Some(Input::Resident(handle)), None) => {
                    let (memory, bytes) = lent(lent_memory, *handle);
                    (memory, bytes, Start::Own)
                }
                (None, None) => unreachable!("every bound buffer is an input or an output"),
            };
            Ok(BoundArgument { buffer, memory, bytes, start })
        };
        self.bound.iter().map(&mut bind).collect()
    }

    /// Runs items of a batch together. An error leaves the slots of its item and of all later items
    /// unchanged.
    fn run_batch(
        &self,
        items: &[&[&[u8]]],
        slots: &mut [OutputBuffers],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let inputs: Vec<Few<Input<'_>>> = items.iter().map(|item| host_inputs(item)).collect();
        let mut failure = None;
        let made = inputs
            .iter()
            .zip(&mut *slots)
            .map_while(|(inputs, slots)| kept(self.outputs(inputs, &mut [], slots, config), &mut failure));
        let mut outputs: Vec<Outputs> = made.collect();
        let each = inputs.iter().zip(&mut *slots).zip(&mut outputs);
        let planned = each.map_while(|((inputs, slots), outputs)| {
            let mut plan = LaunchPlan::default();
            let mut arguments = kept(self.arguments(inputs, &mut [], outputs, slots), &mut failure)?;
            let variant = kept(self.plan(&mut plan, &arguments, config), &mut failure)?;
            plan.settle_starts(&mut arguments);
            Some((variant, plan.launch, arguments))
        });
        let mut planned: Vec<_> = planned.collect();
        let jobs = planned.iter_mut().map(|(variant, launch, arguments)| Job {
            variant: &**variant,
            launch: &*launch,
            arguments,
            config,
            timed: false,
        });
        let done = run_jobs(self.device(), jobs.collect(), &mut failure);
        drop(planned);
        for (item, ((inputs, slots), outputs)) in inputs.iter().zip(slots).zip(outputs).enumerate() {
            if item < done {
                let bytes = inputs.iter().map(Input::host_bytes).sum();
                observe_launch(&self.id, config, || Ok(((), outputs.finish(bytes, slots))))?;
            } else {
                outputs.drop_in(slots);
            }
        }
        failure.map_or(Ok(()), |error| observe_launch(&self.id, config, || Err(error)))
    }

    /// Runs a call that returns new buffers, and records it.
    fn observe_new(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
        timed: bool,
    ) -> Result<TimedOutputs, BackendError> {
        observe_launch(&self.id, config, || {
            let (start, mut outputs) = (Instant::now(), Vec::new());
            let config = config.merged(&self.config);
            let (device, record) = self.run_inputs(inputs, &mut outputs, &config, timed)?;
            // New buffers replace no slot.
            let record = LaunchRecord { output_slots_moved: 0, ..record };
            Ok((TimedOutputs { outputs, wall: start.elapsed(), device }, record))
        })
    }

    /// Runs a call that fills the caller's buffers, and records it.
    fn observe_into(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            let config = config.merged(&self.config);
            self.run_inputs(inputs, slots, &config, device_time_wanted()).map(|(_, record)| ((), record))
        })
    }
}

// Calls on bound memory.
impl<D: NativeDevice> Pipeline<D> {
    /// Checks that each binding's access matches its buffer. Returns whether any binding is a
    /// resident buffer.
    fn check_bindings(&self, bindings: &[Binding<'_>]) -> Result<bool, BackendError> {
        if bindings.len() != self.bound.len() {
            Launch::from_bound(&self.kernel, &vec![0usize; bindings.len()], Overrides::default())?;
        }
        let mut some_resident = false;
        for (binding, &id) in bindings.iter().zip(&self.bound) {
            let access = self.access(id);
            let fits = match binding {
                Binding::Read(_) => !access.is_output(),
                Binding::ReadWrite(_) => access == Access::ReadWrite,
                Binding::Write(_) => access == Access::Output,
                Binding::Resident(_) => {
                    some_resident = true;
                    true
                }
            };
            if !fits {
                return Err(self.bound_otherwise(id));
            }
        }
        Ok(some_resident)
    }

    #[cold]
    fn bound_otherwise(&self, id: BufferId) -> BackendError {
        let decl = &self.kernel.buffer(id).decl;
        self.failed(format!(
            "buffer `{}` is {} and was bound otherwise; bind Read for read and uniform buffers, ReadWrite for \
             read_write, Write for output",
            decl.name, decl.access
        ))
    }

    /// The resident buffers of a call, and whether each is written.
    fn residents(&self, bindings: &[Binding<'_>]) -> impl Iterator<Item = (u64, bool)> {
        let resident = |(binding, &id): (&Binding<'_>, &BufferId)| match binding {
            Binding::Resident(handle) => Some((*handle, self.access(id).is_output())),
            Binding::Read(_) | Binding::ReadWrite(_) | Binding::Write(_) => None,
        };
        bindings.iter().zip(&self.bound).filter_map(resident)
    }

    /// Binds a buffer; `resident` resolves a handle to its memory.
    fn bind<'a>(
        &self,
        buffer: BufferId,
        binding: &'a mut Binding<'_>,
        resident: impl FnOnce(u64) -> (Memory<'a, D::Memory>, usize),
    ) -> BoundArgument<'a, D::Memory> {
        let (memory, bytes) = match binding {
            Binding::Read(bytes) => (Memory::Read(bytes), bytes.len()),
            Binding::ReadWrite(bytes) | Binding::Write(bytes) => {
                let length = bytes.len();
                (Memory::Write(bytes), length)
            }
            Binding::Resident(handle) => resident(*handle),
        };
        let start = if self.access(buffer) == Access::Output { Start::Zero } else { Start::Own };
        BoundArgument { buffer, memory, bytes, start }
    }

    fn run_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<((), LaunchRecord), BackendError> {
        if !self.check_bindings(bindings)? {
            return self.run_with(bindings, config, |_| unreachable!("no buffer of the call is resident"));
        }
        let (mut held, mut locked, mut lent_memory) = (Few::new(), Few::new(), Few::new());
        self.shared.residents.hold(self.residents(bindings), &mut held)?;
        lock_and_lend(&held, &mut locked, &mut lent_memory);
        self.run_with(bindings, config, |handle| lent(&mut lent_memory, handle))
    }

    /// Runs on checked bindings; `resident` resolves a handle to its memory.
    #[inline]
    fn run_with<'a>(
        &self,
        bindings: &'a mut [Binding<'_>],
        config: &DispatchConfig,
        mut resident: impl FnMut(u64) -> (Memory<'a, D::Memory>, usize),
    ) -> Result<((), LaunchRecord), BackendError> {
        let (mut arguments, mut record) = (Few::new(), LaunchRecord::default());
        for (&buffer, binding) in self.bound.iter().zip(bindings) {
            let argument = self.bind(buffer, binding, &mut resident);
            argument.count(&mut record);
            arguments.push(argument);
        }
        self.run(&mut arguments, &config.merged(&self.config), device_time_wanted())?;
        Ok(((), record))
    }
}

impl<D: NativeDevice> CompiledPipeline for Pipeline<D> {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let borrowed: Few<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(&borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        Ok(self.observe_new(&host_inputs(inputs), config, device_time_wanted())?.outputs)
    }

    fn dispatch_borrowed_into(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        self.observe_into(&host_inputs(inputs), config, slots)
    }

    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        slots.resize_with(items.len(), Vec::new);
        let merged = config.merged(&self.config);
        // A deadline applies to each item separately.
        let most = if merged.timeout.is_some() { 1 } else { self.device().batch_items() };
        let mut from = 0;
        while from < items.len() {
            let mut bytes = 0;
            let fits = |item: &&&[&[u8]]| {
                let before = bytes;
                bytes += item.iter().map(|input| input.len()).sum::<usize>();
                before < BATCH_BYTES
            };
            let count = items[from..].iter().take(most).take_while(fits).count().max(1);
            let (items, slots) = (&items[from..from + count], &mut slots[from..from + count]);
            match (items, slots) {
                ([item], [slots]) => self.dispatch_borrowed_into(item, config, slots)?,
                (items, slots) => self.run_batch(items, slots, &merged)?,
            }
            from += count;
        }
        Ok(())
    }

    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let inputs: Few<Input<'_>> = inputs.iter().map(Input::of).collect();
        Ok(self.observe_new(&inputs, config, device_time_wanted())?.outputs)
    }

    fn dispatch_persistent_handles_into(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        self.observe_into(&inputs.iter().map(Input::of).collect::<Few<_>>(), config, slots)
    }

    fn dispatch_timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<TimedOutputs, BackendError> {
        self.observe_new(&host_inputs(inputs), config, true)
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || self.run_bound(bindings, config))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
