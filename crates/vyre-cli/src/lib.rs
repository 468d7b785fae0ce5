//! The `vyre` command: a thin layer of arguments, files and exit codes over the libraries. Its
//! single entry point, [`run`], is called by the binary and by `python -m vyre`.
//!
//! Each subcommand is a module with an `Arguments` struct and a `run` function that returns an
//! [`Ending`]; the `commands!` list below registers them. Results go to standard output, everything
//! else to standard error.

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
#[cfg(test)]
mod tests;
mod tune;

use clap::builder::Resettable;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
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

/// Check, run, measure and test vyre kernels
#[derive(Debug, Parser)]
#[command(name = "vyre", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Cli {
    /// Print more detail to standard error; repeat for more (-vv, -vvv)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  vyre run examples/mandelbrot.vyre --out mandelbrot.png    a picture that a kernel drew
  vyre run examples/saxpy.vyre --in a=2 --in x=rand:f32:1M --in y=zeros:1M
  vyre check examples/*.vyre                                faults and warnings, with their positions
  vyre bench --quick --html report.html                     speed against C and the machine's limits
  vyre devices                                              backends on this machine
  vyre explain V015                                         what a diagnostic code means

Exit codes:
  0    done
  1    a check failed: faults in a program, a mismatch between backends, a damaged table
  2    wrong arguments, or a file that cannot be read or written
  3    the program or its inputs are not valid, or the backend cannot run it
  4    the kernel trapped, failed an assert or ran out of time
  130  interrupted

NO_COLOR turns colours off; they are used only on a terminal.";

/// Arguments that are described only once their subcommand is known. Describing those of all
/// subcommands takes an eighth of the instructions of a short command.
#[derive(Debug)]
struct Deferred<A>(A);

impl<A: Args> Args for Deferred<A> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| described(command, A::augment_args))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command.defer(|command| described(command, A::augment_args_for_update))
    }
}

/// Adds arguments to a subcommand, which keeps its own help text: an argument struct that includes
/// another one would replace it by that one's.
fn described(command: clap::Command, augment: fn(clap::Command) -> clap::Command) -> clap::Command {
    let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
    augment(command).about(Resettable::from(about)).long_about(Resettable::from(long_about))
}

impl<A: FromArgMatches> FromArgMatches for Deferred<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        A::from_arg_matches(matches).map(Deferred)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// The list of subcommands: variant name, module and help text.
macro_rules! commands {
    ($($(#[doc = $doc:literal])* $name:ident => $module:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[doc = $doc])* $name(Deferred<$module::Arguments>),)*
            /// Probe a driver in a separate process, so that a crash does not affect the caller
            #[command(name = vyre::unstable::opening::HELPER_SUBCOMMAND, hide = true)]
            ConformanceHelper {
                /// ID of the backend
                backend: String,
                /// Run the program on standard input instead of the conformance set
                #[arg(long)]
                program: bool,
            },
            /// Print a completion script for a shell
            #[command(after_help = "\
Examples:
  vyre completions bash > ~/.local/share/bash-completion/completions/vyre
  vyre completions fish > ~/.config/fish/completions/vyre.fish")]
            Completions {
                /// Shell to complete for
                shell: clap_complete::Shell,
            },
            /// Write manual pages to a folder, one per command
            #[command(hide = true)]
            Man {
                /// Folder to write to
                folder: std::path::PathBuf,
            },
        }

        impl Command {
            fn run(&self) -> Ending {
                match self {
                    $(Command::$name(Deferred(arguments)) => $module::run(arguments),)*
                    Command::ConformanceHelper { backend, program: false } => {
                        end_with_input();
                        output::print(&vyre::unstable::opening::helper_answer(backend));
                        Ending::Done
                    }
                    Command::ConformanceHelper { backend, program: true } => {
                        match vyre::unstable::opening::try_program(backend) {
                            Ok(answer) => {
                                output::print(&answer);
                                // The driver can still be busy with a program that timed out; the
                                // answer is complete anyway.
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
    /// Run a program once and show its outputs
    Run => run,
    /// Parse and validate programs; show every fault with its position
    Check => check,
    /// Format programs in the standard layout
    Fmt => fmt,
    /// List backends: linked, found, and refused with the reason
    Devices => devices,
    /// Explain a diagnostic code, an op or a program
    Explain => explain,
    /// List the operations of the kernel language and the ready-made ops
    Ops => ops,
    /// Show the optimized kernel of a program
    Opt => opt,
    /// Show a program in the languages it is lowered to
    Emit => emit,
    /// Convert a compute shader in WGSL, SPIR-V or GLSL to a program
    Import => import,
    /// Compare and measure backends on programs, and record the fastest
    Certify => certify,
    /// Measure shapes of a program on a backend, and record the fastest if it beats the default
    Tune => tune,
    /// Write a page with everything known about this machine
    Report => report,
    /// Repeat the dispatch that a manifest describes
    Replay => replay,
    /// Compare a backend with the interpreter on generated programs
    Conform => conform,
    /// Measure the catalogue's ops against native C and the machine's limits
    Bench => bench,
    /// Show, verify, clear, export and import the tables of learnt data
    Cache => cache,
    /// Check whether everything that vyre needs works here
    Doctor => doctor,
    /// Serve editors: diagnostics, types, definitions, completion and more, for `.vyre` files
    Lsp => lsp,
}

/// Runs the command with these arguments, the first of which is the command's name, and returns its
/// exit code.
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

/// Prints the requested help, or the error in the arguments, and returns the exit code.
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

/// How long a command that timed out waits for the driver it abandoned: too short to notice at a
/// prompt. Chosen, not measured.
const PATIENCE: Duration = Duration::from_millis(20);

/// Raises the priority of threads that a driver has lowered to that of this thread, where the
/// system allows it. Mesa creates such threads, and a process ends only with its last thread: on a
/// busy machine, seconds late.
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
    /// The C library's `getpriority`: returns a thread's nice value; thread 0 is the caller.
    safe fn getpriority(which: std::ffi::c_int, thread: u32) -> std::ffi::c_int;
    /// The C library's `setpriority`: sets a thread's nice value.
    safe fn setpriority(which: std::ffi::c_int, thread: u32, priority: std::ffi::c_int) -> std::ffi::c_int;
}

/// Ends the process when its input ends. The caller of a helper keeps its input, a pipe, open until
/// it has the answer; once the pipe is closed, the caller is gone.
fn end_with_input() {
    if !is_input_a_pipe() {
        return;
    }
    std::thread::spawn(|| {
        // Unreadable input counts as closed.
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

/// Sets a flag on an interrupt, so that the command can save its results first; a second interrupt
/// ends the process at once.
fn stop_on_interrupt(stop: &'static AtomicBool) {
    // A second handler in one process is refused; the first serves both.
    let _ = ctrlc::set_handler(|| match stop.swap(true, Ordering::Relaxed) {
        false => output::warn("stopping; interrupt again to stop at once"),
        true => end_now(130),
    });
}

#[allow(unsafe_code)]
unsafe extern "C" {
    /// The C library's `_exit`: ends the process without running destructors, which a busy driver
    /// does not survive.
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
