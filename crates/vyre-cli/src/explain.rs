//! `vyre explain`: explains a diagnostic code, an op, a word of the language or a program.

use crate::output::{Ending, error_name, print};
use crate::quantity;
use crate::source::{LoadedProgram, SetArguments, load_with};
use std::path::{Path, PathBuf};
use vyre::Runtime;
use vyre::catalogue::{self, CatalogueOp};
use vyre_driver::{ERROR_KINDS, ErrorKind, registry};
use vyre_foundation::diagnostics::Code;
use vyre_foundation::elementwise::elementwise;
use vyre_foundation::ops::{AtomicOp, Law, Op, OpId, OpRow, SubgroupOp, WorkgroupOp};
use vyre_foundation::text::WORDS;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  vyre explain V015
  vyre explain sin
  vyre explain assert
  vyre explain examples/saxpy.vyre
  vyre explain examples/blur.vyre --code
  vyre explain tiles.vyre --set SIDE=32")]
pub(crate) struct Arguments {
    /// Code such as V015, op such as sin or primitive.math.sin, word such as assert, or a program's
    /// file [default: list all codes]
    subject: Option<PathBuf>,
    #[command(flatten)]
    set: SetArguments,
    /// Number of elements that a program runs over
    #[arg(long, value_name = "COUNT", default_value = "1M", value_parser = quantity::count)]
    elements: u64,
    /// Also describe the machine code of a program on `cpu`: lanes, checks, gathers, stack
    #[cfg(feature = "cpu")]
    #[arg(long)]
    code: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Explanation as text and as JSON.
struct Explained {
    text: String,
    json: serde_json::Value,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let explained = match &arguments.subject {
        None => Ok(all_codes()),
        Some(subject) => explain(subject, arguments),
    };
    match explained {
        Ok(Explained { json, .. }) if arguments.json => print(&json.to_string()),
        Ok(Explained { text, .. }) => print(&text),
        Err(ending) => return ending,
    }
    Ending::Done
}

fn explain(file: &Path, arguments: &Arguments) -> Result<Explained, Ending> {
    let subject = &*file.to_string_lossy();
    if let Some(code) = Code::ALL.iter().find(|code| code.as_str().eq_ignore_ascii_case(subject)) {
        return Ok(diagnostic(*code));
    }
    if let Some(kind) = ERROR_KINDS.iter().find(|kind| error_name(kind).eq_ignore_ascii_case(subject)) {
        return Ok(error(kind));
    }
    let named = |op: &&Op| op.row().name == subject || op.id().to_string() == subject;
    if let Some(op) = Op::ALL.iter().find(named) {
        return Ok(operation(*op));
    }
    if let Some(explained) = exchange(subject) {
        return Ok(explained);
    }
    if let Some(op) = catalogue::find(subject) {
        return Ok(ready(op));
    }
    if let Some(word) = WORDS.iter().find(|word| word.name == subject).filter(|_| !file.exists()) {
        return Ok(Explained {
            text: format!("{}: {}\n\ntext      {}", word.name, word.meaning, word.example),
            json: serde_json::json!({ "word": word.name, "doc": word.meaning, "example": word.example }),
        });
    }
    if file.exists() || subject == "-" {
        let loaded = load_with(file, &arguments.set)?;
        let explained = program(&loaded, arguments.elements)?;
        #[cfg(feature = "cpu")]
        let explained = if arguments.code { with_code(explained, &loaded)? } else { explained };
        return Ok(explained);
    }
    Err(Ending::Usage(format!(
        "`{subject}` is not a code, op, word or file; `vyre explain` lists the codes, `vyre ops` the ops"
    )))
}

fn all_codes() -> Explained {
    let line = |code: &Code| format!("{code}  {}", code.title());
    let text: Vec<String> = Code::ALL.iter().map(line).collect();
    let errors =
        ERROR_KINDS.iter().map(|kind| format!("{:<4}  {}: {}", error_name(kind), kind.name, kind.meaning));
    Explained {
        text: text.into_iter().chain(errors).collect::<Vec<_>>().join("\n"),
        json: Code::ALL.iter().map(|code| diagnostic_json(*code)).collect(),
    }
}

fn diagnostic(code: Code) -> Explained {
    Explained {
        text: format!("{code}: {}\n\n{}", code.title(), code.explain()),
        json: serde_json::json!([diagnostic_json(code)]),
    }
}

fn diagnostic_json(code: Code) -> serde_json::Value {
    serde_json::json!({ "code": code.as_str(), "title": code.title(), "explanation": code.explain() })
}

fn error(kind: &ErrorKind) -> Explained {
    let name = error_name(kind);
    let help = kind.fix.map(|fix| format!("\n\nhelp: {fix}")).unwrap_or_default();
    Explained {
        text: format!("{name}: {}\n\n{}{help}", kind.name, kind.meaning),
        json: serde_json::json!([{ "code": name, "title": kind.name, "explanation": kind.meaning, "help": kind.fix }]),
    }
}

/// Backends that support an op.
fn backends_with(id: &OpId) -> Vec<&'static str> {
    let has = registry::registered_backends().iter().filter(|backend| (backend.supported_ops)().contains(id));
    has.map(|backend| backend.id).collect()
}

/// Finds an atomic, subgroup op or workgroup op by its name in text or its ID.
fn exchange(subject: &str) -> Option<Explained> {
    let atomics =
        AtomicOp::ALL.into_iter().map(|op| (op.id(), format!("atomic_{}", op.row().name), op.row().doc));
    let subgroups =
        SubgroupOp::all().map(|op| (op.id(), format!("subgroup_{}", op.row().name), op.row().doc));
    let workgroups = WorkgroupOp::ALL
        .into_iter()
        .map(|op| (op.id(), format!("workgroup_{}", op.row().name), op.row().doc));
    let mut all = atomics.chain(subgroups).chain(workgroups);
    let (id, name, doc) = all.find(|(id, name, _)| name == subject || id.as_str() == subject)?;
    let backends = backends_with(&id);
    let text = format!("{id}: {doc}\n\ntext      {name}(…)\nbackends  {}", backends.join(", "));
    let json = serde_json::json!({ "op": id.to_string(), "text": name, "doc": doc, "backends": backends });
    Some(Explained { text, json })
}

fn operation(op: Op) -> Explained {
    let row = op.row();
    let backends = backends_with(&op.id());
    let (integers, floats) = (laws(row.integer_laws), laws(row.float_laws));
    let accuracy = accuracy(row);
    let text = format!(
        "{}: {}\n\ntakes     {}\naccuracy  {accuracy}\nlaws      integers: {}\n          floats: {}\nbackends  {}",
        op.id(),
        row.doc,
        row.signature.describe(),
        if integers.is_empty() { "none" } else { &integers },
        if floats.is_empty() { "none" } else { &floats },
        backends.join(", ")
    );
    let json = serde_json::json!({
        "op": op.id().to_string(),
        "doc": row.doc,
        "takes": row.signature.describe().to_string(),
        "integer_laws": row.integer_laws.iter().map(|law| law.describe().to_string()).collect::<Vec<_>>(),
        "float_laws": row.float_laws.iter().map(|law| law.describe().to_string()).collect::<Vec<_>>(),
        "error_ulp": row.expansion_error,
        "loose_ulp": row.loose_ulp,
        "backends": backends,
    });
    Explained { text, json }
}

/// Explains an op of the catalogue.
fn ready(op: &CatalogueOp) -> Explained {
    let CatalogueOp { id, summary, parameters, sizes, .. } = op;
    Explained {
        text: format!(
            "{id}: {summary}\n\nparameters  {parameters}\nsizes       {sizes}\nmodule      vyre::catalogue"
        ),
        json: serde_json::json!({ "op": id, "doc": summary, "parameters": parameters, "sizes": sizes }),
    }
}

fn laws(laws: &[Law]) -> String {
    laws.iter().map(|law| law.describe().to_string()).collect::<Vec<_>>().join("; ")
}

fn accuracy(row: &OpRow) -> String {
    match (row.expansion_error, row.loose_ulp) {
        (Some([single, double]), _) if single > 0.0 => {
            format!(
                "within {single} units in the last place on f32, {double} on f64, the same bits on every strict backend"
            )
        }
        (Some(_) | None, 0) => "exact".into(),
        (Some(_) | None, loose) => {
            format!("exact on strict backends, else within {loose} units in the last place")
        }
    }
}

/// Adds a description of the machine code.
#[cfg(feature = "cpu")]
fn with_code(explained: Explained, loaded: &LoadedProgram) -> Result<Explained, Ending> {
    let (text, code) = crate::explain_code::explain(loaded)?;
    let Explained { text: about, mut json } = explained;
    json["code"] = code;
    Ok(Explained { text: format!("{about}\n\n{text}"), json })
}

/// Explains a program: its properties, and where a call over `elements` elements would run.
fn program(loaded: &LoadedProgram, elements: u64) -> Result<Explained, Ending> {
    let kernel = &loaded.kernel;
    let routine = Runtime::builder().known_drivers_only().build()?.load(&loaded.program)?;
    let explanation = routine.explain(usize::try_from(elements).unwrap_or(usize::MAX));
    let name = loaded.program.name().map_or("(unnamed)", |name| name);
    let shape = if kernel.shape_free {
        "any workgroup size gives the same results, so the tuner may choose it"
    } else {
        "results depend on the workgroup size, which stays as written"
    };
    let (elements_text, elementwise) = match elementwise(kernel) {
        Ok(_) => ("independent, so batches can be split anywhere".to_owned(), true),
        Err(reason) => (reason.message, false),
    };
    let ops: Vec<String> = kernel.needs.ops.iter().map(ToString::to_string).collect();
    let text = format!(
        "kernel    {name}\nprogram   {}\nshape     workgroup {:?}; {shape}\nelements  {elements_text}\nops       {}\n\n{explanation}",
        loaded.fingerprint(),
        kernel.workgroup_size,
        ops.join(", ")
    );
    let json = serde_json::json!({
        "file": loaded.file,
        "kernel": loaded.program.name().map(|name| &**name),
        "fingerprint": loaded.fingerprint(),
        "workgroup": kernel.workgroup_size,
        "shape_free": kernel.shape_free,
        "elementwise": elementwise,
        "ops": ops,
        "elements": elements,
        "explanation": explanation,
    });
    Ok(Explained { text, json })
}
