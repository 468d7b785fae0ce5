//! The resident buffers of a call, held where it runs.

use crate::argument::{Bound, argument_error};
use crate::backend::Backend;
use crate::parameter::Parameter;
use crate::resident::{Home, ResidentBuffer};
use smallvec::SmallVec;
use std::sync::{Arc, RwLockReadGuard};
use vyre_driver::{BackendError, Binding};

/// The bindings of a call; more than these allocate.
pub(crate) type Bindings<'m> = SmallVec<[Binding<'m>; 7]>;

/// The resident buffers of a call, held where the call runs.
#[derive(Default)]
pub(crate) struct HeldBuffers<'a>(Vec<(&'a ResidentBuffer, RwLockReadGuard<'a, Home>)>);

impl<'a> HeldBuffers<'a> {
    /// Holds the buffers of calls, each given as its parameters and memory, on this instance of a
    /// backend.
    pub(crate) fn take<'c>(
        calls: impl Iterator<Item = (&'c [Parameter], &'c [Bound<'a>])>,
        backend: &Arc<Backend>,
        instance: u64,
    ) -> Result<HeldBuffers<'a>, BackendError>
    where
        'a: 'c,
    {
        // Each buffer is held once: a second hold could wait for a move that waits for the first.
        let mut wanted: Vec<&'a ResidentBuffer> = Vec::new();
        for (parameters, item) in calls {
            for (position, (parameter, memory)) in parameters.iter().zip(item.iter()).enumerate() {
                let Some(buffer) = memory.resident() else { continue };
                let same = |(other, memory): (usize, &Bound<'_>)| {
                    other != position && memory.resident().is_some_and(|other| std::ptr::eq(other, buffer))
                };
                if parameter.access.is_output() && item.iter().enumerate().any(same) {
                    let name = &parameter.name;
                    return Err(argument_error(format!(
                        "the resident buffer bound to `{name}` is bound twice, and the program writes it; bind a copy"
                    )));
                }
                wanted.push(buffer);
            }
        }
        wanted.sort_by_key(|buffer| std::ptr::from_ref(*buffer).addr());
        wanted.dedup_by(|a, b| std::ptr::eq(*a, *b));
        let hold = |buffer: &'a ResidentBuffer| Ok((buffer, buffer.hold(backend, instance)?));
        wanted.into_iter().map(hold).collect::<Result<_, _>>().map(HeldBuffers)
    }

    /// The backend's handle for a buffer of the call.
    fn handle(&self, buffer: &ResidentBuffer) -> u64 {
        let found = self.0.iter().find(|(other, _)| std::ptr::eq(*other, buffer));
        match found.map(|(_, home)| &**home) {
            Some(Home::Device { handle, .. }) => *handle,
            Some(Home::Host(_)) | None => {
                unreachable!("every resident buffer of the call is held on its backend")
            }
        }
    }

    /// Appends the bindings that a backend gets for a call, in place.
    #[inline(always)]
    pub(crate) fn bind<'m>(
        &self,
        parameters: &[Parameter],
        memory: &'m mut [Bound<'_>],
        bindings: &mut Bindings<'m>,
    ) {
        for (parameter, memory) in parameters.iter().zip(memory) {
            bindings.push(match memory {
                Bound::Nothing => unreachable!("a call runs only when every buffer is bound"),
                Bound::Number(bytes, length) => Binding::Read(&bytes[..*length]),
                Bound::Read(bytes) => Binding::Read(bytes),
                Bound::Write(bytes) => Binding::new(parameter.access, bytes),
                Bound::Resident(buffer) | Bound::ResidentMut(buffer) => {
                    Binding::Resident(self.handle(buffer))
                }
            });
        }
    }
}
