//! The sanitizer finds and names planted faults, and reports nothing where there are none.

use vyre_foundation::text::parse;
use vyre_reference::{FaultKind, FaultReport, Order, RunOptions, run};

fn reports(text: &str, inputs: &[&[u8]]) -> Vec<FaultReport> {
    let kernel = parse(text).expect("well formed").validate().expect("valid");
    let orders = [Order::Ascending, Order::Descending, Order::Shuffled(3), Order::Interleaved(4)];
    let found = orders.map(|order| {
        let options = RunOptions { sanitize: true, order, ..RunOptions::default() };
        run(&kernel, inputs, &options).expect("the kernel runs").reports
    });
    let faults = |reports: &[FaultReport]| {
        let mut faults: Vec<FaultKind> = reports.iter().map(|report| report.fault).collect();
        faults.sort_unstable();
        faults
    };
    for other in &found[1..] {
        assert_eq!(faults(other), faults(&found[0]), "the order decides what is found");
    }
    let [ascending, ..] = found;
    ascending
}

fn check(body: &str, expected: &[&str]) {
    let text = format!(
        "kernel test(x: read u32[16], y: read_write u32[16], z: output u8[16], tile: workgroup u32[4]) over 16 workgroup 4 {{
region \"test\" {{
{body}
}}
}}"
    );
    let found: Vec<String> = reports(&text, &[&[0; 64], &[0; 64]]).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn silent_without_faults() {
    check("y[invocation.x] = x[invocation.x] + 1", &[]);
    check("z[invocation.x] = 1", &[]);
    check("tile[local.x] = 1; barrier; y[invocation.x] = tile[3 - local.x]", &[]);
    check("tile[local.x] = 1; barrier; let v = tile[3 - local.x]; barrier; tile[local.x] = v", &[]);
    check("atomic_add(y, 0, 1)", &[]);
    check("atomic_add(tile, 0, 1); barrier; let v = tile[0]; if local.x == 0 { y[workgroup.x] = v }", &[]);
    // Storage memory written before a barrier can be read after it, within the workgroup.
    check("y[invocation.x] = 1; barrier; z[invocation.x] = y[invocation.x ^ 1]", &[]);
    check("array a: u32[2]; a[0] = 1; y[invocation.x] = a[1]", &[]);
}

#[test]
fn races_in_workgroup_memory() {
    check(
        "tile[0] = local.x",
        &[
            "data race in kernel `test`: `tile[0]`, store by invocation (1, 0, 0) at 3:1, against store by invocation \
           (0, 0, 0) at 3:1",
        ],
    );
    // Writing the same value is still a race.
    check(
        "tile[0] = 7",
        &[
            "data race in kernel `test`: `tile[0]`, store by invocation (1, 0, 0) at 3:1, against store by invocation \
           (0, 0, 0) at 3:1",
        ],
    );
    check(
        "tile[local.x] = 1\ny[invocation.x] = tile[local.x ^ 1]",
        &[
            "load of workgroup memory that was never written in kernel `test`: `tile[1]`, load by invocation (0, 0, 0) \
             at 4:19",
            "data race in kernel `test`: `tile[1]`, store by invocation (1, 0, 0) at 3:1, against load by invocation \
             (0, 0, 0) at 4:19",
        ],
    );
}

#[test]
fn races_in_storage_memory() {
    check(
        "y[invocation.x / 2] = 1",
        &[
            "data race in kernel `test`: `y[0]`, store by invocation (1, 0, 0) at 3:1, against store by invocation \
           (0, 0, 0) at 3:1",
        ],
    );
    // A barrier orders a single workgroup.
    check(
        "if local.x == 0 { y[workgroup.x] = 1 }\nbarrier\nz[invocation.x] = y[(workgroup.x + 1) % 4]",
        &[
            "data race in kernel `test`: `y[1]`, store by invocation (4, 0, 0) at 3:19, against load by invocation \
           (0, 0, 0) at 5:19",
        ],
    );
    // Elements narrower than a word are separate locations.
    check(
        "z[invocation.x & 14] = 1",
        &[
            "data race in kernel `test`: `z[0]`, store by invocation (1, 0, 0) at 3:1, against store by invocation \
           (0, 0, 0) at 3:1",
        ],
    );
}

#[test]
fn atomics_race_with_plain_accesses_only() {
    check(
        "atomic_add(y, 0, 1)\nif invocation.x == 3 { y[0] = 1 }",
        &[
            "data race in kernel `test`: `y[0]`, store by invocation (3, 0, 0) at 4:24, against atomic by invocation \
           (0, 0, 0) at 3:1",
        ],
    );
}

#[test]
fn out_of_range_accesses() {
    let report =
        |element: &str, access: &str| format!("out-of-range access in kernel `test`: `{element}`, {access}");
    check(
        "y[invocation.x] = x[invocation.x + 1]",
        &[&report("x[16]", "load by invocation (15, 0, 0) at 3:19")],
    );
    check("y[invocation.x * 2] = 1", &[&report("y[16]", "store by invocation (8, 0, 0) at 3:1")]);
    check(
        "atomic_max(y, 16 + invocation.x, 1)",
        &[&report("y[16]", "atomic by invocation (0, 0, 0) at 3:1")],
    );
    check(
        "array a: u32[2]\ny[invocation.x] = a[invocation.x]",
        &[&report("a[2]", "load by invocation (2, 0, 0) at 4:19")],
    );
}

#[test]
fn one_report_per_pair_of_statements_and_a_bound_on_all() {
    let races: String = (0..100).map(|k| format!("y[{}] = local.x\n", k % 16)).collect();
    let text =
        format!("kernel many(y: read_write u32[16]) over 8 workgroup 4 {{ region \"many\" {{\n{races}}} }}");
    assert_eq!(reports(&text, &[&[0; 64]]).len(), 64);
}

#[test]
fn without_text_the_instruction_is_named() {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    let body = vec![Node::store("y", Expr::u32(9), Expr::u32(1))];
    let y = BufferDecl::output("y", 0, DataType::U32).with_count(4);
    let kernel = Program::wrapped(vec![y], [1, 1, 1], body).validate().expect("valid");
    let options = RunOptions { sanitize: true, ..RunOptions::default() };
    let done = run(&kernel, &[], &options).expect("the kernel runs");
    let shown: Vec<String> = done.reports.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["out-of-range access in kernel `(unnamed)`: `y[9]`, store by invocation (0, 0, 0) at instruction 2"]
    );
}
