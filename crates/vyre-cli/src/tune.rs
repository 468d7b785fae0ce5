//! `vyre tune`: measures the shapes of a program on a backend, and keeps the fastest if it beats the default.

use crate::dispatch::{AUTO, ShapeArguments, open};
use crate::inputs::InputArguments;
use crate::output::{Ending, Form, print, progress_bar};
use crate::source::load;
use crate::tables::Places;
use std::path::PathBuf;
use std::time::Duration;
use vyre_driver::DeviceProfile;
use vyre_driver::tuner::{
    Mode, Progress, Stage, TuneLimits, TuneRequest, Tuner, adapter_fingerprint, tune as find_fastest,
};

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", crate::inputs::INPUTS_HELP))]
pub(crate) struct Arguments {
    /// The program, as text or wire bytes; `-` is standard input.
    file: PathBuf,
    /// The backend to tune for; auto is the one that selection prefers.
    #[arg(long, default_value = AUTO, value_name = "ID")]
    backend: String,
    /// The length of the buffers that are sized at dispatch and given nothing: random elements.
    #[arg(long, value_name = "COUNT", value_parser = crate::quantity::count)]
    size: Option<u64>,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    shape: ShapeArguments,
    /// How long tuning may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Measure, but keep nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON instead of text, and no progress.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Workgroup sizes and elements per invocation within the device's limits run in turn, in random order, on copies of the inputs; the
better half stays, round by round. The winner replaces the default only if it wins a duel of alternating runs. Decisions hold
for this program, about this size, this device and driver; the runtime uses them.

Examples:
  vyre tune examples/saxpy.vyre --in a=2 --size 1M
  vyre tune examples/black_scholes.vyre --backend cpu --size 256K --seconds 5 --json";

pub(crate) fn run(arguments: &Arguments) -> Ending {
    tune(arguments).unwrap_or_else(|ending| ending)
}

fn tune(arguments: &Arguments) -> Result<Ending, Ending> {
    let loaded = load(&arguments.file)?;
    let inputs = arguments.inputs.gather_sized(&loaded, arguments.size)?;
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let config = arguments.shape.config()?;
    let wall = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|error| Ending::Usage(format!("--seconds {}: {error}", arguments.seconds)))?;
    let backend = open(&arguments.backend)?;
    let tuner = tuner(arguments, &backend.device_profile());
    let request = TuneRequest {
        backend,
        program: &loaded.program,
        config: &config,
        inputs: &borrowed,
        family: &[],
        limits: TuneLimits { wall, ..TuneLimits::default() },
    };
    let bar = progress_bar(wall.as_millis() as u64, "ms", Form::of(arguments.json));
    let report = find_fastest(&tuner, &request, &mut |progress: Progress| {
        bar.set_position(progress.elapsed.as_millis() as u64);
        bar.set_message(stage(&progress));
    });
    bar.finish_and_clear();
    let report = report?;
    tuner.persist().map_err(|error| Ending::Usage(error.to_string()))?;
    let kept = tuner.path().map(|path| path.display().to_string());
    if arguments.json {
        print(&serde_json::json!({ "file": loaded.file, "report": report, "kept_in": kept }).to_string());
    } else {
        print(&report.to_string());
        kept.iter().for_each(|path| print(&format!("kept in {path}")));
    }
    Ok(Ending::Done)
}

fn stage(progress: &Progress) -> String {
    let doing = match progress.stage {
        Stage::Checking => "comparing results",
        Stage::Halving => "comparing times",
        Stage::Duel => "duel with the default",
    };
    format!("{doing}, {} candidates", progress.candidates)
}

/// Where the decisions are kept: the file of the device among the user's tables.
fn tuner(arguments: &Arguments, profile: &DeviceProfile) -> Tuner {
    let folder = Places::of_user().tuner.filter(|_| !arguments.dry_run);
    let file = Tuner::cache_path_for_adapter(&adapter_fingerprint(profile));
    match folder.zip(file.as_deref().and_then(|file| file.file_name())) {
        Some((folder, name)) => Tuner::at(folder.join(name), Mode::On),
        None => Tuner::in_memory(Mode::On),
    }
}
