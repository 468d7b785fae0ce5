//! `vyre bench`.

use super::Bench;

const ROW: [&str; 8] = ["bench", "--quick", "--rounds", "1", "--only", "saxpy 2^10", "--backend", "cpu"];

#[test]
fn figures_and_a_page_are_written_and_compared() {
    let bench = Bench::new();
    let (figures, page) = (bench.name("figures.json"), bench.name("page.html"));
    let (out, _) = bench.check(&[&ROW[..], &["--json", &figures, "--html", &page]].concat(), 0);
    assert!(out.contains("saxpy 2^10") && out.contains("cpu end to end"), "{out}");
    let text = std::fs::read_to_string(&figures).expect("the figures are written");
    let json: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    assert_eq!(json["rows"][0]["name"], "saxpy 2^10");
    assert!(std::fs::read_to_string(&page).is_ok_and(|page| page.contains("<svg")), "the page has plots");
    let (out, _) = bench.check(&[&ROW[..], &["--compare", &figures]].concat(), 0);
    assert!(out.contains("Since the earlier run"), "{out}");
}

#[test]
fn wrong_arguments_are_told() {
    let bench = Bench::new();
    let (_, err) = bench.check(&["bench", "--only", "no such row"], 2);
    assert!(err.contains("saxpy 2^24"), "{err}");
    bench.check(&["bench", "--compare", &bench.file("no.json", "[]")], 2);
    bench.check(&["bench", "--only", "saxpy 2^10", "--backend", "nowhere"], 2);
}
