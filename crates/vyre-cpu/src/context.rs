//! What compiled code is called with.

use crate::routines::Lanes;

/// What a run of the compiled function gets; its layout is known to the emitted code.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Context {
    /// Not zero once the dispatch should stop.
    pub(crate) cancel: *const u8,
    /// Memory of this thread alone: what crosses barriers, and private arrays.
    pub(crate) scratch: *mut u8,
    /// The workgroup's memory, of this thread alone.
    pub(crate) shared: *mut u8,
    /// Where the code of a trap is left.
    pub(crate) trap: *mut u32,
    pub(crate) grid: [u32; 4],
    pub(crate) domain: [u32; 4],
    /// One entry per buffer of the kernel.
    pub(crate) buffers: *const BufferEntry,
    /// What the kernel hands to routines and gets from them.
    pub(crate) lanes: Lanes,
}

/// A buffer as the emitted code sees it. The pointer is good for at least one element even if the length is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferEntry {
    pub(crate) data: *mut u8,
    pub(crate) length: u64,
}

/// How a run ended.
pub(crate) const DONE: i32 = 0;
pub(crate) const TRAPPED: i32 = 1;
pub(crate) const CANCELLED: i32 = 2;

/// The compiled function: rows or groups from the first number to the second; for rows also the stretch of each row.
pub(crate) type Entry = unsafe extern "C" fn(*mut Context, u64, u64, u64, u64) -> i32;
