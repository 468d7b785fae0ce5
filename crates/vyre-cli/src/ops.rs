//! `vyre ops`: the operations that kernels are made of.

use crate::output::{Ending, print};
use vyre_foundation::ops::Op;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
`vyre explain OP` tells more about one of them; docs/ops.md has them all on one page.

Examples:
  vyre ops
  vyre ops sin --json")]
pub(crate) struct Arguments {
    /// Only ops whose name or sentence contains this.
    search: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let wanted = arguments.search.as_deref().unwrap_or("").to_lowercase();
    let matches = |op: &&Op| {
        let row = op.row();
        row.name.contains(&wanted) || row.doc.to_lowercase().contains(&wanted)
    };
    let found: Vec<&Op> = Op::ALL.iter().filter(matches).collect();
    if arguments.json {
        let row = |op: &&Op| serde_json::json!({ "name": op.row().name, "id": op.id().to_string(), "doc": op.row().doc });
        print(&found.iter().map(row).collect::<serde_json::Value>().to_string());
    } else if !found.is_empty() {
        let lines: Vec<String> =
            found.iter().map(|op| format!("{:<18} {}", op.row().name, op.row().doc)).collect();
        print(&lines.join("\n"));
    }
    if found.is_empty() && !arguments.json {
        return Ending::Usage(format!("no op has `{wanted}` in its name or sentence; `vyre ops` lists all"));
    }
    Ending::Done
}
