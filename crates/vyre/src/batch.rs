//! How the calls of a batch run: together on copies, or one after the other.
//!
//! A batch is routed as one. Its time on a backend is learnt separately from that of single calls,
//! by total number of elements, because a device that is slow to start does better on many calls at
//! once. It goes to the backend's batched dispatch, which submits all calls together where the
//! device can. Where memory is used in place, or buffers are resident, the calls run one after the
//! other.

use crate::argument::Bound;
use crate::routine_core::{RoutineCore, Work};
use vyre_driver::{DeviceClass, Fallback};
use vyre_foundation::launch::{Launch, LaunchArgument, Overrides};

/// Whether the calls of a batch run one after the other in place, rather than all at once on
/// copies.
pub(crate) fn runs_in_place(
    core: &RoutineCore,
    items: &[&mut [Bound<'_>]],
    class: DeviceClass,
    fallback: Fallback,
) -> bool {
    let resident = |item: &&mut [Bound<'_>]| item.iter().any(|memory| memory.resident().is_some());
    // A batch on copies leaves the caller's memory unchanged if it fails, as `Allow` requires.
    let host = class == DeviceClass::Cpu && fallback != Fallback::Allow;
    host || items.iter().any(resident) || !items.iter().all(|item| is_sized_by_inputs(core, item))
}

/// Whether the bound outputs have the lengths that follow from the inputs.
fn is_sized_by_inputs(core: &RoutineCore, item: &[Bound<'_>]) -> bool {
    let Work::Program { kernel, .. } = &core.work else { return false };
    let inputs: Vec<LaunchArgument<'_>> = core.inputs(item).map(|(_, memory)| memory.argument()).collect();
    let Ok(launch) = Launch::from_inputs(kernel, &inputs, Overrides::default()) else { return false };
    let bound = kernel.bound_buffers();
    item.iter().zip(bound).all(|(memory, id)| launch.bytes(kernel, id) == memory.len())
}

/// The inputs of a call, in place.
pub(crate) fn inputs_of<'m>(core: &'m RoutineCore, item: &'m [Bound<'_>]) -> Vec<&'m [u8]> {
    core.inputs(item).map(|(_, memory)| memory.bytes().unwrap_or_default()).collect()
}
