//! Detects data races, out-of-range accesses, reads of workgroup memory that was never written, and
//! divergent barriers. It changes no result.
//!
//! A race is two accesses to one element by different invocations, at least one of them a write,
//! not both atomic, with no barrier between them; across workgroups no barrier helps. Writing the
//! same value twice is still a race. Every buffer has one element type, so tracking elements is
//! equivalent to tracking bytes.
//!
//! Shadow memory keeps few accesses of each kind (load, store, atomic) per element: two invocations
//! of the latest epoch (the time between two barriers) of the current workgroup, and one of any
//! earlier workgroup. That is enough to find a racing element: of two different invocations one
//! differs from any third, and workgroups run one after another, so an access by an earlier one
//! differs in its workgroup from all that follow.

use crate::code::FlatKernel;
use std::collections::{HashMap, HashSet};
use std::fmt;
use vyre_foundation::diagnostics::line_column;
use vyre_foundation::kernel::{BufferId, KernelBody, Place};

/// The kind of fault in a [`FaultReport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// Two unordered accesses to one element, at least one of them a write, not both atomic.
    Race,
    /// An access outside its buffer or array.
    OutOfRange,
    /// An access that the compiler wrongly proved in range: a compiler bug, not an error in the
    /// program.
    WrongProof,
    /// A load from workgroup memory that was not written since the workgroup started.
    Unwritten,
    /// Invocations of one workgroup wait at different places, or some have ended while others wait.
    Divergence,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultKind::Race => "data race",
            FaultKind::OutOfRange => "out-of-range access",
            FaultKind::WrongProof => "out-of-range access that was proved in range",
            FaultKind::Unwritten => "load of workgroup memory that was never written",
            FaultKind::Divergence => "divergent barrier or subgroup op",
        })
    }
}

/// What an invocation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Loaded an element.
    Load,
    /// Stored an element.
    Store,
    /// Updated an element atomically.
    Atomic,
    /// Loaded an element atomically.
    AtomicLoad,
    /// Waited for others.
    Wait,
    /// Had ended.
    End,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Load => "load",
            Action::Store => "store",
            Action::Atomic => "atomic",
            Action::AtomicLoad => "atomic load",
            Action::Wait => "wait",
            Action::End => "end",
        })
    }
}

/// One invocation's part in a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultAccess {
    /// What it did.
    pub action: Action,
    /// The invocation's id in the grid.
    pub invocation: [u32; 3],
    /// Line and column of the statement, both from 1, if the kernel was parsed from text.
    pub position: Option<(usize, usize)>,
    /// Index of the instruction in the flattened kernel; distinguishes statements when there is no
    /// text.
    pub instruction: usize,
}

impl fmt::Display for FaultAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.invocation;
        write!(f, "{} by invocation ({x}, {y}, {z}) ", self.action)?;
        match self.position {
            Some((line, column)) => write!(f, "at {line}:{column}"),
            None => write!(f, "at instruction {}", self.instruction),
        }
    }
}

/// A detected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// The kind of fault.
    pub fault: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// Name of the buffer or array and index of the element, if the fault concerns one.
    pub element: Option<(String, u32)>,
    /// The access that revealed the fault.
    pub access: FaultAccess,
    /// The earlier access that it conflicts with.
    pub other: Option<FaultAccess>,
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in kernel `{}`: ", self.fault, self.kernel)?;
        if let Some((name, index)) = &self.element {
            write!(f, "`{name}[{index}]`, ")?;
        }
        write!(f, "{}", self.access)?;
        match &self.other {
            Some(other) => write!(f, ", against {other}"),
            None => Ok(()),
        }
    }
}

/// Limit on reports per kind of fault in one run; further ones are dropped: more than a person
/// reads at once.
const MAX_REPORTS: usize = 64;

/// One access as recorded in shadow memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedAccess {
    pub(crate) action: Action,
    /// Index of the workgroup in the grid.
    pub(crate) group: u64,
    /// Barriers that the workgroup has passed.
    pub(crate) epoch: u32,
    pub(crate) invocation: [u32; 3],
    pub(crate) instruction: usize,
}

impl RecordedAccess {
    /// Whether no barrier or program order separates the two.
    fn is_unordered_with(&self, other: &RecordedAccess) -> bool {
        self.group != other.group || (self.epoch == other.epoch && self.invocation != other.invocation)
    }
}

/// The element accessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessTarget {
    pub(crate) place: Place,
    pub(crate) index: u32,
    /// Whether the compiler claims that the index is in range.
    pub(crate) in_bounds: bool,
}

/// Recorded accesses of one kind to an element.
#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    /// From a workgroup that ran before that of `latest`.
    earlier: Option<RecordedAccess>,
    /// From one workgroup and epoch, by two invocations.
    latest: [Option<RecordedAccess>; 2],
}

impl Remembered {
    fn conflict(&self, touch: &RecordedAccess) -> Option<RecordedAccess> {
        self.latest.into_iter().chain([self.earlier]).flatten().find(|old| old.is_unordered_with(touch))
    }

    fn remember(&mut self, touch: RecordedAccess) {
        match self.latest {
            [Some(first), _] if first.group != touch.group => {
                *self = Remembered { earlier: Some(first), latest: [Some(touch), None] };
            }
            [Some(first), None] if first.epoch == touch.epoch => {
                if first.invocation != touch.invocation {
                    self.latest[1] = Some(touch);
                }
            }
            [Some(first), Some(_)] if first.epoch == touch.epoch => {}
            _ => self.latest = [Some(touch), None],
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    loads: Remembered,
    stores: Remembered,
    atomics: Remembered,
    atomic_loads: Remembered,
}

impl Shadow {
    fn conflict(&self, touch: &RecordedAccess) -> Option<RecordedAccess> {
        let against: &[&Remembered] = match touch.action {
            Action::Load => &[&self.stores, &self.atomics],
            Action::Store => &[&self.stores, &self.atomics, &self.atomic_loads, &self.loads],
            Action::Atomic => &[&self.stores, &self.loads],
            Action::AtomicLoad => &[&self.stores],
            Action::Wait | Action::End => &[],
        };
        against.iter().find_map(|remembered| remembered.conflict(touch))
    }

    fn remember(&mut self, touch: RecordedAccess) {
        match touch.action {
            Action::Load => self.loads.remember(touch),
            Action::Store => self.stores.remember(touch),
            Action::Atomic => self.atomics.remember(touch),
            Action::AtomicLoad => self.atomic_loads.remember(touch),
            Action::Wait | Action::End => {}
        }
    }

    fn is_written(&self) -> bool {
        self.stores.latest[0].is_some() || self.atomics.latest[0].is_some()
    }
}

/// Shadow memory per accessed element, in bytes.
const SHADOW_BYTES: u64 = (size_of::<Shadow>() + size_of::<(u32, u32)>()) as u64;

/// Watches one run.
#[derive(Debug)]
pub(crate) struct Sanitizer<'a> {
    kernel: &'a KernelBody,
    code: &'a FlatKernel,
    storage: HashMap<(BufferId, u32), Shadow>,
    workgroup: HashMap<(BufferId, u32), Shadow>,
    /// Faults already reported: one report per kind and pair of instructions, the first to occur.
    reported: HashSet<(FaultKind, usize, Option<usize>)>,
    pub(crate) reports: Vec<FaultReport>,
}

impl<'a> Sanitizer<'a> {
    pub(crate) fn new(kernel: &'a KernelBody, code: &'a FlatKernel) -> Sanitizer<'a> {
        Sanitizer {
            kernel,
            code,
            storage: HashMap::new(),
            workgroup: HashMap::new(),
            reported: HashSet::new(),
            reports: Vec::new(),
        }
    }

    /// Clears the shadow of the previous group's workgroup memory.
    pub(crate) fn start_group(&mut self) {
        self.workgroup.clear();
    }

    /// Bytes of shadow memory in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.storage.len() + self.workgroup.len()) as u64 * SHADOW_BYTES
    }

    /// Records an out-of-range access.
    pub(crate) fn out_of_range(&mut self, target: AccessTarget, touch: RecordedAccess) {
        let fault = if target.in_bounds { FaultKind::WrongProof } else { FaultKind::OutOfRange };
        self.tell(Finding { fault, target: Some(target), touch, other: None });
    }

    /// Records an in-range access to a buffer.
    pub(crate) fn touch(&mut self, buffer: BufferId, target: AccessTarget, touch: RecordedAccess) {
        let access = self.kernel.buffer(buffer).decl.access;
        if !access.is_writable() {
            return;
        }
        let is_group = access == vyre_foundation::ir::Access::Workgroup;
        let memory = if is_group { &mut self.workgroup } else { &mut self.storage };
        let shadow = memory.entry((buffer, target.index)).or_default();
        let reads = matches!(touch.action, Action::Load | Action::AtomicLoad);
        let unwritten = is_group && reads && !shadow.is_written();
        let conflict = shadow.conflict(&touch);
        shadow.remember(touch);
        if unwritten {
            self.tell(Finding { fault: FaultKind::Unwritten, target: Some(target), touch, other: None });
        }
        if conflict.is_some() {
            self.tell(Finding { fault: FaultKind::Race, target: Some(target), touch, other: conflict });
        }
    }

    fn tell(&mut self, finding: Finding) {
        let (this, other) = (finding.touch.instruction, finding.other.map(|other| other.instruction));
        let pair = (this.min(other.unwrap_or(this)), other.map(|other| this.max(other)));
        let alike = self.reports.iter().filter(|report| report.fault == finding.fault).count();
        if alike < MAX_REPORTS && self.reported.insert((finding.fault, pair.0, pair.1)) {
            self.reports.push(finding.report(self.kernel, self.code));
        }
    }
}

/// A fault in terms of the flattened kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finding {
    pub(crate) fault: FaultKind,
    pub(crate) target: Option<AccessTarget>,
    pub(crate) touch: RecordedAccess,
    pub(crate) other: Option<RecordedAccess>,
}

impl Finding {
    /// Translates the fault to terms of the program.
    pub(crate) fn report(self, kernel: &KernelBody, code: &FlatKernel) -> FaultReport {
        let name = |place| match place {
            Place::Buffer(id) => kernel.buffer(id).decl.name.to_string(),
            Place::Array(id) => kernel.arrays[id.index()].name.to_string(),
        };
        let position = |instruction: usize| {
            let (source, span) = (kernel.source.as_deref()?, code.at[instruction]?);
            Some(line_column(source, span.start))
        };
        let access = |touch: RecordedAccess| FaultAccess {
            action: touch.action,
            invocation: touch.invocation,
            position: position(touch.instruction),
            instruction: touch.instruction,
        };
        FaultReport {
            fault: self.fault,
            kernel: kernel.display_name().to_string(),
            element: self.target.map(|target| (name(target.place), target.index)),
            access: access(self.touch),
            other: self.other.map(access),
        }
    }
}
