//! Table of all objects that C has handles to.
//!
//! A handle is not an address: it holds the index of a slot and the slot's generation, which
//! changes when the object is freed. A handle that was freed or never issued is therefore reported
//! as an error and never reaches memory.
//!
//! A slot's state is one word: generation, two flags, and the number of threads that use the
//! object. To use it, a thread increments the count and checks the previous state; to free it, a
//! thread clears the flag [`ALIVE`]. The last thread to leave drops the object. Nothing blocks, and
//! a use costs two atomic additions.

use crate::status::{FunctionError, VYRE_HANDLE};
use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Object behind a handle: a runtime, routine, array or report.
type Object = Box<dyn Any + Send + Sync>;

// Bits of the state: generation, flags, users.
const USERS: usize = (1 << (usize::BITS * 3 / 8 - 2)) - 1;
const ALIVE: usize = USERS + 1;
const DYING: usize = ALIVE << 1;
const GENERATION: usize = DYING << 1;

/// In a handle, the index occupies the bits of the flags and users.
const INDEX: usize = GENERATION - 1;

struct HandleSlot {
    state: AtomicUsize,
    /// Written only by the thread that took the slot from the free list, or that ended its
    /// generation.
    object: UnsafeCell<Option<Object>>,
}

// SAFETY: the object is shared only while the state has `ALIVE` and counts a user, and objects are
// `Send` and `Sync`.
unsafe impl Sync for HandleSlot {}

/// Slots in chunks, each twice as long as the one before, so that no slot ever moves.
static CHUNKS: [OnceLock<Box<[HandleSlot]>>; CHUNK_COUNT] = [const { OnceLock::new() }; CHUNK_COUNT];
const CHUNK_COUNT: usize = (usize::BITS * 3 / 8) as usize;
const FIRST_CHUNK: usize = 64;

static FREE: Mutex<Free> = Mutex::new(Free { indices: Vec::new(), used: 0 });

struct Free {
    indices: Vec<usize>,
    /// Number of slots ever taken.
    used: usize,
}

fn chunk_of(index: usize) -> (usize, usize) {
    let place = index + FIRST_CHUNK;
    let chunk = place.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, place - (FIRST_CHUNK << chunk))
}

fn slot(index: usize) -> Option<&'static HandleSlot> {
    let (chunk, place) = chunk_of(index);
    CHUNKS.get(chunk)?.get()?.get(place)
}

/// Inserts an object into the table and returns its handle.
pub(crate) fn insert(object: impl Any + Send + Sync) -> Result<usize, FunctionError> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let index = match free.indices.pop() {
        Some(index) => index,
        None if free.used > INDEX => {
            return Err(FunctionError::new(VYRE_HANDLE, "there are too many handles; free some"));
        }
        None => {
            free.used += 1;
            free.used - 1
        }
    };
    drop(free);
    let (chunk, place) = chunk_of(index);
    let fresh = || HandleSlot { state: AtomicUsize::new(GENERATION), object: UnsafeCell::new(None) };
    let slot = &CHUNKS[chunk].get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| fresh()).collect())[place];
    // SAFETY: the slot came from the free list, so no other thread reaches its object.
    unsafe { *slot.object.get() = Some(Box::new(object)) };
    let state = slot.state.fetch_or(ALIVE, Ordering::AcqRel);
    Ok(state & !INDEX | index)
}

/// Object in use, which lives at least as long as this.
pub(crate) struct Use {
    slot: &'static HandleSlot,
    index: usize,
}

impl Use {
    /// The object, if it is of this type.
    #[inline]
    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        // SAFETY: `find` saw the slot alive and counted this use, so the object is not written
        // until the use ends.
        let object = unsafe { &*self.slot.object.get() };
        object.as_ref()?.downcast_ref()
    }
}

impl Drop for Use {
    #[inline]
    fn drop(&mut self) {
        leave(self.slot, self.index);
    }
}

/// Looks up the object of a handle; `None` if it was freed or never issued.
#[inline]
pub(crate) fn find(handle: usize) -> Option<Use> {
    let index = handle & INDEX;
    let slot = slot(index)?;
    let state = slot.state.fetch_add(1, Ordering::Acquire);
    let found = Use { slot, index };
    (state & !USERS == handle & !INDEX | ALIVE).then_some(found)
}

/// Frees a handle; `false` if it was freed before or never issued. The object is dropped when its
/// last use ends.
pub(crate) fn free(handle: usize) -> bool {
    let Some(slot) = slot(handle & INDEX) else { return false };
    let dies =
        |state: usize| (state & !USERS == handle & !INDEX | ALIVE).then(|| (state & !ALIVE | DYING) + 1);
    let freed = slot.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, dies).is_ok();
    if freed {
        leave(slot, handle & INDEX);
    }
    freed
}

#[inline]
fn leave(slot: &'static HandleSlot, index: usize) {
    let state = slot.state.fetch_sub(1, Ordering::AcqRel);
    if state & DYING != 0 && state & USERS == 1 {
        end(slot, index, state);
    }
}

/// Ends a generation without users. If another thread looked at the slot in the meantime, that
/// thread does it instead.
#[cold]
fn end(slot: &'static HandleSlot, index: usize, last: usize) {
    let (dying, next) = (last - 1, (last & !INDEX).wrapping_add(GENERATION));
    // A null handle is never issued.
    let next = if next == 0 { GENERATION } else { next };
    if slot.state.compare_exchange(dying, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: the generation ended without users, and the slot is not on the free list yet.
    drop(unsafe { (*slot.object.get()).take() });
    FREE.lock().unwrap_or_else(PoisonError::into_inner).indices.push(index);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn object() -> (Arc<()>, Arc<()>) {
        let witness = Arc::new(());
        (witness.clone(), witness)
    }

    #[test]
    fn a_freed_handle_is_reported_and_its_successor_differs() {
        let (first, witness) = object();
        let handle = insert(first).unwrap();
        assert!(find(handle).is_some());
        assert!(free(handle));
        assert_eq!(Arc::strong_count(&witness), 1);
        assert!(find(handle).is_none() && !free(handle));
        let again: Vec<usize> = (0..200).map(|_| insert(object().0).unwrap()).collect();
        assert!(!again.contains(&handle) && find(handle).is_none());
        assert!(again.into_iter().all(free));
        for never in [0, 1, INDEX, usize::MAX, usize::MAX & !INDEX] {
            assert!(find(never).is_none() && !free(never), "{never:#x}");
        }
    }

    #[test]
    fn an_object_lives_until_its_last_use_ends() {
        let (held, witness) = object();
        let handle = insert(held).unwrap();
        let (one, other) = (find(handle).unwrap(), find(handle).unwrap());
        assert!(free(handle));
        drop(one);
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(other);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn threads_that_use_and_free_one_handle_drop_it_once() {
        for _ in 0..200 {
            let (held, witness) = object();
            let handle = insert(held).unwrap();
            let freed: usize = std::thread::scope(|scope| {
                let race = || {
                    (0..20).for_each(|_| drop(find(handle)));
                    usize::from(free(handle))
                };
                let threads = [scope.spawn(race), scope.spawn(race), scope.spawn(race)];
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!((freed, Arc::strong_count(&witness)), (1, 1));
        }
    }
}
