//! Resident buffers: memory that stays with a backend instance between dispatches.

use super::{Few, Memory, NativeDevice};
use crate::BackendError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// State shared by a backend instance and its pipelines.
pub(super) struct InstanceState<D: NativeDevice> {
    pub(super) device: D,
    pub(super) residents: Residents<D::Memory>,
}

/// The resident buffers of one backend instance, by handle.
pub(super) struct Residents<M> {
    backend: &'static str,
    buffers: RwLock<Buffers<M>>,
}

/// A call looks up each of its buffers: a few handles are compared sooner than hashed.
type Buffers<M> = BTreeMap<u64, Arc<ResidentMemory<M>>>;

/// A buffer; calls lock it while they use it.
pub(super) struct ResidentMemory<M> {
    memory: RwLock<M>,
    bytes: usize,
}

/// A resident buffer of a call, and whether the kernel can write it.
pub(super) struct Held<M> {
    handle: u64,
    written: bool,
    resident: Arc<ResidentMemory<M>>,
}

/// A [`Held`] buffer, locked.
pub(super) struct Locked<'a, M>(&'a Held<M>, Guard<'a, M>);

enum Guard<'a, M> {
    Shared(RwLockReadGuard<'a, M>),
    Exclusive(RwLockWriteGuard<'a, M>),
}

/// A [`Locked`] buffer to lend to arguments; a written one can be lent only once.
pub(super) struct Lent<'a, M> {
    handle: u64,
    bytes: usize,
    memory: Option<Memory<'a, M>>,
}

impl<M> Residents<M> {
    pub(super) fn new(backend: &'static str) -> Residents<M> {
        Residents { backend, buffers: RwLock::default() }
    }

    /// Stores memory. Its handle is unique in the process and never reused.
    pub(super) fn add(&self, memory: M, bytes: usize) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let handle = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let resident = Arc::new(ResidentMemory { memory: RwLock::new(memory), bytes });
        self.buffers.write().unwrap_or_else(PoisonError::into_inner).insert(handle, resident);
        handle
    }

    fn get(&self, handle: u64) -> Result<Arc<ResidentMemory<M>>, BackendError> {
        self.find(&self.read(), handle)
    }

    fn read(&self) -> RwLockReadGuard<'_, Buffers<M>> {
        self.buffers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, buffers: &Buffers<M>, handle: u64) -> Result<Arc<ResidentMemory<M>>, BackendError> {
        buffers.get(&handle).cloned().ok_or_else(|| self.missing(handle))
    }

    pub(super) fn remove(&self, handle: u64) -> Result<(), BackendError> {
        let mut buffers = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        buffers.remove(&handle).map(drop).ok_or_else(|| self.missing(handle))
    }

    /// Adds the buffers that a call uses, each with whether it is written, to `held`. They are in
    /// handle order, the lock order that prevents deadlock between calls. A written buffer must not
    /// be bound twice.
    pub(super) fn hold(
        &self,
        uses: impl Iterator<Item = (u64, bool)>,
        held: &mut Few<Held<M>>,
    ) -> Result<(), BackendError> {
        let mut buffers = None;
        for (handle, written) in uses {
            let at = held.partition_point(|held| held.handle < handle);
            match held.get(at).filter(|held| held.handle == handle) {
                None => {
                    let resident = self.find(buffers.get_or_insert_with(|| self.read()), handle)?;
                    held.insert(at, Held { handle, written, resident });
                }
                Some(same) if written || same.written => return Err(self.bound_twice(handle)),
                Some(_) => {}
            }
        }
        Ok(())
    }

    #[cold]
    fn bound_twice(&self, handle: u64) -> BackendError {
        self.failed(format!("resident buffer {handle} is bound twice, and the kernel writes it"))
    }

    fn missing(&self, handle: u64) -> BackendError {
        self.failed(format!(
            "there is no resident buffer {handle}; it was freed, or belongs to another backend"
        ))
    }

    fn failed(&self, message: String) -> BackendError {
        BackendError::failed(self.backend, message)
    }

    /// Runs on a range of a buffer. An out-of-range request is an error; an empty one is a no-op.
    pub(super) fn within(
        &self,
        handle: u64,
        (offset, length): (usize, usize),
        run: impl FnOnce(&RwLock<M>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let resident = self.get(handle)?;
        let total = resident.bytes;
        if offset.checked_add(length).is_none_or(|end| end > total) {
            let message =
                format!("{length} bytes from offset {offset} on do not fit in a buffer of {total} bytes");
            return Err(self.failed(message));
        }
        if length == 0 { Ok(()) } else { run(&resident.memory) }
    }
}

/// The buffers of several calls that run as one, each once, in lock order.
pub(super) fn merged<M>(mut held: Vec<Held<M>>) -> Vec<Held<M>> {
    // If a buffer is both read and written, keep the use that writes.
    held.sort_unstable_by_key(|held| (held.handle, !held.written));
    held.dedup_by_key(|held| held.handle);
    held
}

impl<M> Held<M> {
    /// Whether the call can write this buffer.
    pub(super) fn writes(&self, handle: u64) -> bool {
        self.written && self.handle == handle
    }

    pub(super) fn lock(&self) -> Locked<'_, M> {
        let memory = &self.resident.memory;
        let guard = match self.written {
            true => Guard::Exclusive(memory.write().unwrap_or_else(PoisonError::into_inner)),
            false => Guard::Shared(memory.read().unwrap_or_else(PoisonError::into_inner)),
        };
        Locked(self, guard)
    }
}

impl<M> Locked<'_, M> {
    /// The memory and its length in bytes, if this is the buffer of the handle.
    pub(super) fn shared(&self, handle: u64) -> Option<(&M, usize)> {
        let memory = match &self.1 {
            Guard::Shared(guard) => &**guard,
            Guard::Exclusive(guard) => &**guard,
        };
        (self.0.handle == handle).then_some((memory, self.0.resident.bytes))
    }

    pub(super) fn lend(&mut self) -> Lent<'_, M> {
        let memory = match &mut self.1 {
            Guard::Shared(guard) => Memory::Resident(&**guard),
            Guard::Exclusive(guard) => Memory::ResidentMut(&mut **guard),
        };
        Lent { handle: self.0.handle, bytes: self.0.resident.bytes, memory: Some(memory) }
    }
}

/// Locks the buffers of a call, and lends each. The lists are the caller's, so that nothing is
/// moved once it is in its place.
#[inline]
pub(super) fn lock_and_lend<'h, 'l, M>(
    held: &'h [Held<M>],
    locked: &'l mut Few<Locked<'h, M>>,
    lent: &mut Few<Lent<'l, M>>,
) {
    for held in held {
        locked.push(held.lock());
    }
    for locked in locked {
        lent.push(locked.lend());
    }
}

/// The memory of a handle that the call holds, and its length in bytes.
pub(super) fn lent<'a, M>(all: &mut [Lent<'a, M>], handle: u64) -> (Memory<'a, M>, usize) {
    let found = all.iter_mut().find(|lent| lent.handle == handle);
    let taken = found.and_then(|lent| {
        let memory = match &lent.memory {
            Some(Memory::Resident(shared)) => Some(Memory::Resident(*shared)),
            Some(_) | None => lent.memory.take(),
        };
        memory.map(|memory| (memory, lent.bytes))
    });
    taken.unwrap_or_else(|| {
        unreachable!("every resident buffer of a call is held, and written through one binding")
    })
}
