//! HTML and styles of the report page.

use super::plot::{self, Curve, Curves, TimeAxis};
use super::{Facts, Route, Tuned};
use crate::devices::{DeviceState, LinkedBackend, class, strictness};
use crate::quantity;
use crate::tables::TableKind;
use std::collections::BTreeSet;
use std::fmt::Write;
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::tuner::Shape;
use vyre_foundation::hints::RegionRecord;
use vyre_foundation::visible;

/// Number of regions listed; the rest are summarized.
const SHOWN_REGIONS: usize = 20;
/// Number of distinct colours in the style sheet.
const SERIES: usize = 6;

/// Renders the whole page.
pub(super) fn render(facts: &Facts) -> String {
    let (style, script) = (include_str!("page.css"), include_str!("page.js"));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let backends = backend_names(facts);
    let sections = [
        devices(&facts.devices),
        routes(&facts.routes, &backends),
        tuner(&facts.tuned),
        regions(&facts.regions),
        tables(facts),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>vyre report</title>\n\
         <style>\n{style}</style>\n</head>\n<body>\n<header>\n<h1>vyre report</h1>\n\
         <p>vyre {COMPILER_VERSION} on {os} {arch}, {threads} threads, {}</p>\n\
         <button id=\"theme\" type=\"button\" hidden>Dark</button>\n</header>\n<main>\n{}</main>\n<script>\n{script}</script>\n</body>\n</html>\n",
        date(facts.written_at),
        sections.concat()
    )
}

fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{body}</section>\n")
}

fn nothing(message: &str) -> String {
    format!("<p class=\"nothing\">{message}</p>\n")
}

/// Escapes text for HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in visible(text).chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            _ => escaped.push(character),
        }
    }
    escaped
}

/// All measured backends, in the order that determines their colours.
fn backend_names(facts: &Facts) -> Vec<String> {
    let measured = facts.routes.iter().flat_map(|route| &route.decision.observations);
    let names: BTreeSet<String> = measured.map(|observed| observed.backend.clone()).collect();
    names.into_iter().collect()
}

fn series(backends: &[String], backend: &str) -> String {
    let at = backends.iter().position(|name| name == backend).unwrap_or(0);
    format!("series-{}", at % SERIES)
}

fn devices(devices: &[LinkedBackend]) -> String {
    let mut body = String::from("<div class=\"cards\">\n");
    for (at, device) in devices.iter().enumerate() {
        let id = escape(device.id);
        match &device.state {
            DeviceState::Refused(reason) => {
                let _ = writeln!(
                    body,
                    "<article class=\"card refused\"><h3>{id} <span class=\"chip\">not selected</span></h3><p>{}</p></article>",
                    escape(reason)
                );
            }
            DeviceState::Usable { facts, profile } => {
                let state = if at == 0 { "selected" } else { "usable" };
                let name =
                    if profile.device_name.is_empty() { "unnamed device" } else { profile.device_name };
                let _ = writeln!(
                    body,
                    "<article class=\"card\"><h3>{id} <span class=\"chip {state}\">{state}</span></h3><p>{}<br>{}</p>\
                     <dl><dt>score</dt><dd>{}</dd><dt>results</dt><dd>{}, {}</dd><dt>units</dt><dd>{}</dd><dt>opened in</dt><dd>{}</dd></dl></article>",
                    escape(name),
                    class(profile.device_class),
                    facts.capability_score,
                    strictness(profile),
                    escape(&device.certification()),
                    profile.compute_units,
                    quantity::time(facts.acquisition_ns)
                );
            }
        }
    }
    section("devices", "Devices", &(body + "</div>\n"))
}

fn routes(routes: &[Route], backends: &[String]) -> String {
    if routes.is_empty() {
        let hint = "No routes yet: <code>vyre certify kernel.vyre</code> compares and measures the backends on a program.";
        return section("routes", "Routes", &nothing(hint));
    }
    let mut body = legend(backends);
    for same_op in routes.chunk_by(|a, b| a.op == b.op) {
        let sized: Vec<&Route> =
            same_op.iter().filter(|route| route.decision.size_bucket.is_some()).collect();
        let _ = writeln!(
            body,
            "<article class=\"card wide\"><h3 title=\"{0}\">{1}</h3>",
            escape(&same_op[0].op),
            escape(&short(&same_op[0].op))
        );
        if sized.len() > 1 {
            body += &curves(&sized, backends).draw();
        }
        body += &measurements(same_op, backends);
        body += "</article>\n";
    }
    section("routes", "Routes", &body)
}

fn legend(backends: &[String]) -> String {
    let entry = |backend: &String| {
        format!(
            "<li><svg class=\"swatch\" aria-hidden=\"true\"><rect class=\"{}\" width=\"12\" height=\"12\" rx=\"3\"/></svg>{}</li>",
            series(backends, backend),
            escape(backend)
        )
    };
    format!("<ul class=\"legend\">{}</ul>\n", backends.iter().map(entry).collect::<String>())
}

fn curves(routes: &[&Route], backends: &[String]) -> Curves {
    let points = |backend: &String| -> Vec<(u32, u64)> {
        let time = |route: &&Route| {
            let observed = route.decision.observations.iter().find(|observed| observed.backend == *backend);
            Some((route.decision.size_bucket?, observed?.latency_ns))
        };
        routes.iter().filter_map(time).collect()
    };
    Curves {
        sizes: routes.iter().filter_map(|route| route.decision.size_bucket).collect(),
        curves: backends
            .iter()
            .map(|backend| Curve {
                name: backend.clone(),
                class: series(backends, backend),
                points: points(backend),
            })
            .filter(|curve| !curve.points.is_empty())
            .collect(),
    }
}

/// One mark per backend and size, with its time.
fn measurements(routes: &[Route], backends: &[String]) -> String {
    let times =
        routes.iter().flat_map(|route| &route.decision.observations).map(|observed| observed.latency_ns);
    let axis = TimeAxis::over(times);
    let mut rows = String::from("<div class=\"rows\">\n");
    for route in routes {
        let decision = &route.decision;
        let size = match decision.size_bucket {
            Some(bucket) => format!("2^{bucket} elements and up"),
            None => "any size".into(),
        };
        let verified = if decision.verified { "verified" } else { "not verified" };
        let _ = writeln!(rows, "<h4>{size} <span class=\"chip\">{verified}</span></h4>");
        for observed in &decision.observations {
            let chosen = if observed.backend == decision.backend { " class=\"chosen\"" } else { "" };
            let _ = writeln!(
                rows,
                "<div class=\"row\"><span{chosen}>{}</span>{}<span class=\"number\">{}</span></div>",
                escape(&observed.backend),
                plot::time_mark(&axis, observed.latency_ns, &series(backends, &observed.backend)),
                quantity::time(observed.latency_ns)
            );
        }
        for rejected in &decision.rejected {
            let _ = writeln!(
                rows,
                "<p class=\"rejected\">{} rejected: {}</p>",
                escape(&rejected.backend),
                escape(&rejected.reason)
            );
        }
    }
    let _ = write!(
        rows,
        "<div class=\"row\"><span></span>{}<span></span></div>\n</div>\n",
        plot::time_axis(&axis)
    );
    rows
}

fn tuner(tuned: &[Tuned]) -> String {
    if tuned.is_empty() {
        let hint =
            "Nothing tuned yet: <code>vyre tune kernel.vyre</code> measures workgroup sizes on a program.";
        return section("tuner", "Tuner", &nothing(hint));
    }
    let mut body = String::new();
    for decision in tuned {
        let _ = writeln!(
            body,
            "<article class=\"card wide\"><h3 title=\"{}\">{}</h3><p>{}: workgroup {}</p>",
            escape(&decision.key),
            escape(&short(&decision.key)),
            escape(&short(&decision.adapter)),
            shape_name(decision.shape)
        );
        body += &candidates(decision);
        body += "</article>\n";
    }
    section("tuner", "Tuner", &body)
}

fn candidates(decision: &Tuned) -> String {
    let samples = decision.candidates.iter().flat_map(|candidate| candidate.samples_ns.iter().copied());
    let axis = TimeAxis::over(samples);
    let mut rows = String::from("<div class=\"rows\">\n");
    for candidate in &decision.candidates {
        let wins = candidate.shape() == decision.shape;
        let (chosen, class) = if wins { (" class=\"chosen\"", "series-0") } else { ("", "series-other") };
        let median = candidate.median_ns();
        let _ = writeln!(
            rows,
            "<div class=\"row\"><span{chosen}>{}</span>{}<span class=\"number\">{}</span></div>",
            shape_name(candidate.shape()),
            plot::strip(&axis, &candidate.samples_ns, class),
            median.map_or("no samples".into(), quantity::time)
        );
        if let Some(reason) = &candidate.quarantined {
            let _ = writeln!(rows, "<p class=\"rejected\">not used: {}</p>", escape(reason));
        }
    }
    if decision.candidates.is_empty() {
        return nothing("The samples behind this decision were not kept.");
    }
    let _ = write!(
        rows,
        "<div class=\"row\"><span></span>{}<span></span></div>\n</div>\n",
        plot::time_axis(&axis)
    );
    rows
}

/// Short name of a shape: the workgroup size without trailing axes of 1, and the elements per
/// invocation.
fn shape_name(shape: Shape) -> String {
    let [x, y, z] = shape.workgroup_size;
    let size = match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x} × {y}"),
        _ => format!("{x} × {y} × {z}"),
    };
    match shape.elements_per_invocation {
        1 => size,
        elements => format!("{size}, {elements} each"),
    }
}

fn regions(regions: &[(String, RegionRecord)]) -> String {
    let total: u64 =
        regions.iter().fold(0, |total, (_, record)| total.saturating_add(record.kernel_ns_total));
    if total == 0 {
        return section("regions", "Hot regions", &nothing("No dispatch has been recorded yet."));
    }
    let mut rows = String::from("<div class=\"rows\">\n");
    for (name, record) in regions.iter().take(SHOWN_REGIONS) {
        let share = record.kernel_ns_total as f64 / total as f64;
        let _ = writeln!(
            rows,
            "<h4 class=\"name\" title=\"{0}\">{1}</h4><div class=\"row pair\">{2}<span class=\"number\">{3}</span></div>\
             <p class=\"detail\">{4:.1}% of the time; {5} dispatches of {6} on average, {7} at most; {8} in all</p>",
            escape(name),
            escape(&short(name)),
            plot::share_bar(share),
            quantity::time(record.kernel_ns_total),
            share * 100.0,
            record.dispatch_count,
            quantity::time(record.mean_kernel_ns()),
            quantity::time(record.kernel_ns_max),
            quantity::bytes(record.bytes_total)
        );
    }
    rows += "</div>\n";
    if regions.len() > SHOWN_REGIONS {
        let _ = writeln!(rows, "<p class=\"detail\">and {} more regions</p>", regions.len() - SHOWN_REGIONS);
    }
    section("regions", "Hot regions", &format!("<article class=\"card wide\">{rows}</article>\n"))
}

fn tables(facts: &Facts) -> String {
    if facts.files.is_empty() {
        return section("tables", "Tables", &nothing("Nothing has been saved yet."));
    }
    let mut body = String::from("<div class=\"cards\">\n");
    for file in &facts.files {
        let (chip, state) = match (&file.rows, file.kind) {
            (_, TableKind::SetAside) => ("warning", "damaged, no longer used".to_string()),
            (Ok(rows), _) => ("selected", format!("{rows} rows")),
            (Err(error), _) => ("broken", error.to_string()),
        };
        let word = match chip {
            "selected" => "ok",
            "warning" => "set aside",
            _ => "not readable",
        };
        let _ = writeln!(
            body,
            "<article class=\"card\"><h3>{} <span class=\"chip {chip}\">{word}</span></h3><p>{}, {}</p><p class=\"path\">{}</p></article>",
            file.kind.name(),
            escape(&state),
            quantity::bytes(file.bytes),
            escape(&file.path.display().to_string())
        );
    }
    section("tables", "Tables", &(body + "</div>\n"))
}

/// Shortens the long hexadecimal parts of a name.
fn short(name: &str) -> String {
    let hexadecimal = |character: char| character.is_ascii_hexdigit();
    let mut shortened = String::new();
    let mut rest = name;
    while let Some(start) = rest.find(hexadecimal) {
        let length = rest[start..].find(|character| !hexadecimal(character)).unwrap_or(rest.len() - start);
        let (end, shown) = (start + length, if length > 16 { 12 } else { length });
        shortened += &rest[..start + shown];
        if shown < length {
            shortened.push('…');
        }
        rest = &rest[end..];
    }
    shortened + rest
}

/// Formats a time in seconds since 1970 as a UTC date and time.
fn date(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Days count from March of year 0, which puts the leap day at the end of the year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year_of_era + next_year;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", time / 3_600, time / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
        assert_eq!(date(u64::MAX / 1_000_000_000), "2554-07-21 23:34 UTC");
    }

    #[test]
    fn long_digests_are_cut() {
        assert_eq!(short(&format!("fp:{}", "0123456789abcdef".repeat(4))), "fp:0123456789ab…");
        assert_eq!(short("blas.saxpy@0123456789abcdef"), "blas.saxpy@0123456789abcdef");
        assert_eq!(short("x/y"), "x/y");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
    }
}
