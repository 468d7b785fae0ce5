//! A custom backend in one file, on the driver's native pipeline: certified, routed to, and shown
//! in the docs.

use crate::walker::{Walk, Walker};
use std::path::Path;
use std::sync::Arc;
use vyre::prelude::*;
use vyre_driver::native::Native;
use vyre_driver::{BackendError, Binding, CompiledPipeline, DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::text::parse;

const DOUBLE: &str = "kernel double(x: read f32[], y: output f32[] len_of x) {
  region \"double\" { y[invocation.x] = x[invocation.x] * 2.0 }
}";

fn walker() -> Walker {
    Walker(Native::new(Walk))
}

/// The runtime has no other backend, and runs nothing on one that has not passed the conformance
/// set.
#[test]
fn it_passes_the_conformance_set_and_runs() -> Result<(), BackendError> {
    let walker: Arc<dyn VyreBackend> = Arc::new(walker());
    let runtime = Runtime::builder().backends::<String>([]).backend(walker).without_tables().build()?;
    let routine = runtime.load(DOUBLE)?;
    let (x, mut y) = ([1.0_f32, -0.5, 3.0], [9.0_f32; 3]);
    let report = routine.call().bind("x", &x).bind("y", &mut y).run()?;
    assert_eq!((report.backend, y), ("walker", [2.0, -1.0, 6.0]));
    Ok(())
}

fn compiled(source: &str) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    pipeline::compile(Arc::new(walker()), &parse(source)?, &DispatchConfig::default())
}

#[test]
fn what_it_lacks_is_refused() -> Result<(), BackendError> {
    let refused = |source: &str| matches!(compiled(source), Err(BackendError::UnsupportedFeature { .. }));
    assert!(refused("kernel k(y: output u32[4]) { region \"r\" { y[local.x] = 1 } }"));
    assert!(refused("kernel k(y: read_write u32[4]) { region \"r\" { let a = atomic_add(y, 0, 1) } }"));
    let resident = walker().allocate_resident(4);
    assert!(matches!(resident, Err(BackendError::UnsupportedFeature { .. })), "{resident:?}");
    Ok(())
}

#[test]
fn slots_stay_as_they_were_after_a_failed_call() -> Result<(), BackendError> {
    let source = "kernel k(x: read u32[], y: output u32[] len_of x) {
      region \"r\" { y[invocation.x] = 1
        if x[invocation.x] == 7 { trap 3 } }
    }";
    let (traps, config) = (compiled(source)?, DispatchConfig::default());
    let mut slots = vec![vec![5; 8], vec![6; 2]];
    let ended = traps.dispatch_borrowed_into(&[&7_u32.to_le_bytes()], &config, &mut slots);
    assert!(matches!(ended, Err(BackendError::Trapped { code: 3, .. })), "{ended:?}");
    assert_eq!(slots, [vec![5; 8], vec![6; 2]]);
    traps.dispatch_borrowed_into(&[&8_u32.to_le_bytes()], &config, &mut slots)?;
    assert_eq!(slots, [vec![1, 0, 0, 0]]);
    let mut y = [9; 4];
    traps.dispatch_bound(&mut [Binding::Read(&[0; 4]), Binding::Write(&mut y)], &config)?;
    assert_eq!(y, [1, 0, 0, 0]);
    Ok(())
}

/// The page contains the file verbatim.
#[test]
fn the_docs_show_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("the file is there");
    let (page, source) = (read("../../docs/extending.md"), read("tests/all/walker/mod.rs"));
    let code = source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(code.count() < 200);
    assert!(
        page.contains(source.trim_end()),
        "docs/extending.md does not contain tests/all/walker/mod.rs verbatim"
    );
}
