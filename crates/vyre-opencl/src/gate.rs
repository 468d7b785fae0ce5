//! Controls which launches of a program can run concurrently.
//!
//! PoCL before 6.0 has one list of loaded code for the whole process, most recently used first. A
//! launch takes the first item that fits it. When it ends, it releases the first item of the same
//! kernel and workgroup size, whichever one it took. A kernel has several items: with and without
//! an offset, one more for each grid larger than any before, and one created when the program's
//! binary is requested. When two of them are in use at once, one of them is released too often, and
//! PoCL aborts the process.
//!
//! Launches that take the same items therefore pass a program's [`Gate`] together. A launch that
//! takes other items or creates one passes alone, and so does a request for the binary. PoCL
//! identifies a program by its text, whatever context it was built in, and so does the table of
//! gates here.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// The gate of one program.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    items: RwLock<Items>,
}

/// Which of a program's kernels is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Runs any grid.
    Any,
    /// Runs workgroups that are entirely inside the domain.
    Whole,
}

/// Properties that determine which item a launch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchKind {
    pub(crate) entry: EntryKind,
    pub(crate) has_offset: bool,
    /// Grid size in invocations.
    pub(crate) size: [usize; 3],
}

/// Items created so far by launches.
#[derive(Debug, Default)]
pub(crate) struct Items {
    entries: [EntryItems; 2],
}

#[derive(Debug, Default)]
struct EntryItems {
    /// Whether the last launch had an offset; its item is the first in PoCL's list.
    last_has_offset: Option<bool>,
    /// Largest sizes along each axis, without and with an offset. PoCL looks at the largest axis;
    /// an item for a size fits every smaller one.
    largest: [[usize; 3]; 2],
}

impl Items {
    /// Whether a launch takes the item that other launches are using.
    fn first_fits(&self, kind: &LaunchKind) -> bool {
        let items = &self.entries[kind.entry as usize];
        let largest = &items.largest[usize::from(kind.has_offset)];
        items.last_has_offset == Some(kind.has_offset)
            && kind.size.iter().zip(largest).all(|(size, most)| size <= most)
    }

    fn add(&mut self, kind: &LaunchKind) {
        let items = &mut self.entries[kind.entry as usize];
        items.last_has_offset = Some(kind.has_offset);
        let largest = &mut items.largest[usize::from(kind.has_offset)];
        *largest = std::array::from_fn(|axis| largest[axis].max(kind.size[axis]));
    }
}

/// Permission to launch while it is held. All launches must have ended when it is dropped.
#[derive(Debug)]
pub(crate) enum LaunchPermit<'a> {
    Beside(RwLockReadGuard<'a, Items>),
    Alone(RwLockWriteGuard<'a, Items>),
}

impl LaunchPermit<'_> {
    /// Whether the pass permits a launch of this kind.
    pub(crate) fn admits(&self, kind: &LaunchKind) -> bool {
        match self {
            LaunchPermit::Beside(items) => items.first_fits(kind),
            LaunchPermit::Alone(_) => true,
        }
    }

    /// Records a launch made under this pass.
    pub(crate) fn launched(&mut self, kind: &LaunchKind) {
        // A shared pass implies that all items exist.
        if let LaunchPermit::Alone(items) = self {
            items.add(kind);
        }
    }
}

impl Gate {
    /// The gate of the program with this key, shared by all holders.
    pub(crate) fn of(key: &blake3::Hash) -> Arc<Gate> {
        static GATES: LazyLock<Mutex<HashMap<blake3::Hash, Weak<Gate>>>> = LazyLock::new(Mutex::default);
        let mut gates = GATES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(key).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::new(Gate::default());
        gates.insert(*key, Arc::downgrade(&gate));
        gate
    }

    /// Waits until launches of all these kinds can start. The caller must hold no other pass of
    /// this gate.
    pub(crate) fn pass(&self, mut kinds: impl Iterator<Item = LaunchKind>) -> LaunchPermit<'_> {
        let items = self.items.read().unwrap_or_else(PoisonError::into_inner);
        if kinds.all(|kind| items.first_fits(&kind)) {
            return LaunchPermit::Beside(items);
        }
        drop(items);
        self.pass_alone()
    }

    /// Waits until no launch is running.
    pub(crate) fn pass_alone(&self) -> LaunchPermit<'_> {
        LaunchPermit::Alone(self.items.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: LaunchKind = LaunchKind { entry: EntryKind::Any, has_offset: false, size: [1024, 1, 1] };

    /// Launches each kind under its own pass and checks whether the pass was shared.
    fn check(launches: &[(LaunchKind, bool)]) {
        let gate = Gate::default();
        for (k, (kind, beside)) in launches.iter().enumerate() {
            let mut pass = gate.pass([*kind].into_iter());
            assert_eq!(matches!(pass, LaunchPermit::Beside(_)), *beside, "launch {k}: {kind:?}");
            pass.launched(kind);
        }
    }

    #[test]
    fn only_launches_of_the_same_code_go_side_by_side() {
        let small = LaunchKind { size: [64, 1, 1], ..ANY };
        let wide = LaunchKind { size: [64, 2, 1], ..ANY };
        let offset = LaunchKind { has_offset: true, ..ANY };
        let whole = LaunchKind { entry: EntryKind::Whole, ..ANY };
        check(&[(ANY, false), (ANY, true), (small, true), (wide, false), (ANY, true), (small, true)]);
        check(&[(ANY, false), (offset, false), (offset, true), (ANY, false), (small, true)]);
        check(&[(ANY, false), (whole, false), (whole, true), (ANY, true)]);
    }

    #[test]
    fn a_pass_that_was_not_used_leaves_nothing_behind() {
        let gate = Gate::default();
        drop(gate.pass([ANY].into_iter()));
        assert!(matches!(gate.pass([ANY].into_iter()), LaunchPermit::Alone(_)));
    }

    #[test]
    fn a_program_has_one_gate() {
        let (first, other) = (blake3::hash(b"first"), blake3::hash(b"other"));
        let gate = Gate::of(&first);
        assert!(Arc::ptr_eq(&gate, &Gate::of(&first)));
        assert!(!Arc::ptr_eq(&gate, &Gate::of(&other)));
    }
}
