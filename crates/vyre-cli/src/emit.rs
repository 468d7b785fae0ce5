//! `vyre emit`: a program in the languages it is lowered to.

use crate::output::{Ending, print};
use crate::source::{LoadedProgram, SetArguments, load_with};
use crate::{files, quantity};
use std::path::PathBuf;
use vyre_driver::DispatchConfig;
use vyre_foundation::emit::{CUDA, Dialect, HIP, OPENCL, Settings, emit as write_source, prepare};
use vyre_foundation::math::expand;
use vyre_foundation::optimize::{Schedule, optimize};
use vyre_foundation::wire;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  vyre emit examples/saxpy.vyre --target vir
  vyre emit examples/saxpy.vyre --target opencl
  vyre emit examples/saxpy.vyre --target cuda
  vyre emit examples/saxpy.vyre --target asm
  vyre emit examples/saxpy.vyre --target wire --out saxpy.bin && vyre run saxpy.bin --in a=1 --in x=1,2 --in y=3,4")]
pub(crate) struct Arguments {
    /// Program as text or wire bytes; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    set: SetArguments,
    /// Language or format to emit
    #[arg(long, value_enum)]
    target: EmitTarget,
    /// Invocations per workgroup, as 64 or 8,8,1
    #[arg(long, value_name = "SIZE", value_parser = quantity::axes)]
    workgroup: Option<[u32; 3]>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Print one JSON object that contains the text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EmitTarget {
    /// Program in the text form, as vyre prints it
    Text,
    /// Wire bytes of the program
    Wire,
    /// Listing of the validated, optimized kernel
    Vir,
    /// Listing of the vector code of the cpu backend
    #[cfg(feature = "cpu")]
    Vector,
    /// Disassembled machine code of the cpu backend, with the regions of the kernel beside it
    #[cfg(feature = "cpu")]
    Asm,
    /// Kernel in OpenCL C
    Opencl,
    /// Kernel in CUDA C++, for `nvcc --fmad=false` and NVRTC
    Cuda,
    /// Kernel in HIP, for clang's AMD target
    Hip,
    /// Shader in WGSL, for reading
    #[cfg(feature = "wgpu")]
    Wgsl,
    /// SPIR-V module of the shader
    #[cfg(feature = "wgpu")]
    Spirv,
}

/// Emitted text or bytes.
enum Made {
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    emit(arguments).unwrap_or_else(|ending| ending)
}

fn emit(arguments: &Arguments) -> Result<Ending, Ending> {
    let loaded = load_with(&arguments.file, &arguments.set)?;
    let made = arguments.target.make(&loaded, arguments.workgroup)?;
    if arguments.json {
        let (text, bytes) = match &made {
            Made::Text(text) => (Some(text), text.len()),
            Made::Bytes(bytes) => (None, bytes.len()),
        };
        let target = clap::ValueEnum::to_possible_value(&arguments.target);
        print(
            &serde_json::json!({
                "file": loaded.file,
                "target": target.as_ref().map(|target| target.get_name()),
                "bytes": bytes,
                "text": text,
            })
            .to_string(),
        );
        return Ok(Ending::Done);
    }
    match made {
        Made::Text(text) if arguments.out.as_os_str() == "-" => print(&text),
        Made::Text(text) => files::write(&arguments.out, text.as_bytes())?,
        Made::Bytes(bytes) => files::write(&arguments.out, &bytes)?,
    }
    Ok(Ending::Done)
}

impl EmitTarget {
    fn make(self, loaded: &LoadedProgram, workgroup: Option<[u32; 3]>) -> Result<Made, Ending> {
        // Not every target depends on the workgroup size.
        #[cfg_attr(not(any(feature = "cpu", feature = "wgpu")), expect(unused_variables))]
        let config = DispatchConfig { workgroup_override: workgroup, ..DispatchConfig::default() };
        Ok(match self {
            EmitTarget::Text => Made::Text(loaded.program.to_string()),
            EmitTarget::Wire => Made::Bytes(wire::encode(&loaded.program)),
            EmitTarget::Vir => Made::Text(optimize(expand(&loaded.kernel), &Schedule::full()).to_string()),
            #[cfg(feature = "cpu")]
            EmitTarget::Vector => Made::Text(vyre_cpu::vector_listing(&loaded.program, &config)?),
            #[cfg(feature = "cpu")]
            EmitTarget::Asm => {
                Made::Text(crate::asm::listing(&vyre_cpu::machine_code(&loaded.program, &config)?))
            }
            EmitTarget::Opencl => Made::Text(source(loaded, &OPENCL, workgroup)?),
            EmitTarget::Cuda => Made::Text(source(loaded, &CUDA, workgroup)?),
            EmitTarget::Hip => Made::Text(source(loaded, &HIP, workgroup)?),
            #[cfg(feature = "wgpu")]
            EmitTarget::Wgsl => Made::Text(vyre_wgpu::wgsl(&loaded.program, &config)?),
            #[cfg(feature = "wgpu")]
            EmitTarget::Spirv => Made::Bytes(vyre_wgpu::spirv(&loaded.program, &config)?),
        })
    }
}

fn source(loaded: &LoadedProgram, dialect: &Dialect, workgroup: Option<[u32; 3]>) -> Result<String, Ending> {
    let kernel = &loaded.kernel;
    if kernel.needs.subgroups && dialect.subgroup_size().is_none() {
        let name = dialect.name;
        return Err(Ending::CannotRun(format!("{}: the target {name} has no subgroup ops", loaded.file)));
    }
    let workgroup = workgroup.unwrap_or(kernel.workgroup_size);
    if workgroup != kernel.workgroup_size && !kernel.shape_free {
        return Err(Ending::CannotRun(format!(
            "{}: results depend on the workgroup size, so it is emitted for its own, {:?}",
            loaded.file, kernel.workgroup_size
        )));
    }
    let prepared = prepare(kernel, Schedule::full(), dialect);
    let settings = Settings { workgroup, stoppable: false, folded: false };
    Ok(write_source(&prepared, dialect, &settings).text)
}
