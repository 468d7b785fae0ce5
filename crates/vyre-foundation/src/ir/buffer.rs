//! Buffer declarations.

use super::{Expr, Formula, Name};
use crate::types::DataType;
use std::fmt;

/// Who reads and writes a buffer, and where it is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Passed in by the caller; the kernel only loads from it.
    Read,
    /// Passed in by the caller and returned; the kernel loads from it and stores to it.
    ReadWrite,
    /// Returned to the caller; reads as zero until written.
    Output,
    /// Passed in by the caller; small, identical for all invocations, only loaded from.
    Uniform,
    /// Shared by the invocations of one workgroup; zeroed when the workgroup starts.
    Workgroup,
}

impl Access {
    /// Every access, in the order of their wire tags.
    pub const ALL: [Access; 5] =
        [Access::Read, Access::ReadWrite, Access::Output, Access::Uniform, Access::Workgroup];

    /// The access's name in kernel text.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::ReadWrite => "read_write",
            Access::Output => "output",
            Access::Uniform => "uniform",
            Access::Workgroup => "workgroup",
        }
    }

    /// Whether the caller passes in its contents.
    pub fn is_input(self) -> bool {
        match self {
            Access::Read | Access::ReadWrite | Access::Uniform => true,
            Access::Output | Access::Workgroup => false,
        }
    }

    /// Whether its contents are returned to the caller.
    pub fn is_output(self) -> bool {
        match self {
            Access::ReadWrite | Access::Output => true,
            Access::Read | Access::Uniform | Access::Workgroup => false,
        }
    }

    /// Whether the kernel can store to it.
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
    /// The position among the program's inputs and outputs; ignored, and 0, for workgroup memory.
    pub binding: u32,
    /// Who reads and writes it.
    pub access: Access,
    /// The type of one element in memory.
    pub element: DataType,
    /// The number of elements; 0 if the dispatch determines it.
    pub count: u32,
    /// The buffer whose length this one has, if it is sized at dispatch.
    pub len_of: Option<Name>,
    /// The number of elements of an output, as a formula evaluated at dispatch.
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

    /// A single value that is the same for all invocations; [`with_count`](Self::with_count)
    /// declares several.
    pub fn uniform(name: impl Into<Name>, binding: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, binding, Access::Uniform, element, 1)
    }

    /// Memory of `count` elements shared by the invocations of a workgroup.
    pub fn workgroup(name: impl Into<Name>, count: u32, element: DataType) -> BufferDecl {
        BufferDecl::new(name, 0, Access::Workgroup, element, count)
    }

    /// Sets a fixed number of elements; 0 leaves it to the dispatch.
    #[must_use]
    pub fn with_count(mut self, count: u32) -> BufferDecl {
        (self.count, self.length) = (count, None);
        self
    }

    /// Clears the count if the length is a formula.
    pub(super) fn canonical(mut self) -> BufferDecl {
        if self.length.is_some() {
            self.count = 0;
        }
        self
    }

    /// Sizes the buffer at dispatch, with as many elements as the buffer `other`.
    #[must_use]
    pub fn with_len_of(mut self, other: impl Into<Name>) -> BufferDecl {
        self.len_of = Some(other.into());
        self
    }

    /// Sets the number of elements to an expression over uniforms and lengths; a literal is a
    /// count.
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
