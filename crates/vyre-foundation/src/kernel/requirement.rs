//! Conditions that a dispatch must satisfy for a kernel's proofs to hold, where the kernel alone
//! does not imply them.
//!
//! A guard `i < len(y)` implies nothing about `x[i]` until the lengths of a dispatch are known. If
//! every dispatch is checked (`Assume::dispatch_checks`), the optimizer treats the access as proved
//! and records its assumption as a [`Requirement`]: the upper bound of an index, an [`Extent`] that
//! a dispatch can evaluate, is below a number that the dispatch knows.
//!
//! Extents are upper bounds of unsigned values. Wrapping sums and products never exceed the exact
//! ones, so an extent holds whether or not its arithmetic wraps.

use super::{BufferId, KernelBody};
use crate::launch::Launch;
use crate::ops::{Op, eval};
use crate::types::{Value, ValueType};
use smallvec::SmallVec;
use std::fmt;

/// Requires every value bounded by `index` to be less than `below`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The upper bound of a value.
    pub index: Extent,
    /// The limit, exclusive.
    pub below: Known,
}

/// An upper bound of an unsigned value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The value itself.
    Known(Known),
    /// The number of invocations on an axis.
    Invocations(u8),
    /// One less, or 0 if that is negative, since the range is empty then.
    Below(Box<Extent>),
    /// The sum of both.
    Sum(Box<[Extent; 2]>),
    /// The product of both.
    Product(Box<[Extent; 2]>),
    /// The value divided by a nonzero constant, rounded down.
    Quotient(Box<Extent>, u64),
    /// The least of these, at least one.
    Least(Vec<Extent>),
}

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

/// The facts about a dispatch that requirements use.
pub(crate) struct Facts<'a> {
    pub(crate) launch: &'a Launch,
    /// An element of a read-only buffer; `None` if unknown.
    pub(crate) element: &'a mut dyn FnMut(BufferId, u32) -> Option<Value>,
}

impl Lookup for Facts<'_> {
    fn length(&mut self, buffer: BufferId) -> Option<u32> {
        self.launch.lengths.get(buffer.index()).copied()
    }

    fn element(&mut self, buffer: BufferId, index: u32) -> Option<Value> {
        (self.element)(buffer, index)
    }

    fn groups(&mut self, axis: u8) -> Option<u32> {
        Some(self.launch.grid[usize::from(axis)])
    }
}

impl Requirement {
    pub(crate) fn holds(&self, facts: &mut Facts) -> bool {
        match (self.index.evaluate(facts), self.below.evaluate(facts).and_then(Value::as_integer)) {
            (Some(index), Some(below)) => i128::from(index) < below,
            (Some(_) | None, Some(_) | None) => false,
        }
    }
}

impl Extent {
    fn evaluate(&self, facts: &mut Facts) -> Option<u64> {
        Some(match self {
            Extent::Known(known) => {
                let exact = known.evaluate(facts)?.as_integer()?;
                // A negative bound admits no unsigned value, like an empty range.
                u64::try_from(exact.max(0)).unwrap_or(u64::MAX)
            }
            Extent::Invocations(axis) => facts.invocations(usize::from(*axis)),
            Extent::Below(extent) => extent.evaluate(facts)?.saturating_sub(1),
            Extent::Sum(both) => both[0].evaluate(facts)?.saturating_add(both[1].evaluate(facts)?),
            Extent::Product(both) => both[0].evaluate(facts)?.saturating_mul(both[1].evaluate(facts)?),
            Extent::Quotient(extent, by) => extent.evaluate(facts)?.checked_div(*by)?,
            Extent::Least(extents) => extents.iter().filter_map(|extent| extent.evaluate(facts)).min()?,
        })
    }
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
}

impl Known {
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

impl Facts<'_> {
    /// The number of invocations on an axis, counted as before coarsening.
    fn invocations(&self, axis: usize) -> u64 {
        let launch = self.launch;
        let count = match launch.limit {
            Some(limit) => u64::from(limit[axis]),
            None => u64::from(launch.grid[axis]) * u64::from(launch.workgroup[axis]),
        };
        count.saturating_mul(u64::from(launch.coarsening))
    }
}

/// A requirement displayed with the names of the kernel's buffers.
pub(crate) struct Named<'a, T>(pub(crate) &'a KernelBody, pub(crate) &'a T);

impl fmt::Display for Named<'_, Requirement> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} < {}", Named(self.0, &self.1.index), Named(self.0, &self.1.below))
    }
}

impl<'a> fmt::Display for Named<'a, Extent> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |extent: &'a Extent| Named(self.0, extent);
        match self.1 {
            Extent::Known(known) => Named(self.0, known).fmt(f),
            Extent::Invocations(axis) => write!(f, "invocations({axis})"),
            Extent::Below(extent) => write!(f, "({} - 1)", named(extent)),
            Extent::Sum(both) => write!(f, "({} + {})", named(&both[0]), named(&both[1])),
            Extent::Product(both) => write!(f, "({} * {})", named(&both[0]), named(&both[1])),
            Extent::Quotient(extent, by) => write!(f, "({} / {by})", named(extent)),
            Extent::Least(extents) => {
                f.write_str("least(")?;
                for (k, extent) in extents.iter().enumerate() {
                    write!(f, "{}{}", if k == 0 { "" } else { ", " }, named(extent))?;
                }
                f.write_str(")")
            }
        }
    }
}

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
