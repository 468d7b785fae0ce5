//! Loads programs from `.vyre` text, wire bytes or shaders.

use crate::files;
use crate::output::{Ending, show_diagnostics};
use std::path::Path;
use vyre_foundation::diagnostics::Diagnostics;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::text::{self, Constants};
use vyre_foundation::wire;

/// Values for constants, and the entry point of a shader.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SetArguments {
    /// Override a constant of the program, as in N=32
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Entry point of a shader; optional if there is only one
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,
}

impl SetArguments {
    /// Import options for a shader: the entry point and the override values.
    #[cfg(feature = "import")]
    fn options(&self) -> Result<vyre_import::Options, Ending> {
        let number = |(name, value): &(String, String)| {
            let number = match value.as_str() {
                "true" => Some(1.0),
                "false" => Some(0.0),
                text => text.parse().ok(),
            };
            let number =
                number.ok_or_else(|| Ending::Usage(format!("`{value}` is not a number for `{name}`")))?;
            Ok((name.clone(), number))
        };
        let set = self.set.iter().map(number).collect::<Result<_, Ending>>()?;
        Ok(vyre_import::Options { entry: self.entry.clone(), set })
    }

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

/// Valid program with its source.
pub(crate) struct LoadedProgram {
    /// Name used in messages.
    pub(crate) file: String,
    /// Source text, including any `// input` lines; empty for wire bytes.
    pub(crate) source: String,
    pub(crate) program: Program,
    pub(crate) kernel: Kernel,
}

impl LoadedProgram {
    /// Fingerprint of the program in hexadecimal.
    pub(crate) fn fingerprint(&self) -> String {
        self.program.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Loads and validates a file; `-` is standard input. Faults and warnings are printed. A body
/// without a region gets one, as in the runtime, and `set` overrides constants.
pub(crate) fn load_with(file: &Path, set: &SetArguments) -> Result<LoadedProgram, Ending> {
    of_bytes(file.display().to_string(), files::read(file)?, set)
}

/// Loads a program from bytes, with a name for messages.
pub(crate) fn of_bytes(name: String, bytes: Vec<u8>, set: &SetArguments) -> Result<LoadedProgram, Ending> {
    let invalid = |faults| {
        show_diagnostics(&faults, &name);
        Ending::CannotRun(format!("{name} is not valid"))
    };
    let (source, program) = read(&name, bytes, set)?;
    let program = program.map_err(invalid)?.in_regions();
    let kernel = program.validate().map_err(invalid)?;
    show_diagnostics(&kernel.warnings, &name);
    Ok(LoadedProgram { file: name, source, program, kernel })
}

/// Parses a file's bytes. Returns the source text (empty for wire bytes) and the program or its
/// faults. Shaders are recognised by extension.
pub(crate) fn read(
    name: &str,
    bytes: Vec<u8>,
    set: &SetArguments,
) -> Result<(String, Result<Program, Diagnostics>), Ending> {
    if let Some(language) = Language::of(name) {
        return shader(name, bytes, set, language);
    }
    if set.entry.is_some() {
        return Err(Ending::Usage(format!("{name} is not a shader; only shaders have entry points")));
    }
    if bytes.starts_with(&wire::MAGIC) {
        if !set.constants().is_empty() {
            return Err(Ending::Usage(format!(
                "{name} is wire bytes, whose constants are already fixed; set them in the text"
            )));
        }
        let program = wire::decode(&bytes).map_err(|error| Ending::CannotRun(format!("{name}: {error}")))?;
        return Ok((String::new(), Ok(program)));
    }
    let source = text_of(name, bytes, "text nor wire bytes")?;
    let program = text::parse_with(&source, &set.constants());
    Ok((source, program))
}

fn text_of(name: &str, bytes: Vec<u8>, expected: &str) -> Result<String, Ending> {
    let text = String::from_utf8(bytes);
    text.map_err(|_| Ending::Usage(format!("cannot read `{name}`: it is neither {expected}")))
}

/// Shader language.
#[derive(Clone, Copy)]
enum Language {
    Wgsl,
    Glsl,
    Spirv,
}

impl Language {
    /// Language for a file name's extension.
    fn of(name: &str) -> Option<Language> {
        match name.rsplit_once('.')?.1 {
            "wgsl" => Some(Language::Wgsl),
            "glsl" | "comp" => Some(Language::Glsl),
            "spv" => Some(Language::Spirv),
            _ => None,
        }
    }
}

#[cfg(feature = "import")]
fn shader(
    name: &str,
    bytes: Vec<u8>,
    set: &SetArguments,
    language: Language,
) -> Result<(String, Result<Program, Diagnostics>), Ending> {
    use vyre_import::{Source, import};
    let options = set.options()?;
    let made = |source: Source<'_>| import(source, &options).map(|imported| imported.program);
    Ok(match language {
        Language::Spirv => {
            let words: Vec<u32> = bytes
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
                .collect();
            (String::new(), made(Source::Spirv(&words)))
        }
        Language::Wgsl => {
            let text = text_of(name, bytes, "WGSL nor any other text")?;
            let program = made(Source::Wgsl(&text));
            (text, program)
        }
        Language::Glsl => {
            let text = text_of(name, bytes, "GLSL nor any other text")?;
            let program = made(Source::Glsl(&text));
            (text, program)
        }
    })
}

#[cfg(not(feature = "import"))]
fn shader(
    name: &str,
    _: Vec<u8>,
    _: &SetArguments,
    _: Language,
) -> Result<(String, Result<Program, Diagnostics>), Ending> {
    Err(Ending::Usage(format!("{name} is a shader, and this command was built without the feature `import`")))
}
