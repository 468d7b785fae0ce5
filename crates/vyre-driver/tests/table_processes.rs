//! Tables shared by processes that save concurrently, are killed, run out of disk space, or have no
//! home directory.
//!
//! The binary starts further processes of itself; `VYRE_TABLE_CHILD` holds their task.
//! `VYRE_STRESS=full` runs the full counts instead of those that suit an ordinary test run.

use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vyre_driver::pgo::{PgoTable, RouteDecision, default_pgo_path};
use vyre_driver::tables::TableError;
use vyre_driver::tuner::{Mode, Tuner, TunerCache};

const CHILD: &str = "VYRE_TABLE_CHILD";

/// Rows per process: few, so that files stay small and rows are replaced often.
const SLOTS: u64 = 32;

/// Which table is under test.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Routes,
    Decisions,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Routes => "routes",
            Kind::Decisions => "decisions",
        }
    }
}

fn main() {
    if let Ok(task) = std::env::var(CHILD) {
        return child(&task);
    }
    let test = |name: &str, run: fn() -> Result<(), Failed>| Trial::test(name, run);
    let tests = vec![
        test("routes_saved_by_many_processes_are_all_there", || many_processes(Kind::Routes)),
        test("decisions_saved_by_many_processes_are_all_there", || many_processes(Kind::Decisions)),
        test("killed_processes_lose_nothing_that_was_saved", killed_processes),
        test("a_full_disk_loses_nothing", full_disk),
        test("paths_follow_the_environment", environment),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

/// The first count in an ordinary run, the second with `VYRE_STRESS=full`.
fn count(ordinary: u64, full: u64) -> u64 {
    let is_full = std::env::var_os("VYRE_STRESS").is_some_and(|value| value == "full");
    if is_full { full } else { ordinary }
}

/// A command that starts this binary on a task, whose words are separated by spaces.
fn process(task: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.env(CHILD, task).current_dir(folder);
    command
}

fn child(task: &str) {
    let words: Vec<&str> = task.split(' ').collect();
    match words[..] {
        ["save", kind, process, first, saves] => {
            let kind = if kind == Kind::Routes.name() { Kind::Routes } else { Kind::Decisions };
            let numbers = number(first)..number(first).saturating_add(number(saves));
            save_repeatedly(kind, number(process), numbers);
        }
        ["fill"] => fill_the_disk(),
        ["show"] => show_paths(),
        _ => panic!("unknown task {task}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn key(process: u64, number: u64) -> String {
    format!("process {process} slot {}", number % SLOTS)
}

/// Saves one row per number, and prints each number after its save has returned.
fn save_repeatedly(kind: Kind, process: u64, numbers: std::ops::Range<u64>) {
    let mut cache = TunerCache::default();
    let mut output = std::io::stdout();
    for number in numbers {
        match kind {
            Kind::Routes => one_route(key(process, number), number).save(Path::new("table.toml")),
            Kind::Decisions => {
                cache.set(key(process, number), [number as u32, 1, 1]);
                cache.save(Path::new("table.toml"))
            }
        }
        .expect("saved");
        // The parent stops reading when it ends this process.
        if writeln!(output, "{number}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

fn one_route(key: String, number: u64) -> PgoTable {
    let row =
        RouteDecision { backend: number.to_string(), certified_at_ns: number, ..RouteDecision::default() };
    PgoTable { routes: [(key, row)].into(), ..PgoTable::default() }
}

/// The number in the row of each key.
fn saved(kind: Kind, path: &Path, keys: &[String]) -> Vec<Option<u64>> {
    match kind {
        Kind::Routes => {
            let table = PgoTable::load(path).expect("the file loads");
            keys.iter().map(|key| table.fastest_backend(key).map(number)).collect()
        }
        Kind::Decisions => {
            let cache = TunerCache::load(path).expect("the file loads");
            keys.iter().map(|key| cache.get(key).map(|[number, _, _]| u64::from(number))).collect()
        }
    }
}

fn many_processes(kind: Kind) -> Result<(), Failed> {
    let (processes, saves) = (count(4, 8), count(60, 1_000));
    let folder = tempfile::tempdir()?;
    let start = Instant::now();
    let children: Vec<Child> = (0..processes)
        .map(|k| {
            let task = format!("save {} {k} 1 {saves}", kind.name());
            process(&task, folder.path()).stdout(Stdio::null()).spawn()
        })
        .collect::<Result<_, _>>()?;
    for mut child in children {
        assert!(child.wait()?.success());
    }
    println!("{}: {processes} processes x {saves} saves in {:.1?}", kind.name(), start.elapsed());
    for process in 0..processes {
        let last: Vec<u64> = (saves.saturating_sub(SLOTS) + 1..=saves).collect();
        let keys: Vec<String> = last.iter().map(|&number| key(process, number)).collect();
        let expected: Vec<Option<u64>> = last.iter().copied().map(Some).collect();
        assert_eq!(saved(kind, &folder.path().join("table.toml"), &keys), expected, "process {process}");
    }
    assert!(!folder.path().join("table.toml.corrupt-1").exists());
    Ok(())
}

fn killed_processes() -> Result<(), Failed> {
    let kills = count(24, 200);
    let folder = tempfile::tempdir()?;
    let mut draw = 0x5eed_u64;
    let (mut torn, mut saves) = (0, 0);
    let mut acknowledged: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    let mut next = 1;
    for kill in 0..kills {
        let kind = if kill % 2 == 0 { Kind::Routes } else { Kind::Decisions };
        let place = folder.path().join(kind.name());
        fs::create_dir_all(&place)?;
        let reported = run_and_kill(kind, &place, next, &mut draw)?;
        saves += reported.len();
        for number in reported {
            acknowledged.insert((kind.name(), number % SLOTS), number);
            next = next.max(number + 2);
        }
        torn +=
            u64::from(place.join("table.toml.tmp").exists() || place.join("table.toml.samples.tmp").exists());
        for (&(name, slot), &number) in &acknowledged {
            let found =
                (name == kind.name()).then(|| saved(kind, &place.join("table.toml"), &[key(0, slot)]));
            let intact = found.is_none_or(|found| found[0] >= Some(number));
            assert!(intact, "{name}: {number} was saved and is lost after kill {kill}");
        }
    }
    println!("{kills} kills, {torn} of them in the middle of writing, {saves} saves before them");
    Ok(())
}

/// Starts a process that saves endlessly, kills it at a random moment, and returns the numbers
/// whose saves returned.
fn run_and_kill(kind: Kind, folder: &Path, first: u64, draw: &mut u64) -> Result<Vec<u64>, Failed> {
    let mut random = |limit: u64| {
        *draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*draw >> 33) % limit
    };
    let task = format!("save {} 0 {first} {}", kind.name(), u64::MAX);
    let mut child = process(&task, folder).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("the pipe was asked for")).lines();
    let mut reported = Vec::new();
    for _ in 0..=random(6) {
        reported.push(number(&lines.next().expect("the process saves")?));
    }
    // A save takes some milliseconds; the kill hits anywhere within one.
    let moment = Instant::now() + Duration::from_micros(random(8_000));
    while Instant::now() < moment {
        std::thread::yield_now();
    }
    child.kill()?;
    child.wait()?;
    for line in lines {
        reported.push(number(&line?));
    }
    Ok(reported)
}

fn full_disk() -> Result<(), Failed> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("table.toml");
    let small = one_route("small".into(), 1);
    small.save(&path)?;
    // A file size limit that raises an error instead of a signal behaves like a full disk.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\""]).arg(std::env::current_exe()?);
    let output = shell.env(CHILD, "fill").current_dir(folder.path()).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(PgoTable::load(&path)?, small);
    let left: Vec<_> =
        fs::read_dir(folder.path())?.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left.len(), 2, "the table and its lock, nothing else: {left:?}");
    Ok(())
}

fn fill_the_disk() {
    let large = one_route("x".repeat(1 << 20), 2);
    let error = large.save(Path::new("table.toml")).expect_err("there is no room");
    assert!(matches!(error, TableError::System { .. }), "{error}");
}

fn environment() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let check = |variables: &[(&str, &Path)], expected: [Option<&str>; 2]| {
        let mut command = process("show", folder.path());
        // Only these are cleared: the loader needs the rest to start the process.
        for variable in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "VYRE_AUTOTUNER"] {
            command.env_remove(variable);
        }
        let output = command.envs(variables.iter().copied()).output().expect("the process runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8(output.stdout).expect("text");
        let [routes, decisions] = expected
            .map(|path| path.map_or("none".into(), |path| folder.path().join(path).display().to_string()));
        let mode =
            if variables.iter().any(|(name, _)| *name == "VYRE_AUTOTUNER") { "On" } else { "OffUseDefault" };
        assert_eq!(shown, format!("{routes}\n{decisions}\n{mode}\n[7, 1, 1]\n"), "{variables:?}");
    };
    let (home, config, cache) =
        (folder.path().join("home"), folder.path().join("config"), folder.path().join("cache"));
    check(&[], [None, None]);
    check(&[("HOME", &home)], [Some("home/.config/vyre/pgo.toml"), Some("home/.cache/vyre/tuner")]);
    check(
        &[
            ("HOME", &home),
            ("XDG_CONFIG_HOME", &config),
            ("XDG_CACHE_HOME", &cache),
            ("VYRE_AUTOTUNER", "oN".as_ref()),
        ],
        [Some("config/vyre/pgo.toml"), Some("cache/vyre/tuner")],
    );
    check(
        &[("HOME", &home), ("XDG_CONFIG_HOME", "".as_ref()), ("XDG_CACHE_HOME", "relative".as_ref())],
        [Some("home/.config/vyre/pgo.toml"), Some("home/.cache/vyre/tuner")],
    );
    Ok(())
}

/// Prints the table paths, the mode, and a decision saved to disk and loaded again if there is a
/// place for it.
fn show_paths() {
    let show =
        |path: Option<&Path>| println!("{}", path.map_or("none".into(), |path| path.display().to_string()));
    show(default_pgo_path().as_deref());
    let tuner = Tuner::new("adapter", Mode::On);
    show(tuner.path().and_then(Path::parent));
    assert_eq!(tuner.path(), Tuner::cache_path_for_adapter("adapter").as_deref());
    println!("{:?}", Mode::from_env());
    tuner.record_decision("key", [7, 1, 1]);
    tuner.persist().expect("kept, or in memory only");
    let next = if tuner.path().is_some() { Tuner::new("adapter", Mode::On) } else { tuner };
    println!("{:?}", next.resolve("key"));
}
