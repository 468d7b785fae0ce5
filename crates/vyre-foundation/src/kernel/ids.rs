//! Handles to the parts of a kernel.

macro_rules! handle {
    ($(#[$doc:meta] $name:ident)*) => { $(
        #[$doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// The index into the kernel's list of these.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}
handle! {
    /// A value, defined once.
    ValueId
    /// A mutable variable.
    LocalId
    /// A private array.
    ArrayId
    /// A buffer.
    BufferId
}
