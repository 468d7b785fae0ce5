//! Programs as the commands take them: `.vyre` text, or wire bytes.

use crate::files;
use crate::output::{Ending, show_diagnostics};
use std::path::Path;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::text::{self, Constants};
use vyre_foundation::wire;

/// Values for constants.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SetArguments {
    /// Another value for a constant of the program, as in N=32.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
}

impl SetArguments {
    pub(crate) fn constants(&self) -> Constants {
        self.set.iter().fold(Constants::new(), |constants, (name, value)| constants.set(name, value))
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        Some(_) | None => Err("write a name and a value, as in N=32".into()),
    }
}

/// A valid program and where it came from.
pub(crate) struct Loaded {
    /// What messages call it.
    pub(crate) file: String,
    /// The text, with the `// input` lines that it may have; empty for wire bytes.
    pub(crate) source: String,
    pub(crate) program: Program,
    pub(crate) kernel: Kernel,
}

impl Loaded {
    /// The program's fingerprint in hexadecimal digits.
    pub(crate) fn fingerprint(&self) -> String {
        self.program.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads and validates a file; `-` is standard input. Faults and remarks are told. A body without a region gets one, as
/// in the runtime.
pub(crate) fn load(file: &Path) -> Result<Loaded, Ending> {
    load_with(file, &SetArguments::default())
}

/// The same with other values for the program's constants.
pub(crate) fn load_with(file: &Path, set: &SetArguments) -> Result<Loaded, Ending> {
    of_bytes(file.display().to_string(), files::read(file)?, set)
}

/// A program that was read already, under a name for messages.
pub(crate) fn of_bytes(name: String, bytes: Vec<u8>, set: &SetArguments) -> Result<Loaded, Ending> {
    let invalid = |faults| {
        show_diagnostics(&faults, &name);
        Ending::CannotRun(format!("{name} is not valid"))
    };
    let (source, program) = if bytes.starts_with(&wire::MAGIC) {
        if !set.constants().is_empty() {
            return Err(Ending::Usage(format!(
                "{name} is wire bytes, whose constants have their values; set them in the text"
            )));
        }
        let program = wire::decode(&bytes);
        (String::new(), program.map_err(|error| Ending::CannotRun(format!("{name}: {error}")))?)
    } else {
        let source = String::from_utf8(bytes)
            .map_err(|_| Ending::Usage(format!("cannot read `{name}`: it is neither text nor wire bytes")))?;
        let program = text::parse_with(&source, &set.constants()).map_err(invalid)?;
        (source, program)
    };
    let program = program.in_regions();
    let kernel = program.validate().map_err(invalid)?;
    show_diagnostics(&kernel.warnings, &name);
    Ok(Loaded { file: name, source, program, kernel })
}
