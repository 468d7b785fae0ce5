//! A compiled program, and how its dispatches run.
//!
//! Code is made for the shape that the program declares; another shape (an overridden workgroup size or grid, a grid that
//! does not fit the device's axes) gets code of its own, made once. A dispatch writes inputs, runs, and reads outputs and
//! status back in one submission; a batch is one submission too.

use crate::backend::Core;
use crate::emit::{FOLD, Form, TRAPPED, word};
use crate::memory::{Resident, failed, write_padded};
use crate::variant::{Frame, Place, Recipe, STATUS_BYTES, Variant};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::observability::{LaunchRecord, device_time_wanted, observe_launch, record_device_time};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DeviceClass, DispatchConfig, OutputBuffers, Resource,
    TimedOutputs, check_shape,
};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{BufferId, Kernel, KernelBuffer};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::types::Value;

/// A program compiled for a device.
#[derive(Debug)]
pub(crate) struct Pipeline {
    id: String,
    kernel: Kernel,
    config: DispatchConfig,
    core: Arc<Core>,
    /// The buffers that a dispatch binds, in binding order.
    bound: Vec<BufferId>,
    /// Elements per invocation, unless the caller says.
    usual_elements: u32,
    variants: Mutex<HashMap<Key, Arc<Variant>>>,
}

/// What distinguishes the variants of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    form: Form,
    schedule: Option<vyre_driver::Schedule>,
    elements: u32,
}

/// Memory of one buffer for one dispatch.
struct Given<'a> {
    source: Source<'a>,
    bytes: usize,
    /// Whether the caller gets the contents back.
    returned: bool,
}

enum Source<'a> {
    /// The caller's bytes.
    Bytes(&'a [u8]),
    /// Zeros.
    Nothing,
    /// A buffer on the device, and whether it is to be zeroed.
    Resident(Resident, Contents),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Kept,
    Zeroed,
}

/// A dispatch that was encoded.
struct Encoded {
    frame: Frame,
    /// Where the outputs lie in the readback, in binding order: offset and length.
    outputs: Vec<(u64, usize)>,
    /// Where the status lies.
    status: Option<u64>,
    /// Where the timestamps lie.
    times: Option<u64>,
}

impl Pipeline {
    pub(crate) fn new(
        program: &Program,
        config: &DispatchConfig,
        core: Arc<Core>,
    ) -> Result<Pipeline, BackendError> {
        let kernel = program.validate()?;
        core.check_needs(&kernel)?;
        check_shape(&core.profile, &kernel, config)?;
        let digest: String = kernel.fingerprint[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let pipeline = Pipeline {
            id: format!("{}:{digest}", core.id),
            bound: kernel.bound_buffers(),
            usual_elements: core.usual_elements(&kernel),
            kernel,
            config: config.clone(),
            core,
            variants: Mutex::default(),
        };
        pipeline.variant(config, Folding::None)?;
        Ok(pipeline)
    }

    fn key(&self, config: &DispatchConfig, folding: Folding) -> Key {
        let within_domain = self.kernel.shape_free && config.grid_override.is_none();
        let workgroup = config.workgroup_override.unwrap_or(self.kernel.workgroup_size);
        let elements = config.elements_per_invocation.unwrap_or(self.usual_elements);
        Key {
            form: Form { workgroup, within_domain, folded: folding == Folding::Folded },
            schedule: config.schedule,
            elements: if within_domain { elements } else { 1 },
        }
    }

    fn variant(&self, config: &DispatchConfig, folding: Folding) -> Result<Arc<Variant>, BackendError> {
        let key = self.key(config, folding);
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = variants.get(&key).filter(|variant| !variant.device.is_lost()) {
            return Ok(known.clone());
        }
        if let Some(limit) = self.core.left_behind(&self.kernel) {
            return Err(self.named(BackendError::Timeout { backend: self.core.id.into(), limit }));
        }
        let device = self.core.adapter.device()?;
        let elements_per_invocation = Some(key.elements);
        let recipe = Recipe {
            kernel: &self.kernel,
            form: key.form,
            config: &DispatchConfig {
                elements_per_invocation,
                schedule: key.schedule,
                ..DispatchConfig::default()
            },
            traits: &self.core.traits,
            dialect: self.core.dialect,
        };
        let made = Variant::compile(&device, &recipe).inspect_err(|error| {
            if let BackendError::Timeout { limit, .. } = error {
                self.core.leave_behind(&self.kernel, *limit);
            }
        });
        let made = Arc::new(made?);
        variants.insert(key, made.clone());
        Ok(made)
    }

    fn buffer(&self, id: BufferId) -> &KernelBuffer {
        self.kernel.buffer(id)
    }

    /// The launch and the code for it.
    fn plan(
        &self,
        config: &DispatchConfig,
        size: impl Fn(&Kernel, Overrides) -> Result<Launch, vyre_foundation::diagnostics::Diagnostics>,
    ) -> Result<Plan, BackendError> {
        if config.workgroup_override.is_some() || config.grid_override.is_some() {
            check_shape(&self.core.profile, &self.kernel, config)?;
        }
        let overrides = Overrides { workgroup: config.workgroup_override, grid: config.grid_override };
        let variant = self.variant(config, Folding::None)?;
        let launch = size(&variant.kernel, overrides)?;
        for &id in &self.bound {
            let (bytes, most) = (
                launch.bytes(&self.kernel, id) as u64,
                variant.device.limits.max_storage_buffer_binding_size,
            );
            if bytes > most {
                let name = &self.buffer(id).decl.name;
                let name = format!("the {bytes} bytes of buffer `{name}` (at most {most} on its device)");
                return Err(self.core.unsupported(name));
            }
        }
        self.check_groups(&launch, config)?;
        let most = variant.device.limits.max_compute_workgroups_per_dimension;
        if launch.grid.iter().all(|&groups| groups <= most) {
            let groups = launch.grid;
            return Ok(Plan { variant, launch, groups });
        }
        let groups = fold(launch.grid).ok_or_else(|| {
            self.core.unsupported(format!("a grid of {:?} workgroups: they are more than 2^32", launch.grid))
        })?;
        Ok(Plan { variant: self.variant(config, Folding::Folded)?, launch, groups })
    }

    /// Refuses a grid under a deadline that a software adapter would be busy with long after it: nothing ends a dispatch, and
    /// what is left behind takes the processors from all that follow.
    fn check_groups(&self, launch: &Launch, config: &DispatchConfig) -> Result<(), BackendError> {
        let groups: u128 = launch.grid.iter().map(|&groups| u128::from(groups)).product();
        let software = self.core.profile.device_class == DeviceClass::Software;
        if groups <= MOST_TIMED_GROUPS || !software || config.timeout.is_none() {
            return Ok(());
        }
        let grid = launch.grid;
        Err(self.core.unsupported(format!(
            "a grid of {grid:?} workgroups under a deadline (at most {MOST_TIMED_GROUPS} in all on its device)"
        )))
    }

    fn check_output_bytes(&self, launch: &Launch, config: &DispatchConfig) -> Result<(), BackendError> {
        let written = self.bound.iter().filter(|&&id| self.buffer(id).decl.access.is_output());
        let total = written.map(|&id| launch.bytes(&self.kernel, id)).fold(0, usize::saturating_add);
        match config.max_output_bytes.filter(|&most| total > most) {
            Some(most) => Err(failed(format!(
                "the outputs take {total} bytes, and `max_output_bytes` allows {most}; raise it or split the work"
            ))),
            None => Ok(()),
        }
    }

    /// What each buffer is given in a dispatch on inputs: one per read, uniform and read_write buffer.
    fn given<'a>(&self, launch: &Launch, inputs: impl IntoIterator<Item = Source<'a>>) -> Vec<Given<'a>> {
        let mut inputs = inputs.into_iter();
        let give = |&id: &BufferId| {
            let access = self.buffer(id).decl.access;
            let source = if access.is_input() { inputs.next() } else { None };
            let bytes = launch.bytes(&self.kernel, id);
            Given { source: source.unwrap_or(Source::Nothing), bytes, returned: access.is_output() }
        };
        self.bound.iter().map(give).collect()
    }

    /// Runs one dispatch to its end.
    fn run(
        &self,
        plan: &Plan,
        given: Vec<Given<'_>>,
        config: &DispatchConfig,
    ) -> Result<Encoded, BackendError> {
        let times = if device_time_wanted() { self.times(plan)? } else { None };
        let mut done = self.launch(&[plan], vec![given], config, times)?;
        done.pop().ok_or_else(|| failed("nothing was encoded".into()))
    }

    /// What taking the kernel's time needs, where the device can and there is something to time.
    fn times(&self, plan: &Plan) -> Result<Option<Times>, BackendError> {
        let device = &*plan.variant.device;
        let can = device.features.contains(wgpu::Features::TIMESTAMP_QUERY);
        if can && !plan.launch.grid.contains(&0) { Times::new(device).map(Some) } else { Ok(None) }
    }

    /// Encodes dispatches, submits them together and waits until they are done.
    fn launch(
        &self,
        plans: &[&Plan],
        given: Vec<Vec<Given<'_>>>,
        config: &DispatchConfig,
        times: Option<Times>,
    ) -> Result<Vec<Encoded>, BackendError> {
        let Some(first) = plans.first() else { return Ok(Vec::new()) };
        let device = &*first.variant.device;
        for (plan, given) in plans.iter().zip(&given) {
            self.check_rounds(plan, given)?;
        }
        let bytes = given.iter().flatten().map(|given| given.bytes as u64).sum();
        let submitted = device.watch(|| {
            let mut encoder = device.device.create_command_encoder(&Default::default());
            let mut encoded = Vec::with_capacity(plans.len());
            for (plan, given) in plans.iter().zip(given) {
                encoded.push(self.encode(plan, &given, &mut encoder, times.as_ref())?);
            }
            let submission = device.queue.submit([encoder.finish()]);
            for readback in encoded.iter().filter_map(|encoded| encoded.frame.readback.as_ref()) {
                // Whether it worked shows when the range is asked for.
                readback.map_async(wgpu::MapMode::Read, .., |_| {});
            }
            Ok::<_, BackendError>((encoded, submission))
        });
        let submitted = submitted.map_err(|fault| self.named(device.fault(fault, bytes)))?;
        let (encoded, submission) = submitted.map_err(|error| self.named(error))?;
        first.variant.wait(submission, config.timeout).map_err(|error| self.named(error))?;
        Ok(encoded)
    }

    /// Refuses a dispatch whose loops may take more rounds than the driver runs: it would end them early and go on.
    fn check_rounds(&self, plan: &Plan, given: &[Given<'_>]) -> Result<(), BackendError> {
        let Some(most) = plan.variant.most_rounds.filter(|_| !plan.launch.grid.contains(&0)) else {
            return Ok(());
        };
        let mut element = |id: BufferId, index: u32| self.element(given, id, index);
        match plan.launch.iteration_bound(&plan.variant.kernel, &mut element) {
            Some(bound) if bound <= most => Ok(()),
            Some(_) | None => Err(self.core.unsupported(format!(
                "the loops of kernel `{}`: its driver ends an invocation's loops after {} rounds in all, and these are \
                 not proved to take fewer",
                self.kernel.display_name(),
                self.core.traits.loop_limit.unwrap_or_default()
            ))),
        }
    }

    /// An element of a buffer that the kernel only reads, zero out of range; `None` if it lies on the device.
    fn element(&self, given: &[Given<'_>], id: BufferId, index: u32) -> Option<Value> {
        let Source::Bytes(bytes) = given.get(self.position(id))?.source else { return None };
        let element = self.buffer(id).decl.element;
        let inside = bytes.get(index as usize * element.size()..).and_then(|rest| rest.get(..element.size()));
        inside.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
    }

    /// Writes inputs and parameters, and encodes the dispatch.
    fn encode(
        &self,
        plan: &Plan,
        given: &[Given<'_>],
        encoder: &mut wgpu::CommandEncoder,
        times: Option<&Times>,
    ) -> Result<Encoded, BackendError> {
        let variant = &*plan.variant;
        let places = variant.layout.bindings.iter().map(|&id| {
            let given = &given[self.position(id)];
            match &given.source {
                Source::Bytes(_) | Source::Nothing => Place::Own(given.bytes as u64),
                Source::Resident(resident, _) => Place::Resident(resident.buffer.clone()),
            }
        });
        let output_bytes: u64 =
            given.iter().filter(|given| given.returned).map(|given| padded(given.bytes)).sum();
        let status_bytes = if variant.layout.status { STATUS_BYTES } else { 0 };
        // Timestamps lie at a multiple of eight.
        let times_at = (output_bytes + status_bytes).next_multiple_of(8);
        let mut frame = variant.frame(places.collect(), times_at + times.map_or(0, |_| TIME_BYTES))?;
        self.write(plan, given, encoder, &mut frame);
        if !plan.launch.grid.contains(&0) {
            let timestamp_writes = times.map(|times| wgpu::ComputePassTimestampWrites {
                query_set: &times.queries,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            });
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            pass.set_pipeline(&variant.pipeline);
            pass.set_bind_group(0, &frame.group, &[]);
            let [x, y, z] = plan.groups;
            pass.dispatch_workgroups(x, y, z);
        }
        let (outputs, status) = self.read_back(plan, given, encoder, &frame);
        if let (Some(times), Some(readback)) = (times, &frame.readback) {
            encoder.resolve_query_set(&times.queries, 0..2, &times.resolved, 0);
            encoder.copy_buffer_to_buffer(&times.resolved, 0, readback, times_at, TIME_BYTES);
        }
        Ok(Encoded { frame, outputs, status, times: times.map(|_| times_at) })
    }

    /// The place of a bound buffer in binding order.
    fn position(&self, id: BufferId) -> usize {
        let found = self.bound.iter().position(|&bound| bound == id);
        found.unwrap_or_else(|| unreachable!("the layout's buffers are bound"))
    }

    /// Brings inputs and parameters to the device, and zeroes what is to be zero.
    fn write(&self, plan: &Plan, given: &[Given<'_>], encoder: &mut wgpu::CommandEncoder, frame: &mut Frame) {
        let (device, layout) = (&*plan.variant.device, &plan.variant.layout);
        let parameters = self.parameters(plan, given);
        if frame.written != parameters {
            device.queue.write_buffer(&frame.parameters, 0, &parameters);
            frame.written = parameters;
        }
        for &(id, word) in &layout.packed {
            let given = &given[self.position(id)];
            if let Source::Resident(resident, _) = &given.source {
                let (at, size) = (u64::from(word) * 4, padded(given.bytes));
                encoder.copy_buffer_to_buffer(&resident.buffer, 0, &frame.parameters, at, size);
                frame.written.clear();
            }
        }
        for (buffer, &id) in frame.buffers.iter().zip(&layout.bindings) {
            let given = &given[self.position(id)];
            match &given.source {
                Source::Bytes(bytes) => write_padded(device, buffer, 0, bytes),
                Source::Nothing | Source::Resident(_, Contents::Zeroed) if given.bytes > 0 => {
                    encoder.clear_buffer(buffer, 0, Some(padded(given.bytes)));
                }
                Source::Nothing | Source::Resident(..) => {}
            }
        }
        if let Some(status) = &frame.status {
            encoder.clear_buffer(status, 0, None);
        }
    }

    /// Encodes the copies of outputs and status to the readback; gives where they lie.
    fn read_back(
        &self,
        plan: &Plan,
        given: &[Given<'_>],
        encoder: &mut wgpu::CommandEncoder,
        frame: &Frame,
    ) -> (Vec<(u64, usize)>, Option<u64>) {
        let mut outputs = Vec::new();
        let mut at = 0;
        for (given, &id) in given.iter().zip(&self.bound).filter(|(given, _)| given.returned) {
            let binding = plan.variant.layout.bindings.iter().position(|&bound| bound == id);
            let binding = binding.unwrap_or_else(|| unreachable!("what is returned has a binding"));
            if let (Some(readback), true) = (&frame.readback, given.bytes > 0) {
                encoder.copy_buffer_to_buffer(&frame.buffers[binding], 0, readback, at, padded(given.bytes));
            }
            outputs.push((at, given.bytes));
            at += padded(given.bytes);
        }
        let status = frame.status.as_ref().zip(frame.readback.as_ref()).map(|(status, readback)| {
            encoder.copy_buffer_to_buffer(status, 0, readback, at, STATUS_BYTES);
            at
        });
        (outputs, status)
    }

    /// The parameters' bytes.
    fn parameters(&self, plan: &Plan, given: &[Given<'_>]) -> Vec<u8> {
        let layout = &plan.variant.layout;
        let mut words = vec![0_u32; layout.words as usize];
        let limit = plan.launch.limit.unwrap_or([u32::MAX; 3]);
        words[word::LIMIT as usize..][..3].copy_from_slice(&limit);
        words[word::GRID as usize..][..3].copy_from_slice(&plan.launch.grid);
        words[word::ROW as usize] = plan.groups[0];
        for &(id, word) in &layout.lengths {
            words[word as usize] = plan.launch.lengths[id.index()];
        }
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        for &(id, word) in &layout.packed {
            let given = self.bound.iter().zip(given).find(|(bound, _)| **bound == id).map(|(_, given)| given);
            if let Some(Given { source: Source::Bytes(given), .. }) = given {
                bytes[word as usize * 4..][..given.len()].copy_from_slice(given);
            }
        }
        bytes
    }

    /// Shows the outputs of a dispatch that is done, unless it ended badly; gives the device time where it was taken.
    fn receive(
        &self,
        plan: &Plan,
        encoded: Encoded,
        mut receive: impl FnMut(usize, &[u8]),
    ) -> Result<Option<Duration>, BackendError> {
        let Encoded { frame, outputs, status, times } = encoded;
        let view = match &frame.readback {
            Some(readback) => Some(readback.get_mapped_range(..).map_err(|error| failed(error.to_string()))?),
            None => None,
        };
        let bytes = view.as_deref().unwrap_or_default();
        let word = |at: u64| {
            let bytes = bytes.get(at as usize..).and_then(|bytes| bytes.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let outcome = match status.map(|at| (word(at), word(at + 4))) {
            Some((TRAPPED, code)) => {
                Err(BackendError::Trapped { kernel: self.kernel.display_name().to_string(), code })
            }
            Some(_) | None => Ok(times.map(|at| {
                let tick = |at: u64| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
                let ticks = tick(at + 8).saturating_sub(tick(at));
                Duration::from_nanos((ticks as f64 * f64::from(plan.variant.device.tick)) as u64)
            })),
        };
        if outcome.is_ok() {
            for (number, &(at, length)) in outputs.iter().enumerate() {
                receive(number, bytes.get(at as usize..at as usize + length).unwrap_or_default());
            }
        }
        drop(view);
        if let Some(readback) = &frame.readback {
            readback.unmap();
        }
        plan.variant.keep(frame);
        if let Ok(Some(time)) = outcome {
            record_device_time(time);
        }
        outcome
    }

    /// The error with the kernel's name in it.
    fn named(&self, error: BackendError) -> BackendError {
        let kernel = format!("kernel `{}`", self.kernel.display_name());
        let place = |backend: String| format!("{backend}, {kernel}");
        match error {
            BackendError::DispatchFailed { backend, message } => {
                BackendError::DispatchFailed { backend, message: format!("{kernel}: {message}") }
            }
            BackendError::DeviceLost { backend, message } => {
                BackendError::DeviceLost { backend, message: format!("{kernel}: {message}") }
            }
            BackendError::Timeout { backend, limit } => {
                BackendError::Timeout { backend: place(backend), limit }
            }
            BackendError::DeviceOutOfMemory { backend, requested_bytes } => {
                BackendError::DeviceOutOfMemory { backend: place(backend), requested_bytes }
            }
            other => other,
        }
    }

    fn plan_inputs(&self, lengths: &[usize], config: &DispatchConfig) -> Result<Plan, BackendError> {
        let plan = self.plan(config, |kernel, overrides| Launch::from_inputs(kernel, lengths, overrides))?;
        self.check_output_bytes(&plan.launch, config)?;
        Ok(plan)
    }

    pub(crate) fn outputs(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<(OutputBuffers, LaunchRecord), BackendError> {
        let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let plan = self.plan_inputs(&lengths, config)?;
        let given = self.given(&plan.launch, inputs.iter().map(|input| Source::Bytes(input)));
        let mut outputs = Vec::new();
        let done = self.run(&plan, given, config)?;
        self.receive(&plan, done, |_, bytes| outputs.push(bytes.to_vec()))?;
        let record = self.record(&lengths, &outputs);
        Ok((outputs, record))
    }

    fn record(&self, lengths: &[usize], outputs: &[Vec<u8>]) -> LaunchRecord {
        LaunchRecord {
            input_bytes: lengths.iter().map(|&length| length as u64).sum(),
            output_bytes: outputs.iter().map(|output| output.len() as u64).sum(),
            output_slots: outputs.len() as u64,
            ..LaunchRecord::default()
        }
    }

    /// Every buffer has memory, what the kernel writes is writable, and no resident buffer is written through two bindings.
    fn check_bindings(&self, bindings: &[Binding<'_>]) -> Result<(), BackendError> {
        let mut residents: Vec<(u64, bool)> = Vec::new();
        for (binding, &id) in bindings.iter().zip(&self.bound) {
            let decl = &self.buffer(id).decl;
            let fits = match binding {
                Binding::Read(_) => !decl.access.is_output(),
                Binding::ReadWrite(_) => decl.access == Access::ReadWrite,
                Binding::Write(_) => decl.access == Access::Output,
                Binding::Resident(handle) => {
                    residents.push((*handle, decl.access.is_output()));
                    true
                }
            };
            if !fits {
                return Err(failed(format!(
                    "buffer `{}` is {} and was bound otherwise; bind Read for read and uniform buffers, ReadWrite for \
                     read_write, Write for output",
                    decl.name, decl.access
                )));
            }
        }
        residents.sort_unstable();
        match residents.windows(2).find(|pair| pair[0].0 == pair[1].0 && (pair[0].1 || pair[1].1)) {
            Some(pair) => {
                Err(failed(format!("resident buffer {} is bound twice, and the kernel writes it", pair[0].0)))
            }
            None => Ok(()),
        }
    }

    fn bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<LaunchRecord, BackendError> {
        self.check_bindings(bindings)?;
        let mut residents = Vec::with_capacity(bindings.len());
        for binding in bindings.iter() {
            residents.push(match binding {
                Binding::Resident(handle) => Some(self.core.residents.get(*handle)?),
                Binding::Read(_) | Binding::ReadWrite(_) | Binding::Write(_) => None,
            });
        }
        let lengths: Vec<usize> = bindings
            .iter()
            .zip(&residents)
            .map(|(binding, resident)| match binding {
                Binding::Read(bytes) => bytes.len(),
                Binding::ReadWrite(bytes) | Binding::Write(bytes) => bytes.len(),
                Binding::Resident(_) => resident.as_ref().map_or(0, |resident| resident.bytes),
            })
            .collect();
        let plan = self.plan(config, |kernel, overrides| Launch::from_bound(kernel, &lengths, overrides))?;
        let mut record = LaunchRecord::default();
        let mut given = Vec::with_capacity(bindings.len());
        let all = bindings.iter().zip(residents).zip(&self.bound).zip(&lengths);
        for (((binding, resident), &id), &bytes) in all {
            let output = self.buffer(id).decl.access == Access::Output;
            let (source, returned) = match (binding, resident) {
                (Binding::Read(bytes), _) => (Source::Bytes(bytes), false),
                (Binding::ReadWrite(bytes), _) => (Source::Bytes(bytes), true),
                (Binding::Write(_), _) => (Source::Nothing, true),
                (Binding::Resident(_), Some(resident)) => {
                    let contents = if output { Contents::Zeroed } else { Contents::Kept };
                    (Source::Resident(resident, contents), false)
                }
                (Binding::Resident(_), None) => unreachable!("every resident buffer was looked up"),
            };
            count(&mut record, &source, returned, bytes);
            given.push(Given { source, bytes, returned });
        }
        let done = self.run(&plan, given, config)?;
        let mut targets: Vec<&mut [u8]> = bindings
            .iter_mut()
            .filter_map(|binding| match binding {
                Binding::ReadWrite(bytes) | Binding::Write(bytes) => Some(&mut **bytes),
                Binding::Read(_) | Binding::Resident(_) => None,
            })
            .collect();
        self.receive(&plan, done, |number, bytes| {
            if let Some(target) = targets.get_mut(number) {
                target.copy_from_slice(bytes);
            }
        })?;
        Ok(record)
    }

    /// Runs on inputs that may be resident on the device.
    fn persistent(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<(OutputBuffers, LaunchRecord), BackendError> {
        let mut sources = Vec::with_capacity(inputs.len());
        let mut lengths = Vec::with_capacity(inputs.len());
        for input in inputs {
            let (source, length) = match input {
                Resource::Borrowed(bytes) => (Source::Bytes(bytes), bytes.len()),
                Resource::Resident(handle) => {
                    let resident = self.core.residents.get(*handle)?;
                    let length = resident.bytes;
                    (Source::Resident(resident, Contents::Kept), length)
                }
            };
            sources.push(source);
            lengths.push(length);
        }
        let plan = self.plan_inputs(&lengths, config)?;
        let given = self.given(&plan.launch, sources);
        let mut outputs = Vec::new();
        let done = self.run(&plan, given, config)?;
        self.receive(&plan, done, |_, bytes| outputs.push(bytes.to_vec()))?;
        let record = self.record(&lengths, &outputs);
        Ok((outputs, record))
    }

    /// Runs every item in one submission, into the caller's slots.
    fn batched(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut [OutputBuffers],
    ) -> Result<(), BackendError> {
        let mut plans = Vec::with_capacity(items.len());
        for inputs in items {
            let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
            plans.push(self.plan_inputs(&lengths, config)?);
        }
        let all: Vec<&Plan> = plans.iter().collect();
        let given = items
            .iter()
            .zip(&plans)
            .map(|(inputs, plan)| self.given(&plan.launch, inputs.iter().map(|input| Source::Bytes(input))));
        let encoded = self.launch(&all, given.collect(), config, None)?;
        for (((inputs, plan), done), slots) in items.iter().zip(&plans).zip(encoded).zip(slots) {
            observe_launch(&self.id, config, || {
                let mut record = LaunchRecord {
                    input_bytes: inputs.iter().map(|input| input.len() as u64).sum(),
                    ..LaunchRecord::default()
                };
                slots.truncate(done.outputs.len());
                self.receive(plan, done, |number, bytes| fill_slot(slots, number, bytes, &mut record))?;
                Ok(((), record))
            })?;
        }
        Ok(())
    }

    /// Runs with timestamps around the kernel.
    fn timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<(TimedOutputs, LaunchRecord), BackendError> {
        let start = Instant::now();
        let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let plan = self.plan_inputs(&lengths, config)?;
        let given = self.given(&plan.launch, inputs.iter().map(|input| Source::Bytes(input)));
        let times = self.times(&plan)?;
        let mut done = self.launch(&[&plan], vec![given], config, times)?;
        let encoded = done.pop().ok_or_else(|| failed("nothing was encoded".into()))?;
        let mut outputs = Vec::new();
        let device = self.receive(&plan, encoded, |_, bytes| outputs.push(bytes.to_vec()))?;
        let wall = start.elapsed();
        let record = self.record(&lengths, &outputs);
        Ok((TimedOutputs { outputs, wall, device }, record))
    }
}

/// Whether a grid is laid over the device's axes otherwise than over its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folding {
    None,
    Folded,
}

/// A launch, the code for it, and the workgroups on the device's axes.
struct Plan {
    variant: Arc<Variant>,
    launch: Launch,
    groups: [u32; 3],
}

/// Two timestamps of eight bytes.
const TIME_BYTES: u64 = 16;

/// What taking the kernel's time needs.
struct Times {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
}

impl Times {
    fn new(device: &crate::device::Device) -> Result<Times, BackendError> {
        let ty = wgpu::QueryType::Timestamp;
        let descriptor = wgpu::QuerySetDescriptor { label: None, ty, count: 2 };
        let queries = device.watch(|| device.device.create_query_set(&descriptor));
        let queries = queries.map_err(|fault| device.fault(fault, TIME_BYTES))?;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        Ok(Times { queries, resolved: device.buffer(TIME_BYTES, usage)? })
    }
}

/// A grid that does not fit the device's axes, laid out in rows and planes of [`FOLD`]; `None` if it is too large for that.
fn fold(grid: [u32; 3]) -> Option<[u32; 3]> {
    let total: u128 = grid.iter().map(|&groups| u128::from(groups)).product();
    let rows = total.div_ceil(FOLD.into());
    let planes = rows.div_ceil(FOLD.into());
    let height = rows.min(FOLD.into());
    // The kernel counts workgroups in 32 bits, those behind the end included.
    let padded = u128::from(FOLD) * height * planes;
    (padded <= 1 << 32).then_some([FOLD, height as u32, planes as u32])
}

/// Workgroups that llvmpipe goes through in a few seconds, if they do little.
const MOST_TIMED_GROUPS: u128 = 1 << 22;

/// Devices copy whole words.
fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(4)
}

fn count(record: &mut LaunchRecord, source: &Source<'_>, returned: bool, bytes: usize) {
    if let Source::Bytes(_) = source {
        record.input_bytes += bytes as u64;
    }
    if returned {
        record.output_bytes += bytes as u64;
        record.output_slots += 1;
        record.output_slots_reused += 1;
    }
}

/// Writes an output into the caller's slot; one that does not fit takes the slot's place.
fn fill_slot(slots: &mut OutputBuffers, number: usize, bytes: &[u8], record: &mut LaunchRecord) {
    record.output_bytes += bytes.len() as u64;
    record.output_slots += 1;
    match slots.get_mut(number) {
        Some(slot) if bytes.len() <= slot.capacity() => {
            slot.clear();
            slot.extend_from_slice(bytes);
            record.output_slots_reused += 1;
            return;
        }
        Some(slot) => *slot = bytes.to_vec(),
        None => slots.push(bytes.to_vec()),
    }
    record.output_slots_moved += 1;
}

impl CompiledPipeline for Pipeline {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(&borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || self.outputs(inputs, &config.merged(&self.config)))
    }

    fn dispatch_borrowed_into(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            let config = config.merged(&self.config);
            let lengths: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
            let plan = self.plan_inputs(&lengths, &config)?;
            let given = self.given(&plan.launch, inputs.iter().map(|input| Source::Bytes(input)));
            let done = self.run(&plan, given, &config)?;
            let mut record = self.record(&lengths, &[]);
            let wanted = done.outputs.len();
            self.receive(&plan, done, |number, bytes| fill_slot(slots, number, bytes, &mut record))?;
            slots.truncate(wanted);
            Ok(((), record))
        })
    }

    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        slots.resize_with(items.len(), Vec::new);
        self.batched(items, &config.merged(&self.config), slots)
    }

    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || self.persistent(inputs, &config.merged(&self.config)))
    }

    fn dispatch_timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<TimedOutputs, BackendError> {
        observe_launch(&self.id, config, || self.timed(inputs, &config.merged(&self.config)))
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            let record = self.bound(bindings, &config.merged(&self.config))?;
            Ok(((), record))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_grids_hold_all_workgroups() {
        for grid in [[65_536, 1, 1], [1 << 24, 1, 1], [70_000, 70, 3], [1 << 31, 1, 1]] {
            let [x, y, z] = fold(grid).expect("it fits");
            let total = |[x, y, z]: [u32; 3]| u64::from(x) * u64::from(y) * u64::from(z);
            assert!(total([x, y, z]) >= total(grid) && [x, y, z].iter().all(|&n| n <= 65_535), "{grid:?}");
        }
        assert_eq!(fold([u32::MAX, 3, 1]), None);
    }
}
