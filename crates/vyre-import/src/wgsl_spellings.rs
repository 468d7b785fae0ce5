//! Rewrites spellings that are supported here but that naga rejects. Rewritten text stays on its
//! line.

/// The text in the form that naga accepts.
pub(crate) fn rewrite(text: &str) -> String {
    let mut mended = text.to_string();
    for extension in ["subgroups", "subgroups_f16", "chromium_experimental_subgroups"] {
        blank_enable(&mut mended, extension);
    }
    write_only(&mut mended);
    mended
}

/// Blanks `enable NAME;`: subgroups are available without it. Only the name is removed from a list.
fn blank_enable(text: &mut String, extension: &str) {
    let mut from = 0;
    while let Some(found) = text[from..].find("enable") {
        let start = from + found;
        let Some(length) = text[start..].find(';') else { return };
        let end = start + length;
        from = end + 1;
        let names: Vec<String> =
            text[start + "enable".len()..end].split(',').map(|name| name.trim().to_string()).collect();
        if !names.iter().any(|name| name == extension) {
            continue;
        }
        let rest: Vec<String> = names.into_iter().filter(|name| name != extension).collect();
        let spelled = if rest.is_empty() { String::new() } else { format!("enable {};", rest.join(",")) };
        let room = end + 1 - start;
        // Shorter than the original, since a name and a comma were removed.
        text.replace_range(start..=end, &format!("{spelled:room$}"));
    }
}

/// Rewrites `var<storage, write>` as `var<storage,read_write>`; the rest of the line shifts.
fn write_only(text: &mut String) {
    let mut from = 0;
    while let Some(found) = text[from..].find("var<") {
        let start = from + found;
        let Some(length) = text[start..].find('>') else { return };
        let inside: Vec<&str> = text[start + 4..start + length].split(',').map(str::trim).collect();
        from = start + 4;
        if inside == ["storage", "write"] {
            text.replace_range(start..start + length, "var<storage,read_write");
        }
    }
}
