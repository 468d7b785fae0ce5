//! Cost of reading and writing programs: `cargo bench -p vyre-foundation --bench formats`.
//!
//! The programs resemble generated kernels: loads, arithmetic, conditions and stores, some thousand
//! statements long.

use divan::Bencher;
use std::fmt::Write;
use vyre_foundation::ir::Program;
use vyre_foundation::{text, wire};

const STATEMENTS: [usize; 3] = [200, 2_000, 20_000];

fn main() {
    divan::main();
}

/// The text of a kernel with `statements` statements.
fn source(statements: usize) -> String {
    let mut text = String::from(
        "kernel long(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {\n  region \"bench\" {\n\
         let i = invocation.x\nlet v0 = x[i]\n",
    );
    let mut last = 0;
    for k in (1..).take(statements.saturating_sub(5) * 4 / 5) {
        let line = match k % 4 {
            0 => format!("if i < len(y) && v{last} > {k}.5 {{\n  y[i] = fma(a, v{last}, -1.0)\n}}"),
            _ => {
                let line = format!("let v{k} = a * x[i + {k}] + v{last} / (v0 - {k}.25)");
                last = k;
                line
            }
        };
        writeln!(text, "    {line}").expect("a String takes all");
    }
    text + "  }\n}\n"
}

/// The same program without its cached data.
fn fresh(program: &Program) -> Program {
    program.clone().with_workgroup_size(program.workgroup_size())
}

fn program(statements: usize) -> Program {
    text::parse(&source(statements)).unwrap_or_else(|faults| panic!("{faults}"))
}

#[divan::bench(args = STATEMENTS)]
fn parse(bencher: Bencher<'_, '_>, statements: usize) {
    let source = source(statements);
    bencher.bench(|| text::parse(divan::black_box(&source)));
}

#[divan::bench(args = STATEMENTS)]
fn print(bencher: Bencher<'_, '_>, statements: usize) {
    let program = program(statements);
    bencher.bench(|| text::print(divan::black_box(&program)));
}

#[divan::bench(args = STATEMENTS)]
fn encode(bencher: Bencher<'_, '_>, statements: usize) {
    let program = program(statements);
    bencher.bench(|| wire::encode(divan::black_box(&program)));
}

#[divan::bench(args = STATEMENTS)]
fn decode(bencher: Bencher<'_, '_>, statements: usize) {
    let bytes = wire::encode(&program(statements));
    bencher.bench(|| wire::decode(divan::black_box(&bytes)));
}

#[divan::bench(args = STATEMENTS)]
fn fingerprint(bencher: Bencher<'_, '_>, statements: usize) {
    let program = program(statements);
    bencher.with_inputs(|| fresh(&program)).bench_refs(|program| program.fingerprint());
}

#[divan::bench(args = STATEMENTS)]
fn fingerprint_again(bencher: Bencher<'_, '_>, statements: usize) {
    let program = program(statements);
    bencher.bench(|| divan::black_box(&program).fingerprint());
}

#[divan::bench(args = STATEMENTS)]
fn validate(bencher: Bencher<'_, '_>, statements: usize) {
    let program = program(statements);
    bencher.with_inputs(|| fresh(&program)).bench_refs(|program| program.validate());
}
