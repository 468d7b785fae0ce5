//! Memory of resident buffers, aligned so that vectors do not cross cache lines and large buffers
//! take few entries of the processor's address caches.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes that belong to a resident buffer.
#[derive(Debug)]
pub struct ResidentMemory {
    start: NonNull<u8>,
    layout: Layout,
    bytes: usize,
}

/// A cache line, and no less than any vector.
const LINE: usize = 64;

/// A huge page on x86-64, and on aarch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Smallest buffer on huge pages: the part of its last page that it leaves unused is below a third.
const LARGE: usize = 3 * HUGE_PAGE;

impl ResidentMemory {
    /// Allocates zeros; `None` if there is not enough memory.
    pub(crate) fn zeroed(bytes: usize) -> Option<ResidentMemory> {
        let align = if bytes >= LARGE { HUGE_PAGE } else { LINE };
        let layout = Layout::from_size_align(bytes.max(1), align).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        if bytes >= LARGE {
            on_huge_pages(start, bytes);
        }
        // SAFETY: the allocation has this many bytes.
        unsafe { start.write_bytes(0, bytes) };
        Some(ResidentMemory { start, layout, bytes })
    }
}

/// Asks the system for huge pages. Where it has none, the memory works without them.
#[cfg(target_os = "linux")]
fn on_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: advice on memory that was just allocated, from a page boundary on; it keeps contents
    // and addresses.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn on_huge_pages(_: NonNull<u8>, _: usize) {}

impl Deref for ResidentMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has this many bytes, all initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for ResidentMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for ResidentMemory {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout and is not used again.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: the memory is owned, and accessible only through references to `self`.
unsafe impl Send for ResidentMemory {}
// SAFETY: as above.
unsafe impl Sync for ResidentMemory {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_writable() {
        for bytes in [0, 1, 63, 64, 4096, LARGE - 1, LARGE, LARGE + 5] {
            let mut memory = ResidentMemory::zeroed(bytes).expect("there is memory");
            assert_eq!(memory.len(), bytes);
            assert!(memory.iter().all(|&byte| byte == 0));
            assert!((memory.as_ptr() as usize).is_multiple_of(if bytes >= LARGE { HUGE_PAGE } else { LINE }));
            memory.fill(7);
            assert!(memory.iter().all(|&byte| byte == 7));
        }
        assert!(ResidentMemory::zeroed(isize::MAX as usize).is_none());
    }
}
