//! Tests of the foundation's public interface; the one outside this folder counts allocations.

mod generated_docs;
mod saxpy;
