//! `vyre tune`: measures the shapes of a program, or of a catalogue op with several shapes, on a
//! backend, and records the fastest if it beats the default.

use crate::dispatch::{AUTO, ShapeArguments, open};
use crate::inputs::InputArguments;
use crate::output::{Ending, OutputFormat, print, progress_bar};
use crate::quantity;
use crate::source::{SetArguments, load_with};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vyre::catalogue::matmul::{self, Sizes};
use vyre_driver::storage::Storage;
use vyre_driver::tuner::{
    Mode, Progress, Stage, TuneLimits, TuneReport, TuneRequest, Tuner, tune as find_fastest,
};
use vyre_driver::{BackendError, DeviceProfile, VyreBackend};

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", crate::inputs::INPUTS_HELP))]
pub(crate) struct Arguments {
    /// Program as text or wire bytes; `-` is standard input. `matmul` is the op of that name,
    /// unless there is a file with that name
    file: PathBuf,
    #[command(flatten)]
    set: SetArguments,
    /// Backend to tune for; auto is the preferred one
    #[arg(long, default_value = AUTO, value_name = "ID")]
    backend: String,
    /// Length for buffers that are sized at dispatch and have no input, filled with random
    /// elements; for `matmul`, the side of square matrices
    #[arg(long, value_name = "COUNT", value_parser = crate::quantity::count)]
    size: Option<u64>,
    /// Sizes of `matmul`: rows of a, columns of a, columns of b
    #[arg(long, value_name = "MxKxN", value_parser = product_sizes, conflicts_with = "size")]
    sizes: Option<Sizes>,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Time limit for tuning
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = quantity::seconds)]
    seconds: f64,
    /// Measure without recording the result
    #[arg(long)]
    dry_run: bool,
    /// Print JSON instead of text, without progress
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Workgroup sizes and elements per invocation within the device's limits are timed in random order on copies \
of the inputs; each round keeps the better half. The winner replaces the default only if it wins a duel of \
alternating runs. A decision applies to this program at about this size, on this device and driver; the \
runtime uses it.

Examples:
  vyre tune examples/saxpy.vyre --in a=2 --size 1M
  vyre tune examples/black_scholes.vyre --backend cpu --size 256K --seconds 5 --json
  vyre tune matmul --size 512";

pub(crate) fn run(arguments: &Arguments) -> Ending {
    tune(arguments).unwrap_or_else(|ending| ending)
}

/// Parses three counts separated by `x`.
fn product_sizes(text: &str) -> Result<Sizes, String> {
    let counts: Vec<u32> = text.split('x').map_while(|part| part.parse().ok()).collect();
    match (&counts[..], text.split('x').count()) {
        (&[rows, depth, columns], 3) => Ok(Sizes { rows, depth, columns }),
        _ => Err(format!("`{text}` is not three counts, as in 512x256x128")),
    }
}

fn tune(arguments: &Arguments) -> Result<Ending, Ending> {
    if arguments.file.as_os_str() == "matmul" && !arguments.file.exists() {
        return tune_matmul(arguments);
    }
    if arguments.sizes.is_some() {
        return Err(Ending::Usage("--sizes is for matmul; a program takes --size".into()));
    }
    let loaded = load_with(&arguments.file, &arguments.set)?;
    let inputs = arguments.inputs.gather_sized(&loaded, arguments.size)?;
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let config = arguments.shape.config()?;
    let limits = limits(arguments)?;
    let backend = open(&arguments.backend)?;
    let tuner = tuner(arguments, &backend.device_profile());
    let request = TuneRequest {
        backend,
        program: &loaded.program,
        config: &config,
        inputs: &borrowed,
        limits,
        pause: None,
    };
    let report = with_progress(arguments, limits, |progress| find_fastest(&tuner, &request, progress))?;
    keep(arguments, &tuner, &loaded.file, &report)
}

/// Tunes the shapes of a matrix product.
fn tune_matmul(arguments: &Arguments) -> Result<Ending, Ending> {
    let square = |side: u64| -> Result<Sizes, Ending> {
        let side = u32::try_from(side).map_err(|_| Ending::Usage(format!("--size {side} is too large")))?;
        Ok(Sizes { rows: side, depth: side, columns: side })
    };
    let sizes = match (arguments.sizes, arguments.size) {
        (Some(sizes), _) => sizes,
        (None, Some(side)) => square(side)?,
        (None, None) => return Err(Ending::Usage("matmul needs --size 512 or --sizes 512x256x128".into())),
    };
    let limits = limits(arguments)?;
    let backend: Arc<dyn VyreBackend> = open(&arguments.backend)?;
    let tuner = tuner(arguments, &backend.device_profile());
    let report = with_progress(arguments, limits, |progress| {
        matmul::tune(sizes, &backend, (&tuner, limits), progress)
    })?;
    keep(arguments, &tuner, "matmul", &report)
}

fn limits(arguments: &Arguments) -> Result<TuneLimits, Ending> {
    let wall = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|error| Ending::Usage(format!("--seconds {}: {error}", arguments.seconds)))?;
    Ok(TuneLimits { wall, ..TuneLimits::default() })
}

/// Tunes with a progress bar.
fn with_progress(
    arguments: &Arguments,
    limits: TuneLimits,
    tune: impl FnOnce(&mut dyn FnMut(Progress)) -> Result<TuneReport, BackendError>,
) -> Result<TuneReport, BackendError> {
    let bar = progress_bar(limits.wall.as_millis() as u64, "ms", OutputFormat::of(arguments.json));
    let report = tune(&mut |progress: Progress| {
        bar.set_position(progress.elapsed.as_millis() as u64);
        bar.set_message(stage(&progress));
    });
    bar.finish_and_clear();
    report
}

/// Saves and prints the decision.
fn keep(arguments: &Arguments, tuner: &Tuner, file: &str, report: &TuneReport) -> Result<Ending, Ending> {
    tuner.persist().map_err(|error| Ending::Usage(error.to_string()))?;
    let kept = tuner.path().map(|path| path.display().to_string());
    if arguments.json {
        print(&serde_json::json!({ "file": file, "report": report, "kept_in": kept }).to_string());
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

/// Opens the tuner over the device's table file; in a dry run, over no file.
fn tuner(arguments: &Arguments, profile: &DeviceProfile) -> Tuner {
    let places = if arguments.dry_run { Storage::default() } else { Storage::of_user() };
    places.tuner(profile, Mode::On)
}
