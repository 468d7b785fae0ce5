//! Stores past the caches: which buffers and which dispatches use them.
//!
//! A cache line that is only written is first read from memory, unless the store bypasses the
//! caches. That pays for buffers that the kernel does not read, in dispatches that write more than
//! the last-level cache holds: the data would be evicted before it is used anyway.

use crate::machine::cache_bytes;
use std::sync::LazyLock;
use vyre_foundation::kernel::{BufferId, Def, KernelBody, Place, Stmt, StmtKind};

/// When stores bypass the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// In dispatches that write more bytes than this to buffers that they do not read.
    Beyond(u64),
    Always,
    Never,
}

/// `VYRE_CPU_PAST_CACHES=always` or `never` overrides the choice, for tests and comparisons.
fn when() -> When {
    static WHEN: LazyLock<When> = LazyLock::new(|| match std::env::var("VYRE_CPU_PAST_CACHES").as_deref() {
        Ok("always") => When::Always,
        Ok("never") => When::Never,
        Ok(_) | Err(_) => When::Beyond(cache_bytes().unwrap_or(USUAL_CACHE)),
    });
    *WHEN
}

/// Assumed size of the last-level cache if the system does not report it.
const USUAL_CACHE: u64 = 32 << 20;

/// Whether a dispatch that writes this many bytes to write-only buffers bypasses the caches.
pub(crate) fn goes_past(bytes: u64) -> bool {
    match when() {
        When::Beyond(most) => bytes > most,
        When::Always => bytes > 0,
        When::Never => false,
    }
}

/// Per buffer: whether the kernel writes whole lanes to it and never reads it.
pub(crate) fn only_written(kernel: &KernelBody) -> Vec<bool> {
    let mut read = vec![false; kernel.buffers.len()];
    note_reads(&kernel.body, &mut read);
    let is_only_written = |(number, read): (usize, bool)| {
        let buffer = kernel.buffer(BufferId(number as u32));
        buffer.decl.access.is_output() && buffer.decl.element.size() >= 4 && !buffer.atomic && !read
    };
    read.into_iter().enumerate().map(is_only_written).collect()
}

fn note_reads(block: &[Stmt], read: &mut [bool]) {
    for stmt in block {
        if let StmtKind::Def(_, Def::Load { place: Place::Buffer(buffer), .. }) = &stmt.kind {
            read[buffer.index()] = true;
        }
        stmt.kind.blocks().into_iter().for_each(|inner| note_reads(inner, read));
    }
}
