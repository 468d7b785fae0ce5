//! The `vyre` command: a thin layer of arguments, files and exit codes over the libraries.
//!
//! Each subcommand is a module with an `Arguments` struct and a `run` function that gives an [`Ending`]. Results go to
//! standard output, everything else to standard error.

mod check;
mod conform;
mod explain;
mod inputs;
mod opt;
mod output;
mod run;

use clap::{CommandFactory, Parser, Subcommand};
use output::Ending;
use std::process::ExitCode;
// Linking a backend's crate registers it.
#[cfg(feature = "cpu")]
use vyre_cpu as _;
use vyre_reference as _;

/// Checks, runs and tests vyre kernels.
#[derive(Debug, Parser)]
#[command(name = "vyre", version, about, after_help = AFTER_HELP, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  vyre check examples/*.vyre                       faults and remarks, with their places
  vyre run examples/saxpy.vyre --in a=2 --in x=1,2,3 --in y=rand:f32:3
  vyre opt examples/saxpy.vyre --print-after       the kernel behind every optimizer pass
  vyre conform --backend cpu-ref --count 1000      generated programs, compared by bits
  vyre explain V015                                what a diagnostic code means

Exit codes:
  0    done
  1    a check failed: faults in a program, a mismatch between backends
  2    wrong arguments, or a file that cannot be read or written
  3    the program or its inputs are not valid, or the backend cannot run it
  4    the kernel trapped or ran out of time
  130  interrupted";

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads and validates programs; shows every fault with its place.
    Check(check::Arguments),
    /// Runs a program once and shows its outputs.
    Run(run::Arguments),
    /// Shows the kernel that the optimizer makes of a program.
    Opt(opt::Arguments),
    /// Compares a backend with the interpreter on generated programs.
    Conform(conform::Arguments),
    /// Explains a diagnostic code.
    Explain(explain::Arguments),
    /// Prints a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let ending = match Cli::parse().command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Opt(arguments) => opt::run(&arguments),
        Command::Conform(arguments) => conform::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Completions { shell } => completions(shell),
    };
    ending.exit()
}

fn completions(shell: clap_complete::Shell) -> Ending {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vyre", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ending::Done
}
