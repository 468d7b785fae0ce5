//! The trace file: its contents, and that it can be opened even if the process dies.

use serde_json::Value;
use std::sync::Arc;
use vyre_conform::backends::{FaultyBackend, Misbehaviour, NullBackend};
use vyre_driver::{DispatchConfig, VyreBackend, pipeline, trace};
use vyre_foundation::ir::Program;

#[test]
fn compiles_and_launches_are_written_as_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let config = DispatchConfig::default();
    let run = |backend: Arc<dyn VyreBackend>| {
        let pipeline = pipeline::compile(backend, &Program::empty(), &config).unwrap();
        drop(pipeline.dispatch_borrowed(&[], &config));
        pipeline.id().to_string()
    };
    run(Arc::new(NullBackend::default()));
    trace::start(&path).unwrap();
    let already = trace::start(&folder.path().join("other.json")).unwrap_err();
    assert!(already.to_string().contains("trace.json already"), "{already}");
    let id = run(Arc::new(NullBackend::default()));
    run(Arc::new(FaultyBackend::new(Misbehaviour::Fails)));

    // The file as a process that dies now would leave it: every line but the first is an event and
    // a comma.
    let cut = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = cut.lines().collect();
    assert_eq!((lines[0], lines.len()), ("[", 5), "{cut}");
    let events: Vec<Value> = lines[1..]
        .iter()
        .map(|line| serde_json::from_str(line.strip_suffix(',').unwrap()).unwrap())
        .collect();
    let names: Vec<&str> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["vyre.compile", "vyre.dispatch", "vyre.compile", "vyre.dispatch"]);
    for event in &events {
        assert_eq!(
            (&event["ph"], event["pid"].as_u64()),
            (&Value::from("X"), Some(std::process::id().into()))
        );
        assert!(event["ts"].as_f64() >= Some(0.0) && event["dur"].as_f64() >= Some(0.0), "{event}");
    }
    assert_eq!(events[1]["args"]["subject"], id);
    assert_eq!(events[1]["args"]["error"], Value::Null);
    assert_eq!(events[3]["args"]["error"], "dispatch on `faulty` failed: as asked");

    trace::stop().unwrap();
    run(Arc::new(NullBackend::default()));
    let whole: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(whole.len(), events.len() + 1);
    trace::stop().unwrap();

    let nowhere = trace::start(&folder.path().join("no/such/folder.json")).unwrap_err();
    assert_eq!(nowhere.kind(), std::io::ErrorKind::NotFound);
    assert!(!trace::start_from_env().unwrap(), "VYRE_TRACE is not set for tests");
}
