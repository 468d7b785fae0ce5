//! Checks that the tests that `SECURITY.md` names for its promises exist.
//!
//! A test is named as `path/to/file.rs::name` or, for filetests and commands, as a path or a `cargo
//! xtask` task.

#[cfg(test)]
mod tests {
    use crate::root;

    #[test]
    fn every_test_behind_a_promise_exists() {
        let page = std::fs::read_to_string(root().join("SECURITY.md")).unwrap();
        let mut named = 0;
        for code in page.split('`').skip(1).step_by(2) {
            let (path, test) = code.split_once("::").unwrap_or((code, ""));
            let is_path = ["crates/", "filetests/", "xtask/"].iter().any(|folder| path.starts_with(folder));
            if !is_path {
                continue;
            }
            named += 1;
            let file = root().join(path);
            assert!(file.exists(), "{code}");
            if !test.is_empty() {
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(
                    text.contains(&format!("fn {test}(")) || text.contains(&format!("\"{test}\"")),
                    "{code}"
                );
            }
        }
        assert!(named >= 15, "{named}");
        // Every promise must name a test.
        let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise"));
        assert!(rows.clone().count() >= 8);
        for row in rows {
            assert!(row.contains('`'), "a promise without a test: {row}");
        }
    }
}
