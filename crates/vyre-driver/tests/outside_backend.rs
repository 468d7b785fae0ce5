//! What a third-party backend of twenty lines gets from the defaults: pipelines, batches, slot
//! reuse, telemetry.

use std::sync::Arc;
use vyre_driver::observability::snapshot_dispatch_telemetry;
use vyre_driver::{BackendError, Binding, DispatchConfig, Resource, VyreBackend, pipeline};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

/// Adds one to every byte of its only input.
struct PlusOne;

impl VyreBackend for PlusOne {
    fn id(&self) -> &'static str {
        "plus-one"
    }

    fn dispatch(
        &self,
        _: &Program,
        inputs: &[Vec<u8>],
        _: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let [input] = inputs else { return Err(BackendError::new("give one input")) };
        Ok(vec![input.iter().map(|byte| byte.wrapping_add(1)).collect()])
    }
}

/// Uses 64-bit integers, f64, narrow elements and workgroup memory: a backend that describes no
/// device does not have them refused.
fn demanding_program() -> Program {
    let buffers = vec![
        BufferDecl::read("x", 0, DataType::U8),
        BufferDecl::output("y", 1, DataType::U8).with_len_of("x"),
        BufferDecl::workgroup("tile", 8, DataType::F64),
    ];
    let wide = Expr::load("tile", Expr::u32(0)).ge(Expr::f64(0.5));
    let body = vec![Node::if_(
        wide,
        vec![Node::store("y", Expr::invocation_id(0), Expr::load("x", Expr::invocation_id(0)))],
    )];
    Program::wrapped(buffers, [8, 1, 1], body)
}

#[test]
fn defaults_do_everything_else() -> Result<(), BackendError> {
    let config = DispatchConfig::default();
    let before = snapshot_dispatch_telemetry();
    let pipeline = pipeline::compile(Arc::new(PlusOne), &demanding_program(), &config)?;
    assert!(pipeline.id().starts_with("plus-one:"));

    assert_eq!(pipeline.dispatch(&[vec![1, 2]], &config)?, [vec![2, 3]]);
    assert_eq!(pipeline.dispatch_borrowed(&[&[1, 2]], &config)?, [vec![2, 3]]);

    let mut slots = vec![Vec::with_capacity(8), vec![0; 3]];
    let address = slots[0].as_ptr();
    pipeline.dispatch_borrowed_into(&[&[7, 8, 9]], &config, &mut slots)?;
    assert_eq!(slots, [vec![8, 9, 10]]);
    assert_eq!(slots[0].as_ptr(), address);

    let batch: [&[&[u8]]; 2] = [&[&[10]], &[&[20]]];
    assert_eq!(pipeline.dispatch_borrowed_batched(&batch, &config)?, [vec![vec![11]], vec![vec![21]]]);

    let held = [Resource::Borrowed(vec![5])];
    assert_eq!(pipeline.dispatch_persistent_handles(&held, &config)?, [vec![6]]);

    let timed = pipeline.dispatch_timed(&[&[1]], &config)?;
    assert_eq!((timed.outputs, timed.device), (vec![vec![2]], None));

    let (input, mut output) = ([1, 2, 3], [0; 3]);
    pipeline.dispatch_bound(&mut [Binding::Read(&input), Binding::Write(&mut output)], &config)?;
    assert_eq!(output, [2, 3, 4]);

    let seen = snapshot_dispatch_telemetry().since(&before);
    assert_eq!((seen.launches, seen.failed_launches), (8, 0));
    assert_eq!((seen.input_bytes, seen.output_bytes), (2 + 2 + 3 + 2 + 1 + 1 + 3, 14));
    assert_eq!((seen.output_slots, seen.output_slots_reused, seen.output_slots_moved), (8, 2, 2));
    assert_eq!((seen.compiles, seen.pass_through_pipelines, seen.failed_compiles), (1, 1, 0));
    Ok(())
}
