//! Values that are the same for all invocations of a dispatch and known before it starts: formulas
//! over lengths, grid sizes and elements of read-only buffers.

use super::{BufferId, KernelBody};
use crate::ops::{Op, eval};
use crate::types::{Value, ValueType};
use smallvec::SmallVec;
use std::fmt;

/// A value that is the same for all invocations of a dispatch and known before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// A constant.
    Const(Value),
    /// The length of a buffer.
    Len(BufferId),
    /// An element of a buffer that the kernel only reads.
    Element(BufferId, u32),
    /// The number of workgroups on an axis.
    Groups(u8),
    /// A table op.
    Op(Op, Vec<Known>),
}

/// Source of the values of [`Known`]s.
pub(crate) trait Lookup {
    /// The length of a buffer.
    fn length(&mut self, buffer: BufferId) -> Option<u32>;
    /// An element of a read-only buffer; zero if out of range, `None` if unknown.
    fn element(&mut self, buffer: BufferId, index: u32) -> Option<Value>;
    /// The number of workgroups on an axis.
    fn groups(&mut self, axis: u8) -> Option<u32>;
}

impl Known {
    /// The value in a dispatch, if everything that it depends on is known.
    pub(crate) fn evaluate(&self, facts: &mut dyn Lookup) -> Option<Value> {
        match self {
            Known::Const(value) => Some(*value),
            Known::Len(buffer) => facts.length(*buffer).map(Value::U32),
            Known::Element(buffer, index) => facts.element(*buffer, *index),
            Known::Groups(axis) => facts.groups(*axis).map(Value::U32),
            Known::Op(op, args) => {
                let args: Option<SmallVec<[Value; 3]>> = args.iter().map(|arg| arg.evaluate(facts)).collect();
                eval(*op, &args?)
            }
        }
    }

    /// Adds the buffers whose elements it depends on.
    pub(crate) fn elements(&self, found: &mut Vec<BufferId>) {
        match self {
            Known::Element(buffer, _) => found.push(*buffer),
            Known::Op(_, args) => args.iter().for_each(|arg| arg.elements(found)),
            Known::Const(_) | Known::Len(_) | Known::Groups(_) => {}
        }
    }

    /// Adds the buffers whose lengths it depends on.
    pub(crate) fn lengths(&self, found: &mut Vec<BufferId>) {
        match self {
            Known::Len(buffer) => found.push(*buffer),
            Known::Op(_, args) => args.iter().for_each(|arg| arg.lengths(found)),
            Known::Const(_) | Known::Element(..) | Known::Groups(_) => {}
        }
    }

    /// The type. Operand types match, which the creator of the expression ensures.
    pub(crate) fn ty(&self, kernel: &KernelBody) -> Option<ValueType> {
        match self {
            Known::Const(value) => Some(value.ty()),
            Known::Len(_) | Known::Groups(_) => Some(ValueType::U32),
            Known::Element(buffer, _) => Some(kernel.buffer(*buffer).decl.element.value_type()),
            Known::Op(op, args) => {
                let types: Option<Vec<ValueType>> = args.iter().map(|arg| arg.ty(kernel)).collect();
                op.row().signature.result(&types?)
            }
        }
    }
}

/// A part of a kernel displayed with the names of the kernel's buffers.
pub(crate) struct Named<'a, T>(pub(crate) &'a KernelBody, pub(crate) &'a T);

impl fmt::Display for Named<'_, Known> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |buffer: &BufferId| self.0.buffer(*buffer).decl.name.clone();
        match self.1 {
            Known::Const(value) => match value.as_integer() {
                Some(exact) => write!(f, "{exact}"),
                None => write!(f, "{value:?}"),
            },
            Known::Len(buffer) => write!(f, "len({})", name(buffer)),
            Known::Element(buffer, index) => write!(f, "{}[{index}]", name(buffer)),
            Known::Groups(axis) => write!(f, "groups({axis})"),
            Known::Op(op, args) => {
                write!(f, "{}(", op.row().name)?;
                for (k, arg) in args.iter().enumerate() {
                    write!(f, "{}{}", if k == 0 { "" } else { ", " }, Named(self.0, arg))?;
                }
                f.write_str(")")
            }
        }
    }
}
