//! The op table: one row per operation, from which names, wire tags, typing, algebra and
//! documentation derive.
//!
//! Four small tables share one id space (`primitive.<family>.<name>`): [`Op`] for pure functions of
//! values, [`AtomicOp`] for read-modify-write of memory, [`SubgroupOp`] for exchange between the
//! lanes of a subgroup, [`WorkgroupOp`] for exchange within the workgroup. [`eval`] is the single
//! definition of what a pure op computes. The [`Law`]s claimed for it are checked bit for bit
//! against that definition in this module's tests.

mod eval;
mod id;
mod laws;
mod signature;
mod table;

pub use eval::eval;
pub use id::{OpId, all_op_ids};
pub use laws::{Law, SpecialValue};
pub use signature::{Class, Signature};
pub use table::{
    AtomicOp, AtomicRow, Combine, Op, OpRow, Spelling, SubgroupOp, SubgroupRow, WorkgroupOp, WorkgroupRow,
};

#[cfg(test)]
mod tests;
