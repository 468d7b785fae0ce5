//! Resource limits of a run, and execution orders that must not affect results.

use std::time::Duration;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::launch::Overrides;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::text::parse;
use vyre_foundation::types::Value;
use vyre_reference::{BoundBytes, Order, RunError, RunOptions, run, run_bound};

fn kernel(text: &str) -> Kernel {
    parse(text).expect("well formed").validate().expect("valid")
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[test]
fn loops_end_at_the_deadline() {
    let timeout = RunOptions { timeout: Some(Duration::from_millis(2)), ..RunOptions::default() };
    let endless = kernel("kernel k(y: output u32[1]) { region \"r\" { while true { y[0] = 1 } } }");
    assert_eq!(run(&endless, &[], &timeout), Err(RunError::Timeout));
    let counted = kernel(
        "kernel k(y: output u32[1]) { region \"r\" { for i in 0u64..18446744073709551615u64 step 1u64 { y[0] = 1 } } }",
    );
    assert_eq!(run(&counted, &[], &timeout), Err(RunError::Timeout));
    // More workgroups than can ever be counted, none with any work.
    let empty = kernel("kernel k(y: output u32[1]) { region \"r\" { y[0] = workgroup.x } }");
    let grid = Overrides { grid: Some([u32::MAX; 3]), workgroup: Some([1, 1, 1]), ..Overrides::default() };
    assert_eq!(run(&empty, &[], &RunOptions { overrides: grid, ..timeout }), Err(RunError::Timeout));
}

#[test]
fn memory_is_bounded() {
    let check = |text: &str, workgroup: u32| {
        let overrides = Overrides { workgroup: Some([workgroup, 1, 1]), ..Overrides::default() };
        let result = run(&kernel(text), &[], &RunOptions { overrides, ..RunOptions::default() });
        assert!(matches!(result, Err(RunError::Memory { .. })), "{text}: {result:?}");
    };
    check("kernel k(y: output u64[4294967295]) { region \"r\" { y[0] = 1u64 } }", 64);
    let arrays =
        "kernel k(y: output u32[1]) { region \"r\" { array a: u32[65536]; a[0] = 1; barrier; y[0] = a[0] } }";
    check(arrays, 1 << 20);
    check("kernel k(y: output u32[1]) { region \"r\" { barrier; y[0] = 1 } }", i32::MAX as u32);
}

#[test]
fn a_huge_workgroup_without_barriers_needs_no_memory() {
    let text = "kernel k(y: output u32[3]) { region \"r\" { y[invocation.x] = 5 } }";
    let overrides = Overrides { workgroup: Some([i32::MAX as u32, 1, 1]), ..Overrides::default() };
    let done = run(&kernel(text), &[], &RunOptions { overrides, ..RunOptions::default() }).expect("it runs");
    assert_eq!(words(&done.outputs[0]), [5, 5, 5]);
}

#[test]
fn the_order_does_not_change_results() {
    // Prefix sums in workgroup memory, with barriers in a loop, an atomic total and divergent work
    // in between.
    let sums = kernel(
        "kernel k(x: read u32[64], y: output u32[64], total: read_write u32[1], tile: workgroup u32[16]) workgroup 16 {
           region \"r\" {
             tile[local.x] = x[invocation.x]
             barrier
             let distance = 1
             while distance < 16 {
               let sum = tile[local.x]
               if local.x >= distance { sum += tile[local.x - distance] }
               barrier
               tile[local.x] = sum
               barrier
               distance = distance * 2
             }
             atomic_add(total, 0, tile[local.x])
             y[invocation.x] = tile[local.x]
           }
         }",
    );
    let input: Vec<u8> = (1..=64u32).flat_map(u32::to_le_bytes).collect();
    let mut seeds = (0..20).flat_map(|seed| [Order::Shuffled(seed), Order::Interleaved(seed)]);
    let orders = [Order::Ascending, Order::Descending].into_iter().chain(&mut seeds);
    for order in orders {
        let options = RunOptions { order, sanitize: true, ..RunOptions::default() };
        let done = run(&sums, &[&input, &[0; 4]], &options).expect("it runs");
        let expected = (0..64u32).map(|i| (i / 16 * 16..=i).map(|k| k + 1).sum::<u32>());
        assert_eq!(words(&done.outputs[0]), expected.collect::<Vec<_>>(), "{order:?}");
        assert_eq!(done.reports, [], "{order:?}");
    }
}

#[test]
fn steps_are_counted_whatever_the_order() {
    let loops = kernel(
        "kernel k(y: output u32[8]) { region \"r\" { for i in 0..invocation.x { y[invocation.x] = i } } }",
    );
    let steps =
        |order| run(&loops, &[], &RunOptions { order, ..RunOptions::default() }).expect("it runs").steps;
    let ascending = steps(Order::Ascending);
    assert!(ascending > 8 * 4);
    assert_eq!([steps(Order::Descending), steps(Order::Interleaved(1))], [ascending; 2]);
}

#[test]
fn another_evaluator_can_be_put_in() {
    fn broken(op: Op, args: &[Value]) -> Option<Value> {
        if op == Op::Add { eval(Op::Sub, args) } else { eval(op, args) }
    }
    let sum = kernel(
        "kernel k(x: read u32[], y: output u32[]) { region \"r\" { y[invocation.x] = x[invocation.x] + 1 } }",
    );
    let input = 5u32.to_le_bytes();
    let with = |evaluator| {
        run(&sum, &[&input], &RunOptions { evaluator, ..RunOptions::default() }).map(|done| done.outputs)
    };
    assert_eq!(with(eval), Ok(vec![vec![6, 0, 0, 0]]));
    assert_eq!(with(broken), Ok(vec![vec![4, 0, 0, 0]]));
}

#[test]
fn bound_memory_must_be_writable_where_it_is_written() {
    let fill = kernel("kernel k(y: output u8[]) { region \"r\" { y[invocation.x] = 1 } }");
    let refused = run_bound(&fill, vec![BoundBytes::Read(&[0; 4])], &RunOptions::default());
    assert_eq!(refused, Err(RunError::NotWritable { buffer: "y".into() }));
    let mut bytes = [9; 5];
    run_bound(&fill, vec![BoundBytes::Write(&mut bytes)], &RunOptions::default()).expect("it runs");
    assert_eq!(bytes, [1; 5]);
}
