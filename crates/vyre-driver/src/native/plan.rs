//! Plans of calls: the form of the code, the size of the launch, the outputs that need no zeroing.
//!
//! Callers mostly repeat themselves, so each thread caches the plans of the pipelines it called
//! last. A call with the same shape, lengths and uniforms reuses the cached plan.

use super::argument::Start;
use super::{BoundArgument, Few, Form, NativeDevice};
use crate::DispatchConfig;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{BufferId, KernelBody};
use vyre_foundation::launch::{Launch, Overrides};

/// A plan, and the inputs it was made from.
#[derive(Default)]
pub(super) struct LaunchPlan {
    /// The inputs it was made from; `None` if it cannot be reused.
    origin: Option<Origin>,
    /// The form of the code that runs.
    form: Option<Form>,
    /// The size of the launch.
    pub(super) launch: Launch,
    /// Per argument: whether the kernel writes all of it and reads none.
    covered: Few<bool>,
}

/// Everything that a plan depends on.
struct Origin {
    /// The pipeline's number.
    pipeline: usize,
    asked: Asked,
    seen: Few<ArgumentFacts>,
}

/// The parameters that a call requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    form: Form,
    overrides: Overrides,
    elements: Option<u32>,
    subgroup: Option<u32>,
}

impl Asked {
    pub(super) fn new(form: Form, config: &DispatchConfig) -> Asked {
        let (elements, subgroup) = (config.elements_per_invocation, config.subgroup_size);
        Asked { form, overrides: config.overrides(), elements, subgroup }
    }
}

/// The properties of one argument that a plan can depend on: its length, and the value of a scalar
/// uniform if the host can read it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ArgumentFacts {
    bytes: usize,
    number: Option<u64>,
}

/// How the plans of a pipeline are recognised.
pub(super) struct Recognition {
    /// The pipeline's number, unique in the process.
    pipeline: usize,
    /// Per argument: whether it is a scalar uniform.
    numbers: Vec<bool>,
    /// Whether sizes depend only on lengths and scalar uniforms.
    pub(super) repeatable: bool,
}

impl Recognition {
    pub(super) fn new(kernel: &KernelBody, bound: &[BufferId]) -> Recognition {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let is_number = |id: BufferId| {
            let decl = &kernel.buffer(id).decl;
            decl.access == Access::Uniform && decl.count == 1
        };
        Recognition {
            pipeline: NEXT.fetch_add(1, Ordering::Relaxed),
            numbers: bound.iter().map(|&id| is_number(id)).collect(),
            repeatable: kernel.sizing_buffers().into_iter().all(is_number),
        }
    }

    /// Whether this buffer is a scalar uniform, by which calls are recognised.
    pub(super) fn is_number<M>(&self, arguments: &[BoundArgument<'_, M>], id: BufferId) -> bool {
        arguments.iter().zip(&self.numbers).any(|(argument, number)| *number && argument.buffer == id)
    }

    #[inline]
    fn seen<'s, D: NativeDevice>(
        &'s self,
        device: &'s D,
        arguments: &'s [BoundArgument<'_, D::Memory>],
    ) -> impl Iterator<Item = ArgumentFacts> + 's {
        arguments.iter().zip(&self.numbers).map(|(argument, is_number)| {
            let bytes = if *is_number { argument.host_bytes(device) } else { None };
            ArgumentFacts { bytes: argument.bytes, number: bytes.and_then(number) }
        })
    }
}

/// The value of up to 8 bytes.
#[inline]
fn number(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ if bytes.len() <= 8 => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            Some(u64::from_ne_bytes(padded))
        }
        _ => None,
    }
}

/// Number of plans that a thread caches: a loop seldom alternates between more pipelines. A
/// pipeline's number selects one of them; pipelines that select the same one replace each other's
/// plans.
const KEPT: usize = 8;

thread_local! {
    static PLANS: [Cell<Option<Box<LaunchPlan>>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

impl LaunchPlan {
    /// Takes the plan of this thread's last call of a pipeline, or an empty one.
    #[inline]
    pub(super) fn last(of: &Recognition) -> Box<LaunchPlan> {
        let kept = PLANS.try_with(|plans| plans[of.pipeline % KEPT].take());
        kept.ok().flatten().unwrap_or_default()
    }

    /// Caches it for this thread's next call.
    #[inline]
    pub(super) fn keep(self: Box<LaunchPlan>, of: &Recognition) {
        // A thread that is exiting caches nothing.
        let _ = PLANS.try_with(|plans| plans[of.pipeline % KEPT].set(Some(self)));
    }

    /// The form of a call's code, if this plan matches the call.
    #[inline]
    pub(super) fn form_for<D: NativeDevice>(
        &self,
        of: &Recognition,
        asked: &Asked,
        device: &D,
        arguments: &[BoundArgument<'_, D::Memory>],
    ) -> Option<Form> {
        let origin = self.origin.as_ref()?;
        let fits = origin.pipeline == of.pipeline
            && origin.asked == *asked
            && origin.seen.len() == arguments.len()
            && of.seen(device, arguments).zip(&origin.seen).all(|(seen, known)| seen == *known);
        if fits { self.form } else { None }
    }

    /// Starts a new plan in the same memory.
    pub(super) fn begin(&mut self) {
        self.origin = None;
        self.covered.clear();
    }

    /// Appends whether the kernel writes all of the next argument and reads none.
    pub(super) fn push_covered(&mut self, covered: bool) {
        self.covered.push(covered);
    }

    /// Makes the plan reusable for calls like this one.
    pub(super) fn repeat<D: NativeDevice>(
        &mut self,
        of: &Recognition,
        (asked, form): (Asked, Form),
        device: &D,
        arguments: &[BoundArgument<'_, D::Memory>],
    ) {
        self.form = Some(form);
        self.origin =
            Some(Origin { pipeline: of.pipeline, asked, seen: of.seen(device, arguments).collect() });
    }

    /// Skips zeroing of outputs that the kernel fully writes and never reads.
    pub(super) fn settle_starts<M>(&self, arguments: &mut [BoundArgument<'_, M>]) {
        for (argument, covered) in arguments.iter_mut().zip(&self.covered) {
            if *covered && matches!(argument.start, Start::Zero | Start::Zeroed) {
                argument.start = Start::Anything;
            }
        }
    }
}
