//! Scaling of the optimizer's time with program size: `cargo bench -p vyre-foundation --bench
//! optimize [filter]`.
//!
//! Covers shapes on which passes could be slow: one long block, many variables set in branches,
//! deep nests of branches and of loops, many loops, many facts about one value, many accesses to
//! one buffer, many uses of one local. Prints nanoseconds per statement, the fastest of several
//! runs, and the growth from the first size to the last: 1.0 is linear. Part of the growth comes
//! from memory: 200 statements fit a core's private caches, 20,000 do not.

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::optimize::{Schedule, optimize};
use vyre_foundation::text;

const STATEMENTS: [usize; 4] = [200, 2_000, 6_000, 20_000];
/// Time budget for one figure.
const BUDGET: Duration = Duration::from_millis(1500);

/// Builds a kernel with about this many statements.
type Shape = fn(usize) -> Kernel;

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let shapes: [(&str, Shape); 8] = [
        ("straight", straight),
        ("branches", branches),
        ("nests", nests),
        ("loops", loops),
        ("deep_loops", deep_loops),
        ("guards", guards),
        ("accesses", accesses),
        ("locals", locals),
    ];
    let header: String = STATEMENTS.iter().map(|statements| format!("{statements:>9}")).collect();
    println!("ns per statement  {header}   growth");
    for (schedule_name, schedule) in [("quick", Schedule::quick()), ("full", Schedule::full())] {
        for (shape_name, shape) in shapes {
            let name = format!("{schedule_name}_{shape_name}");
            if name.contains(&filter) {
                let figures =
                    STATEMENTS.map(|statements| per_statement(&shape(statements), statements, &schedule));
                let columns: String = figures.iter().map(|figure| format!("{figure:>9.0}")).collect();
                println!("{name:<18}{columns}{:>9.2}", figures[STATEMENTS.len() - 1] / figures[0]);
            }
        }
    }
}

/// Nanoseconds per statement of the fastest run.
fn per_statement(kernel: &Kernel, statements: usize, schedule: &Schedule) -> f64 {
    let started = Instant::now();
    let mut fastest = Duration::MAX;
    for round in 0.. {
        let from = Instant::now();
        black_box(optimize(kernel.clone(), schedule));
        fastest = fastest.min(from.elapsed());
        if round >= 2 && started.elapsed() > BUDGET {
            break;
        }
    }
    fastest.as_nanos() as f64 / statements as f64
}

/// A kernel whose statements are the results of `statement` for 1, 2, … until there are enough.
fn kernel(statements: usize, per_call: usize, statement: impl Fn(usize) -> String) -> Kernel {
    let mut source = String::from(
        "kernel long(n: u32 uniform, x: read u32[], y: read_write u32[], x2: read_write u32[]) {\nregion \"bench\" {\n",
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

fn deep_loops(statements: usize) -> Kernel {
    kernel(statements, 64, |k| {
        let round = |depth: usize| format!("for c{k}_{depth} in 0..n {{ m = m + c{k}_{depth} * x[{depth}]\n");
        let open: String = (0..31).map(round).collect();
        format!("{open} y[i] = m {}", "}".repeat(31))
    })
}

fn guards(statements: usize) -> Kernel {
    kernel(statements, 4, |k| {
        format!("let v{k} = x[{k}]\nif i > v{k} {{ return }}\ny[i] = min(v{k}, i) + x[v{k}]")
    })
}

fn accesses(statements: usize) -> Kernel {
    kernel(statements, 4, |k| {
        let at = k % 97;
        format!("y[i + {at}] = x[i] + {k}\nlet v{k} = y[i + {at}]\ny[v{k}] = y[i]\nx2[{at}] = y[i + {at}]")
    })
}

fn locals(statements: usize) -> Kernel {
    kernel(statements, 4, |k| {
        let (a, b) = (k % 50, (k * 7) % 50);
        let start = if k <= 50 { format!("let t{a} = n + {k}\n") } else { String::new() };
        let condition = if k <= 50 { format!("i < {k}") } else { format!("t{b} < {k}") };
        format!(
            "{start}if {condition} {{ t{a} = t{a} + {k} }}\nwhile t{a} < {k} {{ t{a} = t{a} * 2 + 1 }}\ny[{k}] = t{a}"
        )
    })
}
