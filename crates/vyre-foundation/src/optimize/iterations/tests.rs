//! Tests for loop bounds, found and not found.

use super::iteration_bound;
use crate::kernel::Kernel;
use crate::launch::{Launch, Overrides};
use crate::text::parse;
use crate::types::Value;

const PARAMETERS: &str =
    "x: read u32[], s: read i32[], n: u32 uniform, m: u32 uniform, y: output u32[] len_of x";

fn kernel(body: &str) -> Kernel {
    let source =
        format!("kernel k({PARAMETERS}) workgroup 8 {{ region \"r\" {{ let i = invocation.x\n{body} }} }}");
    match parse(&source).and_then(|program| program.validate()) {
        Ok(kernel) => kernel,
        Err(faults) => panic!("{faults}"),
    }
}

/// Checks the bound without a dispatch.
fn check(body: &str, expected: Option<u64>) {
    assert_eq!(iteration_bound(&kernel(body)), expected, "{body}");
}

/// Checks the bound of a dispatch over 100 elements with n = 10 and s = [-7, -6, …, 12]; the other
/// buffers are unreadable.
fn check_dispatch(body: &str, expected: Option<u64>) {
    let kernel = kernel(body);
    let launch = Launch::from_inputs(&kernel, &[400, 80, 4, 4], Overrides::default()).expect("they fit");
    let found = launch.iteration_bound(&kernel, &mut |buffer, index| match (
        &*kernel.buffer(buffer).decl.name,
        index,
    ) {
        ("n", _) => Some(Value::U32(10)),
        ("s", 0..20) => Some(Value::I32(index as i32 - 7)),
        ("s", _) => Some(Value::I32(0)),
        _ => None,
    });
    assert_eq!(found, expected, "{body}");
}

#[test]
fn no_loops_no_rounds() {
    check("if i < 5 { y[i] = 1 }", Some(0));
}

#[test]
fn counted_loops() {
    check("for k in 0..10 { y[i] = k }", Some(11));
    check("for k in 0..x[i] % 7 { for j in 0..3 { y[i] = j } }", Some(7 * (1 + 4)));
    check("for k in i32(100)..i32(0) step i32(0) - i32(3) { y[i] = 0 }", Some(35));
    check("for k in 0..x[i] { y[i] = k }", Some(1 << 32));
    check("if x[i] < 9 { let v = x[i]; for k in 0..min(v, 5) { y[i] = k } }", Some(6));
}

#[test]
fn conditions_on_the_way_count() {
    check("let v = x[i]; if v < 9 { for k in 0..v { y[i] = k } }", Some(9));
    check("let v = x[i]; if v >= 9 || i > 3 { return } for k in 0..v { y[i] = k }", Some(9));
    check("let v = 3; if i > 2 { v = 5 } for k in 0..v { y[i] = k }", Some(6));
    check("let v = x[i]; if v > 9 { v = 9 } for k in 0..v { y[i] = k }", Some(10));
}

#[test]
fn a_variable_that_is_counted() {
    check("let k = 0; while k < 64 { k += 1 }", Some(65));
    check("let k = 0; while k < 64 && x[k] != 3 { k += 3 }", Some(23));
    check("let k = 7; while k != 0 { k -= 1 }", Some(8));
    check(
        "let k = 0; while true { if k >= 9 { break } k += 1; if x[k] > 2 { continue } y[k] = k }",
        Some(10),
    );
    check("let k = 0; while k < 10 { if x[k] == 1 { k += 1 } else { k += 2 } }", Some(11));
    check("let k = i32(5); while k > i32(0) - i32(5) { k -= i32(2) }", Some(6));
    check("let k = 0; while k < 5 { let j = 0; while j < k { j += 1 } k += 1 }", Some(6 * (1 + 5)));
}

#[test]
fn a_variable_that_is_counted_before_it_is_compared() {
    check("let k = 0; while true { k += 1; if k > 20 { break } y[k] = k }", Some(21));
    check("let k = 9; while true { k -= 1; if k == 0 { break } y[k] = k }", Some(9));
    check("let k = x[i]; while true { k += 1; if k > 20 { break } y[k] = k }", None);
    check("let k = 0; while k + 3 < 20 { k += 1 }", Some(18));
    check("let k = 4294967290; while k + 10 < 20 { k += 1 }", None);
}

#[test]
fn a_variable_that_is_halved_or_doubled() {
    check("let k = 64; while k > 0 { k = k >> 1 }", Some(8));
    check("let k = x[i]; while k > 1000 { k = k / 10 }", Some(11));
    check("let k = 1; while k < 256 { k = k * 2 }", Some(9));
    check("let k = 1; while k < 256 { k = k + k }", Some(9));
    check("let k = 0; while k < 256 { k = k * 2 }", None);
}

#[test]
fn loops_that_begin_once() {
    check("while true { y[i] = 1; break }", Some(1));
    check("let k = 0; while k < 1 { k = 1 }", Some(2));
    check("let k = 0; while k < x[i] { k = 1 }", None);
    check("while true { if i > 3 { y[i] = 1; break } return }", Some(1));
}

#[test]
fn what_is_not_proved() {
    check("let k = 0; while k < 10 { if x[i] > 3 { k += 1 } }", None);
    check("let k = 0; while k < 10 { if x[i] > 3 { continue } k += 1 }", None);
    check("let k = 0; while k < x[i] { k += 2 }", None);
    check("let k = x[i]; while k > 1 { if k % 2 == 0 { k = k / 2 } else { k = k * 3 + 1 } }", None);
    check("let k = 0; while k < 10 { k += 1; for j in 0..2 { k = 0 } }", None);
    check("let k = 0; while k < 10 { k = x[k] }", None);
    check("let k = 0.0; while k < 10.0 { k = k + 1.0 }", None);
}

#[test]
fn what_a_dispatch_knows() {
    check_dispatch("for k in 0..n { y[i] = k }", Some(11));
    check_dispatch("for k in 0..m { y[i] = k }", Some(1 << 32));
    check_dispatch("for k in i32(0)..s[i] step i32(1) { y[i] = 1 }", Some(13));
    check_dispatch("for k in i32(0)..s[i % 3] step i32(1) { y[i] = 1 }", Some(1));
    check_dispatch("for k in i32(0)..s[40 + i] step i32(1) { y[i] = 1 }", Some(1));
    check_dispatch("for k in 0..len(x) { y[i] = k }", Some(101));
    check_dispatch("let k = i; while k < len(x) { k += grid_size.x * workgroup_size.x }", Some(2));
    check_dispatch("for k in 0..local.x { y[i] = k }", Some(8));
    check_dispatch("let k = 0; while k < n * n { k += 1 }", Some(101));
}

#[test]
fn clearing_counts() {
    check("for k in 0..3 { array t: u32[40]; t[k] = 1; y[i] = t[0] }", Some(4 * (1 + 41)));
}
