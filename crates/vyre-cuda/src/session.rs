//! One call on a device: fills memory, launches the kernel and waits for it.
//!
//! A [`Session`] has exclusive use of a stream, two events, a range of device memory and a range of
//! pinned memory; idle sessions are pooled. Inputs are copied to pinned memory and from there by
//! the device, and outputs take the reverse path, so that a failed call leaves the caller's memory
//! unchanged and the device never accesses it. Only calls too large for that ([`MOST_PINNED`]) copy
//! directly from the caller's memory, and back after the kernels have ended.
//!
//! **Graphs.** A call that enqueues the same work as one of the last few on this session (the same
//! code, sizes, values and addresses) is captured as a graph. Later repetitions launch that graph
//! with a single driver call, however many batch items or sequence steps they have.
//!
//! **Deadlines.** A call with a deadline runs in slices of its grid, and no slice starts once the
//! time is up. A running kernel polls its control words, which the host then writes through another
//! stream. A device that still does not stop within [`GRACE`] is lost.

use crate::api::{Driver, Handle};
use crate::backend::CudaDevice;
use crate::code::{Compiled, Function};
use crate::context::{Context, NOT_READY};
use crate::layout::{CONTROL_BYTES, Layout};
use crate::memory::{DeviceMemory, Pinned};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::BackendError;
use vyre_driver::native::{BoundArgument, Failed, Job, Memory, Variant};
use vyre_foundation::emit::{EntryArgument, STOPPED, TRAPPED};
use vyre_foundation::launch::Launch;

/// Calls that move more bytes than this copy directly from the caller's memory: pinned memory
/// cannot be swapped out, and each session has its own. Not measured: `cuda` has never run on a
/// device. This holds for the sizes and times below as well.
const MOST_PINNED: usize = 64 << 20;
/// Calls up to this size are copied to pinned memory in one piece before the device starts; larger
/// ones are pipelined in pieces of this size.
const PIECE: usize = 4 << 20;
/// Maximum device memory that an idle session keeps: four calls of the size up to which memory is
/// pinned.
const MOST_KEPT: usize = 256 << 20;
/// Workgroups per slice of a call with a deadline. A device runs through that many quickly when
/// each ends at its start.
const SLICE: u64 = 1 << 16;
/// Number of calls that a session remembers to detect repetition: each can keep a graph, and a loop
/// repeats few calls.
const MOST_RECENT: usize = 4;
/// How long a kernel has to end after it was asked to stop: it polls in its loops, so that a second
/// would be long.
const GRACE: Duration = Duration::from_secs(10);
/// `CU_STREAM_NON_BLOCKING`, `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const NON_BLOCKING: u32 = 1;
const THREAD_LOCAL: i32 = 1;

/// Resources for one call at a time.
pub(crate) struct Session {
    context: Arc<Context>,
    stream: Handle,
    events: [Handle; 2],
    memory: Option<DeviceMemory>,
    pinned: Option<Pinned>,
    /// Recent calls, newest first, and the graphs of those that were repeated.
    recent: Vec<(Recorded, Option<Handle>)>,
}

// SAFETY: any thread can use these handles, and only the session's holder does.
unsafe impl Send for Session {}

/// The work that a call enqueues on its stream.
#[derive(PartialEq, Eq)]
struct Recorded {
    copy_in: usize,
    work: Vec<DeviceWork>,
    copy_out: (usize, usize),
}

/// Work that the device does between the copies, in order.
#[derive(PartialEq, Eq)]
enum DeviceWork {
    /// Zeroes a range: address and length in bytes.
    Fill(u64, usize),
    Launch(Launched),
}

impl Recorded {
    fn launches(&self) -> usize {
        self.work.iter().filter(|work| matches!(work, DeviceWork::Launch(_))).count()
    }
}

/// A launch of a kernel.
#[derive(Clone, PartialEq, Eq)]
struct Launched {
    code: u64,
    function: Function,
    groups: [u32; 3],
    workgroup: [u32; 3],
    parameters: Vec<u64>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// Runs one dispatch to completion.
pub(crate) fn run(cuda: &CudaDevice, job: Job<'_, '_, CudaDevice>) -> Result<Option<Duration>, BackendError> {
    let deadline = job.config.timeout.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
    let timed = job.timed;
    SessionCall { cuda, deadline, timed }.run(vec![job]).map_err(|failed| failed.error)
}

/// Runs batch items, or sequence steps, in one call.
pub(crate) fn run_all(cuda: &CudaDevice, jobs: Vec<Job<'_, '_, CudaDevice>>) -> Result<(), Failed> {
    SessionCall { cuda, deadline: None, timed: false }.run(jobs).map(drop)
}

/// An item of a call: its code and its launch.
#[derive(Clone, Copy)]
struct Item<'a> {
    variant: &'a Variant<Compiled>,
    launch: &'a Launch,
}

/// One call with one or more items. Only a single item can have a deadline or be timed.
struct SessionCall<'a> {
    cuda: &'a CudaDevice,
    deadline: Option<(Instant, Duration)>,
    timed: bool,
}

impl SessionCall<'_> {
    fn run(&self, jobs: Vec<Job<'_, '_, CudaDevice>>) -> Result<Option<Duration>, Failed> {
        let begun = |error| Failed { done: 0, error };
        if jobs.is_empty() {
            return Ok(None);
        }
        let context = &self.cuda.context;
        let _current = context.enter().map_err(begun)?;
        let mut layout = Layout::default();
        let mut items = Vec::with_capacity(jobs.len());
        for Job { variant, launch, arguments, .. } in jobs {
            debug_assert!(variant.code.is_of(context));
            let values = self.values(&variant.code, arguments).map_err(begun)?;
            let value = |bound: &BoundArgument<'_, DeviceMemory>| {
                values.iter().find(|(id, _)| *id == bound.buffer).map_or(0, |(_, value)| *value)
            };
            layout.add(&variant.code.arguments, arguments, value);
            items.push(Item { variant, launch });
        }
        let mut session = self.cuda.take_session(layout.bytes()).map_err(begun)?;
        let ran = self.in_session(&mut session, &mut layout, &items);
        match &ran {
            // A session whose stream might still be running is leaked, with its memory.
            Err(failed) if matches!(failed.error, BackendError::DeviceLost { .. }) => {
                std::mem::forget(session)
            }
            Ok(_) | Err(_) => self.cuda.put_session(session),
        }
        ran
    }

    /// Elements of uniform buffers that are passed as kernel parameters.
    fn values(
        &self,
        code: &Compiled,
        bound: &[BoundArgument<'_, DeviceMemory>],
    ) -> Result<Vec<(vyre_foundation::kernel::BufferId, u64)>, BackendError> {
        let by_value =
            bound.iter().filter(|bound| code.arguments.contains(&EntryArgument::Value(bound.buffer)));
        let mut values = Vec::new();
        for bound in by_value {
            let mut value = [0; 8];
            let length = bound.bytes.min(8);
            match &bound.memory {
                Memory::Read(bytes) => value[..length].copy_from_slice(&bytes[..length]),
                Memory::Write(bytes) => value[..length].copy_from_slice(&bytes[..length]),
                Memory::Resident(resident) => self.cuda.read_memory(resident, 0, &mut value[..length])?,
                Memory::ResidentMut(resident) => self.cuda.read_memory(resident, 0, &mut value[..length])?,
            }
            values.push((bound.buffer, u64::from_le_bytes(value)));
        }
        Ok(values)
    }

    fn in_session(
        &self,
        session: &mut Session,
        layout: &mut Layout<'_>,
        items: &[Item<'_>],
    ) -> Result<Option<Duration>, Failed> {
        let begun = |error| Failed { done: 0, error };
        let base = session.memory.as_ref().map_or(0, |memory| memory.pointer);
        let (copy_in, copy_out) = (layout.copied_in(), layout.copied_out());
        let recorded = Recorded {
            copy_in: copy_in.len(),
            work: self.work(layout, items, base),
            copy_out: (copy_out.start, copy_out.len()),
        };
        let small = layout.bytes() <= PIECE;
        let device = match small && self.is_plain(&recorded) {
            true => self.run_recorded(session, layout, recorded).map(|()| None),
            false => self.run_by_parts(session, layout, &recorded),
        };
        let device = device.map_err(begun)?;
        self.finish(session, items, layout)?;
        Ok(device)
    }

    /// Whether nothing has to happen between the launches.
    fn is_plain(&self, recorded: &Recorded) -> bool {
        !self.timed && (self.deadline.is_none() || recorded.launches() == 1)
    }

    /// Work of all items. A folded launch is split at the device's axis limit, and into slices if
    /// there is a deadline.
    fn work(&self, layout: &Layout<'_>, items: &[Item<'_>], base: u64) -> Vec<DeviceWork> {
        let longest = self.cuda.context.device.most_groups[0];
        let mut all = Vec::new();
        for (item, Item { variant, launch }) in items.iter().enumerate() {
            all.extend(layout.fills(item, base).map(|(pointer, bytes)| DeviceWork::Fill(pointer, bytes)));
            let Compiled { function, arguments, number, .. } = &variant.code;
            if launch.grid.contains(&0) {
                continue;
            }
            let parameters = |first: u64| {
                let parameter = |argument: &EntryArgument| match *argument {
                    EntryArgument::Control => base + layout.control(item).unwrap_or(0) as u64,
                    EntryArgument::Memory(id) | EntryArgument::Value(id) => layout.argument(item, id, base),
                    EntryArgument::Length(id) => launch.lengths[id.index()].into(),
                    EntryArgument::Last(axis) => {
                        let last = |limit: [u32; 3]| limit[usize::from(axis)].wrapping_sub(1);
                        launch.limit.map_or(u32::MAX, last).into()
                    }
                    EntryArgument::FirstGroup => first,
                    EntryArgument::Grid(axis) => launch.grid[usize::from(axis)].into(),
                };
                arguments.iter().map(parameter).collect()
            };
            let one = |groups, first| {
                DeviceWork::Launch(Launched {
                    code: *number,
                    function: *function,
                    groups,
                    workgroup: launch.workgroup,
                    parameters: parameters(first),
                })
            };
            if !variant.form.folded {
                all.push(one(launch.grid, 0));
                continue;
            }
            let groups: u64 = launch.grid.iter().map(|axis| u64::from(*axis)).product();
            let slice = if self.deadline.is_some() { SLICE.min(longest) } else { longest };
            for first in (0..groups).step_by(usize::try_from(slice).unwrap_or(usize::MAX)) {
                let count = u32::try_from(slice.min(groups - first)).unwrap_or(u32::MAX);
                all.push(one([count, 1, 1], first));
            }
        }
        all
    }

    /// Runs a call that fits one piece of pinned memory, as a graph if it repeats an earlier one.
    fn run_recorded(
        &self,
        session: &mut Session,
        layout: &Layout<'_>,
        recorded: Recorded,
    ) -> Result<(), BackendError> {
        if let Some(pinned) = &mut session.pinned {
            let bytes = pinned.slice();
            layout.sources().for_each(|(at, source)| bytes[at..at + source.len()].copy_from_slice(source));
        }
        let put = match (session.graph_of(recorded)?, session.api().graph_launch) {
            (Some(graph), Some(launch)) => {
                // SAFETY: the graph was captured from the same work on this stream; everything it
                // references is alive.
                let launched = unsafe { launch(graph, session.stream) };
                self.cuda.context.check(launched, "launching a graph")
            }
            _ => session.recent.first().map_or(Ok(()), |(recorded, _)| session.put(recorded)),
        };
        // Work enqueued before a failure is still running.
        self.wait(session, layout.control(0)).and(put)
    }

    /// Runs a call that is large, timed, or sliced.
    fn run_by_parts(
        &self,
        session: &mut Session,
        layout: &mut Layout<'_>,
        recorded: &Recorded,
    ) -> Result<Option<Duration>, BackendError> {
        session.copy_in_pieces(layout)?;
        let (mut late, sliced) = (false, self.deadline.is_some() && recorded.launches() > 1);
        // Buffers are cleared before the kernel's timing starts.
        let first = recorded.work.iter().position(|work| matches!(work, DeviceWork::Launch(_)));
        for (number, work) in recorded.work.iter().enumerate() {
            if self.deadline.is_some_and(|(end, _)| Instant::now() >= end) {
                late = true;
                break;
            }
            if self.timed && first == Some(number) {
                session.record(0)?;
            }
            session.work(work)?;
            if sliced {
                self.wait(session, layout.control(0))?;
            }
        }
        if self.timed {
            session.record(1)?;
        }
        self.wait(session, layout.control(0))?;
        if let (true, Some((_, limit))) = (late, self.deadline) {
            return Err(BackendError::Timeout { backend: self.cuda.context.id.into(), limit });
        }
        let device = if self.timed && first.is_some() { session.elapsed() } else { None };
        session.copy_out(recorded.copy_out)?;
        Ok(device)
    }

    /// Waits for the stream; stops the kernel when the time is up.
    fn wait(&self, session: &Session, control: Option<usize>) -> Result<(), BackendError> {
        let Some((end, _)) = self.deadline else { return session.wait() };
        if session.waits_until(end)? {
            return Ok(());
        }
        if let (Some(control), Some(memory)) = (control, &session.memory) {
            self.cuda.stop(memory.pointer + control as u64)?;
        }
        if session.waits_until(Instant::now() + GRACE)? {
            return Ok(());
        }
        let message = format!("a kernel did not stop within {GRACE:?} of being asked to");
        Err(self.cuda.context.lose(message))
    }

    /// Checks how each item ended, and copies the results of completed items to the caller.
    fn finish(
        &self,
        session: &mut Session,
        items: &[Item<'_>],
        layout: &mut Layout<'_>,
    ) -> Result<(), Failed> {
        let mut ending = Ok(());
        let mut done = 0;
        for (item, Item { variant, .. }) in items.iter().enumerate() {
            let words = match layout.control(item) {
                None => [0; CONTROL_BYTES],
                Some(at) => session.words(at).map_err(|error| Failed { done: 0, error })?,
            };
            let word = |k: usize| u32::from_le_bytes([words[k], words[k + 1], words[k + 2], words[k + 3]]);
            let error = match word(0) {
                TRAPPED => {
                    BackendError::Trapped { kernel: variant.kernel.display_name().to_string(), code: word(4) }
                }
                STOPPED => BackendError::Timeout {
                    backend: self.cuda.context.id.into(),
                    limit: self.deadline.map_or(Duration::ZERO, |(_, limit)| limit),
                },
                _ => {
                    done += 1;
                    continue;
                }
            };
            ending = Err(Failed { done, error });
            break;
        }
        session.give(layout, done).map_err(|error| Failed { done: 0, error })?;
        ending
    }
}

impl Session {
    /// A new session without memory. The context must be current.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Session, BackendError> {
        let none = std::ptr::null_mut();
        let mut session = Session {
            context: context.clone(),
            stream: none,
            events: [none; 2],
            memory: None,
            pinned: None,
            recent: Vec::new(),
        };
        let api = &context.device.driver.api;
        // SAFETY: the functions write handles; `Drop` destroys them.
        let made = unsafe { (api.stream_create)(&mut session.stream, NON_BLOCKING) };
        context.check(made, "making a stream")?;
        for event in &mut session.events {
            // SAFETY: as above.
            let made = unsafe { (api.event_create)(event, 0) };
            context.check(made, "creating an event")?;
        }
        Ok(session)
    }

    fn api(&self) -> &'static Driver {
        &self.context.device.driver.api
    }

    /// Size of the device memory.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.bytes)
    }

    /// Ensures that there is enough memory for `bytes`. Memory that is too small is dropped first.
    pub(crate) fn fit(&mut self, bytes: usize) -> Result<(), BackendError> {
        if bytes > self.bytes() {
            self.empty();
            let size = if bytes <= MOST_KEPT { bytes.next_power_of_two() } else { bytes };
            self.memory = Some(DeviceMemory::on_stream(&self.context, size, self.stream)?);
        }
        if bytes > MOST_PINNED {
            self.forget();
            self.pinned = None;
        } else if bytes > self.pinned.as_ref().map_or(0, Pinned::bytes) {
            self.forget();
            self.pinned = None;
            self.pinned = Some(Pinned::new(&self.context, bytes.next_power_of_two())?);
        }
        Ok(())
    }

    /// Frees the session's memory.
    pub(crate) fn empty(&mut self) {
        self.forget();
        self.memory = None;
        self.pinned = None;
    }

    /// Trims the session before it is pooled.
    pub(crate) fn rest(&mut self) {
        if self.bytes() > MOST_KEPT {
            self.empty();
        }
    }

    /// Forgets the recorded calls, whose memory is about to be freed.
    fn forget(&mut self) {
        while let Some((_, graph)) = self.recent.pop() {
            self.destroy(graph);
        }
    }

    fn destroy(&self, graph: Option<Handle>) {
        if let (Some(graph), Some(destroy)) = (graph, self.api().graph_exec_destroy) {
            // SAFETY: created by `captured`; none of its launches is running.
            let _ = unsafe { destroy(graph) };
        }
    }

    /// The graph of a repeated call, which becomes the most recent one.
    fn graph_of(&mut self, recorded: Recorded) -> Result<Option<Handle>, BackendError> {
        let Some(at) = self.recent.iter().position(|(recent, _)| *recent == recorded) else {
            if self.recent.len() == MOST_RECENT
                && let Some((_, graph)) = self.recent.pop()
            {
                self.destroy(graph);
            }
            self.recent.insert(0, (recorded, None));
            return Ok(None);
        };
        self.recent[..=at].rotate_right(1);
        if self.recent[0].1.is_none() {
            self.recent[0].1 = self.captured(&recorded)?;
        }
        Ok(self.recent[0].1)
    }

    pub(crate) fn wait(&self) -> Result<(), BackendError> {
        // SAFETY: the stream is alive.
        let waited = unsafe { (self.api().stream_wait)(self.stream) };
        self.context.check(waited, "running the kernel")
    }

    /// Waits for the stream until `end`; returns whether it is done.
    fn waits_until(&self, end: Instant) -> Result<bool, BackendError> {
        let mut rounds = 0;
        loop {
            // SAFETY: the stream is alive.
            match unsafe { (self.api().stream_query)(self.stream) } {
                NOT_READY => {}
                code => return self.context.check(code, "running the kernel").map(|()| true),
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            rounds += 1;
            match rounds {
                0..200 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Enqueues a call on the stream.
    fn put(&self, recorded: &Recorded) -> Result<(), BackendError> {
        let (Some(memory), Some(pinned)) = (&self.memory, &self.pinned) else {
            return recorded.work.iter().try_for_each(|work| self.work(work));
        };
        if recorded.copy_in > 0 {
            // SAFETY: both ranges are that long and stay alive until the session has waited for its
            // stream.
            let copied = unsafe {
                (self.api().copy_in)(memory.pointer, pinned.as_ptr().cast(), recorded.copy_in, self.stream)
            };
            self.context.check(copied, "copying to the device")?;
        }
        recorded.work.iter().try_for_each(|work| self.work(work))?;
        let (at, bytes) = recorded.copy_out;
        if bytes > 0 {
            // SAFETY: as above, and the range is within both.
            let copied = unsafe {
                let (to, from) = (pinned.as_ptr().add(at), memory.pointer + at as u64);
                (self.api().copy_out)(to.cast(), from, bytes, self.stream)
            };
            self.context.check(copied, "copying from the device")?;
        }
        Ok(())
    }

    /// Captures a call as a graph; `None` if the driver has no graphs.
    fn captured(&self, recorded: &Recorded) -> Result<Option<Handle>, BackendError> {
        let api = self.api();
        let (Some(begin), Some(end), Some(instantiate), Some(destroy), Some(_), Some(_)) = (
            api.capture_begin,
            api.capture_end,
            api.graph_instantiate,
            api.graph_destroy,
            api.graph_launch,
            api.graph_exec_destroy,
        ) else {
            return Ok(None);
        };
        // SAFETY: the stream is alive and idle; the graph is destroyed here, and the executable
        // graph by `Session::destroy`.
        unsafe {
            self.context.check(begin(self.stream, THREAD_LOCAL), "capturing a graph")?;
            let put = self.put(recorded);
            let mut graph = std::ptr::null_mut();
            let ended = end(self.stream, &mut graph);
            put?;
            self.context.check(ended, "capturing a graph")?;
            let mut made = std::ptr::null_mut();
            let code = instantiate(&mut made, graph, 0);
            let _ = destroy(graph);
            self.context.check(code, "making a graph")?;
            Ok(Some(made))
        }
    }

    fn work(&self, work: &DeviceWork) -> Result<(), BackendError> {
        match work {
            DeviceWork::Fill(pointer, bytes) => self.fill(*pointer, *bytes),
            DeviceWork::Launch(launch) => self.launch(launch),
        }
    }

    fn fill(&self, pointer: u64, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: the range is within memory of this call.
        let filled = unsafe { (self.api().fill)(pointer, 0, bytes, self.stream) };
        self.context.check(filled, "clearing a buffer")
    }

    fn launch(&self, launch: &Launched) -> Result<(), BackendError> {
        let mut values = launch.parameters.clone();
        let mut parameters: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let ([x, y, z], [i, j, k]) = (launch.groups, launch.workgroup);
        // SAFETY: there are as many parameters as the function takes, each at least as long, and
        // the call copies them; the memory they refer to stays alive until the session has waited.
        // The emitted kernel accesses it within the lengths passed to it.
        let launched = unsafe {
            let none = std::ptr::null_mut();
            (self.api().launch)(
                launch.function.0,
                x,
                y,
                z,
                i,
                j,
                k,
                0,
                self.stream,
                parameters.as_mut_ptr(),
                none,
            )
        };
        self.context.check(launched, "launching the kernel")
    }

    /// Copies a call's inputs in pieces, so that the device copies one while the host prepares the
    /// next.
    fn copy_in_pieces(&mut self, layout: &Layout<'_>) -> Result<(), BackendError> {
        let (api, stream, context) = (self.api(), self.stream, self.context.clone());
        let Some(memory) = &self.memory else { return Ok(()) };
        for (at, source) in layout.sources() {
            for (k, piece) in source.chunks(PIECE).enumerate() {
                let at = at + k * PIECE;
                let from = match &mut self.pinned {
                    None => piece.as_ptr(),
                    Some(pinned) => {
                        // Only earlier pinned bytes are being copied.
                        let place = pinned.as_ptr().wrapping_add(at);
                        // SAFETY: the layout is within the pinned memory, and no copy of these
                        // bytes is running.
                        unsafe { place.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
                        place.cast_const()
                    }
                };
                // SAFETY: both ranges are that long, and stay alive until the session has waited
                // for its stream.
                let copied =
                    unsafe { (api.copy_in)(memory.pointer + at as u64, from.cast(), piece.len(), stream) };
                context.check(copied, "copying to the device")?;
            }
        }
        // The caller's memory is no longer in use once this returns.
        if self.pinned.is_none() { self.wait() } else { Ok(()) }
    }

    /// Copies a call's outputs to pinned memory; without pinned memory, `give` copies them itself.
    fn copy_out(&self, (at, bytes): (usize, usize)) -> Result<(), BackendError> {
        let (Some(memory), Some(pinned)) = (&self.memory, &self.pinned) else { return Ok(()) };
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range is within both, and both stay alive until the session has waited.
        let copied = unsafe {
            let (to, from) = (pinned.as_ptr().add(at), memory.pointer + at as u64);
            (self.api().copy_out)(to.cast(), from, bytes, self.stream)
        };
        self.context.check(copied, "copying from the device")?;
        self.wait()
    }

    /// Control words at an offset.
    fn words(&mut self, at: usize) -> Result<[u8; CONTROL_BYTES], BackendError> {
        let mut words = [0; CONTROL_BYTES];
        match &mut self.pinned {
            Some(pinned) => words.copy_from_slice(&pinned.slice()[at..at + CONTROL_BYTES]),
            None => self.read(at, &mut words)?,
        }
        Ok(words)
    }

    /// Copies the results of the first items to the caller.
    fn give(&mut self, layout: &mut Layout<'_>, items: usize) -> Result<(), BackendError> {
        if let Some(pinned) = &mut self.pinned {
            let bytes = pinned.slice();
            layout
                .targets(items)
                .for_each(|(at, target)| target.copy_from_slice(&bytes[at..at + target.len()]));
            return Ok(());
        }
        for (at, target) in layout.targets(items) {
            self.read(at, target)?;
        }
        Ok(())
    }

    fn read(&self, at: usize, target: &mut [u8]) -> Result<(), BackendError> {
        let base = self.memory.as_ref().map_or(0, |memory| memory.pointer);
        self.copy_from(base + at as u64, target)
    }

    /// Copies from the device and waits for the copy.
    pub(crate) fn copy_from(&self, from: u64, target: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: the caller's range is within live memory, and the slice is not used before the
        // wait.
        let copied =
            unsafe { (self.api().copy_out)(target.as_mut_ptr().cast(), from, target.len(), self.stream) };
        // The copy can be running even if the call failed.
        self.wait().and(self.context.check(copied, "copying from the device"))
    }

    /// Copies to the device and waits for the copy.
    pub(crate) fn copy_to(&self, to: u64, source: &[u8]) -> Result<(), BackendError> {
        // SAFETY: as above.
        let copied = unsafe { (self.api().copy_in)(to, source.as_ptr().cast(), source.len(), self.stream) };
        self.wait().and(self.context.check(copied, "copying to the device"))
    }

    /// Zeroes device memory and waits for completion.
    pub(crate) fn clear(&self, pointer: u64, bytes: usize) -> Result<(), BackendError> {
        self.fill(pointer, bytes)?;
        self.wait()
    }

    fn record(&self, event: usize) -> Result<(), BackendError> {
        // SAFETY: both are alive.
        let recorded = unsafe { (self.api().event_record)(self.events[event], self.stream) };
        self.context.check(recorded, "taking a time")
    }

    /// Time between the two events.
    fn elapsed(&self) -> Option<Duration> {
        let mut milliseconds = 0.0;
        // SAFETY: both were recorded, and the stream has been waited for.
        let asked = unsafe { (self.api().event_elapsed)(&mut milliseconds, self.events[0], self.events[1]) };
        (asked == 0 && milliseconds >= 0.0).then(|| Duration::from_secs_f64(f64::from(milliseconds) / 1e3))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let context = self.context.clone();
        let Ok(_current) = context.enter() else { return };
        self.empty();
        let api = self.api();
        // SAFETY: created by `new` and not shared. Work running on the stream continues without it.
        unsafe {
            for event in self.events.into_iter().filter(|event| !event.is_null()) {
                let _ = (api.event_destroy)(event);
            }
            if !self.stream.is_null() {
                let _ = (api.stream_destroy)(self.stream);
            }
        }
    }
}
