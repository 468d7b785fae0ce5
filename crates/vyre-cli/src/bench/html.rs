//! Benchmark report as a single HTML page: tables, bars per workload and a roofline, with inline
//! SVG.

use super::report::{BenchReport, Row, duration, median};
use crate::report::page::escape;
use std::fmt::Write;

const COLOURS: [&str; 8] =
    ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac"];

/// Renders the whole page.
pub(crate) fn page(report: &BenchReport) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>vyre bench</title><style>\
         body{{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}}\
         pre{{overflow-x:auto;background:#f6f6f6;padding:1rem}}svg{{max-width:100%;height:auto}}\
         text{{font:12px system-ui,sans-serif}}</style></head><body>\n\
         <h1>vyre bench</h1>\n<p>{}, {} threads, vyre {}, {}</p>\n\
         <h2>Multiples of the machine's limit</h2>\n<p>Lower is better; the scale is logarithmic, the line is the \
         best limit of the run for its kind.</p>\n{}\n<h2>Roofline</h2>\n<p>Operations per second against operations \
         per byte. The roof is the fastest multiply-add rate and copy rate that this run measured.</p>\n{}\n\
         <h2>Figures</h2>\n<pre>{}</pre>\n</body></html>\n",
        escape(&report.processor),
        report.threads,
        escape(&report.version),
        escape(&report.compiler),
        bars(report),
        roofline(report),
        escape(&report.table())
    )
}

/// Draws one group of bars per row, one bar per contestant.
fn bars(report: &BenchReport) -> String {
    const LEFT: f64 = 170.0;
    const WIDTH: f64 = 700.0;
    const BAR: f64 = 13.0;
    let everyone = report.everyone();
    let group = BAR * everyone.len() as f64 + 14.0;
    let height = group * report.rows.len() as f64 + 50.0;
    // Scale from a quarter of the limit to a thousand times the limit.
    let place = |multiple: f64| LEFT + WIDTH * ((multiple / 0.25).log10() / 4000_f64.log10()).clamp(0.0, 1.0);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {:.0} {height:.0}\" role=\"img\" aria-label=\"bars\">\n",
        LEFT + WIDTH + 70.0
    );
    legend(&mut svg, &everyone);
    for tick in [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0] {
        let (x, colour) = (place(tick), if tick == 1.0 { "#000" } else { "#ddd" });
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"40\" x2=\"{x:.1}\" y2=\"{height:.0}\" stroke=\"{colour}\"/>\
             <text x=\"{x:.1}\" y=\"36\" text-anchor=\"middle\">{tick}</text>"
        );
    }
    for (number, row) in report.rows.iter().enumerate() {
        let top = 46.0 + group * number as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            top + group / 2.0,
            escape(&row.name)
        );
        for (k, who) in everyone.iter().enumerate() {
            let multiples = row.entry(who).map(|entry| row.multiples(entry, &row.limit_ns()));
            let Some(multiple) = multiples.as_deref().and_then(median) else { continue };
            let (y, end) = (top + BAR * k as f64, place(multiple));
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}: {multiple:.2}\
                 </title></rect><text x=\"{:.1}\" y=\"{:.1}\">{multiple:.2}</text>",
                (end - LEFT).max(1.0),
                BAR - 2.0,
                COLOURS[k % COLOURS.len()],
                escape(who),
                end + 4.0,
                y + BAR - 3.0
            );
        }
    }
    svg + "</svg>"
}

fn legend(svg: &mut String, everyone: &[String]) {
    for (k, who) in everyone.iter().enumerate() {
        let x = 10.0 + 150.0 * k as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"4\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.0}\" y=\"14\">{}</text>",
            COLOURS[k % COLOURS.len()],
            x + 16.0,
            escape(who)
        );
    }
}

/// Best rate among the rows with this kind of limit, per nanosecond.
fn best_rate(report: &BenchReport, limit: &str, amount: impl Fn(&Row) -> f64) -> Option<f64> {
    let rates = report.rows.iter().filter(|row| {
        row.limit == limit && row.bytes > 1 << 23 || row.limit == "multiply_add" && limit == "multiply_add"
    });
    rates.filter_map(|row| Some(amount(row) / median(&row.limit_ns())?)).max_by(f64::total_cmp)
}

fn roofline(report: &BenchReport) -> String {
    const LEFT: f64 = 60.0;
    const WIDTH: f64 = 760.0;
    const HEIGHT: f64 = 380.0;
    let everyone = report.everyone();
    // Operations per byte from 1/32 to 512; Gop/s from 0.1 to 1000.
    let across = |intensity: f64| LEFT + WIDTH * ((intensity * 32.0).log2() / 14.0).clamp(0.0, 1.0);
    let up = |rate: f64| 20.0 + HEIGHT * (1.0 - ((rate * 10.0).log10() / 4.0).clamp(0.0, 1.0));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"roofline\">\n",
        LEFT + WIDTH + 20.0,
        HEIGHT + 60.0
    );
    legend(&mut svg, &everyone);
    for power in -5..=9 {
        let x = across(2_f64.powi(power));
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { (1 << power).to_string() };
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{label}</text>",
            HEIGHT + 40.0
        );
    }
    for rate in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        let y = up(rate);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.0}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{rate}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let peak = best_rate(report, "multiply_add", |row| row.operations);
    let copy = best_rate(report, "copy", |row| row.bytes as f64);
    if let (Some(peak), Some(copy)) = (peak, copy) {
        let points: Vec<String> = (-40..=72)
            .map(|step| 2_f64.powf(f64::from(step) / 8.0))
            .map(|intensity| format!("{:.1},{:.1}", across(intensity), up((intensity * copy).min(peak))))
            .collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"#000\"/>", points.join(" "));
    }
    for row in report.rows.iter().filter(|row| row.operations > 0.0) {
        let intensity = row.operations / row.bytes as f64;
        for (k, who) in everyone.iter().enumerate() {
            let Some(ns) = row.entry(who).and_then(|entry| median(&entry.samples_ns)) else { continue };
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{}\"><title>{}, {}: {:.1} Gop/s, {}</title></circle>",
                across(intensity),
                up(row.operations / ns),
                COLOURS[k % COLOURS.len()],
                escape(&row.name),
                escape(who),
                row.operations / ns,
                duration(ns)
            );
        }
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::RowEntry;

    #[test]
    fn a_page_needs_no_network_and_escapes_names() {
        let entry = |who: &str, ns: f64| RowEntry { samples_ns: vec![ns; 3], ..RowEntry::new(who.into()) };
        let row = Row {
            name: "a <b>".into(),
            limit: "copy".into(),
            bytes: 1 << 24,
            operations: 1e6,
            limit_scale: 1.0,
            limit_best_ns: None,
            entries: vec![entry("limit", 1e6), entry("cpu", 2e6)],
            faults: Vec::new(),
        };
        let page = page(&BenchReport { rows: vec![row], ..BenchReport::default() });
        assert!(page.contains("a &lt;b&gt;") && !page.contains("a <b>"));
        assert!(page.contains("<circle") && page.contains("<rect"));
        assert!(!page.contains("http"), "nothing is fetched");
    }
}
