//! Buffers that stay on a backend between calls.
//!
//! A resident buffer starts in host memory and moves to the backend that first runs a call on it. A
//! call elsewhere moves it there, at a cost that the router takes into account. Running calls hold
//! a shared lock on it, so only a move waits for them. A call locks its buffers in one order,
//! whatever their order among its arguments, so that two calls never wait for each other.
//!
//! A buffer belongs to the device instance that it was created on. Once that is lost, so are its
//! contents: any use returns an error that says so, and neither reaches other memory nor harms the
//! device opened since.

use crate::argument::{Element, argument_error};
use crate::backend::{Backend, OpenDriver};
use crate::shared::{Shared, nanoseconds};
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;
use vyre_driver::BackendError;

/// A buffer that stays on a backend between calls, from
/// [`Runtime::resident`](crate::Runtime::resident). Bind `&x` where a program reads it, `&mut x`
/// where it writes; [`cell`](Self::cell) lends it to several calls that are made before any of them
/// runs.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut x = runtime.resident(&[1.0f32, 2.0]);
/// for _ in 0..3 {
///     double.call().bind("x", &mut x).run()?;
/// }
/// assert_eq!(x.read()?, [8.0, 16.0]);
/// # Ok::<(), BackendError>(())
/// ```
pub struct Resident<T> {
    buffer: ResidentBuffer,
    element: PhantomData<fn() -> T>,
}

/// A [`Resident`] buffer lent to several calls at once, some of which can write it, from
/// [`Resident::cell`]: the counterpart of a [`Cell`](std::cell::Cell) for a number. Calls of a
/// [`Sequence`](crate::Sequence) run one after the other. Two calls that run at the same time, one
/// of which writes, leave unspecified contents.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut x = runtime.resident(&[1.0f32, 2.0]);
/// let cell = x.cell();
/// runtime
///     .sequence()
///     .then(double.call().bind("x", cell))
///     .then(double.call().bind("x", cell))
///     .run()?;
/// assert_eq!(x.read()?, [4.0, 8.0]);
/// # Ok::<(), BackendError>(())
/// ```
pub struct ResidentCell<'a, T> {
    resident: &'a Resident<T>,
}

impl<T> Clone for ResidentCell<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ResidentCell<'_, T> {}

/// Access to the operations on a shared buffer: reading.
impl<T> std::ops::Deref for ResidentCell<'_, T> {
    type Target = Resident<T>;

    fn deref(&self) -> &Resident<T> {
        self.resident
    }
}

impl<T: Element + Pod> ResidentCell<'_, T> {
    /// Replaces elements, starting at `first`.
    pub fn write(&self, first: usize, elements: &[T]) -> Result<(), BackendError> {
        self.resident.replace(first, elements)
    }
}

impl<'a, T> ResidentCell<'a, T> {
    pub(crate) fn buffer(self) -> &'a ResidentBuffer {
        &self.resident.buffer
    }
}

impl<T> std::fmt::Debug for ResidentCell<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.resident.fmt(f)
    }
}

/// Lends for writing a buffer that is owned in several places, as by objects of another language.
pub fn aliased<T>(resident: &Resident<T>) -> ResidentCell<'_, T> {
    ResidentCell { resident }
}

pub(crate) struct ResidentBuffer {
    shared: Arc<Shared>,
    bytes: usize,
    home: RwLock<Home>,
}

/// Where a resident buffer is.
pub(crate) enum Home {
    Host(Vec<u8>),
    Device { backend: Arc<Backend>, live: OpenDriver, handle: u64 },
}

impl Home {
    /// Fails if the buffer's device was lost.
    fn check(&self) -> Result<(), BackendError> {
        match self {
            Home::Device { backend, live, .. } if backend.instance() != live.instance => {
                Err(argument_error(format!(
                    "the device of `{}` was lost, and with it the contents of a resident buffer; create the buffer \
                     again",
                    backend.id
                )))
            }
            Home::Device { .. } | Home::Host(_) => Ok(()),
        }
    }
}

impl<T: Element + Pod> Resident<T> {
    pub(crate) fn new(shared: Arc<Shared>, contents: &[T]) -> Resident<T> {
        let bytes: &[u8] = cast_slice(contents);
        let home = RwLock::new(Home::Host(bytes.to_vec()));
        Resident { buffer: ResidentBuffer { shared, bytes: bytes.len(), home }, element: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.buffer.bytes / size_of::<T>()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the contents.
    pub fn read(&self) -> Result<Vec<T>, BackendError> {
        let mut contents = vec![T::zeroed(); self.len()];
        self.read_into(0, &mut contents)?;
        Ok(contents)
    }

    /// Copies elements out, starting at `first`.
    pub fn read_into(&self, first: usize, into: &mut [T]) -> Result<(), BackendError> {
        let offset = self.offset(first, into.len())?;
        self.buffer.download(offset, cast_slice_mut(into))
    }

    /// Replaces elements, starting at `first`.
    pub fn write(&mut self, first: usize, elements: &[T]) -> Result<(), BackendError> {
        self.replace(first, elements)
    }

    fn replace(&self, first: usize, elements: &[T]) -> Result<(), BackendError> {
        let offset = self.offset(first, elements.len())?;
        self.buffer.upload(offset, cast_slice(elements))
    }

    fn offset(&self, first: usize, count: usize) -> Result<usize, BackendError> {
        if first.checked_add(count).is_none_or(|end| end > self.len()) {
            return Err(BackendError::new(format!(
                "elements {first} to {} were requested of a resident buffer that has {}; request fewer",
                first.saturating_add(count),
                self.len()
            )));
        }
        Ok(first * size_of::<T>())
    }
}

impl<T> Resident<T> {
    pub(crate) fn buffer(&self) -> &ResidentBuffer {
        &self.buffer
    }

    /// Lends the buffer to several calls, some of which can write it.
    pub fn cell(&mut self) -> ResidentCell<'_, T> {
        ResidentCell { resident: self }
    }

    /// The backend that holds it; `None` before the first call.
    pub fn backend(&self) -> Option<&'static str> {
        match &*self.buffer.shared_home() {
            Home::Host(_) => None,
            Home::Device { backend, .. } => Some(backend.id),
        }
    }
}

impl<T> std::fmt::Debug for Resident<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resident")
            .field("bytes", &self.buffer.bytes)
            .field("backend", &self.backend())
            .finish()
    }
}

impl ResidentBuffer {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// The position of the backend that holds it; `None` in host memory or on an unrouted backend.
    pub(crate) fn home(&self) -> Option<usize> {
        match &*self.shared_home() {
            Home::Host(_) => None,
            Home::Device { backend, .. } => self.shared.index_of(backend).map(|index| index.index()),
        }
    }

    fn shared_home(&self) -> RwLockReadGuard<'_, Home> {
        self.home.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive_home(&self) -> RwLockWriteGuard<'_, Home> {
        self.home.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn download(&self, offset: usize, into: &mut [u8]) -> Result<(), BackendError> {
        let home = self.shared_home();
        home.check()?;
        match &*home {
            Home::Host(bytes) => {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
                Ok(())
            }
            Home::Device { backend, live, handle } => {
                let began = Instant::now();
                live.driver.download_resident(*handle, offset, into)?;
                self.transferred(backend, into.len(), began);
                Ok(())
            }
        }
    }

    fn upload(&self, offset: usize, from: &[u8]) -> Result<(), BackendError> {
        let mut home = self.exclusive_home();
        home.check()?;
        match &mut *home {
            Home::Host(bytes) => {
                bytes[offset..offset + from.len()].copy_from_slice(from);
                Ok(())
            }
            Home::Device { live, handle, .. } => live.driver.upload_resident(*handle, offset, from),
        }
    }

    fn transferred(&self, backend: &Backend, bytes: usize, began: Instant) {
        if let Some(index) = self.shared.index_of(backend) {
            self.shared.router.transferred(index, bytes as u64, nanoseconds(began.elapsed()));
        }
    }

    /// Holds the buffer on this instance of a backend, moving it there if necessary.
    pub(crate) fn hold(
        &self,
        wanted: &Arc<Backend>,
        instance: u64,
    ) -> Result<RwLockReadGuard<'_, Home>, BackendError> {
        let is_there = |home: &Home| matches!(home, Home::Device { live, .. } if live.instance == instance && home.check().is_ok());
        let home = self.shared_home();
        if is_there(&home) {
            return Ok(home);
        }
        drop(home);
        let mut home = self.exclusive_home();
        if !is_there(&home) {
            let moved = self.moved(&home, wanted, instance)?;
            free(&std::mem::replace(&mut *home, moved));
        }
        Ok(RwLockWriteGuard::downgrade(home))
    }

    /// Copies the contents to another backend.
    fn moved(&self, home: &Home, wanted: &Arc<Backend>, instance: u64) -> Result<Home, BackendError> {
        home.check()?;
        let copied;
        let contents = match home {
            Home::Host(bytes) => bytes,
            Home::Device { live, handle, .. } => {
                let mut bytes = vec![0; self.bytes];
                live.driver.download_resident(*handle, 0, &mut bytes)?;
                copied = bytes;
                &copied
            }
        };
        let live = wanted.live()?;
        if live.instance != instance {
            let message = "it was opened again while a call was made ready".into();
            return Err(BackendError::DeviceLost { backend: wanted.id.into(), message });
        }
        let began = Instant::now();
        let handle = live.driver.allocate_resident(self.bytes)?;
        if let Err(error) = live.driver.upload_resident(handle, 0, contents) {
            // The upload's error is the one to report.
            let _ = live.driver.free_resident(handle);
            return Err(error);
        }
        self.transferred(wanted, self.bytes, began);
        Ok(Home::Device { backend: wanted.clone(), live, handle })
    }
}

impl Drop for ResidentBuffer {
    fn drop(&mut self) {
        free(self.home.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

fn free(home: &Home) {
    if let Home::Device { backend, live, handle } = home
        && live.instance == backend.instance()
        && let Err(error) = live.driver.free_resident(*handle)
    {
        tracing::warn!(backend = backend.id, %error, "a resident buffer could not be released");
    }
}
