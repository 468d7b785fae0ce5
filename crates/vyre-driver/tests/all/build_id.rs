//! The build id depends on the sources of the build.

#[allow(dead_code, reason = "what only the build script uses")]
#[path = "../../../build_id.rs"]
mod script;

use std::fs;
use std::path::PathBuf;
use vyre_driver::pipeline::COMPILER_VERSION;

#[test]
fn any_change_of_a_source_gives_another_id() {
    let parent = tempfile::tempdir().expect("a folder");
    let (src, nested) = (parent.path().join("src"), parent.path().join("src/nested"));
    fs::create_dir_all(&nested).expect("a folder");
    let id = || script::build_id("1.2.3", std::slice::from_ref(&src));
    let mut seen = vec![id()];
    let mut changes = |text: &str, path: PathBuf| {
        fs::write(path, text).expect("written");
        assert!(!seen.contains(&id()), "{seen:?}");
        seen.push(id());
    };
    changes("a", src.join("lib.rs"));
    changes("b", src.join("lib.rs"));
    changes("", nested.join("table.vyre"));
    changes("c", nested.join("table.vyre"));
    fs::rename(nested.join("table.vyre"), nested.join("other.vyre")).expect("renamed");
    assert!(!seen.contains(&id()));
    fs::rename(nested.join("other.vyre"), nested.join("table.vyre")).expect("renamed");
    assert_eq!(seen.last(), Some(&id()));
    assert!(id().starts_with("1.2.3+") && id().len() == "1.2.3+".len() + 16);
    assert_eq!(script::build_id("1.2.3", &[src.clone(), parent.path().join("absent")]), "1.2.3");
}

#[test]
fn this_build_is_known_by_its_sources() {
    let folder =
        |crate_name: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src");
    let folders = [folder("vyre-driver"), folder("vyre-foundation")];
    assert_eq!(COMPILER_VERSION, script::build_id(env!("CARGO_PKG_VERSION"), &folders));
}
