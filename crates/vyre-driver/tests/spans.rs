//! The `tracing` spans around compiles and launches.

use std::sync::{Arc, Mutex};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use vyre_conform::backends::NullBackend;
use vyre_driver::{DispatchConfig, pipeline};
use vyre_foundation::ir::Program;

/// Records the spans that are created and entered.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        self.write(format!("{} {}", attributes.metadata().name(), attributes.metadata().level()));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {
        self.write("enter".into());
    }
    fn exit(&self, _: &Id) {
        self.write("exit".into());
    }
}

#[test]
fn each_compile_and_each_launch_has_one_span() {
    let (recorder, config) = (Recorder::default(), DispatchConfig::default());
    tracing::subscriber::with_default(recorder.clone(), || {
        let pipeline =
            pipeline::compile(Arc::new(NullBackend::default()), &Program::empty(), &config).unwrap();
        let items: [&[&[u8]]; 2] = [&[], &[]];
        pipeline.dispatch_borrowed_batched(&items, &config).unwrap();
    });
    let expected = [
        "vyre.compile DEBUG",
        "enter",
        "exit",
        "vyre.dispatch TRACE",
        "enter",
        "exit",
        "vyre.dispatch TRACE",
        "enter",
        "exit",
    ];
    assert_eq!(*recorder.0.lock().unwrap(), expected);
}
