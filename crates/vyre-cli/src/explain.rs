//! `vyre explain`: what a diagnostic code means.

use crate::output::{Ending, print};
use vyre_foundation::diagnostics::Code;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  vyre explain V015")]
pub(crate) struct Arguments {
    /// The code, such as V015; without one, all codes are listed.
    code: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let codes = match &arguments.code {
        None => Code::ALL.to_vec(),
        Some(text) => match Code::ALL.iter().find(|code| code.as_str().eq_ignore_ascii_case(text)) {
            Some(code) => vec![*code],
            None => {
                return Ending::Usage(format!("there is no code `{text}`; `vyre explain` lists all"));
            }
        },
    };
    if arguments.json {
        let row = |code: &Code| serde_json::json!({ "code": code.as_str(), "title": code.title(), "explanation": code.explain() });
        print(&codes.iter().map(row).collect::<serde_json::Value>().to_string());
    } else if arguments.code.is_some() {
        codes.iter().for_each(|code| print(&format!("{code}: {}\n\n{}", code.title(), code.explain())));
    } else {
        let lines: Vec<String> = codes.iter().map(|code| format!("{code}  {}", code.title())).collect();
        print(&lines.join("\n"));
    }
    Ending::Done
}
