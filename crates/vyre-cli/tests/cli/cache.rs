use crate::{Bench, example, finished};

fn with_tables() -> Bench {
    let bench = Bench::new();
    for folder in [".config/vyre", ".cache/vyre/tuner"] {
        std::fs::create_dir_all(bench.path(folder)).expect("a folder");
    }
    bench.file(".config/vyre/pgo.toml", "");
    bench.file(".config/vyre/pgo.toml.corrupt-1", "?");
    bench.file(".cache/vyre/tuner/adapter.toml", "key = [64, 1, 1]\n");
    bench
}

#[test]
fn nothing_is_kept_at_first() {
    let bench = Bench::new();
    assert_eq!(bench.check(&["cache", "ls"], 0).0, "nothing has been saved yet\n");
    assert_eq!(bench.check(&["cache", "verify"], 0).0, "nothing has been saved yet\n");
    assert_eq!(bench.check(&["cache", "clear"], 0).0, "nothing to remove\n");
}

#[test]
fn files_are_listed_and_removed() {
    let bench = with_tables();
    let json = bench.json(&["cache", "ls", "--json"], 0);
    let kinds: Vec<&str> =
        json.as_array().expect("a list").iter().filter_map(|file| file["kind"].as_str()).collect();
    assert_eq!(kinds, ["routes", "set-aside", "tuner"]);
    assert_eq!(json[2]["rows"], 1);
    let (out, _) = bench.check(&["cache", "ls"], 0);
    assert!(out.contains("damaged, no longer used") && out.contains("1 rows"), "{out}");
    bench.check(&["cache", "clear", "tuner", "set-aside"], 0);
    assert!(!bench.path(".cache/vyre/tuner/adapter.toml").exists());
    assert!(bench.path(".config/vyre/pgo.toml").exists());
    assert_eq!(bench.json(&["cache", "clear", "--json"], 0)["removed"].as_array().map(Vec::len), Some(1));
}

#[test]
fn damage_is_found() {
    let bench = with_tables();
    bench.file(".cache/vyre/tuner/adapter.toml", "key = [0]\n");
    let (out, _) = bench.check(&["cache", "verify"], 1);
    assert!(out.contains("not readable") && out.contains("key"), "{out}");
    let json = bench.json(&["cache", "verify", "--json"], 1);
    assert!(json[2]["error"].as_str().is_some_and(|error| error.contains("key")), "{json}");
    bench.refuses(&[(&["cache"], 2, "Usage"), (&["cache", "clear", "nonsense"], 2, "nonsense")]);
}

#[test]
fn what_was_learnt_travels() {
    let (here, there) = (with_tables(), Bench::new());
    let bundle = here.name("tables.bundle");
    here.check(&["certify", &example("saxpy.vyre"), "--backend", "cpu", "--sizes", "16"], 0);
    let (out, _) = here.check(&["cache", "export", &bundle, "--origin", "the lab"], 0);
    assert!(out.starts_with("1 routes, 0 certificates, 1 tuned shapes written to "), "{out}");
    assert!(!here.path("tables.bundle.lock").exists(), "a bundle is nobody's table");
    here.refuses(&[(&["cache", "export", &here.name("no/such/folder/tables.bundle")], 2, "no/such/folder")]);
    assert!(!here.path("no").exists());
    let json = there.json(&["cache", "import", &bundle, "--json"], 0);
    assert_eq!((&json["origin"], &json["routes"], &json["tuned"]), (&"the lab".into(), &1.into(), &1.into()));
    let report = there.json(&["report", "--json"], 0);
    assert!(report["routes"][0]["op"].as_str().is_some_and(|op| op.starts_with("saxpy@")), "{report}");
    assert_eq!(report["tuner"][0]["shape"]["workgroup_size"], serde_json::json!([64, 1, 1]));
    let broken = there.file("broken.bundle", "not [ a bundle");
    there.refuses(&[
        (&["cache", "import", &broken], 2, "malformed"),
        (&["cache", "import", "no-such.bundle"], 2, "no-such.bundle"),
    ]);
}

#[test]
fn a_folder_that_the_user_named_keeps_the_users_files() {
    let bench = Bench::new();
    let mine =
        ["photo.png", "tuner/notes.toml", "a/b/c/deep.bin"].map(|name| bench.path("tables").join(name));
    for path in &mine {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, vec![0; 1 << 20]).expect("written");
    }
    let arguments = ["run", &example("saxpy.vyre")];
    let mut command = bench.command(&arguments);
    command.env("VYRE_TABLES", bench.path("tables")).env("VYRE_CACHE_LIMIT", "0");
    finished(command.output().expect("it runs"), &arguments, 0);
    assert!(bench.path("tables/hints.toml").exists(), "it did keep its tables there");
    assert_eq!(mine.iter().find(|path| !path.exists()), None);
}

#[cfg(unix)]
#[test]
fn links_that_lead_in_a_circle_are_found() {
    let bench = Bench::new();
    let tables = bench.path("tables");
    std::fs::create_dir(&tables).expect("a folder");
    std::os::unix::fs::symlink(tables.join("pgo.toml"), tables.join("pgo.toml")).expect("a link");
    let arguments = ["cache", "verify"];
    let mut command = bench.command(&arguments);
    command.env("VYRE_TABLES", &tables);
    let (out, _) = finished(command.output().expect("it runs"), &arguments, 1);
    assert!(out.contains("pgo.toml"), "{out}");
}

#[test]
fn the_hit_rate_of_compiled_programs_is_shown() {
    let bench = Bench::new();
    let (out, _) = bench.check(&["cache", "stats", "--alarm", "100"], 0);
    assert_eq!(out, "compiled programs in 0 runs: 0 hits, 0 misses, no rate yet\n");
    for runs in 1..=2 {
        bench.check(&["run", &example("saxpy.vyre")], 0);
        let json = bench.json(&["cache", "stats", "--json"], 0);
        let misses = json["misses"].as_u64().expect("a number");
        assert!(json["runs"] == runs && misses >= runs && json["below_alarm"] == false, "{json}");
    }
    let (out, _) = bench.check(&["cache", "stats", "--alarm", "100"], 1);
    assert!(out.starts_with("compiled programs in 2 runs: ") && out.ends_with(", below 100%\n"), "{out}");
    bench.check(&["cache", "clear", "compiles"], 0);
    assert_eq!(bench.json(&["cache", "stats", "--json"], 0)["runs"], 0);
    bench.refuses(&[(&["cache", "stats", "--alarm", "101"], 2, "101")]);
}
