//! Time that an editor waits after a change: the analysis of a text of 2,000 lines.

use vyre_foundation::text::analysis::Analysis;

fn main() {
    divan::main();
}

/// A kernel of `lines` lines, each of which uses two earlier ones.
fn text(lines: usize) -> String {
    let mut text = String::from("kernel long(x: read_write f32[]) over x {\n  let v0 = x[invocation.x]\n");
    for k in 1..lines {
        text += &format!("  let v{k} = v{} * 0.5 + sqrt(abs(v{})) // line {k}\n", k - 1, k / 2);
    }
    text + &format!("  x[invocation.x] = v{}\n}}\n", lines - 1)
}

#[divan::bench(args = [200, 2000, 20000])]
fn analysis(bencher: divan::Bencher<'_, '_>, lines: usize) {
    let text = text(lines);
    bencher.bench(|| Analysis::of(divan::black_box(&text)));
}

#[divan::bench(args = [2000])]
fn analysis_and_colours(bencher: divan::Bencher<'_, '_>, lines: usize) {
    let text = text(lines);
    bencher.bench(|| Analysis::of(divan::black_box(&text)).tokens());
}
