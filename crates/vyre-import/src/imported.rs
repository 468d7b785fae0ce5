//! What an entry point becomes: a program, and where its buffers are in the shader.

use vyre_foundation::ir::{DataType, Program};

/// An entry point as a program.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program. It is not validated yet.
    pub program: Program,
    /// Its buffers that a caller binds, in the order of groups and bindings.
    pub bindings: Vec<Binding>,
}

/// A buffer of the shader that a caller binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its name in the shader and in the program.
    pub name: String,
    /// Its group in the shader; none for constants that are pushed.
    pub group: Option<u32>,
    /// Its number in the group.
    pub binding: Option<u32>,
    /// Its binding in the program: a thousand times the group, plus the number in it.
    pub number: u32,
    /// What lies where in its memory.
    pub layout: Layout,
}

/// What lies where in a buffer's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A number.
    Scalar(DataType),
    /// Members, each with its place in bytes.
    Struct(Vec<(u32, Layout)>),
    /// Elements side by side; components of vectors and matrices too.
    Array {
        /// Bytes from one element to the next.
        stride: u32,
        /// How many; none if the buffer's size decides.
        count: Option<u32>,
        /// What each is.
        element: Box<Layout>,
    },
}

impl Layout {
    /// Where an array starts whose length the buffer's size decides, and the distance of its elements, in bytes.
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
