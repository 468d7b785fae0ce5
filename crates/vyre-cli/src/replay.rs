//! `vyre replay`: repeats the dispatch that a manifest describes.

use crate::dispatch::{self, Dispatched};
use crate::files;
use crate::inputs::InputArguments;
use crate::output::{Ending, print, warn};
use crate::show::{self, OutputExtent};
use crate::source::LoadedProgram;
use std::path::PathBuf;
use vyre_conform::outcome::returned_buffers;
use vyre_driver::pipeline::PipelineReproManifest;

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", crate::inputs::INPUTS_HELP))]
pub(crate) struct Arguments {
    /// Manifest written by `vyre run --manifest`
    manifest: PathBuf,
    /// Run on this backend instead of the manifest's
    #[arg(long, value_name = "ID")]
    backend: Option<String>,
    #[command(flatten)]
    inputs: InputArguments,
    /// Print JSON instead of text, with all elements
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
A manifest holds the program, the backend and how it was compiled, but not the inputs. Differences from \
the machine that it was written on are reported on standard error.

Example:
  vyre run examples/saxpy.vyre --manifest saxpy.json
  vyre replay saxpy.json --in a=2 --in x=1,2 --in y=3,4";

pub(crate) fn run(arguments: &Arguments) -> Ending {
    replay(arguments).unwrap_or_else(|ending| ending)
}

fn replay(arguments: &Arguments) -> Result<Ending, Ending> {
    let file = arguments.manifest.display().to_string();
    let unreadable = |error: vyre_driver::pipeline::ManifestError| Ending::Usage(format!("{file}: {error}"));
    let manifest =
        PipelineReproManifest::from_json(&files::read_text(&arguments.manifest)?).map_err(unreadable)?;
    let program = manifest.program().map_err(unreadable)?;
    let kernel = program.validate().map_err(|faults| Ending::CannotRun(format!("{file}: {faults}")))?;
    let loaded = LoadedProgram { file, source: String::new(), program, kernel };
    let inputs = arguments.inputs.gather(&loaded)?;
    let backend = arguments.backend.as_deref().unwrap_or(&manifest.backend_id);
    let done = dispatch::dispatch(backend, &loaded, &inputs, &manifest.dispatch_policy)?;
    let now = dispatch::manifest(&done.backend, &loaded.program, &manifest.dispatch_policy)?;
    show_results(arguments, &loaded, &done, (&manifest, &now));
    Ok(Ending::Done)
}

/// Differences from the manifest, one line each.
fn differences(manifest: &PipelineReproManifest, now: &PipelineReproManifest) -> Vec<String> {
    let pairs = [
        ("backend", &manifest.backend_id, &now.backend_id),
        ("device", &manifest.device, &now.device),
        ("driver", &manifest.driver, &now.driver),
        ("compiler", &manifest.compiler_version, &now.compiler_version),
        ("pipeline", &manifest.pipeline_id, &now.pipeline_id),
    ];
    let differs = pairs.into_iter().filter(|(_, then, now)| then != now);
    differs.map(|(what, then, now)| format!("{what}: `{now}` now, `{then}` in the manifest")).collect()
}

fn show_results(
    arguments: &Arguments,
    loaded: &LoadedProgram,
    done: &Dispatched,
    (then, now): (&PipelineReproManifest, &PipelineReproManifest),
) {
    let differences = differences(then, now);
    let decls = returned_buffers(&loaded.program);
    let outputs = || decls.iter().zip(&done.outputs);
    if arguments.json {
        let json = serde_json::json!({
            "backend": done.backend,
            "pipeline": now.pipeline_id,
            "program_digest": now.program_digest,
            "differences": differences,
            "outputs": outputs().map(|(decl, bytes)| show::json(decl, bytes, OutputExtent::All)).collect::<serde_json::Value>(),
        });
        print(&json.to_string());
        return;
    }
    differences.iter().for_each(|line| warn(line));
    outputs().for_each(|(decl, bytes)| print(&show::text(decl, bytes, OutputExtent::Summary)));
}
