//! Storage for what a runtime learns.

pub(crate) use vyre_driver::storage::Storage as Tables;
pub use vyre_driver::storage::{CACHE_LIMIT_VARIABLE, TABLES_VARIABLE};
