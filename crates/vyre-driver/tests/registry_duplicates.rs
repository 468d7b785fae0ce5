//! Two backends registered under one id, and a valid one.

mod toy;

use toy::Toy;
use vyre_driver::registry::{
    BackendCapability, BackendRegistration, acquire, acquire_preferred_dispatch_backend, registered_backends,
    selection_report,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend, default_supported_ops};
use vyre_foundation::ir::Program;

struct Impostor;

impl VyreBackend for Impostor {
    fn id(&self) -> &'static str {
        "twice"
    }
    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        Ok(Vec::new())
    }
}

inventory::submit! {
    BackendRegistration { id: "twice", factory: || Toy::open("twice"), supported_ops: default_supported_ops }
}
inventory::submit! {
    BackendRegistration { id: "twice", factory: || Ok(Box::new(Impostor)), supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: "twice", dispatches: true, oracle: false } }
inventory::submit! {
    BackendRegistration { id: "once", factory: || Toy::open("once"), supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: "once", dispatches: true, oracle: false } }

#[test]
fn two_of_one_id_are_an_error_that_names_both() {
    assert_eq!(registered_backends().len(), 3);
    for id in ["twice", "twice:0"] {
        let Err(error) = acquire(id) else { panic!("one of the two won silently") };
        let text = error.to_string();
        assert!(text.contains("`twice` is registered 2 times"), "{text}");
        assert!(text.contains("toy::Toy`") && text.contains("::Impostor`"), "{text}");
        assert_eq!(error.code(), 11);
    }
}

#[test]
fn selection_refuses_both_and_says_so() {
    let Ok(selected) = acquire_preferred_dispatch_backend() else { panic!("nothing was selected") };
    assert_eq!(selected.id(), "once");
    let [refusal] = &selection_report().refused[..] else { panic!("{:?}", selection_report()) };
    assert_eq!(refusal.backend, "twice");
    assert!(refusal.reason.contains("Toy") && refusal.reason.contains("Impostor"), "{}", refusal.reason);
}
