//! `vyre opt`: the optimized kernel of a program, optionally after each pass.

use crate::output::{Ending, print};
use crate::source::{SetArguments, load_with};
use std::path::PathBuf;
use vyre_foundation::optimize::{Assume, Pass, Schedule, optimize, optimize_traced};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vyre opt examples/saxpy.vyre\n  \
    vyre opt examples/saxpy.vyre --print-after range\n  \
    vyre opt examples/saxpy.vyre --passes propagate,cse,range --print-after")]
pub(crate) struct Arguments {
    /// Program; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    set: SetArguments,
    /// Set of passes to run
    #[arg(long, value_enum, default_value_t = Level::Full)]
    schedule: Level,
    /// Run these passes instead, in this order
    #[arg(long, value_delimiter = ',')]
    passes: Vec<String>,
    /// Show the kernel after each run of this pass, or after every pass
    #[arg(long, value_name = "PASS", num_args = 0..=1, default_missing_value = ALL_PASSES)]
    print_after: Option<String>,
    /// Assume that dispatches override neither workgroup size nor grid
    #[arg(long)]
    no_overrides: bool,
    /// Elements per invocation of a shape-free kernel
    #[arg(long, default_value_t = 1)]
    elements: u32,
    /// Print JSON instead of text, with the kernel after every pass
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Level {
    /// No passes
    None,
    /// Passes that every kernel gets
    Quick,
    /// Passes for kernels that run often
    Full,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    show(arguments).unwrap_or_else(|ending| ending)
}

fn show(arguments: &Arguments) -> Result<Ending, Ending> {
    let only = arguments.print_after.as_deref().filter(|name| *name != ALL_PASSES);
    let only = only.map(pass).transpose()?;
    let schedule = schedule(arguments)?.with_coarsening(arguments.elements);
    let kernel = load_with(&arguments.file, &arguments.set)?.kernel;
    let assume = if arguments.no_overrides { Assume::no_overrides(&kernel) } else { Assume::default() };
    let schedule = schedule.with_assumptions(assume);
    if arguments.print_after.is_none() && !arguments.json {
        print(&optimize(kernel, &schedule).to_string());
        return Ok(Ending::Done);
    }
    let mut steps = Vec::new();
    let last = optimize_traced(kernel, &schedule, &mut |pass, kernel| {
        if only.is_none_or(|only| only == pass) {
            steps.push((pass.name(), kernel.to_string()));
        }
    });
    if arguments.json {
        let step = |(pass, kernel): &(&str, String)| serde_json::json!({ "pass": pass, "kernel": kernel });
        let steps: serde_json::Value = steps.iter().map(step).collect();
        print(&serde_json::json!({ "kernel": last.to_string(), "steps": steps }).to_string());
    } else {
        steps.iter().for_each(|(pass, kernel)| print(&format!("// after {pass}\n{kernel}")));
    }
    Ok(Ending::Done)
}

/// Value of `--print-after` without a name.
const ALL_PASSES: &str = "all";

fn pass(name: &str) -> Result<Pass, Ending> {
    let known: Vec<&str> = Pass::ALL.iter().map(|pass| pass.name()).collect();
    Pass::from_name(name)
        .ok_or_else(|| Ending::Usage(format!("`{name}` is not a pass; the passes are {}", known.join(", "))))
}

fn schedule(arguments: &Arguments) -> Result<Schedule, Ending> {
    if arguments.passes.is_empty() {
        return Ok(match arguments.schedule {
            Level::None => Schedule::none(),
            Level::Quick => Schedule::quick(),
            Level::Full => Schedule::full(),
        });
    }
    Ok(Schedule::of(&arguments.passes.iter().map(|name| pass(name)).collect::<Result<Vec<Pass>, Ending>>()?))
}
