//! Cold starts: the time from the start of a fresh process to its first result.

use super::report::Cold;
use crate::output::{Ending, print};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use vyre::catalogue::elementwise;
use vyre_driver::{DispatchConfig, VyreBackend, registry};

/// Body of the fresh process: runs saxpy with 1024 elements on the backend and prints how long each
/// part took.
pub(crate) fn child(backend: &str) -> Result<Ending, Ending> {
    let start = Instant::now();
    let backend: Arc<dyn VyreBackend> = registry::acquire(backend)?.into();
    let acquired = start.elapsed();
    let plan = elementwise::saxpy(2.5, 1024);
    let ones: Vec<u8> = [1.0_f32; 1024].iter().flat_map(|value| value.to_le_bytes()).collect();
    let start = Instant::now();
    let compiled = plan.compile(backend, &DispatchConfig::default())?;
    let compiling = start.elapsed();
    let start = Instant::now();
    let outputs = compiled.run(&[&ones, &ones])?;
    let calling = start.elapsed();
    let right = outputs.iter().all(|bytes| bytes.chunks(4).all(|value| value == 3.5_f32.to_le_bytes()));
    if !right {
        return Err(Ending::CannotRun("saxpy gave a wrong result".into()));
    }
    print(&format!("{} {} {}", acquired.as_nanos(), compiling.as_nanos(), calling.as_nanos()));
    Ok(Ending::Done)
}

/// Starts `tries` fresh processes and times them.
pub(crate) fn measure(backend: &str, tries: usize) -> Result<Cold, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let (program, words) = match vyre::unstable::opening::command() {
        Some([program, words @ ..]) => (program.clone(), words),
        _ => (own.into_os_string(), &[][..]),
    };
    let mut cold = Cold { backend: backend.into(), ..Cold::default() };
    for _ in 0..tries {
        let start = Instant::now();
        let mut process = Command::new(&program)
            .args(words)
            .args(["bench", "--cold-start", backend])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut text = String::new();
        if let Some(out) = &mut process.stdout {
            out.read_to_string(&mut text).map_err(|error| error.to_string())?;
        }
        let taken = start.elapsed();
        let ended = process.wait().map_err(|error| error.to_string())?;
        let parts: Vec<f64> = text.split_whitespace().filter_map(|part| part.parse().ok()).collect();
        let [acquire, compile, call] = parts[..] else {
            return Err(format!("a fresh process ended with {ended}"));
        };
        cold.first_result_ns.push(taken.as_nanos() as f64);
        cold.acquire_ns.push(acquire);
        cold.compile_ns.push(compile);
        cold.first_call_ns.push(call);
    }
    Ok(cold)
}
