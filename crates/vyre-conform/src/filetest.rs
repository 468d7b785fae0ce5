//! Filetests: a `.vyre` file whose comments specify what to do with its program and what to expect.
//!
//! ```text
//! // test interpret
//! // test run
//! kernel double(x: read f32[], y: output f32[]) {
//!   region "double" { y[invocation.x] = x[invocation.x] * 2.0 }
//! }
//!
//! // input x: f32 = [1.0, nan, -0.0]
//! // output y: f32 = [2.0, nan, -0.0]
//! ```
//!
//! Lines and their meaning:
//!
//! - `// test cat`: the printed program is the `//|` block under `// expect cat`.
//! - `// test wire`: the program's fingerprint is the line `// fingerprint …`.
//! - `// test validate`: the errors and warnings are the lines `// error CODE L:C message`,
//!   `// warning …`.
//! - `// test interpret`: the interpreter gives the lines `// print x y z "…"` and `// output …`,
//!   or `// expect trap 7`, `// expect assert …`, `// expect timeout`, or `// error D…`.
//! - `// test optimize quick`: the optimized kernel is the block under `// expect optimize quick`;
//!   also `full`, or passes by name; with `elements=4`, `lacks=clz,abs`, `slow=division`,
//!   `assume=no_overrides`, `assume=dispatch_checks` (which includes the former).
//! - `// test bounds n=8 x=64`: what the optimizer and a launch prove of the accesses is the block
//!   under `// expect bounds n=8 x=64`; `n=8` is the value of a uniform, `x=64` a length, and
//!   `elements=4` coarsens.
//! - `// test legalise trip-counts`: the kernel legalised by the named passes (`unknown-steps`,
//!   `nan-stores`, `half-floats`) is the block under `// expect legalise trip-counts`.
//! - `// test emit opencl`: the kernel's text in that dialect is the block under
//!   `// expect emit opencl`; a schedule can follow, as with `optimize`. The targets `vector`,
//!   `wgsl` and `spirv` show what the `cpu` and `wgpu` backends generate.
//! - `// test elementwise`: the proof gives the line `// elementwise columns x, y; parameters a`,
//!   or the line `// error A001 …`.
//! - `// test run [backend…]`: the named backends, or all of them, give what `interpret` gives.
//! - `// input name: type = data`: the contents of a buffer, in the syntax of [`crate::data`].
//! - `// config workgroup 8`: also `grid [2, 1, 1]`, `domain [640, 480, 1]`, `subgroup 4`,
//!   `timeout_ms 50`.
//!
//! Every file also makes a round trip through text and wire bytes; every file with `interpret` also
//! runs through the driver's pipeline on `cpu-ref`. A check renders its result as lines of the file
//! and compares them with the lines that are there, so blessing replaces the expected lines by the
//! rendered ones. `run` renders nothing: only the interpreter is trusted.

use crate::data;
use crate::differential::{dispatch, interpret, interpret_speaking};
use crate::generate::Case;
use crate::outcome::{Judge, Outcome, difference, given_buffers, returned_buffers};
use similar::TextDiff;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::diagnostics::{Diagnostic, Diagnostics, Severity, line_column};
use vyre_foundation::elementwise::{Elementwise, elementwise};
use vyre_foundation::emit::{Dialect, Settings, emit, prepare};
use vyre_foundation::ir::{Access, DataType, Program};
use vyre_foundation::kernel::{AccessMark, BufferId, Doubts, Kernel, KernelBody};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::legalise::{WantedPasses, legalise};
use vyre_foundation::ops::Op;
use vyre_foundation::optimize::{Assume, Pass, Schedule, optimize};
use vyre_foundation::types::Value;
use vyre_foundation::{text, wire};
use vyre_reference::{FaultKind, FaultReport, Order, RunOptions, run_speaking};

/// An action on the program of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Prints the program.
    Cat,
    /// Encodes and decodes the program.
    Wire,
    /// Validates the program.
    Validate,
    /// Runs the program on the interpreter.
    Interpret,
    /// Optimizes the program: `quick`, `full`, or these passes in this order.
    Optimize(Vec<String>),
    /// Proves accesses in range, for a launch with these sizes.
    Bounds(Vec<String>),
    /// Legalises the kernel with these passes.
    Legalise(Vec<String>),
    /// Emits the program in a dialect, after a schedule.
    Emit(Vec<String>),
    /// Proves that the program works element by element.
    Elementwise,
    /// Runs the program on these backends, or on all if the list is empty.
    Run(Vec<String>),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Cat => f.write_str("cat"),
            Command::Wire => f.write_str("wire"),
            Command::Validate => f.write_str("validate"),
            Command::Interpret => f.write_str("interpret"),
            Command::Optimize(words) => write!(f, "optimize {}", words.join(" ")),
            Command::Bounds(sizes) => write!(f, "bounds {}", sizes.join(" ")),
            Command::Legalise(passes) => write!(f, "legalise {}", passes.join(" ")),
            Command::Emit(words) => write!(f, "emit {}", words.join(" ")),
            Command::Elementwise => f.write_str("elementwise"),
            Command::Run(backends) if backends.is_empty() => f.write_str("run"),
            Command::Run(backends) => write!(f, "run {}", backends.join(" ")),
        }
    }
}

/// The expectation that a line belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Section {
    Outcome,
    Diagnostics,
    Fingerprint,
    Elementwise,
    /// The block under the line `// expect …`.
    Block(String),
}

impl Section {
    /// The section of a line, if it is an expectation; a `//|` line continues the block before it.
    fn of(line: &str, before: Option<&Section>) -> Option<Section> {
        if line.starts_with("//|") {
            return before.filter(|section| matches!(section, Section::Block(_))).cloned();
        }
        let comment = line.strip_prefix("// ")?;
        let mut words = comment.split(' ');
        match (words.next()?, words.next()) {
            ("output", Some(_)) => Some(Section::Outcome),
            ("print", Some(_)) => Some(Section::Outcome),
            ("expect", Some("trap" | "timeout" | "assert")) => Some(Section::Outcome),
            ("expect", Some("cat" | "optimize" | "bounds" | "legalise" | "emit")) => {
                Some(Section::Block(comment.trim_end().to_string()))
            }
            ("error", Some(code)) if code.starts_with('D') && is_code(code) => Some(Section::Outcome),
            ("error", Some("A001")) | ("elementwise", Some(_)) => Some(Section::Elementwise),
            ("error" | "warning", Some(code)) if is_code(code) => Some(Section::Diagnostics),
            ("fingerprint", Some(_)) => Some(Section::Fingerprint),
            _ => None,
        }
    }
}

/// The lines of a file, each with its section.
fn sections(source: &str) -> impl Iterator<Item = (Option<Section>, &str)> {
    source.lines().scan(None, |before: &mut Option<Section>, line| {
        *before = Section::of(line, before.as_ref());
        Some((before.clone(), line))
    })
}

fn is_code(word: &str) -> bool {
    vyre_foundation::diagnostics::Code::from_str(word).is_some()
}

/// Parses a program from the text of a file.
pub type Reader = fn(&str) -> Result<Program, Diagnostics>;

/// Targets of `emit` that backends implement, in addition to the dialects of the foundation.
pub const BACKEND_TARGETS: [&str; 3] = ["vector", "wgsl", "spirv"];

/// Emits a program for one of [`BACKEND_TARGETS`].
pub type Emitter = fn(target: &str, &Program, &DispatchConfig) -> Result<String, String>;

/// A parsed file, not yet run.
#[derive(Clone, Debug)]
pub struct FileTest {
    source: String,
    reader: Reader,
    emitter: Option<Emitter>,
    commands: Vec<Command>,
    inputs: Vec<(String, DataType, Vec<u8>)>,
    config: DispatchConfig,
}

impl FileTest {
    /// Parses the comments of a file; its program is parsed only when a command runs.
    pub fn parse(source: &str) -> Result<FileTest, String> {
        FileTest::parse_with(source, text::parse)
    }

    /// Parses a file whose program is in another language that also uses `//` comments.
    pub fn parse_with(source: &str, reader: Reader) -> Result<FileTest, String> {
        let config = DispatchConfig::default();
        let mut file = FileTest {
            source: source.into(),
            reader,
            emitter: None,
            commands: Vec::new(),
            inputs: Vec::new(),
            config,
        };
        for (k, line) in source.lines().enumerate() {
            file.directive(line).map_err(|message| format!("line {}: {message}", k + 1))?;
        }
        if file.commands.is_empty() {
            return Err("the file names no command; start it with a line such as `// test interpret`".into());
        }
        Ok(file)
    }

    /// The file with an emitter for the targets of backends.
    pub fn with_emitter(self, emitter: Emitter) -> FileTest {
        FileTest { emitter: Some(emitter), ..self }
    }

    fn directive(&mut self, line: &str) -> Result<(), String> {
        let Some(line) = line.strip_prefix("// ") else { return Ok(()) };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "test" => self.commands.push(parse_command(rest)?),
            "input" => self.inputs.push(parse_data(rest)?),
            "output" => drop(parse_data(rest)?),
            "config" => self.configure(rest)?,
            _ => {}
        }
        Ok(())
    }

    fn configure(&mut self, text: &str) -> Result<(), String> {
        let (key, value) = text.split_once(' ').ok_or("write `config key value`")?;
        let numbers = data::parse(DataType::U32, value)?;
        let numbers: Vec<u32> =
            numbers.chunks_exact(4).filter_map(|bytes| DataType::U32.load(bytes)?.as_u32()).collect();
        match (key, numbers.as_slice()) {
            ("workgroup", &[x]) => self.config.workgroup_override = Some([x, 1, 1]),
            ("workgroup", &[x, y, z]) => self.config.workgroup_override = Some([x, y, z]),
            ("grid", &[x]) => self.config.grid_override = Some([x, 1, 1]),
            ("grid", &[x, y, z]) => self.config.grid_override = Some([x, y, z]),
            ("domain", &[x]) => self.config.domain_override = Some([x, 1, 1]),
            ("domain", &[x, y, z]) => self.config.domain_override = Some([x, y, z]),
            ("subgroup", &[size]) => self.config.subgroup_size = Some(size),
            ("timeout_ms", &[limit]) => self.config.timeout = Some(Duration::from_millis(limit.into())),
            _ => return Err(format!("`{text}` is no configuration")),
        }
        Ok(())
    }

    /// All commands: those in the file, and the round trips that every program must survive.
    pub fn commands(&self) -> Vec<Command> {
        let mut commands = self.commands.clone();
        // A text that must be rejected has no program for round trips.
        let refused = commands == [Command::Validate] && self.program().is_err();
        for implied in [Command::Cat, Command::Wire] {
            if !refused && !commands.contains(&implied) {
                commands.push(implied);
            }
        }
        commands
    }

    /// Runs a command, on these backends if it is `run`. The error states what was expected and
    /// found.
    pub fn check(&self, command: &Command, backends: &[Arc<dyn VyreBackend>]) -> Result<(), String> {
        match command {
            Command::Run(_) => backends.iter().try_for_each(|backend| self.run(backend)),
            Command::Cat
            | Command::Wire
            | Command::Validate
            | Command::Interpret
            | Command::Optimize(_)
            | Command::Legalise(_)
            | Command::Emit(_)
            | Command::Bounds(_)
            | Command::Elementwise => {
                let Some((section, found)) = self.found(command)? else { return Ok(()) };
                let expected = self.expected(&section);
                if expected == found {
                    return Ok(());
                }
                let (expected, found) = (expected.join("\n") + "\n", found.join("\n") + "\n");
                let diff = TextDiff::from_lines(&expected, &found);
                let diff = diff.unified_diff().header("expected", "found").to_string();
                Err(format!("{diff}run with VYRE_BLESS=1 to take over what was found, if it is right"))
            }
        }
    }

    /// The file with its expectations replaced by the actual results.
    pub fn blessed(&self) -> Result<String, String> {
        let mut found: Vec<(Section, Vec<String>)> = Vec::new();
        for command in self.commands() {
            found.extend(self.found(&command)?);
        }
        let replaced = |section: &Section| found.iter().any(|(other, _)| other == section);
        let kept = sections(&self.source).filter(|(section, _)| !section.as_ref().is_some_and(replaced));
        let kept: Vec<&str> = kept.map(|(_, line)| line).collect();
        let mut text = kept.join("\n").trim_end().to_string();
        let lines: Vec<String> = found.into_iter().flat_map(|(_, lines)| lines).collect();
        if !lines.is_empty() {
            // The expectations follow the inputs, or start a new paragraph.
            let after_comment = text.lines().last().is_some_and(|line| line.starts_with("//"));
            text += if after_comment { "\n" } else { "\n\n" };
            text += &lines.join("\n");
        }
        Ok(text + "\n")
    }

    fn expected(&self, section: &Section) -> Vec<String> {
        let belongs = |(other, _): &(Option<Section>, &str)| other.as_ref() == Some(section);
        sections(&self.source).filter(belongs).map(|(_, line)| line.trim_end().to_string()).collect()
    }

    /// The result of a command as lines of the file; `None` for implied round trips, which have no
    /// expectation.
    fn found(&self, command: &Command) -> Result<Option<(Section, Vec<String>)>, String> {
        let named = self.commands.contains(command);
        match command {
            Command::Cat => {
                let printed = text::print(&text_round_trip(&self.program()?)?);
                Ok(named.then(|| block(command, &printed)))
            }
            Command::Wire => {
                let program = wire_round_trip(&self.program()?)?;
                let hex: String = program.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
                Ok(named.then(|| (Section::Fingerprint, vec![format!("// fingerprint {hex}")])))
            }
            Command::Validate => Ok(Some((Section::Diagnostics, self.diagnostics()))),
            Command::Interpret => self.interpreted().map(|lines| Some((Section::Outcome, lines))),
            Command::Optimize(words) => {
                let kernel = self.program()?.validate().map_err(|faults| faults.to_string())?;
                let schedule = parse_schedule(words, Assume::no_overrides(&kernel))?;
                let optimized = optimize(kernel, &schedule);
                Ok(Some(block(command, &optimized.to_string())))
            }
            Command::Bounds(sizes) => Ok(Some(block(command, &self.bounds(sizes)?))),
            Command::Legalise(passes) => {
                let kernel = self.program()?.validate().map_err(|faults| faults.to_string())?;
                let legal = legalise(&kernel, &parse_passes(passes)?);
                Ok(Some(block(command, &legal.to_string())))
            }
            Command::Emit(words) => Ok(Some(block(command, &self.emitted(words)?))),
            Command::Elementwise => Ok(Some((Section::Elementwise, vec![self.elementwise()?]))),
            Command::Run(_) => Ok(None),
        }
    }

    /// What the optimizer proves of the accesses, and what a launch with these sizes adds.
    fn bounds(&self, sizes: &[String]) -> Result<String, String> {
        let program = self.program()?;
        let kernel = program.validate().map_err(|faults| faults.to_string())?;
        let size = |name: &str| {
            let found =
                sizes.iter().find_map(|size| size.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
            found.ok_or(format!("`bounds` has no size of `{name}`"))
        };
        let mut inputs: Vec<Vec<u8>> = Vec::new();
        for decl in given_buffers(&program) {
            let size: u32 = size(&decl.name)?;
            inputs.push(match decl.access == Access::Uniform && decl.count == 1 {
                true => size.to_le_bytes()[..decl.element.size()].to_vec(),
                false => vec![0; size as usize * decl.element.size()],
            });
        }
        let elements = size("elements").unwrap_or(1);
        let attempt = |doubtful: Doubts| {
            let assume = Assume { dispatch_checks: true, doubtful, ..Assume::no_overrides(&kernel) };
            let schedule = Schedule::full().with_assumptions(assume).with_coarsening(elements);
            let kernel = optimize(kernel.clone(), &schedule);
            let doubts = doubts(&kernel, &inputs)?;
            Ok::<_, String>((kernel, doubts))
        };
        let (first, doubts) = attempt(Doubts::NONE)?;
        let (kernel, rest) = if doubts == Doubts::NONE { (first, doubts) } else { attempt(doubts)? };
        let accesses = kernel.accesses();
        let name = |access: &AccessMark| {
            let line = access.at.map(|at| line_column(&self.source, at.start).0);
            let line = line.map_or(String::new(), |line| format!(" in line {line}"));
            format!("checked: {}{line}", kernel.place_name(access.place))
        };
        let mut lines: Vec<String> = accesses.iter().filter(|access| !access.in_bounds).map(name).collect();
        lines.dedup();
        let conditions = match kernel.proof.len() {
            0 => "nothing is left to the launch".into(),
            1 => "the launch proves 1 condition".into(),
            count => format!("the launch proves {count} conditions"),
        };
        lines.push(match (doubts == Doubts::NONE, rest == Doubts::NONE) {
            (true, _) => conditions,
            (false, true) => format!("not at the first attempt; at the second, {conditions}"),
            (false, false) => "the launch proves nothing".into(),
        });
        Ok(lines.join("\n"))
    }

    /// The result of the elementwise proof, as a line of the file.
    fn elementwise(&self) -> Result<String, String> {
        let kernel = self.program()?.in_regions().validate().map_err(|faults| faults.to_string())?;
        let names = |ids: &[BufferId]| -> String {
            let names: Vec<&str> = ids.iter().map(|id| &*kernel.buffer(*id).decl.name).collect();
            names.join(", ")
        };
        match elementwise(&kernel) {
            Ok(Elementwise { columns, parameters }) if parameters.is_empty() => {
                Ok(format!("// elementwise columns {}", names(&columns)))
            }
            Ok(Elementwise { columns, parameters }) => {
                Ok(format!("// elementwise columns {}; parameters {}", names(&columns), names(&parameters)))
            }
            Err(reason) => Ok(self.lines(&vec![reason].into()).concat()),
        }
    }

    /// The program emitted for the target named by the first word, after the schedule given by the
    /// others.
    pub fn emitted(&self, words: &[String]) -> Result<String, String> {
        let (name, words) = words.split_first().ok_or("`emit` needs a target")?;
        if BACKEND_TARGETS.contains(&name.as_str()) {
            let emitter = self.emitter.ok_or(format!("no backend here emits `{name}`"))?;
            return emitter(name, &self.program()?, &self.config);
        }
        let dialect = Dialect::from_name(name).ok_or(format!("`{name}` is no dialect"))?;
        let kernel = self.program()?.validate().map_err(|faults| faults.to_string())?;
        let schedule = parse_schedule(words, Assume::no_overrides(&kernel))?;
        let workgroup = self.config.workgroup_override.unwrap_or(kernel.workgroup_size);
        if kernel.needs.subgroups && dialect.subgroup_size().is_none() {
            return Err(format!("`{name}` has no subgroups"));
        }
        let stoppable = self.config.timeout.is_some();
        let settings = Settings { workgroup, stoppable, folded: stoppable && dialect.folds() };
        Ok(emit(&prepare(&kernel, schedule, dialect), dialect, &settings).text)
    }

    fn program(&self) -> Result<Program, String> {
        (self.reader)(&self.source).map_err(|faults| faults.to_string())
    }

    fn diagnostics(&self) -> Vec<String> {
        let found = match (self.reader)(&self.source) {
            Ok(program) => match program.validate() {
                Ok(kernel) => kernel.warnings.clone(),
                Err(faults) => faults,
            },
            Err(faults) => faults,
        };
        self.lines(&found)
    }

    fn lines(&self, diagnostics: &Diagnostics) -> Vec<String> {
        let line = |item: &Diagnostic| {
            let severity = match item.severity() {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            let place = item.span.map(|span| line_column(&self.source, span.start));
            let place = place.map(|(line, column)| format!(" {line}:{column}")).unwrap_or_default();
            format!("// {severity} {}{place} {}", item.code, item.message_in(&self.source))
        };
        diagnostics.iter().map(line).collect()
    }

    /// The program with the inputs of the file; a missing input makes the dispatch fail.
    fn case(&self) -> Result<Case, String> {
        let program = self.program()?;
        let mut inputs = Vec::new();
        for decl in given_buffers(&program) {
            if let Some((_, element, bytes)) = self.inputs.iter().find(|(name, ..)| **name == *decl.name) {
                if *element != decl.element {
                    return Err(format!(
                        "input `{}` has elements of {element}, but is declared as {}",
                        decl.name, decl.element
                    ));
                }
                inputs.push(bytes.clone());
            }
        }
        let unknown = |name: &str| !program.buffers().iter().any(|decl| *decl.name == *name);
        if let Some((name, ..)) = self.inputs.iter().find(|(name, ..)| unknown(name)) {
            return Err(format!("input `{name}` is no buffer of the program"));
        }
        let subgroup_size = self.config.subgroup_size.unwrap_or(RunOptions::default().subgroup_size);
        Ok(Case { program, inputs, subgroup_size })
    }

    fn outcome(&self, case: &Case) -> Result<Outcome, String> {
        let kernel = case.program.validate().map_err(|faults| faults.to_string())?;
        let options = RunOptions {
            overrides: self.config.overrides(),
            subgroup_size: case.subgroup_size,
            timeout: self.config.timeout,
            ..RunOptions::default()
        };
        let outcome = interpret_any(&kernel, case, &options);
        if let Outcome::Outputs(_) | Outcome::Spoke(..) | Outcome::AssertFailed(..) = outcome {
            defined(&kernel, case, &options, &outcome)?;
        }
        Ok(outcome)
    }

    fn interpreted(&self) -> Result<Vec<String>, String> {
        let case = self.case()?;
        let outcome = self.outcome(&case)?;
        let backend: Arc<dyn VyreBackend> = Arc::new(vyre_reference::CpuRef);
        let piped = dispatch(&backend, &case, &self.config);
        if let Some(difference) = difference(&case.program, &outcome, &piped, Judge::default()) {
            return Err(format!(
                "the pipeline on `{}` differs from the interpreter: {difference}",
                backend.id()
            ));
        }
        match outcome {
            Outcome::Outputs(outputs) => Ok(self.output_lines(&case.program, &outputs)),
            Outcome::Spoke(outputs, lines) => {
                let outputs = self.output_lines(&case.program, &outputs);
                Ok(lines.iter().map(|line| format!("// print {line}")).chain(outputs).collect())
            }
            Outcome::AssertFailed(lines, message) => {
                let lines = lines.iter().map(|line| format!("// print {line}"));
                Ok(lines.chain([format!("// expect assert {message}")]).collect())
            }
            Outcome::Trapped(code) => Ok(vec![format!("// expect trap {code}")]),
            Outcome::Timeout => Ok(vec!["// expect timeout".into()]),
            Outcome::Invalid(diagnostics) => Ok(self.lines(&diagnostics)),
            other @ (Outcome::Unsupported(_) | Outcome::Failed(_)) => Err(other.to_string()),
        }
    }

    /// One line per output. An expected line that denotes the same bytes is kept as written.
    fn output_lines(&self, program: &Program, outputs: &[Vec<u8>]) -> Vec<String> {
        let expected = self.expected(&Section::Outcome);
        let written = |name: &str, element: DataType, bytes: &[u8]| {
            let means = |line: &&String| {
                let parsed = line.strip_prefix("// output ").and_then(|rest| parse_data(rest).ok());
                parsed.is_some_and(|(other, ty, data)| other == name && ty == element && data == bytes)
            };
            expected.iter().find(means).cloned()
        };
        let line = |(decl, bytes): (&vyre_foundation::ir::BufferDecl, &Vec<u8>)| {
            let show =
                || format!("// output {}: {} = {}", decl.name, decl.element, data::show(decl.element, bytes));
            written(&decl.name, decl.element, bytes).unwrap_or_else(show)
        };
        returned_buffers(program).into_iter().zip(outputs).map(line).collect()
    }

    /// Compares a backend with the interpreter, whose own outcome `interpret` checks.
    fn run(&self, backend: &Arc<dyn VyreBackend>) -> Result<(), String> {
        let mut case = self.case()?;
        let profile = backend.device_profile();
        if self.config.subgroup_size.is_none() && profile.subgroup_size > 0 {
            case.subgroup_size = profile.subgroup_size;
        }
        let expected = self.outcome(&case)?;
        let found = dispatch(backend, &case, &self.config);
        if let Outcome::Unsupported(what) = &found {
            eprintln!("SKIP on `{}`: {what}", backend.id());
            return Ok(());
        }
        let judge = Judge::new(&profile, [&case.program], &DispatchConfig::default());
        match difference(&case.program, &expected, &found, judge) {
            Some(difference) => Err(format!("backend `{}`: {difference}", backend.id())),
            None => Ok(()),
        }
    }
}

fn parse_command(text: &str) -> Result<Command, String> {
    let mut words = text.split_whitespace();
    match words.next() {
        Some("cat") => Ok(Command::Cat),
        Some("wire") => Ok(Command::Wire),
        Some("validate") => Ok(Command::Validate),
        Some("interpret") => Ok(Command::Interpret),
        Some("optimize") => {
            let words: Vec<String> = words.map(String::from).collect();
            parse_schedule(&words, Assume::default())?;
            Ok(Command::Optimize(words))
        }
        Some("bounds") => Ok(Command::Bounds(words.map(String::from).collect())),
        Some("legalise") => {
            let passes: Vec<String> = words.map(String::from).collect();
            parse_passes(&passes)?;
            Ok(Command::Legalise(passes))
        }
        Some("emit") => {
            let words: Vec<String> = words.map(String::from).collect();
            let (name, schedule) = words.split_first().ok_or("`emit` needs a target")?;
            match BACKEND_TARGETS.contains(&name.as_str()) {
                true if schedule.is_empty() => {}
                true => return Err(format!("`emit {name}` takes no schedule")),
                false => drop(Dialect::from_name(name).ok_or(format!("`{name}` is no target"))?),
            }
            parse_schedule(schedule, Assume::default())?;
            Ok(Command::Emit(words))
        }
        Some("elementwise") => Ok(Command::Elementwise),
        Some("run") => Ok(Command::Run(words.map(String::from).collect())),
        _ => {
            let known =
                "cat, wire, validate, interpret, optimize, bounds, legalise, emit, elementwise and run";
            Err(format!("`{text}` is no command; there are {known}"))
        }
    }
}

/// The legalisation passes with these names.
fn parse_passes(names: &[String]) -> Result<WantedPasses, String> {
    let found = WantedPasses::from_names(names.iter().map(String::as_str));
    found.ok_or_else(|| format!("`{}` names a pass that is not there", names.join(" ")))
}

/// Renders text as the block that a command expects.
fn block(command: &Command, text: &str) -> (Section, Vec<String>) {
    let header = format!("expect {command}");
    let lines = text.lines().map(|line| format!("//| {line}").trim_end().to_string());
    let lines = std::iter::once(format!("// {header}")).chain(lines).collect();
    (Section::Block(header), lines)
}

/// Parses a schedule: `quick`, `full` or passes in order, with further settings.
fn parse_schedule(words: &[String], no_overrides: Assume) -> Result<Schedule, String> {
    let mut schedule = Schedule::none();
    for word in words {
        match word.split_once('=') {
            Some(("elements", count)) => {
                schedule.coarsening = count.parse().map_err(|_| format!("`{count}` is no number"))?;
            }
            Some(("lacks", ops)) => {
                let op = |name: &str| Op::from_name(name).ok_or(format!("`{name}` is no op"));
                schedule.target.lacking = ops.split(',').map(op).collect::<Result<_, _>>()?;
            }
            Some(("slow", "division")) => schedule.target.slow_division = true,
            Some(("assume", "no_overrides")) => schedule.assume = no_overrides,
            Some(("assume", "dispatch_checks")) => {
                schedule.assume = Assume { dispatch_checks: true, ..no_overrides };
            }
            Some(_) => return Err(format!("`{word}` is not an option of a schedule")),
            None => schedule.passes.extend(match word.as_str() {
                "quick" => Schedule::quick().passes,
                "full" => Schedule::full().passes,
                name => vec![Pass::from_name(name).ok_or(format!("`{name}` is no pass"))?],
            }),
        }
    }
    Ok(schedule)
}

/// The accesses of a kernel that a launch on these inputs does not prove in range.
pub fn doubts(kernel: &KernelBody, inputs: &[Vec<u8>]) -> Result<Doubts, String> {
    let given: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let launch = Launch::from_inputs(kernel, &given, Overrides::default());
    let launch = launch.map_err(|faults| faults.to_string())?;
    Ok(launch.doubts(&kernel.proof, &mut |buffer, index| {
        let mut bound =
            kernel.bound_buffers().into_iter().filter(|&id| kernel.buffer(id).decl.access.is_input());
        let bytes = &inputs[bound.position(|id| id == buffer)?];
        let element = kernel.buffer(buffer).decl.element;
        let chunk = bytes.chunks_exact(element.size()).nth(index as usize);
        chunk.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
    }))
}

fn parse_data(text: &str) -> Result<(String, DataType, Vec<u8>), String> {
    let parts = text.split_once(" = ").and_then(|(head, data)| Some((head.rsplit_once(": ")?, data)));
    let ((name, element), text) = parts.ok_or("write `name: type = data`")?;
    let element = DataType::from_name(element).ok_or(format!("`{element}` is no element type"))?;
    Ok((name.into(), element, data::parse(element, text)?))
}

/// Runs the interpreter, including messages if the program has any.
fn interpret_any(kernel: &Kernel, case: &Case, options: &RunOptions) -> Outcome {
    if kernel.messages.is_empty() {
        interpret(kernel, case, options)
    } else {
        interpret_speaking(case, options)
    }
}

/// Checks that a result is well defined: the same in every order, and free of data races.
fn defined(kernel: &Kernel, case: &Case, options: &RunOptions, outcome: &Outcome) -> Result<(), String> {
    for order in [Order::Descending, Order::Shuffled(1), Order::Interleaved(1)] {
        let other = interpret_any(kernel, case, &RunOptions { order, ..*options });
        if let Some(difference) = difference(&case.program, outcome, &other, Judge::default()) {
            return Err(format!("the result depends on the order ({order:?}): {difference}"));
        }
    }
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    let watched = run_speaking(&case.program, &inputs, &RunOptions { sanitize: true, ..*options });
    let reports = watched.map_err(|error| error.to_string())?.0.reports;
    let fault = |report: &&FaultReport| matches!(report.fault, FaultKind::Race | FaultKind::WrongProof);
    reports.iter().find(fault).map_or(Ok(()), |report| Err(report.to_string()))
}

/// Parses the `// input` lines of a text: name, type and bytes.
pub fn inputs(source: &str) -> Result<Vec<(String, DataType, Vec<u8>)>, String> {
    source.lines().filter_map(|line| line.strip_prefix("// input ")).map(parse_data).collect()
}

/// Prints and parses the program, which must give an equal program that prints the same.
pub fn text_round_trip(program: &Program) -> Result<Program, String> {
    let printed = text::print(program);
    let read =
        text::parse(&printed).map_err(|faults| format!("the printed program does not parse:\n{faults}"))?;
    if read != *program {
        return Err(format!("the printed program reads as another one:\n{printed}"));
    }
    let again = text::print(&read);
    if again != printed {
        return Err(format!(
            "printing is not stable:\n{}",
            TextDiff::from_lines(&printed, &again).unified_diff()
        ));
    }
    Ok(read)
}

/// Encodes and decodes the program, which must give an equal program with the same fingerprint.
pub fn wire_round_trip(program: &Program) -> Result<Program, String> {
    let bytes = wire::encode(program);
    let read =
        wire::decode(&bytes).map_err(|error| format!("the encoded program does not decode: {error}"))?;
    if read != *program || read.fingerprint() != program.fingerprint() || wire::encode(&read) != bytes {
        return Err("the encoded program decodes to another one".into());
    }
    Ok(read)
}

/// Writes a case as a filetest with the interpreter's outputs, or with the errors of an invalid
/// program; the notes become comments.
pub fn write(case: &Case, notes: &[String]) -> Result<String, String> {
    let valid = case.program.validate().is_ok();
    let mut text =
        String::from(if valid { "// test interpret\n// test run\n" } else { "// test validate\n" });
    for line in notes.iter().flat_map(|note| note.lines()) {
        text += &format!("// {line}\n");
    }
    text += &text::print(&case.program);
    text += "\n";
    for (decl, bytes) in given_buffers(&case.program).into_iter().zip(&case.inputs) {
        text += &format!("// input {}: {} = {}\n", decl.name, decl.element, data::show(decl.element, bytes));
    }
    if case.program.validate().is_ok_and(|kernel| kernel.needs.subgroups) {
        text += &format!("// config subgroup {}\n", case.subgroup_size);
    }
    FileTest::parse(&text)?.blessed()
}
