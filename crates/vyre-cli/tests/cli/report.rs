//! The HTML report, checked as text and laid out in a browser.

use crate::Bench;
use std::path::Path;
use std::process::Command;
use vyre_driver::hints_file::save_hints;
use vyre_driver::pgo::{BackendLatency, PgoTable, RejectedBackend, RouteDecision};
use vyre_driver::tuner::{CandidateSamples, Shape, TunerCache};
use vyre_foundation::hints::HotPathHints;

/// A machine with history: several routes, a rejected backend, a tuned program, hot regions, a
/// damaged file.
fn used_machine() -> Bench {
    let bench = Bench::new();
    let latency = |backend: &str, latency_ns| BackendLatency { backend: backend.into(), latency_ns };
    let row = |bucket: u32, scale: u64| RouteDecision {
        backend: "cpu".into(),
        observations: vec![
            latency("cpu", 1_234 * scale),
            latency("wgpu", 56_789 * scale),
            latency("opencl", 77_777 * scale),
        ],
        rejected: vec![RejectedBackend {
            backend: "wgpu:1".into(),
            reason: "element 3 of `y` <differs> & more".into(),
        }],
        verified: true,
        size_bucket: Some(bucket),
        certified_at_ns: 1,
        ..RouteDecision::default()
    };
    let mut table = PgoTable::default();
    for (bucket, scale) in [(10, 1), (16, 30), (20, 800), (24, 16_000)] {
        table.routes_by_size.entry("saxpy".into()).or_default().insert(bucket, row(bucket, scale));
    }
    table
        .routes_by_size
        .entry(format!("fp:{}", "0123456789abcdef".repeat(4)))
        .or_default()
        .insert(12, row(12, 1_000_000));
    table.save(&bench.path(".config/vyre/pgo.toml")).expect("saved");

    let mut tuner = TunerCache::default();
    let candidate = |x: u32, base: u64| CandidateSamples {
        workgroup_size: [x, 1, 1],
        elements_per_invocation: (x == 256).then_some(4),
        samples_ns: (0..9).map(|k| base + base * k / 20).collect(),
        ..CandidateSamples::default()
    };
    let key = format!("v1-{}", "fedcba9876543210".repeat(4));
    tuner.set_shape(key.as_str(), Shape { workgroup_size: [256, 1, 1], elements_per_invocation: 4 });
    tuner.set_samples(
        key.as_str(),
        vec![
            candidate(32, 900_000),
            candidate(64, 400_000),
            candidate(256, 350_000),
            candidate(1024, 2_000_000),
        ],
    );
    tuner.save(&bench.path(".cache/vyre/tuner/a-device-with-a-rather-long-name-0123.toml")).expect("saved");

    let hints = HotPathHints::default();
    for k in 0..25u64 {
        hints.record(&format!("generator.number_{k}@0123456789abcdef"), 1_000_000 >> (k / 2), 4096 * k);
    }
    save_hints(&hints, &bench.path(".cache/vyre/hints.toml")).expect("saved");
    bench.file(".config/vyre/pgo.toml.corrupt-1", "?");
    bench
}

#[test]
fn the_numbers_are_those_of_the_tables() {
    let bench = used_machine();
    let page = bench.name("report.html");
    let (out, err) = bench.check(&["report", "--out", &page], 0);
    assert_eq!((out, err), (format!("written to {page}\n"), String::new()));
    let html = std::fs::read_to_string(&page).expect("written");
    let expected = [
        "1.234 µs",
        "56.789 µs",
        "19.744 ms",
        "fp:0123456789ab…",
        "v1-fedcba987654…",
        ">256, 4 each<",
        "420.000 µs",
        "generator.number_0@0123456789abcdef",
        "and 5 more regions",
        "&lt;differs&gt; &amp; more",
        "damaged, no longer used",
        "5 rows",
    ];
    for text in expected {
        assert!(html.contains(text), "{text} is not on the page");
    }
    assert!(!html.contains("http://") && !html.contains("https://"), "the page needs nothing from elsewhere");
}

#[test]
fn json_and_an_empty_machine() {
    let json = used_machine().json(&["report", "--json"], 0);
    assert_eq!(json["routes"].as_array().map(Vec::len), Some(5));
    assert_eq!(json["tuner"][0]["shape"]["workgroup_size"], serde_json::json!([256, 1, 1]));
    assert_eq!(json["regions"][0]["total_ns"], 1_000_000);
    let bench = Bench::new();
    let (html, _) = bench.check(&["report", "--out", "-"], 0);
    assert!(html.contains("No routes yet") && html.contains("Nothing tuned yet"), "{html}");
    bench.refuses(&[(&["report", "--out", "/no/such/folder/r.html"], 2, "/no/such/folder")]);
}

/// Looks for layout defects: overlapping text, clipped text, text that is too small, and marks
/// outside the page.
const INSPECTION: &str = r#"
<script>
addEventListener("load", () => {
  const faults = [];
  const limit = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > limit) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const parent = node.parentElement;
    if (!node.data.trim() || ["SCRIPT", "STYLE", "TITLE", "title"].includes(parent.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      texts.push({ box, text: node.data.trim().slice(0, 40) });
      if (box.left < 0 || box.right > limit + 1) faults.push(`cut off: ${node.data.trim()}`);
    }
    if (parseFloat(getComputedStyle(parent).fontSize) < 12) faults.push(`too small: ${node.data.trim()}`);
  }
  for (let a = 0; a < texts.length; a++) {
    for (let b = a + 1; b < texts.length; b++) {
      const [p, q] = [texts[a].box, texts[b].box];
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1 && down > 4) faults.push(`overlap: ${texts[a].text} / ${texts[b].text}`);
    }
  }
  for (const mark of document.querySelectorAll("svg rect, svg circle")) {
    const box = mark.getBoundingClientRect();
    if (box.left < -1 || box.right > limit + 1) faults.push(`a mark outside: ${mark.outerHTML}`);
  }
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map((part) => { const c = part / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [ink, page] = [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor].map(luminance);
  const contrast = (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
  if (contrast < 7) faults.push(`contrast ${contrast}`);
  document.title = "inspected";
  const result = document.createElement("pre");
  result.id = "inspection";
  result.textContent = JSON.stringify({ width: innerWidth, texts: texts.length, dark: page < 0.2, faults });
  document.body.replaceChildren(result);
});
</script>
"#;

fn browser() -> Option<&'static str> {
    let found = |name: &&str| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(found)
}

/// Defects that the inspection found at this width.
fn inspect(browser: &str, bench: &Bench, page: &Path, width: u32) -> serde_json::Value {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", bench.name("browser")))
        .arg(format!("--window-size={width},1200"))
        .arg(format!("file://{}", page.display()))
        .env("HOME", bench.folder.path())
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout);
    let result = dom.split_once("<pre id=\"inspection\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) =
        result.unwrap_or_else(|| panic!("no result in {dom}\n{}", String::from_utf8_lossy(&output.stderr)));
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[test]
fn a_browser_finds_nothing_to_complain_about() {
    let Some(browser) = browser() else {
        println!("SKIP no browser is installed (Debian's is the package chromium)");
        return;
    };
    let bench = used_machine();
    let (html, _) = bench.check(&["report", "--out", "-"], 0);
    for (theme, width) in [("light", 1280), ("dark", 390)] {
        let page = bench.path(&format!("{theme}.html"));
        let themed = html.replace("<html ", &format!("<html data-theme=\"{theme}\" "));
        std::fs::write(&page, themed.replace("</body>", &format!("{INSPECTION}</body>"))).expect("writable");
        let found = inspect(browser, &bench, &page, width);
        assert_eq!(found["faults"], serde_json::json!([]), "{theme} at {width}");
        assert_eq!(found["dark"], theme == "dark");
        assert!(found["texts"].as_u64() > Some(100), "{found}");
    }
}
