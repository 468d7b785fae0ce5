//! See `vyre_foundation::fuzzing::parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vyre_foundation::fuzzing::parse(bytes));
