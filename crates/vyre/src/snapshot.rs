//! Snapshots of memory that a kernel reads and writes, taken before launch so that a call can be
//! repeated elsewhere.

use crate::argument::Bound;
use crate::parameter::Parameter;
use std::cell::RefCell;
use vyre_driver::Fallback;
use vyre_driver::router::fallback::Phase;
use vyre_foundation::ir::Access;

thread_local! {
    /// Memory for snapshots, kept between calls so that taking one does not allocate.
    static SAVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Larger snapshots are freed after the call: compared with copying one, an allocation is cheap,
/// and each thread would keep its own. Chosen, not measured.
const KEPT_BYTES: usize = 16 << 20;

/// Contents of memory that calls read and write. Outputs need no snapshot: every launch starts them
/// from zero.
pub(crate) struct Snapshot {
    bytes: Vec<u8>,
    /// Whether a launch can change memory that was not saved.
    unsaved: bool,
}

impl Snapshot {
    /// For a call on host memory that is not repeated after its launch.
    #[inline]
    pub(crate) fn nothing(reads_and_writes: bool) -> Snapshot {
        Snapshot { bytes: Vec::new(), unsaved: reads_and_writes }
    }

    pub(crate) fn take(parameters: &[Parameter], items: &[&mut [Bound<'_>]], fallback: Fallback) -> Snapshot {
        let mut saved = Snapshot { bytes: SAVED.try_with(RefCell::take).unwrap_or_default(), unsaved: false };
        saved.bytes.clear();
        for (parameter, memory) in items.iter().flat_map(|item| parameters.iter().zip(item.iter())) {
            match memory {
                Bound::Write(bytes) if parameter.access == Access::ReadWrite => match fallback {
                    Fallback::Allow => saved.bytes.extend_from_slice(bytes),
                    Fallback::Forbid | Fallback::Warn => saved.unsaved = true,
                },
                Bound::Resident(_) | Bound::ResidentMut(_) => {
                    saved.unsaved |= parameter.access.is_output();
                }
                Bound::Nothing | Bound::Number(..) | Bound::Read(_) | Bound::Write(_) => {}
            }
        }
        saved
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.unsaved { Phase::Launched } else { Phase::LaunchedOnSavedMemory }
    }

    pub(crate) fn put_back(&self, parameters: &[Parameter], items: &mut [&mut [Bound<'_>]]) {
        let mut rest = &self.bytes[..];
        for (parameter, memory) in items.iter_mut().flat_map(|item| parameters.iter().zip(item.iter_mut())) {
            if let (Access::ReadWrite, Bound::Write(bytes)) = (parameter.access, memory)
                && let Some((saved, after)) = rest.split_at_checked(bytes.len())
            {
                bytes.copy_from_slice(saved);
                rest = after;
            }
        }
    }

    /// Keeps the memory for this thread's next call.
    #[inline]
    pub(crate) fn release(self) {
        if self.bytes.capacity() > 0 && self.bytes.capacity() <= KEPT_BYTES {
            // A thread that is ending keeps nothing.
            let _ = SAVED.try_with(|kept| kept.replace(self.bytes));
        }
    }
}
