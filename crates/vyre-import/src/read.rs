//! Reads and validates shaders with naga, on a dedicated thread with a large stack.

use crate::fault::{Fault, Result, span_of};
use crate::{Imported, Options, Source, limits, specialise, wgsl_spellings};
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};
use std::sync::Arc;
use vyre_foundation::diagnostics::Diagnostics;

/// Stack size of the thread. naga recurses over nested code; at the limits, WGSL needs at most 2
/// MiB in a release build, and the rest is a reserve for debug builds and the other languages. Only
/// the used part is ever touched.
const STACK: usize = 256 << 20;

/// Passes an entry point, with its overrides replaced by values, to `make`.
pub(crate) fn with_module(
    source: Source<'_>,
    options: &Options,
    make: impl FnOnce(&Module, &ModuleInfo, usize, Option<Arc<str>>) -> Result<Imported> + Send,
) -> std::result::Result<Imported, Diagnostics> {
    let text = text_of(source);
    on_thread(text.clone(), || {
        let module = read(source, options)?;
        let info = check(&module)?;
        let entry = choose(&module, options)?;
        let (module, info) = settle_overrides(&module, &info, entry, options)?;
        let name = &module.entry_points[entry.min(module.entry_points.len() - 1)].name;
        let entry = module.entry_points.iter().position(|point| point.name == *name).unwrap_or(entry);
        make(&module, &info, entry, text.clone())
    })
}

/// Names of the compute entry points.
pub(crate) fn entry_points(source: Source<'_>) -> std::result::Result<Vec<String>, Diagnostics> {
    on_thread(text_of(source), || {
        let module = read(source, &Options::default())?;
        check(&module)?;
        let points = module.entry_points.iter().filter(|point| point.stage == ShaderStage::Compute);
        Ok(points.map(|point| point.name.clone()).collect())
    })
}

fn text_of(source: Source<'_>) -> Option<Arc<str>> {
    match source {
        Source::Wgsl(text) | Source::Glsl(text) => Some(text.into()),
        Source::Spirv(_) => None,
    }
}

/// Runs code that can recurse deeply or panic on a dedicated thread.
fn on_thread<T: Send>(
    text: Option<Arc<str>>,
    work: impl FnOnce() -> Result<T> + Send,
) -> std::result::Result<T, Diagnostics> {
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("vyre-import".into()).stack_size(STACK);
        match thread.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<String>().cloned();
                let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_string()));
                let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                Err(Fault::unreadable(format!("the shader reader failed on this shader{said}")))
            }),
            Err(error) => Err(Fault::too_large(format!("no thread to read the shader: {error}"))),
        }
    });
    done.map_err(|fault| fault.diagnostics(text))
}

fn read(source: Source<'_>, options: &Options) -> Result<Module> {
    let module = match source {
        Source::Wgsl(text) => {
            limits::check_text(text)?;
            read_wgsl(&wgsl_spellings::rewrite(text))?
        }
        Source::Glsl(text) => {
            limits::check_text(text)?;
            limits::check_macros(text)?;
            read_glsl(text)?
        }
        Source::Spirv(words) => {
            limits::check_words(words)?;
            read_spirv(&specialise::frozen(words, &options.set)?)?
        }
    };
    limits::check_blocks(&module)?;
    Ok(module)
}

fn read_wgsl(text: &str) -> Result<Module> {
    let parsed = naga::front::wgsl::Frontend::new().parse(text);
    parsed.map_err(|error| {
        let label = error.labels().next().map(|(span, label)| (span_of(span), label.to_string()));
        let (at, label) = label.unwrap_or_default();
        let message = match label.as_str() {
            "" => error.message().to_string(),
            label if error.message().contains(label) => error.message().to_string(),
            label => format!("{}: {label}", error.message()),
        };
        let fault = Fault::unreadable(message).or_at(at);
        match error.notes().next() {
            Some(note) => fault.help(note),
            None => fault,
        }
    })
}

fn read_glsl(text: &str) -> Result<Module> {
    let options = naga::front::glsl::Options::from(ShaderStage::Compute);
    let parsed = naga::front::glsl::Frontend::default().parse(&options, text);
    parsed.map_err(|errors| match errors.errors.into_iter().next() {
        Some(error) => Fault::unreadable(error.kind.to_string()).or_at(span_of(error.meta)),
        None => Fault::unreadable("the shader cannot be read"),
    })
}

fn read_spirv(words: &[u32]) -> Result<Module> {
    let options = naga::front::spv::Options {
        adjust_coordinate_space: false,
        strict_capabilities: false,
        block_ctx_dump_prefix: None,
    };
    let parsed = naga::front::spv::Frontend::new(words.iter().copied(), &options).parse();
    parsed.map_err(|error| Fault::unreadable(error.to_string()))
}

fn check(module: &Module) -> Result<ModuleInfo> {
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.validate(module).map_err(|error| {
        let at = error.spans().find_map(|(span, _)| span_of(*span));
        Fault::unreadable(chain(error.as_inner())).or_at(at)
    })
}

/// An error and its causes, as one sentence.
fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message += &format!(": {inner}");
        cause = inner.source();
    }
    message
}

fn choose(module: &Module, options: &Options) -> Result<usize> {
    let compute = |index: &usize| module.entry_points[*index].stage == ShaderStage::Compute;
    let found: Vec<usize> = (0..module.entry_points.len()).filter(compute).collect();
    let name = |index: &usize| module.entry_points[*index].name.clone();
    let names = || found.iter().map(|index| format!("`{}`", name(index))).collect::<Vec<_>>().join(", ");
    match (&options.entry, &found[..]) {
        (_, []) => Err(Fault::entry("the shader has no compute entry point")),
        (Some(wanted), _) => found.iter().copied().find(|index| name(index) == *wanted).ok_or_else(|| {
            Fault::entry(format!("the shader has no compute entry point `{wanted}`"))
                .help(format!("it has {}", names()))
        }),
        (None, [only]) => Ok(*only),
        (None, several) => {
            let message = format!("the shader has {} compute entry points: {}", several.len(), names());
            Err(Fault::entry(message).help("name one of them with `--entry`"))
        }
    }
}

fn settle_overrides(
    module: &Module,
    info: &ModuleInfo,
    entry: usize,
    options: &Options,
) -> Result<(Module, ModuleInfo)> {
    let name = module.entry_points[entry].name.clone();
    let mut values = naga::back::PipelineConstants::default();
    for (key, value) in &options.set {
        let known = module.overrides.iter().any(|(_, declared)| {
            declared.name.as_deref() == Some(key) || declared.id.is_some_and(|id| id.to_string() == *key)
        });
        // Specialisation constants of SPIR-V are frozen earlier.
        if !known && !module.overrides.is_empty() {
            return Err(Fault::constant(format!("the shader has no override `{key}`")));
        }
        if known {
            values.insert(key.clone(), *value);
        }
    }
    let settled = process_overrides(module, info, Some((ShaderStage::Compute, &name)), &values);
    let (module, info) = settled.map_err(|error| match error {
        PipelineConstantError::MissingValue(name) => {
            Fault::constant(format!("the override `{name}` has no value"))
                .help(format!("give it one: `--set {name}=64`"))
        }
        other => Fault::constant(chain(&other)),
    })?;
    Ok((module.into_owned(), info.into_owned()))
}
