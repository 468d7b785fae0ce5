//! `vyre import`: converts a shader to a program.

use crate::files;
use crate::output::{Ending, print, print_program};
use crate::source::{LoadedProgram, SetArguments, load_with};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The other commands accept shaders directly: vyre run shader.wgsl, vyre check shader.wgsl.

Examples:
  vyre import shader.wgsl
  vyre import shader.wgsl --entry blur --set WIDTH=64 --out blur.vyre
  vyre import shader.spv --json")]
pub(crate) struct Arguments {
    /// Shader: `.wgsl`, `.spv`, `.comp` or `.glsl`
    file: PathBuf,
    #[command(flatten)]
    set: SetArguments,
    /// File for the program; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Print the program and its buffers as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    import(arguments).unwrap_or_else(|ending| ending)
}

fn import(arguments: &Arguments) -> Result<Ending, Ending> {
    let loaded = load_with(&arguments.file, &arguments.set)?;
    let text = loaded.program.to_string();
    if arguments.json {
        print(&facts(&loaded, &text).to_string());
    } else if arguments.out.as_os_str() == "-" {
        print_program(&text);
    } else {
        files::write(&arguments.out, text.as_bytes())?;
    }
    Ok(Ending::Done)
}

fn facts(loaded: &LoadedProgram, text: &str) -> serde_json::Value {
    let buffers = loaded.program.buffers().iter().map(|buffer| {
        serde_json::json!({
            "name": &*buffer.name,
            "binding": buffer.binding,
            "access": buffer.access.name(),
            "element": buffer.element.name(),
            "count": buffer.count,
        })
    });
    serde_json::json!({
        "file": loaded.file,
        "name": loaded.program.name().map(|name| &**name),
        "fingerprint": loaded.fingerprint(),
        "workgroup": loaded.program.workgroup_size(),
        "buffers": buffers.collect::<Vec<_>>(),
        "text": text,
    })
}
