//! Mistakes in kernels are reported at compile time, once, at the offending tokens: `mistakes/*.rs`
//! with the compiler's output for each. `TRYBUILD=overwrite cargo test -p vyre-macros --test
//! mistakes` rewrites the expected output; review the diff.

#[test]
fn mistakes_are_reported() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
