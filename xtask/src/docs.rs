//! Writes the generated pages of docs/ and the C header, or checks that they are current.

use crate::header;
use clap::Args;
use vyre_foundation::docs::pages;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if a page is not current
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut stale = Vec::new();
    let mut each = |file: String, current: &dyn Fn(&str) -> String| {
        let path = crate::root().join(&file);
        // A missing page counts as empty, so it is not current.
        let existing = std::fs::read_to_string(&path).unwrap_or_default();
        let current = current(&existing);
        if current == existing {
            return Ok(());
        }
        if !arguments.check {
            std::fs::write(&path, current).map_err(|error| format!("{}: {error}", path.display()))?;
            println!("wrote {file}");
        }
        stale.push(file);
        Ok::<(), String>(())
    };
    for page in pages() {
        each(format!("docs/{}", page.file), &|existing| page.over(existing))?;
    }
    let header = header::generate()?;
    each(header::PATH.into(), &|_| header.clone())?;
    if arguments.check && !stale.is_empty() {
        return Err(format!("stale: {}; run `cargo xtask docs`", stale.join(", ")));
    }
    Ok(())
}

/// Runs the check as a step of `cargo xtask ci`.
pub(crate) fn check() -> Result<(), String> {
    run(&Arguments { check: true })
}
