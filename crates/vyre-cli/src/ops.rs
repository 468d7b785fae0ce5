//! `vyre ops`: lists the operations of the kernel language and the ready-made ops of the catalogue.

use crate::output::{Ending, print};
use vyre::catalogue;
use vyre_foundation::ops::Op;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
`vyre explain OP` explains one of them; docs/ops.md lists them all on one page.

Examples:
  vyre ops
  vyre ops sin --json")]
pub(crate) struct Arguments {
    /// Only ops whose name or description contains this text
    search: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let wanted = arguments.search.as_deref().unwrap_or("").to_lowercase();
    let all = primitives().chain(catalogue::OPS.iter().map(|op| (op.id.into(), op.id.into(), op.summary)));
    let matches = |(name, _, doc): &(String, String, &str)| {
        name.contains(&wanted) || doc.to_lowercase().contains(&wanted)
    };
    let found: Vec<(String, String, &str)> = all.filter(matches).collect();
    if arguments.json {
        let row = |(name, id, doc): &(String, String, &str)| serde_json::json!({ "name": name, "id": id, "doc": doc });
        print(&found.iter().map(row).collect::<serde_json::Value>().to_string());
    } else if found.is_empty() {
        return Ending::Usage(format!(
            "no op has `{wanted}` in its name or description; `vyre ops` lists all"
        ));
    } else {
        let lines: Vec<String> = found.iter().map(|(name, _, doc)| format!("{name:<18} {doc}")).collect();
        print(&lines.join("\n"));
    }
    Ending::Done
}

/// Rows of the op table: name, ID, description.
fn primitives() -> impl Iterator<Item = (String, String, &'static str)> {
    Op::ALL.iter().map(|op| (op.row().name.to_string(), op.id().to_string(), op.row().doc))
}
