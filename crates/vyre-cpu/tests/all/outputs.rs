//! Outputs that a kernel writes in part, or completely in blocks, rows or under guards: memory that
//! is not written reads as zero, whatever it held before. All stores are of 1, so that invocations
//! that write the same element do not race.

use crate::shapes::{HOSTILE, bytes, check, numbers};
use vyre_driver::BackendError;

/// Inputs for the uniforms `n` and `m` and a buffer of words.
fn cases() -> Vec<Vec<Vec<u8>>> {
    let mut cases = Vec::new();
    for [n, m] in [[8, 7], [7, 8], [1, 56], [16, 16], [0, 3], [5, HOSTILE[0]], [HOSTILE[1], 2]] {
        for length in [0, 1, 2, 3, 55, 56, 57, 64, 256, 1000] {
            cases.push(vec![bytes(&[n]), bytes(&[m]), bytes(&numbers(length))]);
        }
    }
    cases
}

fn check_all(domain: &str, bodies: &[&str]) -> Result<(), BackendError> {
    for body in bodies {
        let source = format!(
            "kernel outputs(n: u32 uniform, m: u32 uniform, x: read u32[], y: output u32[] len_of x)
               over {domain} {{ let i = invocation.x
               {body} }}"
        );
        check(&source, &cases())?;
    }
    Ok(())
}

#[test]
fn blocks() -> Result<(), BackendError> {
    let fours =
        "for r in 0..4 { let at = 16 * i + 4 * r; y[at] = 1; y[at + 1] = 1; y[at + 2] = 1; y[at + 3] = 1 }";
    let bodies = [
        "for k in 0..n { y[i * n + k] = 1 }",
        "for k in 0..n { if x[k] % 3 == 0 { continue } y[i * n + k] = 1 }",
        "for k in 0..n { if x[i * n + k] % 7 == 0 { break } y[i * n + k] = 1 }",
        "for k in 1..n { y[i * n + k] = 1 }",
        "for k in 0..m { y[i * n + k] = 1 }",
        "for k in 0..n { if k < m { y[i * n + k] = 1 } }",
        "y[2 * i] = 1; y[2 * i + 1] = 1",
        "y[3 * i] = 1; y[3 * i + 2] = 1",
        "y[3 * i] = 1; y[3 * i + 1] = 1; y[3 * i + 2] = 1",
        "if 2 * i + 1 < len(y) { y[2 * i] = 1; y[2 * i + 1] = 1 }",
        "if 3 * i + 2 < len(y) { y[3 * i] = 1; y[3 * i + 1] = 1; y[3 * i + 2] = 1 }",
        "y[2 * i] = 1; if x[i] % 2 == 0 { y[2 * i + 1] = 1 }",
        fours,
    ];
    check_all("x", &bodies)?;
    check_all("[len(x) / 2]", &bodies)?;
    check_all("[len(x) / 16]", &bodies)?;
    check_all("[len(x) / max(n, 1)]", &bodies)
}

#[test]
fn guards() -> Result<(), BackendError> {
    let bodies = [
        "if i < n { y[i] = 1 }",
        "if i < min(min(len(x), n), len(y)) { y[i] = 1 }",
        "if i < len(x) && i < m { y[i] = 1 }",
        "if i < len(x) { y[i] = 1; if i < n { return } } y[i + 1] = 1",
        "let at = invocation.y * n + i; if i < n && invocation.y < m { y[at] = 1 }",
        "let at = invocation.y * n + i; if at < len(y) { y[at] = 1 }",
        "let at = invocation.y * m + i; if at < len(y) { y[at] = 1 }",
    ];
    check_all("x", &bodies)?;
    check_all("[min(n, 300), min(m, 300)]", &bodies)
}
