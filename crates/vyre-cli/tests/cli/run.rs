use crate::{Bench, INVALID, example};

const TRAP: &str = "kernel t(y: output u32[1]) { region \"t\" { trap 7 } }";
const TWICE: &str = "kernel twice(x: read f32[], y: output f32[] len_of x) over [3, 2] workgroup [2, 2] {
  region \"twice\" {
    let i = invocation.y * 3 + invocation.x
    y[i] = x[i] * 2.0
  }
}
";

#[test]
fn inputs_come_from_the_command_line_and_the_file() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let given = ["run", &saxpy, "--in", "a=3", "--in", "x=1,2,nan", "--in", "y=[0.5, -0.0, 1]"];
    assert_eq!(bench.check(&given, 0), ("y: f32[3] = [3.5, 6.0, nan]\n".into(), String::new()));
    let (out, _) = bench.check(&["run", &saxpy], 0);
    assert_eq!(out, "y: f32[5] = [12.0, 24.0, nan, -0.0, inf]\n");
    let random = ["run", &saxpy, "--in", "x=rand:f32:1K", "--in", "y=zeros:1K"];
    let (out, _) = bench.check(&random, 0);
    assert!(out.starts_with("y: f32[1024] = [") && out.contains(" …\n  smallest -"), "{out}");
    assert_eq!(out, bench.check(&random, 0).0);
    let seeded = [&random[..], &["--seed", "1"]].concat();
    assert_ne!(out, bench.check(&seeded, 0).0);
    let (out, _) = bench.check(&["run", &saxpy, "--in", "x=iota:20", "--in", "y=ones:f32:20", "--full"], 0);
    assert!(out.ends_with("37.0, 39.0]\n"), "{out}");
}

#[test]
fn domains_and_constants_come_from_the_command_line() {
    let bench = Bench::new();
    let text = "const N: u32 = 2
kernel fill(w: u32 uniform, h: u32 uniform, y: output u32[w * h]) over [w, h] {
  region \"fill\" { y[invocation.y * w + invocation.x] = N }
}
";
    let file = bench.file("fill.vyre", text);
    let given = ["run", &file, "--in", "w=3", "--in", "h=2"];
    let check = |more: &[&str], expected: &str| {
        let (out, _) = bench.check(&[&given[..], more].concat(), 0);
        assert_eq!(out, expected);
    };
    check(&[], "y: u32[6] = [2, 2, 2, 2, 2, 2]\n");
    check(&["--set", "N=7"], "y: u32[6] = [7, 7, 7, 7, 7, 7]\n");
    check(&["--domain", "2x1"], "y: u32[6] = [2, 2, 0, 0, 0, 0]\n");
    let (_, faults) = bench.check(&[&given[..], &["--set", "M=7"]].concat(), 3);
    assert!(faults.contains("T010") && faults.contains("it has: N"), "{faults}");
}

#[test]
fn every_backend_gives_what_the_examples_say() {
    let bench = Bench::new();
    let devices = bench.json(&["devices", "--json"], 0);
    let ids: Vec<&str> =
        devices.as_array().expect("a list").iter().filter_map(|device| device["id"].as_str()).collect();
    assert!(ids.contains(&"cpu-ref"), "{ids:?}");
    for name in ["saxpy", "reduce", "histogram", "black_scholes"] {
        let file = example(&format!("{name}.vyre"));
        let text = std::fs::read_to_string(&file).expect("an example");
        let line = text.lines().find_map(|line| line.strip_prefix("// output ")).expect("an output line");
        for device in devices.as_array().expect("a list") {
            let id = device["id"].as_str().expect("an id");
            if device["state"] == "refused" && id != "cpu-ref" {
                println!("SKIP {name} on {id}: {}", device["reason"]);
                continue;
            }
            let (out, _) = bench.check(&["run", &file, "--backend", id, "--full"], 0);
            let (head, values) = out.trim_end().split_once(" = ").expect("an output");
            let (expected_head, expected) = line.split_once(" = ").expect("an output");
            assert!(head.starts_with(expected_head), "{name} on {id}: {out}");
            if device["strict"] != false {
                assert_eq!(values, expected, "{name} on {id}");
            }
        }
    }
}

#[test]
fn arrays_of_numpy_go_in_and_out() {
    let bench = Bench::new();
    let twice = bench.file("twice.vyre", TWICE);
    let (array, raw, picture) = (bench.name("y.npy"), bench.name("y.bin"), bench.name("y.png"));
    let outs = [format!("y={array}"), raw.clone(), format!("y={picture}")];
    let base = ["run", &twice, "--in", "x=0..6"];
    let (out, _) =
        bench.check(&[&base[..], &["--out", &outs[0], "--out", &outs[1], "--out", &outs[2]]].concat(), 0);
    assert_eq!(out.lines().filter(|line| line.starts_with("y: f32[6] written to ")).count(), 3, "{out}");
    let expected: Vec<u8> = (0..6).flat_map(|k| (2.0 * k as f32).to_le_bytes()).collect();
    assert_eq!(std::fs::read(&raw).expect("written"), expected);
    let npy = std::fs::read(&array).expect("written");
    assert!(String::from_utf8_lossy(&npy).contains("'shape': (2, 3)") && npy.ends_with(&expected));
    assert!(std::fs::read(&picture).expect("written").starts_with(b"\x89PNG"));
    for input in [format!("x={array}"), format!("x=@{raw}"), format!("x=@{array}")] {
        let (out, _) = bench.check(&["run", &twice, "--in", &input], 0);
        assert_eq!(out, "y: f32[6] = [0.0, 4.0, 8.0, 12.0, 16.0, 20.0]\n");
    }
    let json = bench.json(&[&base[..], &["--out", &outs[0], "--json"]].concat(), 0);
    assert_eq!(json["outputs"][0]["files"], serde_json::json!([array]));
    assert_eq!(json["outputs"][0].get("values"), None);
}

#[test]
fn the_picture_of_the_readme() {
    let bench = Bench::new();
    let picture = bench.name("mandelbrot.png");
    let (out, _) = bench.check(&["run", &example("mandelbrot.vyre"), "--out", &picture], 0);
    assert_eq!(out, format!("shade: f32[960000] written to {picture}\n"));
    let bytes = std::fs::read(&picture).expect("written");
    // Width and height are the first fields of the first chunk of the PNG.
    assert_eq!(bytes.get(16..24), Some(&[0, 0, 0x04, 0xB0, 0, 0, 0x03, 0x20][..]));
}

#[test]
fn json() {
    let bench = Bench::new();
    let json = bench.json(&["run", &example("saxpy.vyre"), "--backend", "cpu-ref", "--json"], 0);
    assert_eq!(json["backend"], "cpu-ref");
    let output = &json["outputs"][0];
    assert_eq!(output["values"], serde_json::json!([12.0, 24.0, "nan", -0.0, "inf"]));
    assert_eq!((output["length"].as_u64(), output["nan"].as_u64()), (Some(5), Some(1)));
    assert!(json["dispatch_ns"].as_u64() > Some(0));
}

#[test]
fn the_sanitizer_finds_races() {
    let bench = Bench::new();
    let racy = bench
        .file("racy.vyre", "kernel r(y: output u32[1]) over 8 {\n  region \"r\" { y[0] = invocation.x }\n}");
    let (out, err) = bench.check(&["run", &racy, "--sanitize"], 1);
    assert!(
        out.ends_with(": faults found: 1\n") && err.contains("data race in kernel `r`: `y[0]`"),
        "{out}{err}"
    );
    let json = bench.json(&["run", &racy, "--sanitize", "--json"], 1);
    assert_eq!((&json[0]["fault"], &json[0]["line"]), (&"data race".into(), &2.into()));
    let (out, _) = bench.check(&["run", &example("saxpy.vyre"), "--sanitize"], 0);
    assert!(out.ends_with(": faults found: 0\n"), "{out}");
}

#[test]
fn explanations_and_traces() {
    let bench = Bench::new();
    let trace = bench.name("trace.json");
    let (out, _) = bench.check(&["run", &example("saxpy.vyre"), "--explain", "--trace", &trace], 0);
    assert!(out.contains("\nbackend   cpu") && out.contains("\nshape     grid [1, 1, 1]"), "{out}");
    let text = std::fs::read_to_string(&trace).expect("written");
    let events: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    let names: Vec<&str> =
        events.as_array().expect("a list").iter().filter_map(|event| event["name"].as_str()).collect();
    assert!(names.contains(&"vyre.compile") && names.contains(&"vyre.dispatch"), "{names:?}");
}

#[test]
fn it_says_whose_fault_it_is() {
    let bench = Bench::new();
    let (saxpy, mandelbrot) = (example("saxpy.vyre"), example("mandelbrot.vyre"));
    let (trap, invalid) = (bench.file("trap.vyre", TRAP), bench.file("invalid.vyre", INVALID));
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }";
    let length = [header.len() as u8, 0];
    let doubles = bench.file("d.npy", [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat());
    let (doubles, broken) = (format!("x={doubles}"), format!("x={}", bench.file("b.npy", b"\x93NUMPY\x01")));
    let binary = bench.file("binary.vyre", [0xFF, 0xFE]);
    let torn = bench.file("torn.vyre", b"VYRE\x01torn");
    bench.refuses(&[
        (&["run", "no-such-file.vyre"], 2, "no-such-file.vyre"),
        (&["run", &saxpy, "--in", "q=1"], 2, "a, x, y"),
        (&["run", &saxpy, "--in", "x=oops"], 2, "`oops` is not a value of f32"),
        (&["run", &saxpy, "--in", "x"], 2, "name=data"),
        (&["run", &saxpy, "--in", &doubles], 2, "astype(\"float32\")"),
        (&["run", &saxpy, "--in", &broken], 2, "ends within its header"),
        (&["run", &saxpy, "--backend", "nope"], 2, "cpu-ref"),
        (&["run", &saxpy, "--timeout=-1"], 2, "--timeout"),
        (&["run", &saxpy, "--workgroup", "0"], 2, "every axis must be at least 1"),
        (&["run", &saxpy, "--out", "z=z.npy"], 2, "`z` is not an output"),
        (&["run", &saxpy, "--out", "y.png"], 2, "--shape"),
        (&["run", &saxpy, "--out", "y.png", "--shape", "2x2"], 2, "do not make a picture"),
        (&["run", &saxpy, "--out", "/no/such/folder/y.npy"], 2, "/no/such/folder"),
        (&["run", &saxpy, "--trace", "/no/such/folder/t.json"], 2, "/no/such/folder"),
        (&["run", &mandelbrot, "--shape", "9"], 2, "640x480"),
        (&["run", &saxpy, "--in", "a=1,2"], 3, "D002"),
        (&["run", &invalid], 3, "invalid.vyre:2:23"),
        (&["run", &binary], 2, "neither text nor wire bytes"),
        (&["run", &torn], 3, "torn.vyre"),
        (&["run", &trap], 4, "error[E007]: kernel `t` trapped with code 7"),
        (&["run", &trap, "--sanitize"], 4, "7"),
    ]);
}
