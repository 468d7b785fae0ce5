//! Results of a benchmark run: rows and cold starts, as a table, as JSON, and compared with another
//! run.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Results of a whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BenchReport {
    pub schema: u32,
    pub processor: String,
    pub threads: usize,
    pub version: String,
    pub compiler: String,
    pub backends: Vec<String>,
    pub rows: Vec<Row>,
    pub cold: Vec<Cold>,
}

/// Version of the JSON schema; files with another version are not compared.
pub(crate) const SCHEMA: u32 = 1;

/// Results of one workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub name: String,
    pub limit: String,
    pub bytes: u64,
    pub operations: f64,
    /// Factor from the limit's measured time to the limit for this row.
    pub limit_scale: f64,
    /// Best time of the limit for this row's work in the whole run; optional in the JSON.
    #[serde(default)]
    pub limit_best_ns: Option<f64>,
    pub entries: Vec<RowEntry>,
    pub faults: Vec<String>,
}

/// Contestant of a row and the times of its calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RowEntry {
    pub who: String,
    pub samples_ns: Vec<f64>,
    pub first_call_ns: f64,
    pub compile_ns: f64,
    pub programs: usize,
    pub dispatches: usize,
}

/// Time to a backend's first result in fresh processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cold {
    pub backend: String,
    /// Time from the start of the process to its first result, for each try.
    pub first_result_ns: Vec<f64>,
    pub acquire_ns: Vec<f64>,
    pub compile_ns: Vec<f64>,
    pub first_call_ns: Vec<f64>,
}

impl RowEntry {
    pub(crate) fn new(who: String) -> RowEntry {
        RowEntry { who, ..RowEntry::default() }
    }
}

/// Quantile of the finite values, for a share from 0 to 1.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

/// Median of the finite values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

impl Row {
    pub(crate) fn entry(&self, who: &str) -> Option<&RowEntry> {
        self.entries.iter().find(|entry| entry.who == who)
    }

    /// Time of the limit for this row's work, for each round: the best of the run where known.
    pub(crate) fn limit_ns(&self) -> Vec<f64> {
        let own = self.entry("limit").map_or(&[][..], |entry| &entry.samples_ns);
        own.iter().map(|ns| self.limit_best_ns.unwrap_or(ns * self.limit_scale)).collect()
    }

    /// Amount of work that counts against the limit: operations or bytes.
    fn work(&self) -> f64 {
        if self.limit == "multiply_add" { self.operations } else { self.bytes as f64 }
    }

    /// Whether another row has the same limit. Arithmetic rows always do; memory rows do if they
    /// fill the same caches.
    fn shares_limit(&self, other: &Row) -> bool {
        /// Memory rows up to this factor apart fill the same caches: a level of cache is usually
        /// more than four times as large as the one below.
        const ALIKE: f64 = 4.0;
        let ratio = self.bytes as f64 / other.bytes as f64;
        self.limit == other.limit && (self.limit == "multiply_add" || (1.0 / ALIKE..=ALIKE).contains(&ratio))
    }

    /// Time of an entry as a multiple of `of`, for each round.
    pub(crate) fn multiples(&self, entry: &RowEntry, of: &[f64]) -> Vec<f64> {
        entry.samples_ns.iter().zip(of).map(|(own, other)| own / other).collect()
    }
}

/// Formats nanoseconds in a suitable unit.
pub(crate) fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e4 => format!("{:.2} µs", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        ns if ns < 1e8 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.0} ms", ns / 1e6),
    }
}

impl BenchReport {
    /// Sets every row's limit to the best of the run for its kind. The limit is what the machine
    /// can do, so a disturbed round must not raise it, and rows stay comparable.
    pub(crate) fn settle_limits(&mut self) {
        let best = |row: &Row| {
            let times = row.entry("limit").map_or(&[][..], |entry| &entry.samples_ns);
            quantile(times, 0.1).map(|ns| ns * row.limit_scale / row.work())
        };
        let rates: Vec<Option<f64>> = self.rows.iter().map(best).collect();
        let settled = |row: &Row| {
            let alike = self.rows.iter().zip(&rates).filter(|(other, _)| row.shares_limit(other));
            let rate = alike.filter_map(|(_, rate)| *rate).min_by(f64::total_cmp);
            rate.filter(|rate| rate.is_finite()).map(|rate| rate * row.work())
        };
        let settled: Vec<Option<f64>> = self.rows.iter().map(settled).collect();
        self.rows.iter_mut().zip(settled).for_each(|(row, best)| row.limit_best_ns = best);
    }

    /// All contestants except the limit, in order of appearance.
    pub(crate) fn everyone(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for entry in self.rows.iter().flat_map(|row| &row.entries).filter(|entry| entry.who != "limit") {
            if !found.contains(&entry.who) {
                found.push(entry.who.clone());
            }
        }
        found
    }

    /// Renders the table: for each row the limit, then every contestant as a multiple of it, as
    /// median and (p10).
    pub(crate) fn table(&self) -> String {
        let everyone = self.everyone();
        let mut lines: Vec<Vec<String>> = Vec::new();
        let mut head = vec!["workload".to_string(), "limit".into(), "limit time".into()];
        head.extend(everyone.iter().cloned());
        head.push("cpu / C".into());
        lines.push(head);
        for row in &self.rows {
            let limit = row.limit_ns();
            let mut cells = vec![row.name.clone(), rate(row), median(&limit).map_or("–".into(), duration)];
            for who in &everyone {
                cells.push(row.entry(who).map_or("–".into(), |entry| multiple(row, entry, &limit)));
            }
            let native = row.entry("C").map_or(&[][..], |entry| &entry.samples_ns);
            let against = row.entry("cpu").and_then(|entry| median(&row.multiples(entry, native)));
            cells.push(against.map_or("–".into(), |ratio| format!("{ratio:.2}")));
            lines.push(cells);
        }
        let mut text = format!(
            "{}, {} threads, vyre {}, {}\n\nMultiples of the machine's limit, the best of the run for its kind, median (p10); lower is \
             better. `cpu` has its data resident.\n\n",
            self.processor, self.threads, self.version, self.compiler
        );
        text.push_str(&aligned(&lines));
        text.push_str(&self.latency());
        text.push_str(&self.cold_table());
        for (row, fault) in self.rows.iter().flat_map(|row| row.faults.iter().map(move |fault| (row, fault)))
        {
            let _ = writeln!(text, "{}: {fault}", row.name);
        }
        text
    }

    /// Time per call of the workload that is dominated by call overhead.
    fn latency(&self) -> String {
        let Some(row) = self.rows.iter().find(|row| row.name == "saxpy 2^10") else { return String::new() };
        let call = |entry: &RowEntry| Some(format!("{} {}", entry.who, duration(median(&entry.samples_ns)?)));
        let calls: Vec<String> =
            row.entries.iter().filter(|entry| entry.who != "limit").filter_map(call).collect();
        format!("\nOne call of saxpy with 1024 elements: {}\n", calls.join(", "))
    }

    fn cold_table(&self) -> String {
        let mut lines = vec![
            [
                "backend",
                "process to first result",
                "acquire",
                "compile saxpy",
                "first call",
                "compile per kernel",
            ]
            .map(str::to_string)
            .to_vec(),
        ];
        for cold in &self.cold {
            let cell = |values: &[f64]| median(values).map_or("–".into(), duration);
            let per_kernel: Vec<f64> = self
                .rows
                .iter()
                .filter_map(|row| row.entry(&cold.backend))
                .filter(|entry| entry.programs > 0)
                .map(|entry| entry.compile_ns / entry.programs as f64)
                .collect();
            lines.push(vec![
                cold.backend.clone(),
                cell(&cold.first_result_ns),
                cell(&cold.acquire_ns),
                cell(&cold.compile_ns),
                cell(&cold.first_call_ns),
                cell(&per_kernel),
            ]);
        }
        if self.cold.is_empty() { String::new() } else { format!("\n{}", aligned(&lines)) }
    }

    /// Compares this run's multiples of the limit with those of another run.
    pub(crate) fn comparison(&self, earlier: &BenchReport) -> String {
        let mut lines = vec![["workload", "who", "before", "now", "change"].map(str::to_string).to_vec()];
        for row in &self.rows {
            let Some(old_row) = earlier.rows.iter().find(|old| old.name == row.name) else { continue };
            for entry in row.entries.iter().filter(|entry| entry.who != "limit") {
                let Some(old) = old_row.entry(&entry.who) else { continue };
                let now = median(&row.multiples(entry, &row.limit_ns()));
                let before = median(&old_row.multiples(old, &old_row.limit_ns()));
                let (Some(now), Some(before)) = (now, before) else { continue };
                let change = format!("{:+.0}%", 100.0 * (now / before - 1.0));
                let cells = [
                    row.name.clone(),
                    entry.who.clone(),
                    format!("{before:.2}"),
                    format!("{now:.2}"),
                    change,
                ];
                lines.push(cells.to_vec());
            }
        }
        if earlier.processor != self.processor {
            return format!(
                "The earlier run was on another machine: {}.\n{}",
                earlier.processor,
                aligned(&lines)
            );
        }
        aligned(&lines)
    }
}

/// Rate of the limit: bytes or operations per second.
fn rate(row: &Row) -> String {
    let Some(ns) = median(&row.limit_ns()) else { return row.limit.clone() };
    if row.limit == "multiply_add" {
        format!("{:.0} Gflop/s", row.operations / ns)
    } else {
        format!("{} {:.1} GB/s", row.limit, row.bytes as f64 / ns)
    }
}

fn multiple(row: &Row, entry: &RowEntry, limit: &[f64]) -> String {
    let multiples = row.multiples(entry, limit);
    match (median(&multiples), quantile(&multiples, 0.1)) {
        (Some(middle), Some(low)) => format!("{} ({})", figure(middle), figure(low)),
        _ => median(&entry.samples_ns).map_or("–".into(), duration),
    }
}

fn figure(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Lays out a Markdown table with padded columns, the first left-aligned and the others
/// right-aligned.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                text.push_str(&if column == 0 { format!("|{dashes}-") } else { format!("|{dashes}:") });
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(scale: f64) -> BenchReport {
        let entry = |who: &str, samples: &[f64]| RowEntry {
            samples_ns: samples.to_vec(),
            ..RowEntry::new(who.into())
        };
        let cpu: Vec<f64> = [2e6, 4e6, 9e6].iter().map(|ns| ns * scale).collect();
        let row = Row {
            name: "saxpy 2^10".into(),
            limit: "copy".into(),
            bytes: 1_000_000,
            operations: 1.0,
            limit_scale: 1.0,
            limit_best_ns: None,
            entries: vec![entry("limit", &[1e6, 2e6, 3e6]), entry("C", &[2e6, 2e6, 2e6]), entry("cpu", &cpu)],
            faults: vec!["wgpu: not there".into()],
        };
        BenchReport { schema: SCHEMA, rows: vec![row], ..BenchReport::default() }
    }

    #[test]
    fn multiples_are_of_the_same_round() {
        let table = report(1.0).table();
        let row = table.lines().find(|line| line.starts_with("| saxpy"));
        // C: 2, 1, 0.67; cpu: 2, 2, 3; cpu against C: 1, 2, 4.5.
        let cells: Vec<&str> = row.map_or(Vec::new(), |row| row.split('|').map(str::trim).collect());
        assert_eq!(cells[2..], ["copy 0.5 GB/s", "2.00 ms", "1.00 (0.67)", "2.00 (2.00)", "2.00", ""]);
        assert!(table.contains("saxpy 2^10: wgpu: not there"), "{table}");
    }

    #[test]
    fn the_best_limit_of_the_run_is_that_of_all_rows_of_its_kind() {
        let mut run = report(1.0);
        let mut other = run.rows[0].clone();
        (other.name, other.bytes) = ("copy".into(), 2_000_000);
        other.entries[0].samples_ns = vec![1e6, 9e6, 9e6];
        let mut small = other.clone();
        (small.name, small.bytes) = ("small".into(), 1000);
        run.rows.extend([other, small]);
        run.settle_limits();
        let best: Vec<Option<f64>> = run.rows.iter().map(|row| row.limit_best_ns).collect();
        assert_eq!(best, [Some(5e5), Some(1e6), Some(1e6)]);
        assert_eq!(run.rows[0].limit_ns(), [5e5; 3]);
    }

    #[test]
    fn a_comparison_shows_the_change_of_the_multiple() {
        let text = report(3.0).comparison(&report(1.0));
        let row = text.lines().find(|line| line.contains("cpu"));
        assert_eq!(row.map(|row| row.contains("+200%")), Some(true), "{text}");
    }

    #[test]
    fn quantiles_of_few_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(quantile(&[5.0, 1.0], 0.1), Some(1.0));
    }

    #[test]
    fn json_is_read_back() -> Result<(), serde_json::Error> {
        let text = serde_json::to_string(&report(1.0))?;
        let back: BenchReport = serde_json::from_str(&text)?;
        assert_eq!(back.table(), report(1.0).table());
        Ok(())
    }
}
