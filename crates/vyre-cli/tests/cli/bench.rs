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
fn wrong_arguments_are_reported() {
    let bench = Bench::new();
    let (_, err) = bench.check(&["bench", "--only", "no such row"], 2);
    assert!(err.contains("saxpy 2^24"), "{err}");
    bench.check(&["bench", "--compare", &bench.file("no.json", "[]")], 2);
    bench.check(&["bench", "--only", "saxpy 2^10", "--backend", "nowhere"], 2);
}

const DOUBLE: &str = "// bench --in x=rand:u32:4096\n\
    kernel double(x: read u32[], y: output u32[] len_of x) over x { y[invocation.x] = 2 * x[invocation.x] }";
const IN_C: &str = "#include \"peer.h\"\nvoid run(void *const *data, const size_t *count) {\n\
    const uint32_t *x = data[0];\nuint32_t *y = data[1];\n\
    for (size_t i = 0; i < count[1]; i++) y[i] = FACTOR * x[i];\n}\n";

#[test]
fn any_kernel_is_compared_with_any_c() {
    let bench = Bench::new();
    let kernel = bench.file("double.vyre", DOUBLE);
    let row = ["bench", "--quick", "--rounds", "1", "--backend", "cpu", "--kernel", &kernel];
    let right = bench.file("right.c", IN_C.replace("FACTOR", "2"));
    let (out, _) = bench.check(&[&row[..], &["--c", &right]].concat(), 0);
    assert!(out.contains("| double ") && out.contains("cpu / C"), "{out}");
    let (caller, factor) = (IN_C.replace("FACTOR", "factor()"), "unsigned factor(void) { return 2; }");
    let caller = bench.file("caller.c", format!("unsigned factor(void);\n{caller}"));
    bench.check(&[&row[..], &["--c", &caller, "--c", &bench.file("factor.c", factor)]].concat(), 0);
    bench.check(&[&row[..], &["--in", "x=1,2,3"]].concat(), 0);
    let wrong = bench.file("wrong.c", IN_C.replace("FACTOR", "3"));
    let (out, _) = bench.check(&[&row[..], &["--c", &wrong]].concat(), 1);
    assert!(out.contains("double: C: wrong result"), "{out}");
    let (_, err) = bench.check(&["bench", "--in", "x=1"], 2);
    assert!(err.contains("are for --kernel"), "{err}");
    bench.check(&["bench", "--c", &right], 2);
    bench.check(&["bench", "--kernel", &bench.name("missing.vyre")], 2);
}
