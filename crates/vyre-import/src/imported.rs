//! Result of an import: a program, and the bindings of its buffers in the shader.

use vyre_foundation::ir::{DataType, Program};

/// An imported entry point.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program, not yet validated.
    pub program: Program,
    /// Buffers that a caller binds, ordered by group and binding.
    pub bindings: Vec<ShaderBinding>,
}

/// A buffer of the shader that a caller binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaderBinding {
    /// Name in the shader and in the program.
    pub name: String,
    /// Group in the shader; `None` for push constants.
    pub group: Option<u32>,
    /// Binding number within the group.
    pub binding: Option<u32>,
    /// Binding in the program: a thousand times the group, plus the number within it.
    pub number: u32,
    /// Layout of its memory.
    pub layout: Layout,
}

/// Layout of a buffer's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A scalar.
    Scalar(DataType),
    /// Members, each with its offset in bytes.
    Struct(Vec<(u32, Layout)>),
    /// Elements side by side, including the components of vectors and matrices.
    Array {
        /// Bytes from one element to the next.
        stride: u32,
        /// Number of elements; `None` if the buffer's size determines it.
        count: Option<u32>,
        /// Layout of each element.
        element: Box<Layout>,
    },
}

impl Layout {
    /// Offset and stride, in bytes, of the array whose length the buffer's size determines.
    pub fn tail(&self) -> Option<(u32, u32)> {
        match self {
            Layout::Scalar(_) => None,
            Layout::Struct(members) => {
                let (at, last) = members.last()?;
                last.tail().map(|(inner, stride)| (at + inner, stride))
            }
            Layout::Array { stride, count: None, .. } => Some((0, *stride)),
            Layout::Array { .. } => None,
        }
    }
}
