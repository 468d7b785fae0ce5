//! Parameters of a kernel or op, in the order in which a caller passes them.

use vyre::DataType;
use vyre::ir::{Access, BufferDecl, Program};

/// Parameter of a kernel or op.
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) element: DataType,
    pub(crate) access: Access,
    /// Whether it is a single number.
    pub(crate) single: bool,
    /// For the length of an axis of another parameter's array, which callers do not pass: that
    /// parameter's position, and the axis.
    pub(crate) axis: Option<(usize, usize)>,
}

impl Parameter {
    fn of(buffer: &BufferDecl) -> Parameter {
        let single = buffer.access == Access::Uniform && buffer.count == 1;
        let name = buffer.name.to_string();
        Parameter { name, element: buffer.element, access: buffer.access, single, axis: None }
    }

    /// Parameter that is only read.
    pub(crate) fn read(name: &str, element: DataType) -> Parameter {
        Parameter { name: name.into(), element, access: Access::Read, single: false, axis: None }
    }

    /// Parameter that is written.
    pub(crate) fn write(name: &str, element: DataType) -> Parameter {
        Parameter { name: name.into(), element, access: Access::Output, single: false, axis: None }
    }

    /// Whether callers can pass it.
    pub(crate) fn is_given(&self) -> bool {
        self.axis.is_none()
    }

    /// Whether a call creates it if it is not passed.
    pub(crate) fn is_result(&self) -> bool {
        self.access == Access::Output
    }
}

/// Parameters of a program, as declared.
pub(crate) fn of_program(program: &Program) -> Vec<Parameter> {
    let bound = program.buffers().iter().filter(|buffer| buffer.access != Access::Workgroup);
    bound.map(Parameter::of).collect()
}
