use crate::{Bench, INVALID, example};

#[test]
fn every_target() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let mut cases = vec![("text", "kernel saxpy("), ("vir", "store y["), ("opencl", "__kernel")];
    cases.extend([("cuda", "__global__ void"), ("hip", "__attribute__((global")]);
    if cfg!(feature = "cpu") {
        cases.push(("vector", "lanes "));
    }
    if cfg!(feature = "wgpu") {
        cases.push(("wgsl", "@compute"));
    }
    for (target, expected) in cases {
        let (out, _) = bench.check(&["emit", &saxpy, "--target", target], 0);
        assert!(out.contains(expected), "{target}: {out}");
        let json = bench.json(&["emit", &saxpy, "--target", target, "--json"], 0);
        assert_eq!((&json["target"], json["text"].as_str()), (&target.into(), Some(out.as_str())));
    }
}

#[test]
#[cfg(feature = "cpu")]
fn machine_code_has_the_regions_beside_it() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let (out, _) = bench.check(&["emit", &saxpy, "--target", "asm"], 0);
    let beside: Vec<&str> = out.lines().filter_map(|line| Some(line.split_once("; ")?.1)).collect();
    assert_eq!(beside.first(), Some(&"(around the kernel)"), "{out}");
    assert!(beside.contains(&"blas.saxpy"), "{out}");
}

#[test]
fn wire_bytes_run() {
    let bench = Bench::new();
    let wire = bench.name("saxpy.bin");
    bench.check(&["emit", &example("saxpy.vyre"), "--target", "wire", "--out", &wire], 0);
    let (out, _) = bench.check(&["run", &wire, "--in", "a=1", "--in", "x=1,2", "--in", "y=3,4"], 0);
    assert_eq!(out, "y: f32[2] = [4.0, 6.0]\n");
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let (saxpy, invalid) = (example("saxpy.vyre"), bench.file("invalid.vyre", INVALID));
    let reduce = example("reduce.vyre");
    let lanes = "kernel l(y: output u32[4]) workgroup 4 { region \"r\" { y[local.x] = subgroup_lane() } }";
    let lanes = bench.file("lanes.vyre", lanes);
    bench.refuses(&[
        (&["emit", &saxpy], 2, "--target"),
        (&["emit", &saxpy, "--target", "cobol"], 2, "cobol"),
        (&["emit", "no-such", "--target", "vir"], 2, "no-such"),
        (&["emit", &invalid, "--target", "vir"], 3, "V001"),
        (&["emit", &reduce, "--target", "opencl", "--workgroup", "16"], 3, "[8, 1, 1]"),
        (&["emit", &lanes, "--target", "hip"], 3, "no subgroup ops"),
        (&["emit", &saxpy, "--target", "vir", "--out", "/no/such/folder/x"], 2, "/no/such/folder"),
    ]);
}
