//! The foundation's tests from outside; the one beside this folder counts allocations.

mod generated_docs;
mod saxpy;
