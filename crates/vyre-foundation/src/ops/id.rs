//! Op ids: the names of table rows and programs outside the compiler.

use super::table::{AtomicOp, Op, SubgroupOp, WorkgroupOp};
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

/// An id such as `primitive.math.add` (a table row) or `blas.saxpy` (a program); cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(Arc<str>);

impl OpId {
    /// Makes an id from its text.
    pub fn new(text: impl Into<Arc<str>>) -> OpId {
        OpId(text.into())
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpId({:?})", self.as_str())
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for OpId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for OpId {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for OpId {
    fn from(text: &str) -> OpId {
        OpId::new(text)
    }
}

impl From<String> for OpId {
    fn from(text: String) -> OpId {
        OpId::new(text)
    }
}

impl From<Cow<'_, str>> for OpId {
    fn from(text: Cow<'_, str>) -> OpId {
        OpId::new(&*text)
    }
}

/// The ids of all table rows: pure ops, atomics, subgroup ops, workgroup ops, in table order.
pub fn all_op_ids() -> impl Iterator<Item = OpId> {
    let pure = Op::ALL.iter().map(|op| op.id());
    let atomic = AtomicOp::ALL.iter().map(|op| op.id());
    let subgroup = SubgroupOp::all().map(|op| op.id());
    let workgroup = WorkgroupOp::ALL.iter().map(|op| op.id());
    pure.chain(atomic).chain(subgroup).chain(workgroup)
}
