//! Mistakes in kernels are told when they are compiled, once, at the tokens that are wrong: `mistakes/*.rs` and what the
//! compiler says of each. `TRYBUILD=overwrite cargo test -p vyre-macros --test mistakes` writes that down; read the difference.

#[test]
fn mistakes_are_told() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}
