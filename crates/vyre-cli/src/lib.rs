//! The `vyre` command: a thin layer of arguments, files and exit codes over the libraries. [`run`] is all of it; the binary
//! and `python -m vyre` call it.
//!
//! Each subcommand is a module with an `Arguments` struct and a `run` function that gives an [`Ending`]; the table of
//! them is the `commands!` list below. Results go to standard output, everything else to standard error.

#[cfg(feature = "cpu")]
mod asm;
mod bench;
mod bundle;
mod cache;
mod certify;
mod certify_report;
mod check;
mod conform;
mod devices;
mod dispatch;
mod doctor;
mod emit;
mod environment;
mod explain;
#[cfg(feature = "cpu")]
mod explain_code;
mod files;
mod fmt;
#[cfg(test)]
mod fuzz;
mod import;
mod inputs;
mod log;
mod lsp;
mod npy;
mod ops;
mod opt;
mod output;
mod picture;
mod quantity;
mod replay;
mod report;
mod run;
mod show;
mod sinks;
mod source;
mod tables;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};
use output::Ending;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vyre_driver::process_exit;
// Linking a backend's crate registers it.
#[cfg(feature = "cpu")]
use vyre_cpu as _;
#[cfg(feature = "cuda")]
use vyre_cuda as _;
#[cfg(feature = "opencl")]
use vyre_opencl as _;
use vyre_reference as _;
#[cfg(feature = "wgpu")]
use vyre_wgpu as _;

/// Checks, runs, measures and tests vyre kernels.
#[derive(Debug, Parser)]
#[command(name = "vyre", version, about, after_help = AFTER_HELP, max_term_width = 100)]
struct Cli {
    /// Tell more on standard error; -vv and -vvv tell still more.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  vyre run examples/mandelbrot.vyre --out mandelbrot.png    a picture that a kernel drew
  vyre run examples/saxpy.vyre --in a=2 --in x=rand:f32:1M --in y=zeros:1M
  vyre check examples/*.vyre                                faults and remarks, with their places
  vyre bench --quick --html report.html                     how fast, beside C and the machine's limits
  vyre devices                                              what is there to run on
  vyre explain V015                                         what a diagnostic code means

Exit codes:
  0    done
  1    a check failed: faults in a program, a mismatch between backends, a damaged table
  2    wrong arguments, or a file that cannot be read or written
  3    the program or its inputs are not valid, or the backend cannot run it
  4    the kernel trapped or ran out of time
  130  interrupted

NO_COLOR turns colours off; they are only ever used on a terminal.";

/// The one list of subcommands: module, name, and what it does in one sentence.
macro_rules! commands {
    ($($(#[doc = $doc:literal])* $name:ident => $module:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[doc = $doc])* $name($module::Arguments),)*
            /// Meets a driver for the first time, in place of a program that must not crash with it.
            #[command(name = vyre::unstable::opening::HELPER_SUBCOMMAND, hide = true)]
            ConformanceHelper {
                /// The backend's id.
                backend: String,
                /// Try the program on standard input instead.
                #[arg(long)]
                program: bool,
            },
            /// Prints a completion script for a shell.
            #[command(after_help = "\
Examples:
  vyre completions bash > ~/.local/share/bash-completion/completions/vyre
  vyre completions fish > ~/.config/fish/completions/vyre.fish")]
            Completions {
                /// The shell.
                shell: clap_complete::Shell,
            },
            /// Writes manual pages into a folder, one per command.
            #[command(hide = true)]
            Man {
                /// The folder.
                folder: std::path::PathBuf,
            },
        }

        impl Command {
            fn run(&self) -> Ending {
                match self {
                    $(Command::$name(arguments) => $module::run(arguments),)*
                    Command::ConformanceHelper { backend, program: false } => {
                        end_with_input();
                        output::print(&vyre::unstable::opening::helper_answer(backend));
                        Ending::Done
                    }
                    Command::ConformanceHelper { backend, program: true } => {
                        match vyre::unstable::opening::try_program(backend) {
                            Ok(answer) => {
                                output::print(&answer);
                                // The driver may still be at work on what ran out of time, and has answered all the same.
                                end_now(0)
                            }
                            Err(message) => Ending::CannotRun(message),
                        }
                    }
                    Command::Completions { shell } => completions(*shell),
                    Command::Man { folder } => manual_pages(folder),
                }
            }
        }
    };
}

commands! {
    /// Runs a program once and shows its outputs.
    Run => run,
    /// Reads and validates programs; shows every fault with its place.
    Check => check,
    /// Puts programs into the usual layout.
    Fmt => fmt,
    /// Lists the backends: what is linked, what was found, what was refused and why.
    Devices => devices,
    /// Explains a diagnostic code, an op or a program.
    Explain => explain,
    /// Lists the operations that kernels are made of, and the ready ops.
    Ops => ops,
    /// Shows the kernel that the optimizer makes of a program.
    Opt => opt,
    /// Shows a program in the languages on its way to a device.
    Emit => emit,
    /// Makes a program of a compute shader in WGSL, SPIR-V or GLSL.
    Import => import,
    /// Compares and measures the backends on programs, and keeps which is fastest.
    Certify => certify,
    /// Measures shapes of a program on a backend, and keeps the fastest if it beats the default.
    Tune => tune,
    /// Writes a page with everything that is known about this machine.
    Report => report,
    /// Does again what a manifest describes.
    Replay => replay,
    /// Compares a backend with the interpreter on generated programs.
    Conform => conform,
    /// Measures the catalogue's ops beside native C and the machine's limits.
    Bench => bench,
    /// Shows, checks, removes, exports and imports what vyre has learnt.
    Cache => cache,
    /// Checks whether everything that vyre needs works here.
    Doctor => doctor,
    /// Serves editors: diagnostics, types, definitions, completion and more, for `.vyre` files.
    Lsp => lsp,
}

/// Runs the command with these words, the first of which is the command's own name, and gives its exit code.
///
/// ```
/// assert_eq!(vyre_cli::run(["vyre", "explain", "V015"]), 0);
/// assert_eq!(vyre_cli::run(["vyre", "explain", "nothing of that name"]), 2);
/// ```
pub fn run<Word: Into<OsString>>(words: impl IntoIterator<Item = Word>) -> u8 {
    dispatch::begin();
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(fault) => return misunderstood(&fault, &words),
    };
    log::listen(cli.verbose);
    if !matches!(cli.command, Command::ConformanceHelper { .. }) {
        environment::check();
    }
    let code = output::unwritten(cli.command.run()).exit();
    let left = dispatch::left();
    #[cfg(target_os = "linux")]
    hurry();
    let patience = if code == output::STOPPED { Some(PATIENCE) } else { left };
    if patience.is_some_and(process_exit::is_anyone_inside) {
        end_now(code.into());
    }
    code
}

/// Shows the help that was asked for, or what is wrong with the arguments, which it quotes.
fn misunderstood(fault: &clap::Error, words: &[OsString]) -> u8 {
    let steers = |word: &OsString| word.to_string_lossy().chars().any(char::is_control);
    if fault.use_stderr() && words.iter().any(steers) {
        output::warn(fault.render().to_string().trim_end());
    } else if let Err(error) = fault.print()
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        output::warn(&format!("cannot write: {error}"));
        return 2;
    }
    u8::try_from(fault.exit_code()).unwrap_or(2)
}

/// How long a command that ran out of time waits for the driver that it left behind.
const PATIENCE: Duration = Duration::from_millis(20);

/// Gives threads that a driver made less urgent the urgency of this one, where the system lets it. Mesa has such threads, and a
/// process ends when its last thread does: on a machine with much to do, seconds late.
#[cfg(target_os = "linux")]
fn hurry() {
    let own = getpriority(OF_A_THREAD, 0);
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if getpriority(OF_A_THREAD, thread) > own {
            setpriority(OF_A_THREAD, thread, own);
        }
    }
}

#[cfg(target_os = "linux")]
const OF_A_THREAD: std::ffi::c_int = 0;

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
unsafe extern "C" {
    /// The C library's: how little urgent a thread is, 0 being this one.
    safe fn getpriority(which: std::ffi::c_int, thread: u32) -> std::ffi::c_int;
    /// The C library's: sets that.
    safe fn setpriority(which: std::ffi::c_int, thread: u32, priority: std::ffi::c_int) -> std::ffi::c_int;
}

/// Whoever asks a helper keeps its input, a pipe, open until it has the answer, and is gone once that ends: nobody waits any more.
fn end_with_input() {
    if !is_input_a_pipe() {
        return;
    }
    std::thread::spawn(|| {
        // Input that cannot be read has ended as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        end_now(1)
    });
}

#[cfg(unix)]
fn is_input_a_pipe() -> bool {
    use std::os::{fd::AsFd, unix::fs::FileTypeExt};
    let input = std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from);
    input.and_then(|input| input.metadata()).is_ok_and(|input| input.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_input_a_pipe() -> bool {
    true
}

/// Raises a flag on an interrupt, for what first puts away what it has; a second interrupt ends the process at once.
fn stop_on_interrupt(stop: &'static AtomicBool) {
    // A second handler in one process is refused; the first serves both.
    let _ = ctrlc::set_handler(|| match stop.swap(true, Ordering::Relaxed) {
        false => output::warn("stopping; once more ends it at once"),
        true => end_now(130),
    });
}

#[allow(unsafe_code)]
unsafe extern "C" {
    /// The C library's: ends the process without taking anything apart, which a driver that is at work does not survive.
    #[link_name = "_exit"]
    safe fn end_now(code: std::ffi::c_int) -> !;
}

fn manual_pages(folder: &std::path::Path) -> Ending {
    match clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder) {
        Ok(_) => Ending::Done,
        Err(error) => Ending::Usage(format!("{}: {error}", folder.display())),
    }
}

fn completions(shell: clap_complete::Shell) -> Ending {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vyre", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ending::Done
}
