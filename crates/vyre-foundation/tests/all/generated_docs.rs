//! The pages in `docs` match the tables they are generated from.

use std::path::Path;
use vyre_foundation::docs;

#[test]
fn generated_pages_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in docs::pages() {
        let existing = std::fs::read_to_string(folder.join(page.file)).unwrap_or_default();
        assert!(page.over(&existing) == existing, "docs/{} is stale: run `cargo xtask docs`", page.file);
    }
}
