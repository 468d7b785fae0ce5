//! The frame of a simulation file: comments, common lines, cases, results.
//!
//! ```text
//! # What the file is about.
//! calls 10000
//!
//! case small
//! size 2^10
//! | result of the case
//! ```
//!
//! Lines before the first `case` apply to every case. A `|` line is a result: the test renders the
//! case's results and compares them with the lines that are there; blessing replaces them.

/// A line that says something, with its number in the file.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
}

impl Line {
    /// The first word, and the rest.
    pub(crate) fn split(&self) -> (&str, &str) {
        let (word, rest) = self.text.split_once(' ').unwrap_or((&self.text, ""));
        (word, rest.trim())
    }

    /// An error about this line.
    pub(crate) fn error(&self, what: &str) -> String {
        format!("line {}: {what}: {}", self.number, self.text)
    }
}

/// One case of a file.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: String,
    /// The common lines, then those of the case.
    pub(crate) lines: Vec<Line>,
    /// The expected results.
    pub(crate) results: Vec<String>,
}

/// The cases of a file.
pub(crate) fn sections(source: &str) -> Result<Vec<Section>, String> {
    let (mut common, mut sections) = (Vec::new(), Vec::<Section>::new());
    for (index, text) in source.lines().enumerate() {
        let line = Line { number: index + 1, text: without_comment(text).to_owned() };
        match (line.split(), sections.last_mut()) {
            (("", _), _) => {}
            (("case", name), _) => {
                sections.push(Section { name: name.to_owned(), lines: common.clone(), results: Vec::new() })
            }
            (("|", result), Some(section)) => section.results.push(result.to_owned()),
            (("|", _), None) => return Err(line.error("a result before the first case")),
            (_, Some(section)) => section.lines.push(line),
            (_, None) => common.push(line),
        }
    }
    if sections.is_empty() { Err("no case".to_owned()) } else { Ok(sections) }
}

/// The file with these results, one list per case, each after the last line of its case.
pub(crate) fn with_results(source: &str, results: &[Vec<String>]) -> String {
    let lines: Vec<&str> = source.lines().filter(|line| !line.starts_with('|')).collect();
    let mut text = String::new();
    let mut results = results.iter();
    let mut cases = 0;
    for (index, line) in lines.iter().enumerate() {
        text += &format!("{line}\n");
        cases += usize::from(line.starts_with("case "));
        let mut behind = lines[index + 1..].iter().skip_while(|line| without_comment(line).is_empty());
        let ends_case = behind.next().is_none_or(|next| next.starts_with("case "));
        if cases > 0 && !without_comment(line).is_empty() && ends_case {
            text.extend(results.next().into_iter().flatten().map(|result| format!("| {result}\n")));
        }
    }
    text
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(text, _)| text).trim()
}

/// A number, as `2000`, `0.5`, `2^16`, `x5` or `3%`.
pub(crate) fn number(word: &str) -> Option<f64> {
    if let Some((base, exponent)) = word.split_once('^') {
        return Some(base.parse::<f64>().ok()?.powi(exponent.parse().ok()?));
    }
    if let Some(percent) = word.strip_suffix('%') {
        return percent.parse::<f64>().ok().map(|percent| percent / 100.0);
    }
    word.strip_prefix('x').unwrap_or(word).parse().ok()
}

/// A duration in nanoseconds, as `70 ms` or `2.5 s`.
pub(crate) fn duration_ns(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    number.parse::<f64>().ok().map(|number| number * scale)
}
