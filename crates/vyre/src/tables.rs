//! Where a runtime keeps what it learns.

pub(crate) use vyre_driver::places::Places as Tables;
pub use vyre_driver::places::{CACHE_LIMIT_VARIABLE, TABLES_VARIABLE};
