//! `print` and `assert` in programs, on any backend.
//!
//! A backend never sees a `print` or `assert`: it gets the program produced by [`lower`], which
//! writes to one additional buffer. [`Speaking`] supplies that buffer and removes it again, so
//! inputs and outputs are those of the program, and even a backend that implements only `id` and
//! `dispatch` can print.
//!
//! **Recipients.** The prints of a dispatch go to the [listener](listen) of its thread if there is
//! one, otherwise to `tracing` (target `vyre::print`, level info). Runs that vyre makes itself, to
//! verify or measure, are made [quietly].
//!
//! **Capacity.** The buffer initially holds [`FIRST_RECORDS`] messages. If there were more, the
//! dispatch is repeated with room for all of them, up to [`MOST_BYTES`], provided that a repetition
//! gives the same results: its inputs are unchanged, or no buffer is both read and written, or the
//! caller allows fallback, for which memory is copied. Otherwise the kept messages are reported as
//! incomplete.

use crate::dispatch::{byte_count, plain_record};
use crate::observability::observe_launch;
use crate::pipeline::make_silent;
use crate::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, Fallback, OutputBuffers, Resource, TimedOutputs,
    VyreBackend,
};
use std::cell::RefCell;
use std::sync::{Arc, PoisonError, RwLock};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::launch::Launch;
pub use vyre_foundation::messages::Message;
use vyre_foundation::messages::{Lowered, Messages, WantedMessages, lower};

/// Initial capacity for the messages of a dispatch: 16 KiB without operands, 144 KiB with 16
/// operands of 64 bits. Chosen so that clearing and reading the buffer stays cheap; dispatches with
/// more messages are repeated.
pub const FIRST_RECORDS: u32 = 1024;
/// Maximum size of the messages of a dispatch, in bytes: a bound on what a kernel that prints in
/// every invocation can occupy. It holds four million messages without operands, or 466,000 of the
/// longest.
pub const MOST_BYTES: usize = 64 << 20;

/// The prints of dispatches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prints {
    /// The messages, ordered by dispatch, then by invocation (`z`, then `y`, then `x`), and within
    /// one invocation in print order.
    pub messages: Vec<Message>,
    /// Whether the messages are complete; false if there was no room for more and the dispatch
    /// could not be repeated.
    pub complete: bool,
}

impl Default for Prints {
    fn default() -> Prints {
        Prints { messages: Vec::new(), complete: true }
    }
}

impl Prints {
    /// Sends them to `tracing`.
    pub fn trace(&self) {
        for Message { text, invocation: [x, y, z], .. } in &self.messages {
            tracing::info!(target: "vyre::print", x, y, z, "{text}");
        }
        if !self.complete {
            let kept = self.messages.len();
            tracing::warn!(target: "vyre::print", "only {kept} messages were kept; there were more");
        }
    }
}

enum Audience {
    Trace,
    Nobody,
    Listener(Prints),
}

thread_local! {
    static AUDIENCE: RefCell<Audience> = const { RefCell::new(Audience::Trace) };
}

/// Restores the previous audience, however the run ends.
struct Before(Option<Audience>);

impl Before {
    fn replaced_by(audience: Audience) -> Before {
        Before(Some(AUDIENCE.replace(audience)))
    }

    fn put_back(&mut self) -> Option<Audience> {
        self.0.take().map(|before| AUDIENCE.replace(before))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Runs a closure, and returns what dispatches on this thread printed during it.
///
/// ```
/// let (sum, prints) = vyre_driver::messages::listen(|| 2 + 2);
/// assert_eq!((sum, prints.messages.len()), (4, 0));
/// ```
pub fn listen<T>(run: impl FnOnce() -> T) -> (T, Prints) {
    let mut before = Before::replaced_by(Audience::Listener(Prints::default()));
    let outcome = run();
    match before.put_back() {
        Some(Audience::Listener(prints)) => (outcome, prints),
        Some(Audience::Trace | Audience::Nobody) | None => (outcome, Prints::default()),
    }
}

/// Runs a closure with prints discarded and asserts ignored.
pub fn quietly<T>(run: impl FnOnce() -> T) -> T {
    let _before = Before::replaced_by(Audience::Nobody);
    run()
}

/// Forwards prints captured on another thread to the audience of this one.
pub fn pass_on(prints: Prints) {
    AUDIENCE.with_borrow_mut(|audience| match audience {
        Audience::Trace => prints.trace(),
        Audience::Nobody => {}
        Audience::Listener(heard) => {
            heard.complete &= prints.complete;
            heard.messages.extend(prints.messages);
        }
    });
}

/// Discards what the listener of this thread has received, for a dispatch whose results are
/// dropped.
pub fn forget() {
    AUDIENCE.with_borrow_mut(|audience| {
        if let Audience::Listener(heard) = audience {
            *heard = Prints::default();
        }
    });
}

fn is_quiet() -> bool {
    AUDIENCE.with_borrow(|audience| matches!(audience, Audience::Nobody))
}

/// Reports messages to the audience, for callers that run the output of [`lower`] themselves.
/// Returns an error if an assert failed.
pub fn tell(kernel: &str, said: Messages) -> Result<(), BackendError> {
    let complete = said.is_complete();
    let (asserts, messages): (Vec<Message>, Vec<Message>) =
        said.messages.into_iter().partition(|message| message.is_assert);
    pass_on(Prints { messages, complete });
    if said.failed == 0 {
        return Ok(());
    }
    let first = asserts.into_iter().next();
    Err(BackendError::AssertFailed {
        kernel: kernel.into(),
        message: first.as_ref().map_or_else(String::new, |first| first.text.clone()),
        at: first.as_ref().and_then(|first| first.at),
        invocation: first.map_or([0; 3], |first| first.invocation),
        failed: said.failed,
    })
}

/// A pipeline of a program with messages.
pub(crate) struct Speaking {
    backend: Arc<dyn VyreBackend>,
    program: Program,
    config: DispatchConfig,
    kernel: String,
    id: String,
    /// Whether repeating an in-place dispatch gives the same results: no buffer is both read and
    /// written.
    is_repeatable: bool,
    code: RwLock<Arc<MessageCode>>,
}

/// The program with a given capacity for messages.
struct MessageCode {
    lowered: Lowered,
    pipeline: Arc<dyn CompiledPipeline>,
    /// The positions of the message buffer among inputs, outputs and bindings.
    input: usize,
    output: usize,
    bound: usize,
}

impl Speaking {
    /// A pipeline that reports the messages of a program; `None` if it has none to report.
    pub(crate) fn new(
        backend: &Arc<dyn VyreBackend>,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Speaking>, BackendError> {
        let Some(code) = compiled(backend, program, config, FIRST_RECORDS)? else {
            return Ok(None);
        };
        let kernel = code.lowered.program.validate()?;
        let others = kernel.buffers.iter().take(kernel.buffers.len() - 1);
        let mut others = others.filter(|buffer| buffer.decl.access == Access::ReadWrite);
        let speaking = Speaking {
            backend: backend.clone(),
            program: program.clone(),
            config: config.clone(),
            kernel: kernel.display_name().to_string(),
            id: code.pipeline.id().to_string(),
            is_repeatable: others.all(|buffer| !(buffer.loaded && buffer.stored)),
            code: RwLock::new(Arc::new(code)),
        };
        Ok(Some(speaking))
    }

    /// Runs, and repeats with a larger buffer if that is necessary and gives the same results.
    /// `run` returns its outcome and the contents of the message buffer.
    fn speak<T>(
        &self,
        is_repeatable: bool,
        mut run: impl FnMut(&MessageCode) -> Result<(T, Vec<u8>), BackendError>,
    ) -> Result<T, BackendError> {
        let mut code = self.code.read().unwrap_or_else(PoisonError::into_inner).clone();
        loop {
            let (outcome, buffer) = run(&code)?;
            if is_quiet() {
                return Ok(outcome);
            }
            let said = code.lowered.said(&buffer);
            if !said.is_complete()
                && is_repeatable
                && let Some(larger) = self.larger(&code, said.count)
            {
                code = larger;
                continue;
            }
            tell(&self.kernel, said)?;
            return Ok(outcome);
        }
    }

    /// Code with capacity for `count` messages, or the maximum; `None` if that is no larger.
    fn larger(&self, code: &MessageCode, count: u32) -> Option<Arc<MessageCode>> {
        let device = self.backend.device_profile().max_storage_buffer_binding_size;
        let device = if device == 0 { u64::MAX } else { device };
        let most_bytes = usize::try_from(device).unwrap_or(usize::MAX).min(MOST_BYTES);
        let most = (most_bytes / code.lowered.record_bytes()).saturating_sub(1);
        let wanted = count.checked_next_power_of_two().unwrap_or(u32::MAX);
        let records = wanted.min(u32::try_from(most).unwrap_or(u32::MAX));
        if records <= code.lowered.records() {
            return None;
        }
        let larger = compiled(&self.backend, &self.program, &self.config, records).ok().flatten()?;
        let larger = Arc::new(larger);
        let mut kept = self.code.write().unwrap_or_else(PoisonError::into_inner);
        if kept.lowered.records() < records {
            *kept = larger.clone();
        }
        Some(larger)
    }
}

fn compiled(
    backend: &Arc<dyn VyreBackend>,
    program: &Program,
    config: &DispatchConfig,
    records: u32,
) -> Result<Option<MessageCode>, BackendError> {
    let wanted = WantedMessages { asserts: config.asserts.unwrap_or(true), records };
    let Some(lowered) = lower(program, wanted)? else { return Ok(None) };
    let pipeline = make_silent(backend, &lowered.program, &with_room(config, &lowered))?;
    let input = lowered.position(Access::is_input);
    let output = lowered.position(Access::is_output);
    let bound = lowered.position(|access| access != Access::Workgroup);
    Ok(Some(MessageCode { lowered, pipeline, input, output, bound }))
}

/// The configuration, with the message buffer allowed for in the output limit.
fn with_room(config: &DispatchConfig, lowered: &Lowered) -> DispatchConfig {
    let room = |limit: usize| limit.saturating_add(lowered.buffer().len());
    DispatchConfig { max_output_bytes: config.max_output_bytes.map(room), ..config.clone() }
}

impl MessageCode {
    /// Separates the program's outputs from the contents of the message buffer.
    fn split(&self, mut outputs: OutputBuffers) -> Result<(OutputBuffers, Vec<u8>), BackendError> {
        if self.output >= outputs.len() {
            let message = format!("there are {} outputs, and the messages are not among them", outputs.len());
            return Err(BackendError::DispatchFailed { backend: self.pipeline.id().into(), message });
        }
        let buffer = outputs.remove(self.output);
        Ok((outputs, buffer))
    }

    /// The inputs, including the message buffer.
    fn inputs<'a>(&self, inputs: &[&'a [u8]], buffer: &'a [u8]) -> Vec<&'a [u8]> {
        let mut all = inputs.to_vec();
        // If inputs are missing, the later check reports it.
        all.insert(self.input.min(all.len()), buffer);
        all
    }
}

impl CompiledPipeline for Speaking {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(&inputs, config)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        self.dispatch_timed(inputs, config).map(|timed| timed.outputs)
    }

    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let own = inputs.iter().all(|input| matches!(input, Resource::Borrowed(_)));
        self.speak(self.is_repeatable || own, |code| {
            let mut inputs = inputs.to_vec();
            inputs.insert(code.input.min(inputs.len()), Resource::Borrowed(code.lowered.buffer()));
            let config = with_room(config, &code.lowered);
            code.split(code.pipeline.dispatch_persistent_handles(&inputs, &config)?)
        })
    }

    fn dispatch_timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<TimedOutputs, BackendError> {
        observe_launch(&self.id, config, || {
            // Errors are reported in terms of the original program, without the message buffer.
            let kernel = self.program.validate()?;
            Launch::from_inputs(&kernel, inputs, config.over(&self.config).overrides())?;
            let timed = self.speak(true, |code| {
                let buffer = code.lowered.buffer();
                let config = with_room(config, &code.lowered);
                let mut timed = code.pipeline.dispatch_timed(&code.inputs(inputs, &buffer), &config)?;
                let (outputs, buffer) = code.split(std::mem::take(&mut timed.outputs))?;
                Ok((TimedOutputs { outputs, ..timed }, buffer))
            })?;
            let record = plain_record(byte_count(inputs), &timed.outputs);
            Ok((timed, record))
        })
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let is_saved = !self.is_repeatable
            && config.fallback.or(self.config.fallback) == Some(Fallback::Allow)
            && !bindings.iter().any(|binding| matches!(binding, Binding::Resident(_)));
        let saved = if is_saved { copies(bindings) } else { Vec::new() };
        let mut again = false;
        self.speak(self.is_repeatable || is_saved, |code| {
            if std::mem::replace(&mut again, true) {
                put_back(&saved, bindings);
            }
            let mut buffer = code.lowered.buffer();
            let mut all: Vec<Binding<'_>> = bindings.iter_mut().map(reborrowed).collect();
            all.insert(code.bound.min(all.len()), Binding::ReadWrite(&mut buffer));
            code.pipeline.dispatch_bound(&mut all, &with_room(config, &code.lowered))?;
            drop(all);
            Ok(((), buffer))
        })
    }
}

fn reborrowed<'a>(binding: &'a mut Binding<'_>) -> Binding<'a> {
    match binding {
        Binding::Read(bytes) => Binding::Read(bytes),
        Binding::ReadWrite(bytes) => Binding::ReadWrite(bytes),
        Binding::Write(bytes) => Binding::Write(bytes),
        Binding::Resident(handle) => Binding::Resident(*handle),
    }
}

/// Copies of the read_write memory, in order.
fn copies(bindings: &[Binding<'_>]) -> Vec<Vec<u8>> {
    let copy = |binding: &Binding<'_>| match binding {
        Binding::ReadWrite(bytes) => Some(bytes.to_vec()),
        Binding::Read(_) | Binding::Write(_) | Binding::Resident(_) => None,
    };
    bindings.iter().filter_map(copy).collect()
}

fn put_back(saved: &[Vec<u8>], bindings: &mut [Binding<'_>]) {
    let written = bindings.iter_mut().filter_map(|binding| match binding {
        Binding::ReadWrite(bytes) => Some(bytes),
        Binding::Read(_) | Binding::Write(_) | Binding::Resident(_) => None,
    });
    written.zip(saved).for_each(|(bytes, copy)| bytes.copy_from_slice(copy));
}
