//! `vyre run`: one dispatch of a program.

use crate::inputs::{self, Input};
use crate::output::{Ending, print, read, show_diagnostics};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use vyre_conform::outcome::{given_buffers, returned_buffers};
use vyre_conform::{data, filetest};
use vyre_driver::{DispatchConfig, VyreBackend, pipeline, registry};
use vyre_foundation::ir::{BufferDecl, DataType, Program, ValueType};
use vyre_foundation::text;

/// Elements shown of an output unless all are asked for.
const SHOWN: usize = 16;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Inputs are written as lists (x=1,2,3), ranges (x=0..16), repeat(1.5, 64), zero 100, bytes 00 ff, rand:f32:1000, or
@FILE for raw little-endian bytes. A buffer without --in takes the `// input` line of the file, if it has one.

Examples:
  vyre run examples/saxpy.vyre
  vyre run examples/saxpy.vyre --in a=2.0 --in x=rand:f32:1000 --in y=zero\\ 1000 --json")]
pub(crate) struct Arguments {
    /// The program; `-` is standard input.
    file: PathBuf,
    /// The backend that runs it.
    #[arg(long, default_value = "cpu-ref", value_name = "ID")]
    backend: String,
    /// What a buffer is given; once per buffer.
    #[arg(long = "in", value_name = "NAME=DATA", value_parser = inputs::parse)]
    inputs: Vec<Input>,
    /// What random inputs are made from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Invocations per workgroup, as 64 or 8,8,1.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    workgroup: Option<[u32; 3]>,
    /// Workgroups, as 64 or 8,8,1.
    #[arg(long, value_name = "COUNT", value_parser = parse_size)]
    grid: Option<[u32; 3]>,
    /// Lanes per subgroup.
    #[arg(long)]
    subgroup: Option<u32>,
    /// How long the dispatch may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// Show all elements of the outputs, not only the first.
    #[arg(long)]
    full: bool,
    /// Print JSON instead of text, with all elements.
    #[arg(long)]
    json: bool,
}

fn parse_size(text: &str) -> Result<[u32; 3], String> {
    let numbers: Result<Vec<u32>, _> =
        text.split([',', 'x']).map(|part| part.trim().parse::<u32>()).collect();
    match numbers.as_deref() {
        Ok([x]) => Ok([*x, 1, 1]),
        Ok([x, y]) => Ok([*x, *y, 1]),
        Ok([x, y, z]) => Ok([*x, *y, *z]),
        Ok(_) | Err(_) => Err("write one to three numbers, as in 8,8,1".into()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    run_once(arguments).unwrap_or_else(|ending| ending)
}

fn run_once(arguments: &Arguments) -> Result<Ending, Ending> {
    let source = read(&arguments.file)?;
    let name = arguments.file.display().to_string();
    let parsed = text::parse(&source).and_then(|program| program.validate().map(|kernel| (program, kernel)));
    let (program, kernel) = parsed.map_err(|faults| {
        show_diagnostics(&faults, &name);
        Ending::CannotRun(format!("{name} is not valid"))
    })?;
    show_diagnostics(&kernel.warnings, &name);
    let inputs = gather(arguments, &program, &source)?;
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let backend: Arc<dyn VyreBackend> = registry::acquire(&arguments.backend)?.into();
    let compiled = pipeline::compile(backend, &program, &config(arguments)?)?;
    let outputs = compiled.dispatch_borrowed(&borrowed, &DispatchConfig::default())?;
    let outputs: Vec<(&BufferDecl, Vec<u8>)> = returned_buffers(&program).into_iter().zip(outputs).collect();
    if arguments.json {
        print(&to_json(arguments, &program, &outputs).to_string());
    } else {
        outputs.iter().for_each(|(decl, bytes)| print(&summary(decl, bytes, arguments.full)));
    }
    Ok(Ending::Done)
}

fn config(arguments: &Arguments) -> Result<DispatchConfig, Ending> {
    let timeout = Duration::try_from_secs_f64(arguments.timeout)
        .map_err(|error| Ending::Usage(format!("--timeout {}: {error}", arguments.timeout)))?;
    Ok(DispatchConfig {
        workgroup_override: arguments.workgroup,
        grid_override: arguments.grid,
        subgroup_size: arguments.subgroup,
        timeout: Some(timeout),
        ..DispatchConfig::default()
    })
}

/// The bytes of every input: from the command line, else from the file's own `// input` lines.
fn gather(arguments: &Arguments, program: &Program, source: &str) -> Result<Vec<Vec<u8>>, Ending> {
    let own = filetest::inputs(source).map_err(Ending::Usage)?;
    let given = given_buffers(program);
    if let Some(input) =
        arguments.inputs.iter().find(|input| !given.iter().any(|decl| *decl.name == *input.name))
    {
        let names: Vec<&str> = given.iter().map(|decl| &*decl.name).collect();
        let names = names.join(", ");
        return Err(Ending::Usage(format!(
            "`{}` is no input of the program; these are: {names}",
            input.name
        )));
    }
    let mut inputs = Vec::new();
    for decl in given {
        let named = arguments.inputs.iter().find(|input| *input.name == *decl.name);
        let in_file =
            || own.iter().find(|(name, element, _)| **name == *decl.name && *element == decl.element);
        inputs.push(match (named, in_file()) {
            (Some(input), _) => input.bytes(decl, arguments.seed).map_err(Ending::Usage)?,
            (None, Some((_, _, bytes))) => bytes.clone(),
            (None, None) => {
                let (name, element) = (&decl.name, decl.element);
                return Err(Ending::Usage(format!(
                    "`{name}` is given nothing; add --in {name}=rand:{element}:16"
                )));
            }
        });
    }
    Ok(inputs)
}

fn summary(decl: &BufferDecl, bytes: &[u8], full: bool) -> String {
    let length = bytes.len() / decl.element.size();
    let shown = if full { bytes } else { &bytes[..bytes.len().min(SHOWN * decl.element.size())] };
    let more = if shown.len() < bytes.len() { " …" } else { "" };
    format!("{}: {}[{length}] = {}{more}", decl.name, decl.element, data::show(decl.element, shown))
}

fn to_json(
    arguments: &Arguments,
    program: &Program,
    outputs: &[(&BufferDecl, Vec<u8>)],
) -> serde_json::Value {
    let output = |(decl, bytes): &(&BufferDecl, Vec<u8>)| {
        let values = bytes.chunks(decl.element.size()).map(|bytes| json_value(decl.element, bytes));
        serde_json::json!({
            "name": &*decl.name,
            "type": decl.element.name(),
            "values": values.collect::<serde_json::Value>(),
        })
    };
    serde_json::json!({
        "kernel": program.name().map(|name| &**name),
        "backend": arguments.backend,
        "outputs": outputs.iter().map(output).collect::<serde_json::Value>(),
    })
}

/// A number where JSON has one; infinities, NaNs and odd bits as text.
fn json_value(element: DataType, bytes: &[u8]) -> serde_json::Value {
    let shown = data::show_element(element, bytes);
    match element.value_type() {
        ValueType::Bool => shown.parse::<bool>().map_or(shown.into(), Into::into),
        ValueType::F32 | ValueType::F64 => match shown.parse::<f64>() {
            Ok(number) if number.is_finite() => number.into(),
            Ok(_) | Err(_) => shown.into(),
        },
        ValueType::U32 | ValueType::U64 => shown.parse::<u64>().map_or(shown.into(), Into::into),
        ValueType::I32 | ValueType::I64 => shown.parse::<i64>().map_or(shown.into(), Into::into),
    }
}
