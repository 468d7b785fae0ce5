//! Selection among good, bad and software backends: a bad one is refused without affecting the
//! others.

mod toy;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toy::Toy;
use vyre_driver::registry::{
    BackendCapability, BackendDevices, BackendPrecedence, BackendRegistration, acquire,
    acquire_preferred_dispatch_backend, backend_dispatches, backend_precedence,
    registered_backends_by_precedence, registered_backends_by_precedence_slice, selection_report,
    set_probe_time_limit,
};
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, VyreBackend, default_supported_ops};

macro_rules! linked {
    ($id:literal, rank $rank:literal, $factory:expr) => {
        inventory::submit! {
            BackendRegistration { id: $id, factory: $factory, supported_ops: default_supported_ops }
        }
        inventory::submit! { BackendCapability { id: $id, dispatches: true, oracle: false } }
        inventory::submit! { BackendPrecedence { id: $id, rank: $rank } }
    };
}

/// A capable profile of a software device.
const SOFTWARE: DeviceProfile = DeviceProfile {
    device_class: DeviceClass::Software,
    max_storage_buffer_binding_size: 1 << 30,
    max_invocations_per_workgroup: 1024,
    mem_bw_gbps: 900,
    ..DeviceProfile::conservative("software")
};
const GOOD: DeviceProfile = DeviceProfile {
    device_class: DeviceClass::Discrete,
    max_storage_buffer_binding_size: 1 << 30,
    ..DeviceProfile::conservative("good")
};

static GOOD_OPENED: AtomicUsize = AtomicUsize::new(0);

fn open_good() -> Result<Box<dyn VyreBackend>, BackendError> {
    GOOD_OPENED.fetch_add(1, Ordering::SeqCst);
    Toy::with(GOOD)
}

fn hang() -> Result<Box<dyn VyreBackend>, BackendError> {
    loop {
        std::thread::park();
    }
}

linked!("software", rank 0, || Toy::with(SOFTWARE));
linked!("good", rank 30, open_good);
linked!("plain", rank 10, || Toy::open("plain"));
linked!("broken", rank 1, || Err(BackendError::new("no device found")));
linked!("panicking", rank 2, || panic!("the driver crashed"));
linked!("hanging", rank 3, hang);
// Linked, but without a capability record.
inventory::submit! {
    BackendRegistration { id: "silent", factory: || Toy::open("silent"), supported_ops: default_supported_ops }
}
inventory::submit! {
    BackendDevices {
        id: "plain",
        names: || Ok(vec!["first".into(), "second".into()]),
        open: |device| match device {
            0 => Toy::open("plain"),
            1 => Toy::open("plain:1"),
            _ => Err(BackendError::new("there are two devices")),
        },
        stamp: String::new,
    }
}

fn id_of(result: Result<Box<dyn VyreBackend>, BackendError>) -> &'static str {
    match result {
        Ok(backend) => backend.id(),
        Err(error) => panic!("{error}"),
    }
}

fn error_of(result: Result<Box<dyn VyreBackend>, BackendError>) -> String {
    match result {
        Ok(backend) => panic!("`{}` opened", backend.id()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn bad_backends_refuse_themselves_only_and_software_comes_last() {
    set_probe_time_limit(Duration::from_secs(2));
    assert_eq!(id_of(acquire_preferred_dispatch_backend()), "good");
    let report = selection_report();
    assert_eq!(report.selected(), Some("good"));
    let ranked: Vec<&str> = report.ranked.iter().map(|facts| facts.id).collect();
    assert_eq!(ranked, ["good", "plain", "software"]);

    let refused: Vec<(&str, &str)> = report.refused.iter().map(|r| (&*r.backend, &*r.reason)).collect();
    let expected = [
        ("broken", "no device found"),
        ("hanging", "it did not open within 2s"),
        ("panicking", "it panicked: the driver crashed"),
        ("silent", "it does not declare that it runs programs"),
    ];
    assert_eq!(refused, expected);
    let text = report.to_string();
    assert!(text.contains("good: selected") && text.contains("broken: refused: no device found"), "{text}");

    // The outcome is cached: the first caller got the probed instance, others open only the winner.
    assert_eq!(GOOD_OPENED.load(Ordering::SeqCst), 1);
    assert_eq!(id_of(acquire_preferred_dispatch_backend()), "good");
    assert_eq!(GOOD_OPENED.load(Ordering::SeqCst), 2);
}

#[test]
fn precedence_orders_what_is_linked() {
    let ids: Vec<&str> = registered_backends_by_precedence_slice().iter().map(|r| r.id).collect();
    assert_eq!(ids, ["software", "broken", "panicking", "hanging", "plain", "good", "silent"]);
    let owned: Vec<&str> = registered_backends_by_precedence().iter().map(|r| r.id).collect();
    assert_eq!(owned, ids);
    assert_eq!((backend_precedence("good"), backend_precedence("silent")), (30, u32::MAX));
    assert!(backend_dispatches("hanging") && !backend_dispatches("silent"));
}

#[test]
fn further_devices_have_numbers() {
    assert_eq!(id_of(acquire("plain:0")), "plain");
    assert_eq!(id_of(acquire("plain:1")), "plain:1");
    assert_eq!(error_of(acquire("plain:7")), "there are two devices");
    assert_eq!(id_of(acquire("silent:0")), "silent");
    let text = error_of(acquire("silent:1"));
    assert!(text.contains("`silent` has one device") && text.contains("`silent:1`"), "{text}");
}

#[test]
fn acquiring_a_bad_one_is_an_error_that_names_it() {
    assert_eq!(error_of(acquire("broken")), "no device found");
    let text = error_of(acquire("panicking"));
    assert_eq!(text, "backend `panicking` did not open: it panicked: the driver crashed");
    let text = error_of(acquire("nowhere"));
    assert!(text.contains("`nowhere` is not linked") && text.contains("broken, good, hanging"), "{text}");
}
