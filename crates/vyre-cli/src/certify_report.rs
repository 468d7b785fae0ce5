//! `vyre certify --report`: a backend's results on this machine, as a file to share.
//!
//! The conformance set and generated programs run in this process; their results are not recorded
//! in the tables.

use crate::files;
use crate::output::{Ending, OutputFormat, print, progress_bar};
use std::path::Path;
use std::sync::Arc;
use vyre::unstable::opening::{helper_answer, meet_unknown_drivers};
use vyre_conform::differential::Runner;
use vyre_conform::filetest;
use vyre_conform::generate::{Generator, Options};
use vyre_driver::{VyreBackend, registry};

/// Number of generated programs, and the number of ways each runs in.
const PROGRAMS: u64 = 200;
const WAYS: usize = 2;

/// Writes the report of a backend, even if the backend cannot be opened or gives wrong results.
pub(crate) fn write(ids: &[String], path: &Path, format: OutputFormat) -> Result<Ending, Ending> {
    let [id] = ids else { return Err(Ending::Usage("`--report` takes one backend".into())) };
    // A driver that crashes does so in a helper process.
    meet_unknown_drivers(&[id]);
    let mut report = serde_json::json!({
        "vyre": env!("CARGO_PKG_VERSION"),
        "backend": id,
        "system": std::env::consts::OS,
        "processor": std::env::consts::ARCH,
        "certificate": null,
        "device": null,
        "generated": 0,
        "mismatches": [],
        "error": null,
    });
    let mut failed = true;
    match registry::acquire(id) {
        Err(error) => report["error"] = error.to_string().into(),
        Ok(backend) => {
            let backend: Arc<dyn VyreBackend> = backend.into();
            report["device"] = serde_json::to_value(backend.device_profile()).unwrap_or_default();
            report["certificate"] = serde_json::from_str(&helper_answer(id)).unwrap_or_default();
            let (generated, mismatches) = generated(&backend, format);
            failed = !mismatches.is_empty() || report["certificate"]["failure"].is_string();
            report["generated"] = generated.into();
            report["mismatches"] = mismatches.into();
        }
    }
    let text = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
    files::write(path, text.as_bytes())?;
    if format == OutputFormat::Json {
        print(&report.to_string());
    } else {
        let state = match (failed, report["error"].as_str()) {
            (_, Some(error)) => error.to_string(),
            (true, None) => format!("`{id}` gives wrong results"),
            (false, None) => format!("`{id}` passed the conformance set and {PROGRAMS} generated programs"),
        };
        print(&format!("{state}; the report is in {}", path.display()));
    }
    Ok(if failed { Ending::CheckFailed } else { Ending::Done })
}

/// Runs generated programs. Returns their number and the first mismatches as filetests.
fn generated(backend: &Arc<dyn VyreBackend>, format: OutputFormat) -> (u64, Vec<String>) {
    let generator = Generator::new(Options::for_backend(&**backend));
    let backends = vec![backend.clone()];
    let runner = Runner { backends, interpreter: false, sample: Some(WAYS), ..Runner::default() };
    let bar = progress_bar(PROGRAMS, "programs", format);
    let mut mismatches = Vec::new();
    for seed in 0..PROGRAMS {
        if let Err(mismatch) = runner.check(&generator.from_seed(seed), seed) {
            let notes = [format!("seed {seed}, {}: {}", mismatch.variation, mismatch.difference)];
            mismatches.push(filetest::write(&mismatch.case, &notes).unwrap_or_else(|error| error));
        }
        bar.inc(1);
        if mismatches.len() == 3 {
            bar.finish_and_clear();
            return (seed + 1, mismatches);
        }
    }
    bar.finish_and_clear();
    (PROGRAMS, mismatches)
}
