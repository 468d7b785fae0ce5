use crate::{Bench, INVALID, example};

const UGLY: &str = "kernel k(y:output u32[4]){region \"r\"{let i=invocation.x;y[i]=i*2 // twice\n}}";
const NEAT: &str = "kernel k(y: output u32[4]) {\n  region \"r\" {\n    let i = invocation.x\n    y[i] = i * 2 // twice\n  }\n}\n";

#[test]
fn files_are_rewritten_once() {
    let bench = Bench::new();
    let file = bench.file("k.vyre", UGLY);
    let (out, _) = bench.check(&["fmt", "--check", &file], 1);
    assert_eq!(out, format!("{file}: would change\n"));
    assert_eq!(std::fs::read_to_string(&file).expect("as it was"), UGLY);
    assert_eq!(bench.check(&["fmt", &file], 0), (String::new(), String::new()));
    assert_eq!(std::fs::read_to_string(&file).expect("rewritten"), NEAT);
    bench.check(&["fmt", "--check", &file], 0);
}

#[test]
fn standard_input_goes_to_standard_output() {
    let bench = Bench::new();
    assert_eq!(bench.check_input(&["fmt", "-"], UGLY, 0).0, NEAT);
    assert_eq!(bench.check_input(&["fmt", "-"], NEAT, 0).0, NEAT);
    bench.check_input(&["fmt", "--check", "-"], UGLY, 1);
}

#[test]
fn the_examples_are_laid_out() {
    let names = ["black_scholes", "histogram", "mandelbrot", "reduce", "saxpy"]
        .map(|name| example(&format!("{name}.vyre")));
    let mut arguments = vec!["fmt", "--check"];
    arguments.extend(names.iter().map(String::as_str));
    Bench::new().check(&arguments, 0);
}

#[test]
fn json() {
    let bench = Bench::new();
    let (file, bad) = (bench.file("k.vyre", UGLY), bench.file("bad.vyre", "kernel k( {"));
    let json = bench.json(&["fmt", "--check", "--json", &file, &bad], 1);
    assert_eq!((&json[0]["changed"], &json[1]["changed"]), (&true.into(), &false.into()));
    assert!(json[1]["diagnostics"][0]["code"].is_string(), "{json}");
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let broken = bench.file("broken.vyre", "kernel k(");
    bench.refuses(&[
        (&["fmt"], 2, "FILES"),
        (&["fmt", "no-such"], 2, "no-such"),
        (&["fmt", &broken], 1, "broken.vyre:1"),
    ]);
    // Formatting works on the text: a program that does not validate is formatted all the same.
    bench.check_input(&["fmt", "-"], INVALID, 0);
}
