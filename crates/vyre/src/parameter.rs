//! The buffers that a call binds, and whether an argument fits one.

use crate::argument::{Argument, Bound, argument_fault};
use crate::shared::Shared;
use std::sync::Arc;
use vyre_foundation::diagnostics::Diagnostic;
use vyre_foundation::ir::{Access, DataType, Name};

/// A buffer that a call binds.
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) access: Access,
    pub(crate) element: DataType,
    pub(crate) size: usize,
    /// Number of elements; 0 if the call decides.
    pub(crate) count: u32,
    /// Whether its contents determine the size of a call, so that the host has to see them.
    pub(crate) sizes: bool,
}

impl Parameter {
    pub(crate) fn new(name: Name, access: Access, element: DataType, count: u32) -> Parameter {
        Parameter { name, access, element, size: element.size(), count, sizes: false }
    }

    /// Whether it has this name. Names are short: a call of the library's comparison takes longer
    /// than a loop over the bytes.
    #[inline]
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let (own, name) = (self.name.as_bytes(), name.as_bytes());
        own.len() == name.len() && own.iter().zip(name).all(|(own, other)| own == other)
    }

    /// Whether this many bytes can be bound to it.
    #[inline]
    pub(crate) fn is_length(&self, bytes: usize) -> bool {
        // Element sizes are powers of two.
        let (count, odd) = (bytes >> self.size.trailing_zeros(), bytes & (self.size - 1));
        odd == 0 && if self.count > 0 { count == self.count as usize } else { count <= u32::MAX as usize }
    }

    /// Whether the argument fits.
    #[inline]
    pub(crate) fn takes(&self, argument: &Argument<'_>, shared: &Arc<Shared>) -> bool {
        argument.kind.fits(self.element)
            && match &argument.memory {
                Bound::Resident(buffer) => {
                    buffer.belongs_to(shared) && !self.sizes && !self.access.is_output()
                }
                Bound::ResidentMut(buffer) => buffer.belongs_to(shared) && !self.sizes,
                Bound::Write(_) => true,
                Bound::Nothing | Bound::Number(..) | Bound::Read(_) => !self.access.is_output(),
            }
    }

    /// Why the argument does not fit; `None` if it does. `of` names the kernel or op.
    pub(crate) fn misfit(
        &self,
        argument: &Argument<'_>,
        shared: &Arc<Shared>,
        of: &str,
    ) -> Option<Diagnostic> {
        if self.takes(argument, shared) {
            return None;
        }
        let Parameter { name, element, access, .. } = self;
        if !argument.kind.fits(*element) {
            let given = argument.kind.name;
            let message = format!("buffer `{name}` of {of} has elements of {element}, not {given}");
            return Some(argument_fault(message).help(format!("bind {}", self.rust_type())));
        }
        if let Some(buffer) = argument.memory.resident()
            && !buffer.belongs_to(shared)
        {
            let message = format!("the resident buffer bound to `{name}` belongs to another runtime");
            return Some(
                argument_fault(message).help("make it with the runtime that the program was loaded into"),
            );
        }
        if self.sizes && argument.memory.resident().is_some() {
            let message =
                format!("`{name}` decides how large a call of {of} is, and was bound to a resident buffer");
            return Some(
                argument_fault(message).help(format!("bind a number: `.bind(\"{name}\", 640_u32)`")),
            );
        }
        let message = format!("buffer `{name}` of {of} is {access}, and what was bound cannot be written");
        Some(argument_fault(message).help(format!("bind it with `&mut {name}`")))
    }

    pub(crate) fn not_bound(&self, of: &str) -> Diagnostic {
        let Parameter { name, element, .. } = self;
        let mutable = if self.access.is_output() { "&mut " } else { "&" };
        argument_fault(format!("buffer `{name}` of {of} is not bound"))
            .help(format!("add `.bind(\"{name}\", {mutable}…)` with elements of {element}"))
    }

    fn rust_type(&self) -> String {
        let name = match self.element {
            DataType::Bool => "bool (u8 where the program writes)",
            DataType::F16 | DataType::Bf16 => "u16, the elements' bits",
            DataType::U8
            | DataType::I8
            | DataType::U16
            | DataType::I16
            | DataType::U32
            | DataType::I32
            | DataType::U64
            | DataType::I64
            | DataType::F32
            | DataType::F64 => self.element.name(),
        };
        format!("elements of type {name}")
    }
}
