//! Threads that compile, run, drop and reopen concurrently: a driver that is not thread-safe would
//! crash the process. `cargo xtask long driver-stress` does the same for minutes.

use std::sync::Arc;
use vyre_conform::stress::{self, StressLength};
use vyre_driver::{BackendError, VyreBackend};
use vyre_opencl::OpenCl;

#[test]
fn threads_compile_run_drop_and_reopen() -> Result<(), BackendError> {
    if let Err(missing) = OpenCl::new() {
        println!("SKIP {missing}");
        return Ok(());
    }
    let open = || OpenCl::new().map(|opencl| Arc::new(opencl) as Arc<dyn VyreBackend>);
    println!("opencl: {}", stress::run(&open, StressLength::of_environment(2))?);
    Ok(())
}
