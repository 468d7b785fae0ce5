//! Arguments of compiled code.

use crate::routines::Lanes;

/// Context of a run of the compiled function; the emitted code depends on its layout.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Context {
    /// Non-zero once the dispatch should stop.
    pub(crate) cancel: *const u8,
    /// Memory private to this thread: values that cross barriers, and private arrays.
    pub(crate) scratch: *mut u8,
    /// The workgroup's memory, private to this thread.
    pub(crate) shared: *mut u8,
    /// Receives the code of a trap.
    pub(crate) trap: *mut u32,
    pub(crate) grid: [u32; 4],
    pub(crate) domain: [u32; 4],
    /// One entry per buffer of the kernel.
    pub(crate) buffers: *const BufferEntry,
    /// Vectors passed to routines and back.
    pub(crate) lanes: Lanes,
}

/// A buffer as the emitted code sees it. The pointer is valid for at least one element even if the
/// length is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferEntry {
    pub(crate) data: *mut u8,
    pub(crate) length: u64,
}

/// Status of a run.
pub(crate) const DONE: i32 = 0;
pub(crate) const TRAPPED: i32 = 1;
pub(crate) const CANCELLED: i32 = 2;

/// The compiled function: processes rows or groups from the first number to the second; for rows,
/// also the range within each row.
pub(crate) type EntryPoint = unsafe extern "C" fn(*mut Context, u64, u64, u64, u64) -> i32;
