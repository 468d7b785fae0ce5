//! Generated programs give the same results in every way of running them, and planted bugs are
//! found and minimised.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vyre_conform::differential::{Runner, races};
use vyre_conform::filetest::{self, FileTest};
use vyre_conform::generate::{Case, Generator, Options};
use vyre_conform::seeds::Seeds;
use vyre_foundation::ir::{Node, walk_block};
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::Value;
use vyre_reference::Evaluator;

#[test]
fn every_way_of_running_gives_the_same() {
    let generator = Generator::new(Options::default());
    let runner = Runner::default();
    let (programs, with_outputs) = (AtomicU64::new(0), AtomicU64::new(0));
    Seeds::new(300, 2000, Duration::from_secs(30)).for_each_at_once(|seed| {
        match runner.check(&generator.from_seed(seed), seed) {
            Ok(checked) => {
                programs.fetch_add(1, Ordering::Relaxed);
                with_outputs.fetch_add(checked.with_outputs.into(), Ordering::Relaxed);
            }
            Err(mismatch) => {
                let small = runner.shrunk(&mismatch);
                let text = filetest::write(&small.case, &[]).unwrap_or_else(|error| error);
                panic!("seed {seed}, {}: {}\n{text}", small.variation, small.difference);
            }
        }
    });
    let (programs, with_outputs) = (programs.into_inner(), with_outputs.into_inner());
    assert!(
        10 * with_outputs > 9 * programs,
        "only {with_outputs} of {programs} programs ended with outputs"
    );
}

#[test]
fn generated_programs_are_free_of_races() {
    let generator = Generator::new(Options::default());
    Seeds::new(300, 3000, Duration::from_secs(20)).for_each_at_once(|seed| {
        let case = generator.from_seed(seed);
        let found = races(&case);
        assert!(found.is_empty(), "seed {seed}: {}\n{}", found.join("\n"), case.program);
    });
}

/// A plausible backend bug: the shift count is not reduced modulo the width.
fn broken_shift(op: Op, args: &[Value]) -> Option<Value> {
    match (op, args) {
        (Op::Shl, [Value::U32(_), Value::U32(count)]) if *count >= 32 => Some(Value::U32(0)),
        _ => eval(op, args),
    }
}

/// A plausible backend bug: `min` returns a NaN instead of the other operand.
fn broken_min(op: Op, args: &[Value]) -> Option<Value> {
    match (op, args) {
        (Op::Min, [Value::F32(x), Value::F32(_)]) if x.is_nan() => Some(args[0].canonical()),
        _ => eval(op, args),
    }
}

/// A plausible backend bug: division by zero returns zero.
fn broken_division(op: Op, args: &[Value]) -> Option<Value> {
    match (op, args) {
        (Op::Div, [Value::I32(_), Value::I32(0)]) => Some(Value::I32(0)),
        _ => eval(op, args),
    }
}

fn find_and_shrink(runner: &Runner) -> Case {
    // Smaller programs than usual, because every shrinking attempt runs in all ways.
    let generator = Generator::new(Options { max_statements: 16, ..Options::default() });
    let mismatch = (0..20_000)
        .find_map(|seed| runner.check(&generator.from_seed(seed), seed).err())
        .expect("the mistake shows in some program");
    runner.shrunk(&mismatch).case
}

#[test]
fn a_broken_evaluator_row_is_found_and_shrunk() {
    let mistakes: [(Evaluator, &str); 3] =
        [(broken_shift, "<<"), (broken_min, "min("), (broken_division, "/")];
    for (evaluator, op) in mistakes {
        let runner = Runner { evaluator, ..Runner::default() };
        let small = find_and_shrink(&runner);
        let text = filetest::write(&small, &["a note".into()]).expect("a shrunk case is a filetest");
        let mut statements = 0;
        let count = &mut |node: &Node| statements += u32::from(!matches!(node, Node::Region { .. }));
        walk_block(small.program.entry(), count, &mut |_| {});
        assert!(statements <= 4, "{statements} statements are left:\n{text}");
        assert!(text.contains(op), "the culprit is gone:\n{text}");
        let file = FileTest::parse(&text).expect("what is written reads back");
        for command in file.commands() {
            file.check(&command, &[]).expect("the interpreter's own outputs are expected");
        }
    }
}

#[test]
fn a_sample_runs_as_many_ways_as_it_says() {
    let all = Runner::default();
    let sampled = Runner { sample: Some(2), ..Runner::default() };
    let case = Generator::new(Options::default()).from_seed(1);
    let ways = all.check(&case, 1).map_or(0, |checked| checked.runs);
    assert!(ways > 2);
    assert_eq!(sampled.check(&case, 1).map_or(0, |checked| checked.runs), 2);
}
