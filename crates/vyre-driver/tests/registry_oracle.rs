//! A process in which the only backend is an oracle.

mod toy;

use toy::Toy;
use vyre_driver::default_supported_ops;
use vyre_driver::registry::{
    BackendCapability, BackendPrecedence, BackendRegistration, acquire, acquire_preferred_dispatch_backend,
    backend_is_oracle, selection_report,
};

inventory::submit! {
    BackendRegistration { id: "truth", factory: || Toy::open("truth"), supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: "truth", dispatches: true, oracle: true } }
inventory::submit! { BackendPrecedence { id: "truth", rank: 0 } }

#[test]
fn an_oracle_is_used_only_where_it_is_named() {
    assert!(backend_is_oracle("truth"));
    let Err(error) = acquire_preferred_dispatch_backend() else { panic!("an oracle was selected") };
    let text = error.to_string();
    assert!(text.contains("only oracles are linked (truth)"), "{text}");
    assert_eq!(selection_report().refused[0].backend, "truth");

    let Ok(named) = acquire("truth") else { panic!("a named oracle was refused") };
    assert_eq!(named.id(), "truth");
}
