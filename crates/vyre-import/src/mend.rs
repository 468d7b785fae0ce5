//! Spellings that naga refuses and that mean something here. What is changed keeps its place in the text.

/// The text as naga takes it.
pub(crate) fn wgsl(text: &str) -> String {
    let mut mended = text.to_string();
    for extension in ["subgroups", "subgroups_f16", "chromium_experimental_subgroups"] {
        blank_enable(&mut mended, extension);
    }
    write_only(&mut mended);
    mended
}

/// Blanks `enable NAME;`: subgroups are there without it. A name in a list with others goes alone.
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
        // Shorter than what was there, since a name and a comma went.
        text.replace_range(start..=end, &format!("{spelled:room$}"));
    }
}

/// Writes `var<storage, write>` as `read_write`; the room is taken from the blanks before the name, or else the rest
/// of the line moves.
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
