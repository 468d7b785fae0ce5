//! `vyre opt`: the kernel that the optimizer makes of a program, pass by pass if wanted.

use crate::output::{Ending, print, read, show_diagnostics};
use std::path::PathBuf;
use vyre_foundation::optimize::{Assume, Pass, Schedule, optimize, optimize_traced};
use vyre_foundation::text;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vyre opt examples/saxpy.vyre\n  \
    vyre opt examples/saxpy.vyre --passes propagate,cse,range --print-after")]
pub(crate) struct Arguments {
    /// The program; `-` is standard input.
    file: PathBuf,
    /// Which passes run.
    #[arg(long, value_enum, default_value_t = Level::Full)]
    schedule: Level,
    /// These passes instead, in this order.
    #[arg(long, value_delimiter = ',')]
    passes: Vec<String>,
    /// Show the kernel behind every pass, not only at the end.
    #[arg(long)]
    print_after: bool,
    /// Rely on dispatches that override neither workgroup size nor grid.
    #[arg(long)]
    no_overrides: bool,
    /// How many elements an invocation of a shape-free kernel handles.
    #[arg(long, default_value_t = 1)]
    elements: u32,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Level {
    /// No pass.
    None,
    /// What every kernel gets.
    Quick,
    /// What kernels get that run often.
    Full,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let schedule = match schedule(arguments) {
        Ok(schedule) => schedule.with_coarsening(arguments.elements),
        Err(message) => return Ending::Usage(message),
    };
    let source = match read(&arguments.file) {
        Ok(source) => source,
        Err(ending) => return ending,
    };
    let kernel = match text::parse(&source).and_then(|program| program.validate()) {
        Ok(kernel) => kernel,
        Err(faults) => {
            show_diagnostics(&faults, &arguments.file.display().to_string());
            return Ending::CheckFailed;
        }
    };
    let assume = if arguments.no_overrides { Assume::no_overrides(&kernel) } else { Assume::default() };
    let schedule = schedule.with_assumptions(assume);
    if arguments.print_after {
        optimize_traced(kernel, &schedule, &mut |pass, kernel| {
            print(&format!("// after {}\n{kernel}", pass.name()))
        });
    } else {
        print(&optimize(kernel, &schedule).to_string());
    }
    Ending::Done
}

fn schedule(arguments: &Arguments) -> Result<Schedule, String> {
    if arguments.passes.is_empty() {
        return Ok(match arguments.schedule {
            Level::None => Schedule::none(),
            Level::Quick => Schedule::quick(),
            Level::Full => Schedule::full(),
        });
    }
    let pass = |name: &String| {
        let known: Vec<&str> = Pass::ALL.iter().map(|pass| pass.name()).collect();
        Pass::from_name(name).ok_or_else(|| format!("`{name}` is no pass; there are {}", known.join(", ")))
    };
    Ok(Schedule::of(&arguments.passes.iter().map(pass).collect::<Result<Vec<Pass>, String>>()?))
}
