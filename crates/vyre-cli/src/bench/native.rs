//! Native peers: C files compiled when the benchmark starts, each run in a separate process.
//!
//! A peer keeps its arrays between runs and times itself, so that it reports the work alone.
//! Between runs it blocks on its pipe and takes no time from the other contestants.

use super::workloads::{Limit, PeerArray};
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Embeds the kernels of `bench/user`: name, vyre source and C source.
macro_rules! kernels {
    ($($name:literal)*) => {
        pub(super) const USER: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../bench/user/", $name, ".vyre")))),*];
        const USER_SOURCES: &[(&str, &str)] = &[$((
            concat!("user_", $name, ".c"),
            include_str!(concat!("../../bench/user/", $name, ".c")),
        )),*];
    };
}

kernels! {
    "stencil" "blur" "sobel" "threshold" "grey" "equalise" "life" "matvec" "transpose" "batched" "solve" "gram" "csr" "nbody"
    "gcd" "popcount" "parity" "xorshift" "automaton" "dfa" "upper" "fir" "iir" "haar" "complex" "options_f64"
    "spaces" "dots" "bins" "yuv" "erode" "hex" "sad" "dct" "butterfly" "eliminate" "digits" "prefix" "normalise"
    "polynomial" "redblack" "characters" "columns" "blend" "gauss" "median" "resize" "hsv" "base64" "lines" "runs" "crc"
    "hamming" "argmin" "kmeans" "tridiagonal" "multiply" "fixed" "radix4"
}

/// Embeds the C files by name.
macro_rules! sources {
    ($($name:literal)*) => {
        const SOURCES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../bench/native/", $name)))),*];
    };
}

sources! {
    "peer.h" "harness.c" "limit_copy.c" "limit_update.c" "limit_read.c" "limit_multiply_add.c" "saxpy.c" "sum_f32.c"
    "sum_u32.c" "scan_u32.c" "histogram.c" "jacobi.c" "matmul.c" "mandelbrot.c" "options.c" "softmax.c" "murmur3.c"
    "sort_u32.c"
}

/// Compiler flags for peers: strict float semantics, as in vyre.
const FLAGS: &[&str] = &["-O3", "-march=native", "-ffp-contract=off", "-fopenmp"];

/// C source of a peer.
#[derive(Clone, Debug)]
pub(crate) enum PeerSource {
    /// Name of a built-in peer.
    BuiltIn(String),
    /// The user's C file, and objects or libraries to link with it.
    Files(Vec<PathBuf>),
}

/// Compiled peers, in a temporary folder that is removed on drop.
pub(crate) struct Peers {
    folder: PathBuf,
    /// First line of the compiler's version output.
    pub compiler: String,
}

impl Peers {
    /// Finds the compiler and writes the sources to a temporary folder.
    pub(crate) fn new() -> Result<Peers, String> {
        let version = Command::new("cc").arg("--version").output();
        let version = version.map_err(|error| format!("no C compiler `cc`: {error}"))?;
        let compiler = String::from_utf8_lossy(&version.stdout).lines().next().unwrap_or("cc").to_string();
        let folder = std::env::temp_dir().join(format!("vyre-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let peers = Peers { folder, compiler };
        for (name, text) in SOURCES.iter().chain(USER_SOURCES) {
            let path = peers.folder.join(name);
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(peers)
    }

    /// Compiles a peer unless its executable exists already.
    fn compile(&self, native: &PeerSource) -> Result<PathBuf, String> {
        let (program, sources) = match native {
            PeerSource::BuiltIn(name) => {
                (self.folder.join(name), vec![self.folder.join(format!("{name}.c"))])
            }
            PeerSource::Files(paths) => (self.folder.join("given"), paths.clone()),
        };
        if program.exists() {
            return Ok(program);
        }
        let made = Command::new("cc")
            .args(FLAGS)
            .arg("-I")
            .args([&self.folder, &self.folder.join("harness.c")])
            .args(&sources)
            .args([Path::new("-o"), &program])
            .arg("-lm")
            .output()
            .map_err(|error| format!("cc: {error}"))?;
        if made.status.success() {
            return Ok(program);
        }
        let said = String::from_utf8_lossy(&made.stderr);
        let names: Vec<String> = sources.iter().map(|source| source.display().to_string()).collect();
        Err(format!("the compiler refused {}:\n{}", names.join(", "), said.trim()))
    }

    /// Compiles and starts a native peer.
    pub(crate) fn start(&self, native: &PeerSource, arrays: &[PeerArray<'_>]) -> Result<Peer, String> {
        Peer::start(&self.compile(native)?, arrays)
    }

    /// Starts the peer that measures a limit: it moves `bytes` bytes, or does a fixed number of
    /// multiply-adds.
    pub(crate) fn start_limit(&self, limit: Limit, bytes: u64) -> Result<Peer, String> {
        let program = self.compile(&PeerSource::BuiltIn(format!("limit_{}", limit.name())))?;
        let bytes = bytes as usize;
        let rounds = 300_000_u64.to_le_bytes();
        let arrays = match limit {
            Limit::Copy => vec![PeerArray::Zeros(bytes / 2, 1), PeerArray::Zeros(bytes / 2, 1)],
            Limit::Update => vec![PeerArray::Zeros(bytes / 8, 4)],
            Limit::Read => vec![PeerArray::Zeros(bytes / 8, 8), PeerArray::Zeros(1, 8)],
            Limit::MultiplyAdd => {
                vec![PeerArray::Input(&rounds, 8), PeerArray::Zeros(1, 8), PeerArray::Zeros(1, 4)]
            }
        };
        Peer::start(&program, &arrays)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // A leftover temporary folder is harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running peer.
pub(crate) struct Peer {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    lengths: Vec<usize>,
}

impl Peer {
    fn start(program: &Path, arrays: &[PeerArray<'_>]) -> Result<Peer, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", program.display());
        let mut process = Command::new(program)
            // Idle peer threads must sleep soon after a run, or they take time from the next
            // contestant.
            .env("GOMP_SPINCOUNT", "20000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(format!("{}: no pipes", program.display()));
        };
        let mut peer = Peer { process, commands, answers: BufReader::new(answers), lengths: Vec::new() };
        peer.send(arrays).map_err(failed)?;
        Ok(peer)
    }

    fn send(&mut self, arrays: &[PeerArray<'_>]) -> std::io::Result<()> {
        self.commands.write_all(&(arrays.len() as u64).to_le_bytes())?;
        for array in arrays {
            let zeros;
            let (bytes, size, restored): (&[u8], usize, u64) = match array {
                PeerArray::Value(bytes, size) => (bytes, *size, 0),
                PeerArray::Input(bytes, size) => (bytes, *size, 0),
                PeerArray::Restored(bytes, size) => (bytes, *size, 1),
                PeerArray::Zeros(count, size) => {
                    zeros = vec![0; count * size];
                    (&zeros, *size, 0)
                }
            };
            for number in [(bytes.len() / size) as u64, size as u64, restored] {
                self.commands.write_all(&number.to_le_bytes())?;
            }
            self.commands.write_all(bytes)?;
            self.lengths.push(bytes.len());
        }
        self.commands.flush()
    }

    fn command(&mut self, letter: u8, number: u64, answer: usize) -> Result<Vec<u8>, String> {
        let mut message = vec![letter];
        message.extend(number.to_le_bytes());
        let mut bytes = vec![0; answer];
        let talk = self.commands.write_all(&message).and_then(|()| self.commands.flush());
        talk.and_then(|()| self.answers.read_exact(&mut bytes))
            .map_err(|error| format!("the peer ended: {error}"))?;
        Ok(bytes)
    }

    /// Runs `times` times and returns the total time in nanoseconds.
    pub(crate) fn run(&mut self, times: u64) -> Result<u64, String> {
        let answer = self.command(b'r', times, 8)?;
        Ok(u64::from_le_bytes(answer.try_into().unwrap_or_default()))
    }

    /// Reads back the current contents of an array.
    pub(crate) fn array(&mut self, number: usize) -> Result<Vec<u8>, String> {
        self.command(b'o', number as u64, self.lengths.get(number).copied().unwrap_or(0))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
