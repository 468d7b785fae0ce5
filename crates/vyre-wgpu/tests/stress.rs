//! Threads that compile, run, drop and reopen concurrently: a driver that is not thread-safe would
//! crash the process. `cargo xtask long driver-stress` does the same for minutes.

use std::sync::Arc;
use vyre_conform::stress::{self, StressLength};
use vyre_driver::{BackendError, VyreBackend};
use vyre_wgpu::Wgpu;

#[test]
fn threads_compile_run_drop_and_reopen() -> Result<(), BackendError> {
    if let Err(missing) = Wgpu::new() {
        println!("SKIP wgpu: {missing}");
        return Ok(());
    }
    let open = || Wgpu::new().map(|gpu| Arc::new(gpu) as Arc<dyn VyreBackend>);
    println!("wgpu: {}", stress::run(&open, StressLength::of_environment(2))?);
    Ok(())
}
