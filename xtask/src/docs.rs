//! Writes the generated pages of docs/, or checks that they are current.

use clap::Args;
use vyre_foundation::docs::pages;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if a page is not what the tables say.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let folder = crate::root().join("docs");
    let mut stale = Vec::new();
    for page in pages() {
        let path = folder.join(page.file);
        // A page that is missing is like an empty one: it is not current.
        let existing = std::fs::read_to_string(&path).unwrap_or_default();
        let current = page.over(&existing);
        if current == existing {
            continue;
        }
        stale.push(page.file);
        if !arguments.check {
            std::fs::write(&path, current).map_err(|error| format!("{}: {error}", path.display()))?;
            println!("wrote docs/{}", page.file);
        }
    }
    if arguments.check && !stale.is_empty() {
        return Err(format!("stale: {}; run `cargo xtask docs`", stale.join(", ")));
    }
    Ok(())
}

/// What the CI step calls.
pub(crate) fn check() -> Result<(), String> {
    run(&Arguments { check: true })
}
