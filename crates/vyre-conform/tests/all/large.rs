//! Diagnostic codes for sizes that are too large for a filetest.

use vyre_foundation::diagnostics::{Code, Diagnostics};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::text;

fn codes(faults: &Diagnostics) -> Vec<Code> {
    faults.iter().map(|fault| fault.code).collect()
}

#[test]
fn a_text_above_64_mib_is_refused() {
    let faults = text::parse(&" ".repeat((64 << 20) + 1)).expect_err("the text is too large");
    assert_eq!(codes(&faults), [Code::TextTooLarge]);
}

#[test]
fn a_buffer_of_2_to_the_32_elements_is_refused() {
    let source = "kernel copy(x: read u8[], y: output u8[] len_of x) { region \"copy\" { y[0] = x[0] } }";
    let kernel = text::parse(source).and_then(|program| program.validate()).expect("the kernel is valid");
    let faults =
        Launch::from_inputs(&kernel, &[1 << 32], Overrides::default()).expect_err("the input is too long");
    assert_eq!(codes(&faults), [Code::TooManyElements]);
    assert!(Launch::from_inputs(&kernel, &[(1 << 32) - 1], Overrides::default()).is_ok());
}
