//! Spelling suggestions.

/// The candidate nearest to `name`, if it is near enough to be a likely typo.
pub(crate) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).clamp(1, 3);
    let scored = candidates.into_iter().filter(|c| c.len().abs_diff(name.len()) <= 3 * limit);
    let scored = scored.map(|candidate| (distance(name, candidate), candidate));
    scored.filter(|&(d, _)| d > 0 && d <= limit).min().map(|(_, candidate)| candidate)
}

/// Edit distance: insertions, deletions, replacements and swaps of adjacent characters.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(closest(name, ["input", "output", "x", "count"]), expected, "{name}");
        };
        check("inptu", Some("input"));
        check("outputs", Some("output"));
        check("cuont", Some("count"));
        check("weights", None);
    }
}
