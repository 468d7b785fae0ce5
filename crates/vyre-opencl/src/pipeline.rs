//! A compiled program, and how a dispatch runs it.
//!
//! Code is made for one [`Form`]: a workgroup size, and what else changes the text. The form that the pipeline was
//! compiled for is made at once, others when a call asks for them, each once. A batch launches several items before it
//! waits.

use crate::backend::{Core, Timing};
use crate::call::{Given, Input, host_inputs, lock_all, record_of};
use crate::object::lock;
use crate::session::{Launched, Session, watched};
use crate::variant::{Form, Variant, form_of};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vyre_driver::observability::{LaunchRecord, device_time_wanted, observe_launch, record_device_time};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, OutputBuffers, Resource, TimedOutputs,
    check_shape, write_slots,
};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{BufferId, Kernel};
use vyre_foundation::launch::{Argument, Launch, Overrides};
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
    usual: Arc<Variant>,
    others: Mutex<HashMap<Form, Arc<Variant>>>,
}

/// What outputs hold before a dispatch that are not inputs too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Zero,
    Unspecified,
}

/// Items of a batch that are under way at a time, and about how many bytes of inputs.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 64 << 20;

impl Pipeline {
    pub(crate) fn new(
        program: &Program,
        config: &DispatchConfig,
        core: Arc<Core>,
    ) -> Result<Pipeline, BackendError> {
        let kernel = program.validate()?;
        if kernel.needs.subgroups {
            let name = "subgroup ops".into();
            return Err(BackendError::UnsupportedFeature { name, backend: core.id.into() });
        }
        let form = form_of(&core, &kernel, config);
        let usual = Arc::new(Variant::new(&core, &kernel, form)?);
        let digest: String = kernel.fingerprint[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Pipeline {
            id: format!("{}:{digest}", core.id),
            bound: kernel.bound_buffers(),
            kernel,
            config: config.clone(),
            core,
            usual,
            others: Mutex::default(),
        })
    }

    /// About how much memory the pipeline takes. What the driver's code takes is unknown; it grows with the text.
    pub(crate) fn bytes(&self) -> u64 {
        16 * self.usual.text_bytes
    }

    fn of_form(&self, form: Form, config: &DispatchConfig) -> Result<Arc<Variant>, BackendError> {
        if form == self.usual.form {
            return Ok(self.usual.clone());
        }
        check_shape(&self.core.device.profile, &self.kernel, config)?;
        let mut others = lock(&self.others);
        if let Some(known) = others.get(&form) {
            return Ok(known.clone());
        }
        let made = Arc::new(Variant::new(&self.core, &self.kernel, form)?);
        others.insert(form, made.clone());
        Ok(made)
    }

    /// The code for a dispatch on each of these, and how large they are.
    fn plan(
        &self,
        items: &[Vec<Given<'_>>],
        config: &DispatchConfig,
    ) -> Result<(Arc<Variant>, Vec<Launch>), BackendError> {
        let form = form_of(&self.core, &self.kernel, config);
        let variant = self.of_form(form, config)?;
        let launches = self.launches(&variant, items, config)?;
        let fits = |(launch, memory): (&Launch, &Vec<Given<'_>>)| {
            let requires = &variant.kernel.requires;
            // A dispatch that runs nothing needs no other code for it.
            launch.grid.contains(&0)
                || launch.satisfies(requires, &mut |id, index| self.element(memory, id, index))
        };
        if launches.iter().zip(items).all(fits) {
            return Ok((variant, launches));
        }
        let variant = self.of_form(Form { selective: false, ..form }, config)?;
        let launches = self.launches(&variant, items, config)?;
        Ok((variant, launches))
    }

    fn launches(
        &self,
        variant: &Variant,
        items: &[Vec<Given<'_>>],
        config: &DispatchConfig,
    ) -> Result<Vec<Launch>, BackendError> {
        let overrides = Overrides { workgroup: Some(variant.form.workgroup), ..config.overrides() };
        let launch = |memory: &Vec<Given<'_>>| {
            let given: Vec<Argument<'_>> = memory
                .iter()
                .map(|given| Argument { length: given.len(), contents: given.bytes() })
                .collect();
            Ok(Launch::from_bound(&variant.kernel, &given, overrides)?)
        };
        items.iter().map(launch).collect()
    }

    /// An element of a buffer that the kernel only reads, zero out of range; `None` where the host does not see it.
    fn element(&self, memory: &[Given<'_>], id: BufferId, index: u32) -> Option<Value> {
        let element = self.kernel.buffer(id).decl.element;
        let bytes = memory.get(self.bound.iter().position(|&bound| bound == id)?)?.bytes()?;
        let at = index as usize * element.size();
        let inside = bytes.get(at..).and_then(|rest| rest.get(..element.size()));
        inside.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
    }

    fn access(&self, id: BufferId) -> Access {
        self.kernel.buffer(id).decl.access
    }

    fn failed(&self, message: String) -> BackendError {
        BackendError::DispatchFailed { backend: self.core.id.into(), message }
    }
}

impl Pipeline {
    /// Runs on memory bound to every buffer, in binding order; gives the kernel's time if it was asked for.
    fn run(
        &self,
        memory: Vec<Given<'_>>,
        config: &DispatchConfig,
        timing: Timing,
    ) -> Result<Option<Duration>, BackendError> {
        let memory = [memory];
        let (variant, launches) = self.plan(&memory, config)?;
        let ([memory], [launch]) = (memory, launches.as_slice()) else {
            unreachable!("there is a launch for each item")
        };
        let session = Session::new(&self.core, &variant, timing)?;
        let started = Instant::now();
        // What can be neither interrupted nor cut into slices is looked at when it is done.
        let sliced = !variant.form.stoppable && variant.form.within_domain;
        let deadline = config.timeout.filter(|_| sliced).and_then(|limit| started.checked_add(limit));
        let mut launched = session.launch(&self.bound, memory, launch, deadline)?;
        session.collect(&mut launched)?;
        watched(&launched, config.timeout, || session.wait())?;
        session.show_lent(&launched)?;
        session.ending(&launched, config.timeout)?;
        let late = config.timeout.filter(|limit| !variant.form.stoppable && started.elapsed() > *limit);
        if let Some(limit) = late {
            return Err(BackendError::Timeout { backend: self.core.id.into(), limit });
        }
        let device = launched.device_time().filter(|_| timing == Timing::On);
        session.release(launched);
        // Its binary may be asked for next, which waits for all launches.
        drop(session);
        variant.launched(&self.core);
        Ok(device)
    }

    /// How large the outputs of a call are.
    fn output_sizes(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
    ) -> Result<Vec<usize>, BackendError> {
        let given: Vec<Argument<'_>> = inputs.iter().map(Input::argument).collect();
        let launch = Launch::from_inputs(&self.kernel, &given, config.overrides())?;
        let written = self.bound.iter().filter(|&&id| self.access(id).is_output());
        let sizes: Vec<usize> = written.map(|&id| launch.bytes(&self.kernel, id)).collect();
        let total = sizes.iter().copied().fold(0, usize::saturating_add);
        match config.max_output_bytes.filter(|&most| total > most) {
            Some(most) => Err(self.failed(format!(
                "the outputs take {total} bytes, and `max_output_bytes` allows {most}; raise it or split the work"
            ))),
            None => Ok(sizes),
        }
    }

    /// One vector per output: zeros, or a copy of what the caller gave to be changed.
    fn fresh_outputs(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let sizes = self.output_sizes(inputs, config)?;
        let fresh = |(input, size): (Option<&Input<'_>>, usize)| match input {
            Some(Input::Host(bytes)) => Ok(bytes.to_vec()),
            Some(Input::Resident(resident)) => {
                let mut copy = self.zeroed(size)?;
                self.core.download(resident, 0, &mut copy)?;
                Ok(copy)
            }
            None => self.zeroed(size),
        };
        self.changed(inputs).zip(sizes).map(fresh).collect()
    }

    /// Per output, the input that it starts as.
    fn changed<'i, 'm>(&self, inputs: &'i [Input<'m>]) -> impl Iterator<Item = Option<&'i Input<'m>>> {
        let mut inputs = inputs.iter();
        self.bound.iter().filter_map(move |&id| {
            let input = if self.access(id).is_input() { inputs.next() } else { None };
            self.access(id).is_output().then_some(input)
        })
    }

    /// Makes the caller's slots as long as the outputs, and puts in what these start as. Contents of others are
    /// unspecified.
    fn fit_slots(
        &self,
        inputs: &[Input<'_>],
        sizes: &[usize],
        slots: &mut OutputBuffers,
    ) -> Result<LaunchRecord, BackendError> {
        let mut record = LaunchRecord::default();
        slots.resize_with(sizes.len(), Vec::new);
        for ((slot, &size), input) in slots.iter_mut().zip(sizes).zip(self.changed(inputs)) {
            record.output_bytes += size as u64;
            record.output_slots += 1;
            if slot.capacity() < size {
                *slot = self.zeroed(size)?;
                record.output_slots_moved += 1;
            } else {
                slot.resize(size, 0);
                record.output_slots_reused += 1;
            }
            if let Some(Input::Host(bytes)) = input {
                slot.copy_from_slice(bytes);
            }
        }
        record.input_bytes = record_of(inputs, &[]).input_bytes;
        Ok(record)
    }

    fn zeroed(&self, bytes: usize) -> Result<Vec<u8>, BackendError> {
        // `vec![0; n]` gets zero pages from the system, but ends the process where there are none; so ask first.
        let mut probe = Vec::<u8>::new();
        probe.try_reserve_exact(bytes).map_err(|_| BackendError::DeviceOutOfMemory {
            backend: self.core.id.into(),
            requested_bytes: bytes as u64,
        })?;
        drop(probe);
        Ok(vec![0; bytes])
    }

    /// The memory of a call: inputs to read, outputs to write.
    fn given<'m>(
        &self,
        inputs: &[Input<'m>],
        outputs: &'m mut [Vec<u8>],
        contents: Contents,
    ) -> Vec<Given<'m>> {
        let (mut inputs, mut outputs) = (inputs.iter(), outputs.iter_mut());
        let bind = |&id: &BufferId| {
            let input = if self.access(id).is_input() { inputs.next() } else { None };
            let output = if self.access(id).is_output() { outputs.next() } else { None };
            match (input, output) {
                (None, Some(output)) if contents == Contents::Unspecified => Given::Fill(output),
                (_, Some(output)) => Given::Write(output),
                (Some(Input::Host(bytes)), None) => Given::Read(bytes),
                (Some(Input::Resident(resident)), None) => Given::Resident(resident),
                (None, None) => unreachable!("every bound buffer is an input or an output"),
            }
        };
        self.bound.iter().map(bind).collect()
    }

    fn outputs(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
        timing: Timing,
    ) -> Result<(OutputBuffers, Option<Duration>), BackendError> {
        let mut outputs = self.fresh_outputs(inputs, config)?;
        let memory = self.given(inputs, &mut outputs, Contents::Zero);
        let device = self.run(memory, config, timing)?;
        Ok((outputs, device))
    }
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
        observe_launch(&self.id, config, || {
            let inputs = host_inputs(inputs);
            let (outputs, _) = self.outputs(&inputs, &config.merged(&self.config), Timing::Off)?;
            let record = record_of(&inputs, &outputs);
            Ok((outputs, record))
        })
    }

    fn dispatch_borrowed_into(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            let inputs = host_inputs(inputs);
            let config = config.merged(&self.config);
            if self.of_form(form_of(&self.core, &self.kernel, &config), &config)?.ends_early() {
                // The slots are to stay as they were if it does.
                let (outputs, _) = self.outputs(&inputs, &config, Timing::Off)?;
                let bytes = record_of(&inputs, &[]).input_bytes;
                return Ok(((), write_slots(bytes, outputs, slots)));
            }
            let sizes = self.output_sizes(&inputs, &config)?;
            let record = self.fit_slots(&inputs, &sizes, slots)?;
            let memory = self.given(&inputs, slots, Contents::Unspecified);
            self.run(memory, &config, Timing::Off)?;
            Ok(((), record))
        })
    }

    fn dispatch_timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<TimedOutputs, BackendError> {
        observe_launch(&self.id, config, || {
            let start = Instant::now();
            let inputs = host_inputs(inputs);
            let (outputs, device) = self.outputs(&inputs, &config.merged(&self.config), Timing::On)?;
            let record = record_of(&inputs, &outputs);
            Ok((TimedOutputs { outputs, wall: start.elapsed(), device }, record))
        })
    }

    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        slots.resize_with(items.len(), Vec::new);
        let config = config.merged(&self.config);
        if config.timeout.is_some() {
            // A deadline is each item's own.
            let each = items.iter().zip(slots);
            return each
                .into_iter()
                .try_for_each(|(item, slots)| self.dispatch_borrowed_into(item, &config, slots));
        }
        let mut rest = items.iter().zip(slots).peekable();
        while rest.peek().is_some() {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while let Some((item, slots)) = rest.next_if(|_| batch.len() < BATCH && bytes < BATCH_BYTES) {
                bytes += item.iter().map(|input| input.len()).sum::<usize>();
                batch.push((host_inputs(item), slots));
            }
            self.run_batch(batch, &config)?;
        }
        Ok(())
    }

    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || {
            let mut held = Vec::new();
            for input in inputs {
                if let Resource::Resident(handle) = input {
                    held.push((*handle, self.core.residents.get(self.core.id, *handle)?));
                }
            }
            let _guards = lock_all(&held);
            let mut residents = held.iter();
            let mut next = || residents.next().map(|(_, resident)| &**resident);
            let inputs: Vec<Input<'_>> = inputs
                .iter()
                .map(|input| match input {
                    Resource::Borrowed(bytes) => Input::Host(bytes),
                    Resource::Resident(_) => {
                        Input::Resident(next().unwrap_or_else(|| unreachable!("one was held per handle")))
                    }
                })
                .collect();
            let (outputs, _) = self.outputs(&inputs, &config.merged(&self.config), Timing::Off)?;
            let record = record_of(&inputs, &outputs);
            Ok((outputs, record))
        })
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            self.check_bindings(bindings)?;
            let mut held = Vec::new();
            for binding in bindings.iter() {
                if let Binding::Resident(handle) = binding {
                    held.push((*handle, self.core.residents.get(self.core.id, *handle)?));
                }
            }
            let _guards = lock_all(&held);
            let mut residents = held.iter();
            let mut next = || match residents.next() {
                Some((_, resident)) => &**resident,
                None => unreachable!("one was held per handle"),
            };
            let memory: Vec<Given<'_>> =
                bindings.iter_mut().map(|binding| Given::bound(binding, &mut next)).collect();
            let mut record = LaunchRecord::default();
            memory.iter().for_each(|given| given.count(&mut record));
            let timing = if device_time_wanted() { Timing::On } else { Timing::Off };
            let device = self.run(memory, &config.merged(&self.config), timing)?;
            device.into_iter().for_each(record_device_time);
            Ok(((), record))
        })
    }
}

impl Pipeline {
    /// Every buffer has memory, what the kernel writes is writable, and nothing that it writes is bound twice.
    fn check_bindings(&self, bindings: &[Binding<'_>]) -> Result<(), BackendError> {
        let mut residents: Vec<(u64, bool)> = Vec::new();
        for (binding, &id) in bindings.iter().zip(&self.bound) {
            let access = self.access(id);
            let fits = match binding {
                Binding::Read(_) => !access.is_output(),
                Binding::ReadWrite(_) => access == Access::ReadWrite,
                Binding::Write(_) => access == Access::Output,
                Binding::Resident(handle) => {
                    residents.push((*handle, access.is_output()));
                    true
                }
            };
            if !fits {
                let name = &self.kernel.buffer(id).decl.name;
                return Err(self.failed(format!(
                    "buffer `{name}` is {access} and was bound otherwise; bind Read for read and uniform buffers, \
                     ReadWrite for read_write, Write for output"
                )));
            }
        }
        residents.sort_unstable();
        let shared = residents.windows(2).find(|pair| pair[0].0 == pair[1].0 && (pair[0].1 || pair[1].1));
        match shared {
            Some(pair) => Err(self
                .failed(format!("resident buffer {} is bound twice, and the kernel writes it", pair[0].0))),
            None => Ok(()),
        }
    }

    /// Launches all items, then waits for all. An error leaves the slots of its item and of those behind it alone.
    fn run_batch(
        &self,
        batch: Vec<(Vec<Input<'_>>, &mut OutputBuffers)>,
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let mut outputs = Vec::with_capacity(batch.len());
        let mut failure = None;
        for (inputs, _) in &batch {
            match self.fresh_outputs(inputs, config) {
                Ok(fresh) => outputs.push(fresh),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let given = batch.iter().zip(&mut outputs);
        let items: Vec<Vec<Given<'_>>> =
            given.map(|((inputs, _), outputs)| self.given(inputs, outputs, Contents::Zero)).collect();
        let (variant, launches) = self.plan(&items, config)?;
        let done = {
            let session = Session::new(&self.core, &variant, Timing::Off)?;
            let mut launched = Vec::with_capacity(items.len());
            for (memory, launch) in items.into_iter().zip(&launches) {
                match self.launch_item(&session, memory, launch) {
                    Ok(item) => launched.push(item),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            session.wait()?;
            let mut done = 0;
            for item in launched {
                let ended = session.show_lent(&item).and_then(|()| session.ending(&item, None));
                session.release(item);
                if let Err(error) = ended {
                    failure = Some(error);
                    break;
                }
                done += 1;
            }
            done
        };
        for ((inputs, slots), outputs) in batch.into_iter().zip(outputs).take(done) {
            observe_launch(&self.id, config, || {
                let bytes = record_of(&inputs, &[]).input_bytes;
                Ok(((), write_slots(bytes, outputs, slots)))
            })?;
        }
        failure.map_or(Ok(()), Err)
    }

    fn launch_item<'m>(
        &self,
        session: &Session<'_>,
        memory: Vec<Given<'m>>,
        launch: &Launch,
    ) -> Result<Launched<'m>, BackendError> {
        let mut launched = session.launch(&self.bound, memory, launch, None)?;
        session.collect(&mut launched)?;
        Ok(launched)
    }
}
