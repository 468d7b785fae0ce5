//! `vyre run`: a single dispatch of a program.

use crate::dispatch::{self, AUTO, Dispatched, ShapeArguments};
use crate::inputs::InputArguments;
use crate::output::{Ending, print, warn};
use crate::show::{self, OutputExtent};
use crate::sinks::{Destinations, OutputArguments};
use crate::source::{LoadedProgram, SetArguments, load_with};
use crate::{files, quantity};
use std::path::{Path, PathBuf};
use vyre_conform::outcome::returned_buffers;
use vyre_driver::{DispatchConfig, messages, trace};
use vyre_foundation::ir::BufferDecl;
use vyre_foundation::launch::Launch;
use vyre_reference::{FaultReport, RunError, RunOptions};

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{}\n\n{}\n\n{EXAMPLES}", crate::inputs::INPUTS_HELP, crate::sinks::OUTPUTS_HELP))]
pub(crate) struct Arguments {
    /// Program as text, wire bytes or a shader; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    set: SetArguments,
    /// Backend to run on; auto is the fastest measured backend that is known to be correct
    #[arg(long, default_value = AUTO, value_name = "ID")]
    backend: String,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    outputs: OutputArguments,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Run on the interpreter and report data races, out-of-range indices and reads of unwritten
    /// memory
    #[arg(long)]
    sanitize: bool,
    /// Show which backend ran, why, in what shape, and why others were refused
    #[arg(long)]
    explain: bool,
    /// Write a trace for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a manifest for `vyre replay`
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Show all elements of the outputs, not only the first
    #[arg(long)]
    full: bool,
    /// Print JSON instead of text, with all elements that are not written to a file
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  vyre run examples/mandelbrot.vyre --out mandelbrot.png
  vyre run examples/saxpy.vyre --in a=2.0 --in x=rand:f32:1M --in y=zeros:1M
  vyre run examples/saxpy.vyre --backend cpu-ref --json
  vyre run examples/histogram.vyre --sanitize";

pub(crate) fn run(arguments: &Arguments) -> Ending {
    if let Err(ending) = arguments.check_standard_output() {
        return ending;
    }
    if let Some(path) = &arguments.trace
        && let Err(error) =
            trace::start(if files::is_standard(path) { Path::new("/dev/stdout") } else { path })
    {
        return Ending::Usage(format!("cannot write `{}`: {error}", path.display()));
    }
    let ending = run_once(arguments).unwrap_or_else(|ending| ending);
    match trace::stop() {
        Err(error) => Ending::Usage(format!("cannot write the trace: {error}")),
        Ok(()) => ending,
    }
}

impl Arguments {
    /// Options that claim standard output, so that text goes to standard error.
    fn standard_output(&self) -> Vec<&'static str> {
        let standard = |path: &Option<PathBuf>| path.as_deref().is_some_and(files::is_standard);
        let claims = [
            ("--json", self.json),
            ("--manifest -", standard(&self.manifest)),
            ("--trace -", standard(&self.trace)),
        ];
        let claims = claims.into_iter().filter(|(_, claimed)| *claimed).map(|(name, _)| name);
        claims.chain(self.outputs.to_standard_output().map(|()| "--out -")).collect()
    }

    fn check_standard_output(&self) -> Result<(), Ending> {
        match self.standard_output().as_slice() {
            [] | [_] => Ok(()),
            several => {
                let names = several.join(" and ");
                Err(Ending::Usage(format!("standard output takes one document, but {names} write to it")))
            }
        }
    }

    /// Prints text for the user.
    fn tell(&self, text: &str) {
        if self.standard_output().is_empty() { print(text) } else { warn(text) }
    }
}

fn run_once(arguments: &Arguments) -> Result<Ending, Ending> {
    let loaded = load_with(&arguments.file, &arguments.set)?;
    let outputs = returned_buffers(&loaded.program);
    let destinations = arguments.outputs.destinations(&outputs)?;
    let inputs = arguments.inputs.gather(&loaded)?;
    let config = arguments.shape.config()?;
    if arguments.sanitize {
        return sanitize(arguments, &loaded, &inputs, &config);
    }
    let done = dispatch::dispatch(&arguments.backend, &loaded, &inputs, &config)?;
    finish(arguments, &loaded, &destinations, &done)?;
    if let Some(path) = &arguments.manifest {
        let manifest = dispatch::manifest(&done.backend, &loaded.program, &config)?;
        let json = manifest.to_json().map_err(|error| Ending::CannotRun(error.to_string()))?;
        files::write(path, json.as_bytes())?;
    }
    if arguments.explain && !arguments.json {
        arguments.tell(&explanation(&loaded, &inputs, &config, &done));
    }
    Ok(Ending::Done)
}

/// Writes the output files and shows the outputs.
fn finish(
    arguments: &Arguments,
    loaded: &LoadedProgram,
    destinations: &Destinations,
    done: &Dispatched,
) -> Result<(), Ending> {
    let decls = returned_buffers(&loaded.program);
    for (at, (decl, bytes)) in decls.iter().zip(&done.outputs).enumerate() {
        arguments.outputs.write(destinations, at, (done.domain, decl, bytes))?;
    }
    if arguments.json {
        print(&to_json(loaded, destinations, done).to_string());
        return Ok(());
    }
    let extent = if arguments.full { OutputExtent::All } else { OutputExtent::Summary };
    for (at, (decl, bytes)) in decls.iter().zip(&done.outputs).enumerate() {
        match destinations.of(at).next() {
            None => arguments.tell(&show::text(decl, bytes, extent)),
            Some(_) => print_files(arguments, decl, bytes, (destinations, at)),
        }
    }
    Ok(())
}

fn print_files(
    arguments: &Arguments,
    decl: &BufferDecl,
    bytes: &[u8],
    (destinations, at): (&Destinations, usize),
) {
    let length = bytes.len() / decl.element.size();
    for file in destinations.of(at).filter(|file| file.as_os_str() != "-") {
        arguments.tell(&format!("{}: {}[{length}] written to {}", decl.name, decl.element, file.display()));
    }
}

fn to_json(loaded: &LoadedProgram, destinations: &Destinations, done: &Dispatched) -> serde_json::Value {
    let decls = returned_buffers(&loaded.program);
    let output = |(at, (decl, bytes)): (usize, (&&BufferDecl, &Vec<u8>))| {
        let files: Vec<String> = destinations.of(at).map(|file| file.display().to_string()).collect();
        let extent = if files.is_empty() { OutputExtent::All } else { OutputExtent::Summary };
        let mut json = show::json(decl, bytes, extent);
        json["files"] = files.into();
        json
    };
    serde_json::json!({
        "kernel": loaded.program.name().map(|name| &**name),
        "backend": done.backend,
        "why": done.why,
        "dispatch_ns": done.dispatch_ns,
        "explanation": done.explanation,
        "outputs": decls.iter().zip(&done.outputs).enumerate().map(output).collect::<serde_json::Value>(),
    })
}

fn explanation(
    loaded: &LoadedProgram,
    inputs: &[Vec<u8>],
    config: &DispatchConfig,
    done: &Dispatched,
) -> String {
    let mut lines = vec![
        format!("backend   {}: {}", done.backend, done.why),
        format!("dispatch  {}", quantity::time(done.dispatch_ns)),
    ];
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    if let Ok(launch) = Launch::from_inputs(&loaded.kernel, &borrowed, config.overrides()) {
        let shape = if loaded.kernel.shape_free { ", any size is possible" } else { "" };
        lines.push(format!("shape     grid {:?} of workgroups {:?}{shape}", launch.grid, launch.workgroup));
    }
    lines.extend(done.explanation.as_ref().map(|explanation| format!("\n{explanation}")));
    lines.join("\n")
}

/// Runs the program on the interpreter with the sanitizer.
fn sanitize(
    arguments: &Arguments,
    loaded: &LoadedProgram,
    inputs: &[Vec<u8>],
    config: &DispatchConfig,
) -> Result<Ending, Ending> {
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let defaults = RunOptions::default();
    let options = RunOptions {
        overrides: config.overrides(),
        subgroup_size: config.subgroup_size.unwrap_or(defaults.subgroup_size),
        timeout: config.timeout,
        sanitize: true,
        ..defaults
    };
    let mut delivered = Ok(());
    let reports = match vyre_reference::run_speaking(&loaded.program, &borrowed, &options) {
        Ok((run, said)) => {
            delivered = messages::tell(loaded.kernel.display_name(), said);
            run.reports
        }
        Err(RunError::Diverged(report)) => vec![*report],
        Err(error @ (RunError::Trapped { .. } | RunError::Timeout)) => {
            return Err(Ending::Stopped(error.to_string()));
        }
        Err(
            error @ (RunError::Launch(_)
            | RunError::NotWritable { .. }
            | RunError::SubgroupSize(_)
            | RunError::Memory { .. }),
        ) => return Err(Ending::CannotRun(error.to_string())),
    };
    if arguments.json {
        print(
            &reports
                .iter()
                .map(|report| report_json(&loaded.file, report))
                .collect::<serde_json::Value>()
                .to_string(),
        );
    } else {
        reports.iter().for_each(|report| warn(&format!("{}: {report}", loaded.file)));
        print(&format!("{}: faults found: {}", loaded.file, reports.len()));
    }
    // A failed assert of the program is not a memory fault.
    delivered?;
    Ok(if reports.is_empty() { Ending::Done } else { Ending::CheckFailed })
}

fn report_json(file: &str, report: &FaultReport) -> serde_json::Value {
    let position = report.access.position;
    serde_json::json!({
        "file": file,
        "fault": report.fault.to_string(),
        "element": report.element.as_ref().map(|(name, index)| format!("{name}[{index}]")),
        "line": position.map(|(line, _)| line),
        "column": position.map(|(_, column)| column),
        "message": report.to_string(),
    })
}
