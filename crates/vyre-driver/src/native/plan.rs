//! What the arguments of a call lead to: the form of the code, the size of the launch, the outputs that need no zeros.
//!
//! Callers mostly repeat themselves. So a thread keeps the plans of the pipelines that it called last, and a call with the
//! same shape, lengths and uniforms runs by the plan that is there.

use super::argument::Start;
use super::{Argument, Device, Few, Form};
use crate::DispatchConfig;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{BufferId, KernelBody};
use vyre_foundation::launch::{Launch, Overrides};

/// A plan, and what it was made from.
#[derive(Default)]
pub(super) struct Plan {
    /// What it was made from; `None` of a plan that is of no use again.
    origin: Option<Origin>,
    /// The form of the code that runs.
    form: Option<Form>,
    /// How large the launch is.
    pub(super) launch: Launch,
    /// Per argument: whether the kernel writes all of it and reads none.
    covered: Few<bool>,
}

/// All that a plan depends on.
struct Origin {
    /// The pipeline's number.
    pipeline: usize,
    asked: Asked,
    seen: Few<Seen>,
}

/// What a call asks for.
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

/// What a plan may depend on of one argument: its length, and the number that a uniform is, where the host sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    bytes: usize,
    number: Option<u64>,
}

/// How the plans of a pipeline are recognised.
pub(super) struct Recognition {
    /// The pipeline's number, which no other of the process has.
    pipeline: usize,
    /// Per argument: whether it is a single number.
    numbers: Vec<bool>,
    /// Whether sizes depend on nothing but lengths and such numbers.
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

    /// Whether this buffer is a single number, which calls are recognised by.
    pub(super) fn is_number<M>(&self, arguments: &[Argument<'_, M>], id: BufferId) -> bool {
        arguments.iter().zip(&self.numbers).any(|(argument, number)| *number && argument.buffer == id)
    }

    #[inline]
    fn seen<'s, D: Device>(
        &'s self,
        device: &'s D,
        arguments: &'s [Argument<'_, D::Memory>],
    ) -> impl Iterator<Item = Seen> + 's {
        arguments.iter().zip(&self.numbers).map(|(argument, is_number)| {
            let bytes = if *is_number { argument.host_bytes(device) } else { None };
            Seen { bytes: argument.bytes, number: bytes.and_then(number) }
        })
    }
}

/// The number that these bytes are.
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

/// How many plans a thread keeps, each in the place that its pipeline's number gives; the last one there stays.
const KEPT: usize = 8;

thread_local! {
    static PLANS: [Cell<Option<Box<Plan>>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

impl Plan {
    /// The plan of this thread's last call of a pipeline, or one to be made anew.
    #[inline]
    pub(super) fn last(of: &Recognition) -> Box<Plan> {
        let kept = PLANS.try_with(|plans| plans[of.pipeline % KEPT].take());
        kept.ok().flatten().unwrap_or_default()
    }

    /// Keeps it for this thread's next call.
    #[inline]
    pub(super) fn keep(self: Box<Plan>, of: &Recognition) {
        // A thread that is ending keeps nothing.
        let _ = PLANS.try_with(|plans| plans[of.pipeline % KEPT].set(Some(self)));
    }

    /// The form of a call's code, if this is the plan for it.
    #[inline]
    pub(super) fn form_for<D: Device>(
        &self,
        of: &Recognition,
        asked: &Asked,
        device: &D,
        arguments: &[Argument<'_, D::Memory>],
    ) -> Option<Form> {
        let origin = self.origin.as_ref()?;
        let fits = origin.pipeline == of.pipeline
            && origin.asked == *asked
            && origin.seen.len() == arguments.len()
            && of.seen(device, arguments).zip(&origin.seen).all(|(seen, known)| seen == *known);
        if fits { self.form } else { None }
    }

    /// Says that it is being made anew, in the memory that it has.
    pub(super) fn begin(&mut self) {
        self.origin = None;
        self.covered.clear();
    }

    /// Says what an argument is: whether the kernel writes all of it and reads none.
    pub(super) fn push_covered(&mut self, covered: bool) {
        self.covered.push(covered);
    }

    /// Says that it holds for all calls like this one.
    pub(super) fn repeat<D: Device>(
        &mut self,
        of: &Recognition,
        (asked, form): (Asked, Form),
        device: &D,
        arguments: &[Argument<'_, D::Memory>],
    ) {
        self.form = Some(form);
        self.origin =
            Some(Origin { pipeline: of.pipeline, asked, seen: of.seen(device, arguments).collect() });
    }

    /// Outputs that the kernel writes everywhere and reads nowhere need not be zero.
    pub(super) fn settle_starts<M>(&self, arguments: &mut [Argument<'_, M>]) {
        for (argument, covered) in arguments.iter_mut().zip(&self.covered) {
            if *covered && matches!(argument.start, Start::Zero | Start::Zeroed) {
                argument.start = Start::Anything;
            }
        }
    }
}
