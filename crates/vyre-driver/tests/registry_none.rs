//! A process with no linked backend: the driver itself registers none.

use vyre_driver::registry::{
    acquire, acquire_preferred_dispatch_backend, backend_devices, backend_dispatches, backend_is_oracle,
    backend_precedence, core_supported_ops, registered_backends, registered_backends_by_precedence,
    registered_backends_by_precedence_slice, selection_report,
};
use vyre_foundation::ops::all_op_ids;

#[test]
fn nothing_is_registered() {
    assert!(registered_backends().is_empty());
    assert!(registered_backends_by_precedence().is_empty());
    assert!(registered_backends_by_precedence_slice().is_empty());
    assert!(!backend_dispatches("cpu"));
    assert!(!backend_is_oracle("cpu"));
    assert_eq!(backend_precedence("cpu"), u32::MAX);
    assert!(backend_devices("cpu").is_none());
}

#[test]
fn acquiring_says_that_nothing_is_linked() {
    for id in ["cpu", "wgpu:1", "", ":", "a:b", "x:4294967296"] {
        let Err(error) = acquire(id) else { panic!("`{id}` was acquired") };
        assert_eq!(error.to_string(), format!("backend `{id}` is not linked; no backend is"));
        assert!(error.fix().is_some());
    }
}

#[test]
fn selection_says_that_nothing_is_linked() {
    let Err(error) = acquire_preferred_dispatch_backend() else { panic!("something was selected") };
    assert_eq!(error.to_string(), "no backend is usable: none is linked");
    assert_eq!(*selection_report(), Default::default());
    assert_eq!(selection_report().selected(), None);
}

#[test]
fn core_ops_are_every_row_of_the_table() {
    assert_eq!(core_supported_ops().len(), all_op_ids().count());
    assert!(all_op_ids().all(|id| core_supported_ops().contains(&id)));
    assert!(core_supported_ops().contains("primitive.math.add"));
}
