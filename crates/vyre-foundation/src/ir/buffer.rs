//! Buffer declarations.

use super::{Expr, Formula, Name};
use crate::types::DataType;
use std::fmt;

/// Who may read and write a buffer, and where it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Given by the caller; the kernel only loads.
    Read,
    /// Given by the caller and returned; the kernel loads and stores.
    ReadWrite,
    /// Returned to the caller; reads as zero until written.
    Output,
    /// Given by the caller; small, the same for all invocations, only loaded.
    Uniform,
    /// Shared by the invocations of one workgroup, zeroed when the group starts.
    Workgroup,
}

impl Access {
    /// Every access, in the order of their wire tags.
    pub const ALL: [Access; 5] =
        [Access::Read, Access::ReadWrite, Access::Output, Access::Uniform, Access::Workgroup];

    /// The access's name in text.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::ReadWrite => "read_write",
            Access::Output => "output",
            Access::Uniform => "uniform",
            Access::Workgroup => "workgroup",
        }
    }

    /// Whether the caller passes bytes for it.
    pub fn is_input(self) -> bool {
        match self {
            Access::Read | Access::ReadWrite | Access::Uniform => true,
            Access::Output | Access::Workgroup => false,
        }
    }

    /// Whether the caller gets bytes back for it.
    pub fn is_output(self) -> bool {
        match self {
            Access::ReadWrite | Access::Output => true,
            Access::Read | Access::Uniform | Access::Workgroup => false,
        }
    }

    /// Whether the kernel may store to it.
    pub fn is_writable(self) -> bool {
        self.is_output() || self == Access::Workgroup
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A buffer that a program declares.
///
/// ```
/// use vyre_foundation::ir::{BufferDecl, DataType};
/// let y = BufferDecl::output("y", 1, DataType::F32).with_len_of("x");
/// let tile = BufferDecl::workgroup("tile", 64, DataType::F32);
/// assert_eq!((y.count, tile.count), (0, 64));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferDecl {
    /// The name that the body uses.
    pub name: Name,
    /// The position among the program's inputs and outputs; ignored for workgroup memory, and 0 there.
    pub binding: u32,
    /// Who reads and writes it.
    pub access: Access,
    /// The type of one element in memory.
    pub element: DataType,
    /// How many elements; 0 means that the dispatch decides.
    pub count: u32,
    /// The buffer whose length this one takes, if it is sized at dispatch.
    pub len_of: Option<Name>,
    /// How many elements an output has, as a dispatch works it out.
    pub length: Option<Formula>,
}

impl BufferDecl {
    fn new(name: impl Into<Name>, binding: u32, access: Access, element: DataType, count: u32) -> BufferDecl {
        BufferDecl { name: name.into(), binding, access, element, count, len_of: None, length: None }
    }

    /// A buffer that the kernel only loads from, sized at dispatch.
    pub fn read(name: impl Into<Name>, binding: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, binding, Access::Read, element, 0)
    }

    /// A buffer that the kernel loads from and stores to, sized at dispatch.
    pub fn read_write(name: impl Into<Name>, binding: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, binding, Access::ReadWrite, element, 0)
    }

    /// A buffer that the kernel fills, sized at dispatch.
    pub fn output(name: impl Into<Name>, binding: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, binding, Access::Output, element, 0)
    }

    /// A single value that is the same for all invocations; [`with_count`](Self::with_count) makes it several.
    pub fn uniform(name: impl Into<Name>, binding: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, binding, Access::Uniform, element, 1)
    }

    /// Memory of `count` elements that the invocations of a workgroup share.
    pub fn workgroup(name: impl Into<Name>, count: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, 0, Access::Workgroup, element, count)
    }

    /// The same buffer with a fixed number of elements; 0 means that the dispatch decides.
    #[must_use]
    pub fn with_count(mut self, count: u32) -> BufferDecl {
        (self.count, self.length) = (count, None);
        self
    }

    /// The same, without a count where a dispatch works the length out.
    pub(super) fn canonical(mut self) -> BufferDecl {
        if self.length.is_some() {
            self.count = 0;
        }
        self
    }

    /// The same buffer, sized at dispatch to as many elements as the buffer `other` has.
    #[must_use]
    pub fn with_len_of(mut self, other: impl Into<Name>) -> BufferDecl {
        self.len_of = Some(other.into());
        self
    }

    /// The same buffer with as many elements as the expression over uniforms and lengths gives; a literal is a count.
    ///
    /// ```
    /// use vyre_foundation::ir::{BufferDecl, DataType, Expr};
    /// let size = Expr::uniform("width") * Expr::uniform("height");
    /// let y = BufferDecl::output("y", 2, DataType::F32).with_length(size);
    /// assert_eq!((y.count, y.length.is_some()), (0, true));
    /// ```
    #[must_use]
    pub fn with_length(mut self, length: impl Into<Expr>) -> BufferDecl {
        match Formula::new(length) {
            Ok(formula) => (self.count, self.length) = (0, Some(formula)),
            Err(count) => (self.count, self.length) = (count, None),
        }
        self
    }
}
