//! How the optimizer's time grows with the program: `cargo bench -p vyre-foundation --bench optimize`.
//!
//! Four shapes that passes could be slow on: one long block, many variables set in branches, deep nests, and many loops.
//! Ten times the statements should take about ten times as long.

use divan::{Bencher, counter::ItemsCount};
use std::fmt::Write;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::optimize::{Schedule, optimize};
use vyre_foundation::text;

const STATEMENTS: [usize; 3] = [200, 2_000, 20_000];

fn main() {
    divan::main();
}

/// A kernel whose statements are what `statement` writes for 1, 2, … until there are enough of them.
fn kernel(statements: usize, per_call: usize, statement: impl Fn(usize) -> String) -> Kernel {
    let mut source = String::from(
        "kernel long(n: u32 uniform, x: read u32[], y: read_write u32[]) {\nregion \"bench\" {\n",
    );
    source += "let i = invocation.x\nlet v0 = x[i]\nlet m = n\n";
    for k in 1..=statements / per_call {
        writeln!(source, "{}", statement(k)).expect("a String takes all");
    }
    let program = text::parse(&(source + "}\n}\n")).expect("the text is a program");
    program.validate().expect("the program is valid")
}

fn straight(statements: usize) -> Kernel {
    kernel(statements, 2, |k| {
        format!("let v{k} = (v{} * {k} + x[i + {k}]) / 7\ny[i + {k}] = v{k} + v{}", k - 1, k / 2)
    })
}

fn branches(statements: usize) -> Kernel {
    kernel(statements, 4, |k| {
        format!("let v{k} = v{}\nif i < {k} {{ v{k} = v{k} + x[{k}] }} else {{ m = v{k} }}\ny[i] = m", k - 1)
    })
}

fn nests(statements: usize) -> Kernel {
    kernel(statements, 64, |k| {
        let open: String = (0..31).map(|depth| format!("if i > {depth} {{ m = m + {k}\n")).collect();
        format!("{open} y[i] = m {}", "}".repeat(31))
    })
}

fn loops(statements: usize) -> Kernel {
    kernel(statements, 5, |k| {
        format!(
            "for a{k} in 0..n {{\nfor b{k} in 0..4 {{\nm = m + x[a{k} * 4 + b{k}] * (i + {k})\n}}\n}}\ny[i + {k}] = m"
        )
    })
}

fn bench(bencher: Bencher, kernel: &Kernel, statements: usize, schedule: &Schedule) {
    bencher.counter(ItemsCount::new(statements)).bench(|| optimize(kernel.clone(), schedule));
}

macro_rules! benches {
    ($($name:ident $shape:ident $schedule:ident;)*) => { $(
        #[divan::bench(args = STATEMENTS, max_time = 2, sample_count = 10)]
        fn $name(bencher: Bencher, statements: usize) {
            bench(bencher, &$shape(statements), statements, &Schedule::$schedule());
        }
    )* };
}

benches! {
    quick_straight straight quick;
    quick_branches branches quick;
    quick_nests nests quick;
    quick_loops loops quick;
    full_straight straight full;
    full_branches branches full;
    full_nests nests full;
    full_loops loops full;
}
