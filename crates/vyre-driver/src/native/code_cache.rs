//! The code of a program's forms, each compiled once, by the first call that needs it.
//!
//! A call with a deadline compiles on a dedicated thread, so that it can return when its time is
//! up. Other callers wait for that thread within their own deadlines, and find the code once it is
//! done.

use super::resident::InstanceState;
use super::{Built, Form, NativeDevice, Variant};
use crate::BackendError;
use crate::containment::{Unfinished, contain, within};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vyre_foundation::kernel::{Kernel, coverage};

pub(super) struct CodeCache<D: NativeDevice> {
    shared: Arc<InstanceState<D>>,
    kernel: Kernel,
    states: Mutex<HashMap<Form, CodeState<D::Code>>>,
    /// Signalled when code was compiled or its compilation failed.
    changed: Condvar,
}

enum CodeState<C> {
    Made(Arc<Variant<C>>),
    UnderWay,
}

/// How long a caller without a deadline waits for a compilation in progress. It only keeps a wait
/// from being endless: `wgpu` abandons a driver's compiler after two minutes.
const UNLIMITED: Duration = Duration::from_secs(3600);

impl<D: NativeDevice> CodeCache<D> {
    pub(super) fn new(shared: Arc<InstanceState<D>>, kernel: Kernel) -> CodeCache<D> {
        CodeCache { shared, kernel, states: Mutex::default(), changed: Condvar::new() }
    }

    /// The code of a form, within a time limit.
    pub(super) fn get(
        self: &Arc<CodeCache<D>>,
        form: Form,
        limit: Option<Duration>,
    ) -> Result<Arc<Variant<D::Code>>, BackendError> {
        let began = Instant::now();
        let left = || limit.unwrap_or(UNLIMITED).saturating_sub(began.elapsed());
        let mut states = self.states();
        loop {
            match states.get(&form) {
                Some(CodeState::Made(made)) if !self.shared.device.is_stale(&made.code) => {
                    return Ok(made.clone());
                }
                Some(CodeState::Made(_)) | None => break,
                Some(CodeState::UnderWay) if left().is_zero() => {
                    let (backend, limit) = (self.shared.device.id().into(), limit.unwrap_or(UNLIMITED));
                    return Err(BackendError::Timeout { backend, limit });
                }
                Some(CodeState::UnderWay) => {
                    let waited = self.changed.wait_timeout(states, left());
                    states = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        states.insert(form, CodeState::UnderWay);
        drop(states);
        let Some(limit) = limit else { return self.make(form) };
        let forms = self.clone();
        let made = compiled(self.shared.device.id(), limit, move || forms.make(form));
        if let Err(BackendError::KernelCompileFailed { .. }) = made {
            // If the thread could not be started, nothing else clears the state.
            self.settle(form, None);
        }
        made
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Form, CodeState<D::Code>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles the kernel, and wakes the callers waiting for it.
    fn make(&self, form: Form) -> Result<Arc<Variant<D::Code>>, BackendError> {
        let made = variant(&self.shared.device, &self.kernel, form).map(Arc::new);
        self.settle(form, made.as_ref().ok());
        made
    }

    /// Stores the outcome. After a failure, the form can be requested again.
    fn settle(&self, form: Form, made: Option<&Arc<Variant<D::Code>>>) {
        let before = match made {
            Some(made) => self.states().insert(form, CodeState::Made(made.clone())),
            None => self.states().remove(&form),
        };
        self.changed.notify_all();
        // Dropping stale code is the device's business and needs no lock.
        drop(before);
    }
}

/// Compiles a kernel on the device.
fn variant<D: NativeDevice>(
    device: &D,
    kernel: &Kernel,
    form: Form,
) -> Result<Variant<D::Code>, BackendError> {
    let kernel = &form.kernel(kernel);
    let made = contain(|| device.build(kernel, form)).unwrap_or_else(|message| {
        Err(BackendError::KernelCompileFailed { backend: device.id().into(), message })
    });
    let Built { kernel: compiled, code, bytes } = made?;
    // Coverage is derived from a kernel in which each invocation handles one element.
    let coverage = coverage(if compiled.coarsening == 1 { &compiled } else { kernel });
    Ok(Variant { form, kernel: compiled, code, bytes, coverage })
}

/// Runs a compilation on a dedicated thread, within a time limit.
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
