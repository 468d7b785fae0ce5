//! A shader from a file, for naga and for the importer.

use std::path::Path;
use vyre_import::{Imported, Options, Source};

pub(crate) enum Shader {
    Wgsl(String),
    Glsl(String),
    Spirv(Vec<u32>),
}

pub(crate) fn is_shader(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["wgsl", "comp", "spv"].contains(&ending))
}

impl Shader {
    pub(crate) fn read(path: &Path) -> Result<Shader, String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        if path.extension().is_some_and(|ending| ending == "spv") {
            let words =
                bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            return Ok(Shader::Spirv(words.collect()));
        }
        let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
        let is_wgsl = path.extension().is_some_and(|ending| ending == "wgsl");
        Ok(if is_wgsl { Shader::Wgsl(text) } else { Shader::Glsl(text) })
    }

    pub(crate) fn source(&self) -> Source<'_> {
        match self {
            Shader::Wgsl(text) => Source::Wgsl(text),
            Shader::Glsl(text) => Source::Glsl(text),
            Shader::Spirv(words) => Source::Spirv(words),
        }
    }

    pub(crate) fn entry_points(&self) -> Result<Vec<String>, String> {
        vyre_import::entry_points(self.source()).map_err(|faults| faults.to_string().replace('\n', " "))
    }

    /// Imports the entry point with 16 for every override without a value; returns those values
    /// too.
    pub(crate) fn import(&self, entry: &str) -> Result<(Imported, Options), String> {
        let mut options = Options { entry: Some(entry.into()), set: Vec::new() };
        loop {
            let faults = match vyre_import::import(self.source(), &options) {
                Ok(imported) => return Ok((imported, options)),
                Err(faults) => faults.to_string(),
            };
            let name = faults.split("the override `").nth(1).and_then(|rest| rest.split('`').next());
            match name {
                Some(name) if options.set.iter().all(|(known, _)| known != name) => {
                    options.set.push((name.into(), 16.0));
                }
                _ => return Err(faults.replace('\n', " ")),
            }
        }
    }

    /// The shader as naga reads it.
    pub(crate) fn module(&self) -> Result<naga::Module, String> {
        match self {
            Shader::Wgsl(text) => {
                let parsed = naga::front::wgsl::parse_str(&vyre_import::mended(text));
                parsed.map_err(|error| error.message().to_string())
            }
            Shader::Glsl(text) => {
                let options = naga::front::glsl::Options::from(naga::ShaderStage::Compute);
                let parsed = naga::front::glsl::Frontend::default().parse(&options, text);
                parsed.map_err(|errors| format!("{errors:?}"))
            }
            Shader::Spirv(words) => {
                let options = naga::front::spv::Options::default();
                let parsed = naga::front::spv::Frontend::new(words.iter().copied(), &options).parse();
                parsed.map_err(|error| error.to_string())
            }
        }
    }
}
