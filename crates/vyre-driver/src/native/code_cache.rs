//! The code of a program's forms, each made once, by the first call that asks for it.
//!
//! A call with a deadline has it made on a thread of its own, so that it can leave when its time is over; whoever asks
//! meanwhile waits for that thread as long as it may, and finds the code when it is there.

use super::resident::Shared;
use super::{Built, Device, Form, Variant};
use crate::BackendError;
use crate::containment::{Unfinished, contain, within};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vyre_foundation::kernel::{Kernel, coverage};

pub(super) struct CodeCache<D: Device> {
    shared: Arc<Shared<D>>,
    kernel: Kernel,
    slots: Mutex<HashMap<Form, Slot<D::Code>>>,
    /// Code was made, or could not be.
    changed: Condvar,
}

enum Slot<C> {
    Made(Arc<Variant<C>>),
    UnderWay,
}

/// Who asks without a deadline waits for code under way as long as that takes.
const UNLIMITED: Duration = Duration::from_secs(3600);

impl<D: Device> CodeCache<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, kernel: Kernel) -> CodeCache<D> {
        CodeCache { shared, kernel, slots: Mutex::default(), changed: Condvar::new() }
    }

    /// The code of a form, within a limit.
    pub(super) fn get(
        self: &Arc<CodeCache<D>>,
        form: Form,
        limit: Option<Duration>,
    ) -> Result<Arc<Variant<D::Code>>, BackendError> {
        let began = Instant::now();
        let left = || limit.unwrap_or(UNLIMITED).saturating_sub(began.elapsed());
        let mut slots = self.slots();
        loop {
            match slots.get(&form) {
                Some(Slot::Made(made)) if !self.shared.device.is_stale(&made.code) => return Ok(made.clone()),
                Some(Slot::Made(_)) | None => break,
                Some(Slot::UnderWay) if left().is_zero() => {
                    let (backend, limit) = (self.shared.device.id().into(), limit.unwrap_or(UNLIMITED));
                    return Err(BackendError::Timeout { backend, limit });
                }
                Some(Slot::UnderWay) => {
                    let waited = self.changed.wait_timeout(slots, left());
                    slots = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        slots.insert(form, Slot::UnderWay);
        drop(slots);
        let Some(limit) = limit else { return self.make(form) };
        let forms = self.clone();
        let made = compiled(self.shared.device.id(), limit, move || forms.make(form));
        if let Err(BackendError::KernelCompileFailed { .. }) = made {
            // Where there was no thread, nobody else says so.
            self.settle(form, None);
        }
        made
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Form, Slot<D::Code>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the device compile the kernel, and lets those know who wait for it.
    fn make(&self, form: Form) -> Result<Arc<Variant<D::Code>>, BackendError> {
        let made = variant(&self.shared.device, &self.kernel, form).map(Arc::new);
        self.settle(form, made.as_ref().ok());
        made
    }

    /// Code that is not there may be asked for again.
    fn settle(&self, form: Form, made: Option<&Arc<Variant<D::Code>>>) {
        let before = match made {
            Some(made) => self.slots().insert(form, Slot::Made(made.clone())),
            None => self.slots().remove(&form),
        };
        self.changed.notify_all();
        // The end of stale code is the device's own, and needs no lock.
        drop(before);
    }
}

/// Has the device compile a kernel.
fn variant<D: Device>(device: &D, kernel: &Kernel, form: Form) -> Result<Variant<D::Code>, BackendError> {
    let kernel = &form.kernel(kernel);
    let made = contain(|| device.build(kernel, form)).unwrap_or_else(|message| {
        Err(BackendError::KernelCompileFailed { backend: device.id().into(), message })
    });
    let Built { kernel: compiled, code, bytes } = made?;
    // Which elements are written shows where an invocation handles one of them.
    let coverage = coverage(if compiled.coarsening == 1 { &compiled } else { kernel });
    Ok(Variant { form, kernel: compiled, code, bytes, coverage })
}

/// What compiling gives, on a thread of its own within a limit.
pub(super) fn compiled<T: Send + 'static>(
    backend: &str,
    limit: Duration,
    compile: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    within(&format!("compile-{backend}"), limit, compile).unwrap_or_else(|unfinished| {
        let backend = backend.into();
        Err(match unfinished {
            Unfinished::Late => BackendError::Timeout { backend, limit },
            Unfinished::Panicked(_) | Unfinished::NeverBegun(_) => {
                BackendError::KernelCompileFailed { backend, message: unfinished.to_string() }
            }
        })
    })
}
