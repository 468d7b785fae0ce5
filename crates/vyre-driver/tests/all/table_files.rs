//! Tables on disk: saved rows load again whatever is already there, and nothing that is there is
//! lost.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::{Certificate, CertificateKey, CertificateTable};
use vyre_driver::hints_file::{load_hints, save_hints};
use vyre_driver::pgo::{BackendIdentity, BackendLatency, PgoTable, RejectedBackend, RouteDecision};
use vyre_driver::storage::Storage;
use vyre_driver::tables::TableError;
use vyre_driver::tuner::{CandidateSamples, Mode, Shape, Tuner, TunerCache};
use vyre_foundation::hints::HotPathHints;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

fn route(backend: &str, certified_at_ns: u64) -> RouteDecision {
    RouteDecision { backend: backend.into(), certified_at_ns, ..RouteDecision::default() }
}

fn routes<'a>(rows: impl IntoIterator<Item = (&'a str, RouteDecision)>) -> PgoTable {
    let rows = rows.into_iter().map(|(op_id, row)| (op_id.to_owned(), row));
    PgoTable { routes: rows.collect(), ..PgoTable::default() }
}

/// Sorted names of the files in the folder, without lock files.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let names =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"));
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}

/// Generates text, numbers and tables from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn text(&mut self) -> String {
        let awkward = "\"'\\\n\r\t\0\u{1}\u{7f}\u{85}\u{feff}\u{2028}=[]{}#.,-é日🦀\u{10ffff} a1";
        let awkward: Vec<char> = awkward.chars().collect();
        (0..self.below(6)).map(|_| awkward[self.below(awkward.len() as u64) as usize]).collect()
    }

    fn number(&mut self) -> u64 {
        [0, 1, self.0 >> 40, i64::MAX as u64][self.below(4) as usize]
    }

    fn route(&mut self) -> RouteDecision {
        let latency = |draw: &mut Draw| BackendLatency { backend: draw.text(), latency_ns: draw.number() };
        let rejected = |draw: &mut Draw| RejectedBackend { backend: draw.text(), reason: draw.text() };
        let identity = |draw: &mut Draw| BackendIdentity {
            backend: draw.text(),
            device: draw.text(),
            driver: draw.text(),
        };
        RouteDecision {
            backend: self.text(),
            observations: (0..self.below(3)).map(|_| latency(self)).collect(),
            rejected: (0..self.below(3)).map(|_| rejected(self)).collect(),
            verified: self.below(2) == 0,
            fingerprint: self.text(),
            size_bucket: (self.below(2) == 0).then(|| self.below(64) as u32),
            device: self.text(),
            driver: self.text(),
            identities: (0..self.below(3)).map(|_| identity(self)).collect(),
            compiler_version: self.text(),
            origin: self.text(),
            certified_at_ns: self.number(),
        }
    }

    fn routes(&mut self) -> PgoTable {
        PgoTable {
            routes: (0..self.below(30)).map(|_| (self.text(), self.route())).collect(),
            routes_by_size: (0..self.below(10))
                .map(|_| (self.text(), (1..self.below(4) as u32).map(|k| (k, self.route())).collect()))
                .collect(),
        }
    }

    fn decisions(&mut self) -> TunerCache {
        let mut cache = TunerCache::default();
        for _ in 0..self.below(30) {
            let size = [1, 64, u32::MAX].map(|size| size - self.below(2) as u32 * u32::from(size > 1));
            cache.set(self.text(), size);
            let samples_ns = (0..self.below(4)).map(|_| self.number()).collect();
            cache.set_samples(
                self.text(),
                vec![CandidateSamples {
                    workgroup_size: size,
                    elements_per_invocation: (self.below(2) == 0).then_some(4),
                    quarantined: (self.below(2) == 0).then(|| self.text()),
                    samples_ns,
                }],
            );
        }
        cache
    }
}

#[test]
fn what_is_saved_is_loaded_whatever_the_names() {
    let folder = folder();
    // Few tables with many rows: flushing to disk dominates the time.
    for seed in 0..30 {
        let mut draw = Draw(seed);
        let path = folder.path().join(format!("{seed}/pgo.toml"));
        let table = draw.routes();
        table.save(&path).unwrap();
        assert_eq!(PgoTable::load(&path).unwrap(), table, "seed {seed}");

        let path = folder.path().join(format!("{seed}/tuner.toml"));
        let cache = draw.decisions();
        cache.save(&path).unwrap();
        assert_eq!(TunerCache::load(&path).unwrap(), cache, "seed {seed}");
    }
}

#[test]
fn numbers_that_toml_lacks_saturate() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    let slow = BackendLatency { backend: "slow".into(), latency_ns: u64::MAX };
    routes([("op", RouteDecision { observations: vec![slow], ..route("slow", u64::MAX) })])
        .save(path)
        .unwrap();
    let row = &PgoTable::load(path).unwrap().routes["op"];
    assert_eq!((row.observations[0].latency_ns, row.certified_at_ns), (i64::MAX as u64, i64::MAX as u64));
}

#[test]
fn a_missing_file_is_an_empty_table() {
    let folder = folder();
    let path = folder.path().join("no/such/file.toml");
    assert_eq!(PgoTable::load(&path).unwrap(), PgoTable::default());
    assert_eq!(TunerCache::load(&path).unwrap(), TunerCache::default());
    load_hints(&HotPathHints::default(), &path).unwrap();
    assert!(names_in(folder.path()).is_empty(), "loading makes nothing");
}

#[test]
fn saving_merges_and_the_newest_row_wins() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    routes([("a", route("old", 5)), ("b", route("newer", 9)), ("c", route("here", 1))]).save(path).unwrap();
    routes([("a", route("new", 6)), ("b", route("older", 8)), ("d", route("there", 1))]).save(path).unwrap();
    routes([("d", route("last of equals", 1))]).save(path).unwrap();
    let merged = [
        ("a", route("new", 6)),
        ("b", route("newer", 9)),
        ("c", route("here", 1)),
        ("d", route("last of equals", 1)),
    ];
    assert_eq!(PgoTable::load(path).unwrap(), routes(merged));
    let sized = |bucket: u32, row: RouteDecision| PgoTable {
        routes_by_size: [("op".to_owned(), [(bucket, row)].into())].into(),
        ..PgoTable::default()
    };
    sized(3, route("three", 1)).save(path).unwrap();
    sized(4, route("four", 1)).save(path).unwrap();
    assert_eq!(PgoTable::load(path).unwrap().routes_by_size["op"].len(), 2);
}

#[test]
fn tuning_decisions_merge_by_when_they_were_taken() {
    let folder = folder();
    let path = &folder.path().join("tuner.toml");
    let (mut first, mut second) = (TunerCache::default(), TunerCache::default());
    first.set("both", [1, 1, 1]);
    first.set("first", [2, 1, 1]);
    second.set("both", [3, 1, 1]);
    second.set("second", [4, 1, 1]);
    second.save(path).unwrap();
    first.save(path).unwrap();
    let merged = TunerCache::load(path).unwrap();
    assert_eq!(
        ["both", "first", "second"].map(|key| merged.get(key)),
        [Some([3, 1, 1]), Some([2, 1, 1]), Some([4, 1, 1])]
    );
    // A decision made on top of a loaded one is newer, whatever the clock says.
    let mut next = merged;
    next.set("both", [5, 1, 1]);
    next.save(path).unwrap();
    assert_eq!(TunerCache::load(path).unwrap().get("both"), Some([5, 1, 1]));
}

#[test]
fn threads_do_not_lose_each_others_rows() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for save in 0..8 {
                    routes([(format!("{thread}.{save}").as_str(), route("a", 1))]).save(path).unwrap();
                }
            });
        }
    });
    assert_eq!(PgoTable::load(path).unwrap().routes.len(), 64);
}

#[test]
fn tuning_decisions_are_one_line_each() {
    let folder = folder();
    let path = &folder.path().join("tuner.toml");
    let mut cache = TunerCache::default();
    cache.set("b", [64, 1, 1]);
    cache.set("a \"quoted\"\n", [8, 8, 1]);
    cache.save(path).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let expected =
        "# vyre tuner decisions, schema 1\n\"a \\\"quoted\\\"\\u000A\" = [8, 8, 1]\n\"b\" = [64, 1, 1]\n";
    assert_eq!(text, expected);
    fs::remove_file(path).unwrap();
    fs::write(path, "written = [1, 2, 3]\n'by hand' = [4, 5, 6]\n").unwrap();
    assert_eq!(TunerCache::load(path).unwrap().get("by hand"), Some([4, 5, 6]));
}

/// Loading fails with a message that contains all of `words`; saving keeps `text` in a file beside
/// it.
fn check_corrupt(text: &[u8], words: &[&str]) {
    let folder = folder();
    let path = &folder.path().join("tuner.toml");
    fs::write(path, text).unwrap();
    let error = TunerCache::load(path).unwrap_err().to_string();
    let path_text = path.display().to_string();
    assert!(words.iter().chain([&path_text.as_str()]).all(|word| error.contains(word)), "{error}");
    assert_eq!(fs::read(path).unwrap(), text, "loading leaves the file alone");

    let mut cache = TunerCache::default();
    cache.set("good", [64, 1, 1]);
    cache.save(path).unwrap();
    assert_eq!(TunerCache::load(path).unwrap(), cache);
    assert_eq!(fs::read(folder.path().join("tuner.toml.corrupt-1")).unwrap(), text);
    fs::write(path, text).unwrap();
    cache.save(path).unwrap();
    assert_eq!(fs::read(folder.path().join("tuner.toml.corrupt-2")).unwrap(), text);
    let kept = ["tuner.toml", "tuner.toml.corrupt-1", "tuner.toml.corrupt-2", "tuner.toml.samples"];
    assert_eq!(names_in(folder.path()), kept);
}

#[test]
fn corrupt_files_are_refused_when_loading_and_set_aside_when_saving() {
    check_corrupt(b"torn = [64, 1", &["malformed"]);
    check_corrupt(b"good = [1, 1, 1]\n\"zero size\" = [64, 0, 1]", &["\"zero size\"", "[64, 0, 1]"]);
    check_corrupt(b"short = [64]", &["\"short\""]);
    check_corrupt(b"\xff\xfe", &["utf-8"]);
    check_corrupt(b"\0\0\0\0", &["malformed"]);
    check_corrupt("[".repeat(100_000).as_bytes(), &["malformed"]);
    check_corrupt(format!("deep = {}", "[".repeat(100_000)).as_bytes(), &["malformed"]);
}

#[test]
fn damaged_files_load_or_are_refused() {
    let folder = folder();
    let (pgo, tuner) = (folder.path().join("pgo.toml"), folder.path().join("tuner.toml"));
    let mut draw = Draw(7);
    draw.routes().save(&pgo).unwrap();
    draw.decisions().save(&tuner).unwrap();
    let intact = [&pgo, &tuner].map(|path| fs::read(path).unwrap());
    let mut refused = 0;
    for _ in 0..1_000 {
        for (path, intact) in [&pgo, &tuner].into_iter().zip(&intact) {
            let mut damaged = intact.clone();
            damaged.truncate(1 + draw.below(intact.len() as u64) as usize);
            let place = draw.below(damaged.len() as u64) as usize;
            damaged[place] = draw.below(256) as u8;
            fs::write(path, damaged).unwrap();
        }
        refused += u32::from(PgoTable::load(&pgo).is_err()) + u32::from(TunerCache::load(&tuner).is_err());
    }
    assert!(refused > 500, "damage is seen: {refused} of 2000");
}

#[test]
fn routes_that_are_not_routes_are_not_overwritten() {
    for text in ["[package]\nname = \"somebody's own file\"", "routes = 5", "[routes.op]\nbackend = \"only\""]
    {
        let folder = folder();
        let path = &folder.path().join("pgo.toml");
        fs::write(path, text).unwrap();
        let error = PgoTable::load(path).unwrap_err();
        assert!(matches!(error, TableError::Malformed { .. }), "{error}");
        routes([("op", route("a", 1))]).save(path).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("pgo.toml.corrupt-1")).unwrap(), text);
    }
}

#[test]
fn corrupt_samples_do_not_take_the_decisions_with_them() {
    let folder = folder();
    let path = &folder.path().join("tuner.toml");
    let mut cache = TunerCache::default();
    cache.set("kept", [64, 1, 1]);
    cache.save(path).unwrap();
    let samples = folder.path().join("tuner.toml.samples");
    fs::write(&samples, "kept = 7").unwrap();
    let error = TunerCache::load(path).unwrap_err().to_string();
    assert!(error.contains("tuner.toml.samples") && error.contains("\"kept\""), "{error}");
    let tuner = Tuner::at(path, Mode::On);
    assert_eq!(tuner.resolve("kept"), [64, 1, 1]);
    assert!(folder.path().join("tuner.toml.samples.corrupt-1").exists());
}

fn certificate(device: &str, certified_at_ns: u64) -> Certificate {
    let key = CertificateKey { device: device.into(), ..CertificateKey::default() };
    Certificate { key, certified_at_ns, ..Certificate::default() }
}

fn hints_of(regions: &[&str]) -> HotPathHints {
    let hints = HotPathHints::with_capacity(64);
    regions.iter().for_each(|region| hints.record(region, 1, 1));
    hints
}

fn regions_in(path: &Path) -> Vec<String> {
    let hints = HotPathHints::with_capacity(64);
    load_hints(&hints, path).unwrap();
    hints.records().into_iter().map(|(region, _)| region).collect()
}

fn decided(key: &str, x: u32) -> TunerCache {
    let mut cache = TunerCache::default();
    cache.set(key, [x, 1, 1]);
    cache
}

fn shape(x: u32) -> Shape {
    Shape { workgroup_size: [x, 1, 1], elements_per_invocation: 1 }
}

/// A kind of table: its file name, its name in the first line, and how to add a row and count rows.
type Kind = (&'static str, &'static str, fn(&Path, &str), fn(&Path) -> usize);

const KINDS: [Kind; 4] = [
    (
        "pgo.toml",
        "routes",
        |path, name| routes([(name, route("a", 5))]).save(path).unwrap(),
        |path| PgoTable::load(path).unwrap().routes.len(),
    ),
    (
        "certificates.toml",
        "certificates",
        |path, name| CertificateTable { certificates: vec![certificate(name, 5)] }.save(path).unwrap(),
        |path| CertificateTable::load(path).unwrap().certificates.len(),
    ),
    (
        "hints.toml",
        "hints",
        |path, name| save_hints(&hints_of(&[name]), path).unwrap(),
        |path| regions_in(path).len(),
    ),
    (
        "tuner.toml.samples",
        "tuner samples",
        |path, name| decided(name, 8).save(&path.with_extension("")).unwrap(),
        |path| TunerCache::load(&path.with_extension("")).unwrap().keys().count(),
    ),
];

#[test]
fn a_newer_versions_table_and_this_ones_are_both_kept() {
    for (file, kind, add, count) in KINDS {
        let folder = folder();
        let path = &folder.path().join(file);
        let newer = format!("# vyre {kind}, schema 3\n[future]\n");
        fs::write(path, &newer).unwrap();
        assert_eq!(count(path), 0, "{kind}");
        add(path, "one");
        add(path, "two");
        assert_eq!(count(path), 2, "{kind}: what is learnt beside a newer table is kept");
        assert_eq!(fs::read_to_string(path).unwrap(), newer, "{kind}: the newer table is left alone");
        let own = if kind == "routes" { 2 } else { 1 };
        assert!(folder.path().join(format!("{file}.schema-{own}")).exists(), "{kind}");
    }
}

#[test]
fn rows_with_fields_of_another_version_are_rows() {
    for (file, kind, add, count) in KINDS {
        let folder = folder();
        let path = &folder.path().join(file);
        add(path, "one");
        let field = if kind == "certificates" { "certified_at_ns" } else { "_at_ns" };
        let text = fs::read_to_string(path).unwrap();
        let (start, end) = text.split_once(field).unwrap();
        let line = start.rfind('\n').unwrap();
        fs::write(
            path,
            format!("{}\nfield_of_a_later_day = [1]{}{field}{end}", &start[..line], &start[line..]),
        )
        .unwrap();
        assert_eq!(count(path), 1, "{kind}");
        add(path, "two");
        assert_eq!(count(path), 2, "{kind}");
        assert!(names_in(folder.path()).iter().all(|name| !name.contains("corrupt")), "{kind}");
    }
}

#[test]
fn a_full_table_drops_its_oldest_rows() {
    let folder = folder();
    // Ten of the twelve rows fit.
    let names: Vec<String> = (1..=12).map(|k| format!("{k} {}", "x".repeat(3 << 20))).collect();
    let (first, last) = (names[0].as_str(), names[11].as_str());
    let numbered = || names.iter().map(String::as_str).zip(1..);

    let path = &folder.path().join("pgo.toml");
    routes(numbered().map(|(name, k)| (name, route("a", k)))).save(path).unwrap();
    let kept = PgoTable::load(path).unwrap().routes;
    assert!(kept.contains_key(last) && !kept.contains_key(first) && kept.len() > 5, "{}", kept.len());

    let path = &folder.path().join("certificates.toml");
    CertificateTable { certificates: numbered().map(|(name, k)| certificate(name, k)).collect() }
        .save(path)
        .unwrap();
    let kept = CertificateTable::load(path).unwrap();
    let has = |name: &str| kept.get(&certificate(name, 0).key).is_some();
    assert!(has(last) && !has(first));

    let path = &folder.path().join("hints.toml");
    save_hints(&hints_of(&names.iter().map(String::as_str).collect::<Vec<_>>()), path).unwrap();
    let kept = regions_in(path);
    assert!(kept.iter().any(|region| region == last) && kept.iter().all(|region| region != first));

    let path = &folder.path().join("tuner.toml");
    let mut cache = TunerCache::default();
    names.iter().for_each(|name| cache.set(name, [8, 1, 1]));
    cache.save(path).unwrap();
    let kept = TunerCache::load(path).unwrap();
    assert!(kept.get(last).is_some() && kept.get(first).is_none());
    assert!(kept.keys().all(|key| kept.decided_at_ns(key) > 0), "decisions go with their samples");
}

/// A table of routes that is large enough for rows to be appended.
fn large_table(path: &Path) -> PgoTable {
    let names: Vec<String> = (0..2000).map(|k| format!("op {k} {}", "x".repeat(100))).collect();
    let table = routes(names.iter().map(|name| (name.as_str(), route("a", 5))));
    table.save(path).unwrap();
    table
}

#[test]
fn rows_are_added_at_the_end_of_a_large_table() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    let mut expected = large_table(path);
    let written = fs::read(path).unwrap();
    // Names that contain line ends and the row separator; a row that replaces an older one.
    for name in ["one", "two\n\u{1e} 1 x\n", "three", "one"] {
        let rows = routes([(name, route("b", 7 + expected.routes.len() as u64))]);
        rows.save(path).unwrap();
        expected.merge(&rows);
        assert_eq!(PgoTable::load(path).unwrap(), expected, "{name:?}");
        assert!(fs::read(path).unwrap().starts_with(&written), "{name:?} was added at the end");
    }
    // A part left by a killed process is skipped wherever it was cut off, and the next part counts.
    let whole = fs::read(path).unwrap();
    let last = whole.iter().rposition(|&byte| byte == 0x1e).unwrap();
    for end in (last..whole.len()).step_by(16) {
        fs::write(path, &whole[..end]).unwrap();
        let mut found = PgoTable::load(path).unwrap();
        assert_eq!(found.routes.len(), expected.routes.len(), "`one` was there before");
        let rows = routes([("next", route("c", 9))]);
        rows.save(path).unwrap();
        found.merge(&rows);
        assert_eq!(PgoTable::load(path).unwrap(), found, "cut off at {end}");
    }
    // When the appended parts reach a quarter of the table, they are merged into it.
    fs::write(path, &whole).unwrap();
    for k in 0..600 {
        let name = format!("more {k} {}", "y".repeat(100));
        let rows = routes([(name.as_str(), route("b", 9))]);
        rows.save(path).unwrap();
        expected.merge(&rows);
    }
    assert_eq!(PgoTable::load(path).unwrap(), expected);
    assert!(!fs::read(path).unwrap().starts_with(&written));
    assert_eq!(names_in(folder.path()), ["pgo.toml"]);
}

#[test]
fn a_changed_large_table_is_never_added_to() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    let table = large_table(path);
    routes([("one", route("b", 7))]).save(path).unwrap();
    let whole = fs::read(path).unwrap();
    let last = whole.iter().rposition(|&byte| byte == 0x1e).unwrap();
    // In the original rows, and in the appended part.
    for at in [whole.len() / 2, whole.len() - 3, last + 1, last + 6] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(path, &changed).unwrap();
        routes([("two", route("b", 8))]).save(path).unwrap();
        let kept = PgoTable::load(path).unwrap().routes;
        assert!(kept.contains_key("two"), "changed at {at}");
    }
    // Manually edited rows are kept as edited.
    let mut by_hand = table.clone();
    by_hand.routes.pop_first();
    let text = format!("# vyre routes, schema 2\n{}", toml::to_string(&by_hand).unwrap());
    fs::write(path, text).unwrap();
    let rows = routes([("two", route("b", 8))]);
    rows.save(path).unwrap();
    by_hand.merge(&rows);
    assert_eq!(PgoTable::load(path).unwrap(), by_hand);
}

#[test]
fn rows_ahead_of_the_clock_do_not_keep_newer_ones_out() {
    let folder = folder();
    let ahead = i64::MAX;
    let path = &folder.path().join("tuner.toml");
    fs::write(path, "key = [4, 1, 1]\n").unwrap();
    fs::write(folder.path().join("tuner.toml.samples"), format!("[key]\nchanged_at_ns = {ahead}\n")).unwrap();
    decided("key", 8).save(path).unwrap();
    assert_eq!(TunerCache::load(path).unwrap().get("key"), Some([8, 1, 1]));

    let path = &folder.path().join("certificates.toml");
    CertificateTable { certificates: vec![certificate("x", ahead as u64)] }.save(path).unwrap();
    let newer = Certificate { failure: Some("it lies now".into()), ..certificate("x", 5) };
    CertificateTable { certificates: vec![newer.clone()] }.save(path).unwrap();
    assert_eq!(CertificateTable::load(path).unwrap().certificates, [newer]);

    let path = &folder.path().join("hints.toml");
    let row = format!(
        "dispatch_count = 1\nkernel_ns_total = 1\nkernel_ns_max = 1\nbytes_total = 1\nsaved_at_ns = {ahead}"
    );
    fs::write(path, format!("[b]\n{row}\n")).unwrap();
    save_hints(&hints_of(&["c", "a"]), path).unwrap();
    assert_eq!(regions_in(path), ["b", "c", "a"], "the last to be recorded are the newest");
}

#[test]
fn quarantines_do_not_touch_decisions() {
    let folder = folder();
    let path = &folder.path().join("tuner.toml");
    decided("key", 4).save(path).unwrap();
    // One process tunes again while another, which loaded the first decision, finds that its shape
    // fails.
    let (mut tuning, mut failing) = (TunerCache::load(path).unwrap(), TunerCache::load(path).unwrap());
    tuning.set("key", [8, 1, 1]);
    tuning.save(path).unwrap();
    failing.quarantine("key", shape(4), "it failed");
    failing.save(path).unwrap();
    let both = TunerCache::load(path).unwrap();
    assert_eq!(both.get("key"), Some([8, 1, 1]), "the newer decision stays");
    assert!(both.is_quarantined("key", shape(4)) && !both.is_quarantined("key", shape(8)));
    // The tuning process does not know of the failure, and its saves do not undo it.
    tuning.set_samples(
        "key",
        vec![CandidateSamples { workgroup_size: [4, 1, 1], ..CandidateSamples::default() }],
    );
    tuning.save(path).unwrap();
    assert!(TunerCache::load(path).unwrap().is_quarantined("key", shape(4)));
}

#[test]
fn bundles_carry_decisions_with_their_time() {
    let folder = folder();
    let places = Storage::in_folder(folder.path());
    let path = &folder.path().join("tuner/adapter.toml");
    let bundle_of = |cache: &TunerCache| {
        let mut bundle = Bundle::new("here");
        bundle.add_tuned("adapter.toml", cache);
        let file = folder.path().join("tables.bundle");
        bundle.save(&file).unwrap();
        Bundle::load(&file).unwrap()
    };
    let mut cache = decided("key", 4);
    let older = bundle_of(&cache);
    cache.set("key", [8, 1, 1]);
    cache.save(path).unwrap();
    let size = || TunerCache::load(path).unwrap().get("key");
    assert!(places.import(&older).is_empty());
    assert_eq!(size(), Some([8, 1, 1]), "an older bundle replaces nothing");
    cache.set("key", [16, 1, 1]);
    assert!(places.import(&bundle_of(&cache)).is_empty());
    assert_eq!(size(), Some([16, 1, 1]), "a newer one does");

    let untimed = "origin = \"\"\ncompiler_version = \"\"\ncreated_at_ns = 1\n\
                   [tuned.\"adapter.toml\".key]\nworkgroup_size = [2, 1, 1]\nelements_per_invocation = 1\n\
                   [tuned.\"hand.toml\".key]\nworkgroup_size = [2, 1, 1]\nelements_per_invocation = 1\n\
                   [tuned.\"adapter.toml\".other]\nworkgroup_size = [2, 1, 1]\nelements_per_invocation = 4\n";
    let file = folder.path().join("old.bundle");
    fs::write(&file, untimed).unwrap();
    let by_hand = folder.path().join("tuner/hand.toml");
    fs::write(&by_hand, "key = [32, 1, 1]\n").unwrap();
    assert!(places.import(&Bundle::load(&file).unwrap()).is_empty());
    assert_eq!(size(), Some([16, 1, 1]), "decisions without a time are the oldest");
    assert_eq!(TunerCache::load(&by_hand).unwrap().get("key"), Some([32, 1, 1]), "older than what is here");
    let other = TunerCache::load(path).unwrap().shape("other");
    assert_eq!(other, Some(Shape { elements_per_invocation: 4, ..shape(2) }));

    cache.quarantine("key", shape(16), "it failed");
    assert_eq!(bundle_of(&cache).tuned["adapter.toml"].len(), 0, "what failed does not travel");
}

#[test]
fn a_huge_file_is_not_read() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    let file = fs::File::create(path).unwrap();
    file.set_len(1 << 40).unwrap();
    drop(file);
    assert!(matches!(PgoTable::load(path).unwrap_err(), TableError::TooLarge { .. }));
    routes([("op", route("a", 1))]).save(path).unwrap();
    assert_eq!(names_in(folder.path()), ["pgo.toml", "pgo.toml.corrupt-1"]);
}

#[test]
fn a_table_too_large_to_be_loaded_is_not_saved() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    let small = routes([("op", route("a", 1))]);
    small.save(path).unwrap();
    let large = routes([("large", route(&"x".repeat(33 << 20), 2))]);
    assert!(matches!(large.save(path).unwrap_err(), TableError::TooLarge { .. }));
    assert_eq!(PgoTable::load(path).unwrap(), small);
    assert_eq!(names_in(folder.path()), ["pgo.toml"]);
}

#[test]
fn a_folder_or_a_file_in_the_way_is_an_error() {
    let folder = folder();
    let (in_the_way, below_file) = (folder.path().join("folder.toml"), folder.path().join("file/pgo.toml"));
    fs::create_dir(&in_the_way).unwrap();
    fs::write(folder.path().join("file"), "a file").unwrap();
    let table = routes([("op", route("a", 1))]);
    for path in [&in_the_way, &below_file, Path::new("/"), Path::new("a\0b")] {
        for result in [PgoTable::load(path).map(|_| ()), table.save(path)] {
            let error = result.expect_err("there is no file here");
            assert!(matches!(error, TableError::System { .. }), "{error}");
        }
    }
    assert!(matches!(table.save(Path::new("")).unwrap_err(), TableError::System { .. }));
    let tuner = Tuner::at(&in_the_way, Mode::On);
    tuner.record_decision("kept", [8, 1, 1]);
    assert_eq!(tuner.resolve("kept"), [8, 1, 1]);
    assert!(tuner.persist().is_err());
    assert_eq!(names_in(folder.path()), ["file", "folder.toml"]);
}

#[test]
fn a_failed_save_leaves_the_table_and_nothing_else() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    let table = routes([("op", route("a", 1))]);
    table.save(path).unwrap();
    // A non-empty folder at the path of the temporary file cannot be replaced.
    fs::create_dir_all(folder.path().join("pgo.toml.tmp/full")).unwrap();
    let error = routes([("other", route("b", 1))]).save(path).unwrap_err();
    assert!(error.to_string().contains("pgo.toml.tmp"), "{error}");
    assert_eq!(PgoTable::load(path).unwrap(), table);
}

#[test]
fn what_a_killed_process_left_is_replaced() {
    let folder = folder();
    let path = &folder.path().join("pgo.toml");
    fs::write(folder.path().join("pgo.toml.tmp"), "half a ta").unwrap();
    routes([("op", route("a", 1))]).save(path).unwrap();
    assert_eq!(names_in(folder.path()), ["pgo.toml"]);
}

#[test]
fn names_of_any_length_work() {
    let folder = folder();
    let path = folder.path().join("n".repeat(255));
    let table = routes([("op", route("a", 1))]);
    table.save(&path).unwrap();
    assert_eq!(PgoTable::load(&path).unwrap(), table);
    let too_long = folder.path().join("n".repeat(256));
    assert!(table.save(&too_long).is_err() && PgoTable::load(&too_long).is_err());
    let deep: PathBuf = folder.path().join("d/".repeat(100_000)).join("pgo.toml");
    assert!(table.save(&deep).is_err());
}

#[test]
fn a_tuner_keeps_its_decisions_and_sets_a_bad_file_aside() {
    let folder = folder();
    let path = folder.path().join("new/tuner.toml");
    let tuner = Tuner::at(&path, Mode::OffUseDefault);
    assert_eq!((tuner.mode(), tuner.path()), (Mode::OffUseDefault, Some(path.as_path())));
    tuner.record_decision("a", [128, 1, 1]);
    let samples = vec![CandidateSamples {
        workgroup_size: [128, 1, 1],
        samples_ns: vec![3, u64::MAX],
        ..CandidateSamples::default()
    }];
    tuner.record_samples("a", samples);
    assert!(!path.exists());
    tuner.persist().unwrap();
    let next = Tuner::at(&path, Mode::On);
    assert_eq!((next.resolve("a"), next.resolve("b")), ([128, 1, 1], Tuner::default_workgroup_size()));
    assert_eq!(TunerCache::load(&path).unwrap().samples("a")[0].samples_ns, [3, i64::MAX as u64]);

    fs::write(&path, "a = [0, 0, 0]").unwrap();
    let fresh = Tuner::at(&path, Mode::On);
    assert_eq!(fresh.resolve("a"), Tuner::default_workgroup_size());
    let names = names_in(&folder.path().join("new"));
    assert_eq!(names, ["tuner.toml.corrupt-1", "tuner.toml.samples"]);
}

#[test]
fn hints_serve_the_next_run() {
    let folder = folder();
    let path = folder.path().join("hints.toml");
    let hints = HotPathHints::with_capacity(8);
    for region in ["c", "\"quoted\"\n\0", "", "a"] {
        hints.record(region, 200_000, 8);
    }
    save_hints(&hints, &path).unwrap();
    let other = HotPathHints::with_capacity(8);
    other.record("elsewhere", 5, 5);
    other.record("c", 1, 1);
    save_hints(&other, &path).unwrap();

    let next = HotPathHints::with_capacity(8);
    load_hints(&next, &path).unwrap();
    let regions: Vec<String> = next.records().into_iter().map(|(region, _)| region).collect();
    assert_eq!(regions, ["\"quoted\"\n\0", "", "a", "elsewhere", "c"], "in the order of recording");
    assert_eq!((next.dispatch_count("c"), next.mean_kernel_ns("c")), (1, 1), "the last to save is believed");
    assert!(next.is_hot("a"));

    fs::write(&path, "a = { dispatch_count = -1 }").unwrap();
    assert!(load_hints(&next, &path).is_err());
    save_hints(&hints, &path).unwrap();
    assert_eq!(names_in(folder.path()), ["hints.toml", "hints.toml.corrupt-1"]);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::process::Command;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_that_others_could_have_written_is_neither_read_nor_replaced() {
        let folder = folder();
        let path = &folder.path().join("pgo.toml");
        let table = routes([("op", route("a", 1))]);
        table.save(path).unwrap();
        assert_eq!(mode_of(path), 0o600);
        let check_refused = |words: &str| {
            let before = fs::read(path).unwrap();
            let other = routes([("other", route("b", 1))]);
            for error in [PgoTable::load(path).unwrap_err(), other.save(path).unwrap_err()] {
                assert!(matches!(error, TableError::Untrusted { .. }), "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
            assert_eq!(fs::read(path).unwrap(), before);
        };
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            check_refused(&format!("{mode:o}"));
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(PgoTable::load(path).unwrap(), table);
        // Only root can change a file's owner; other users skip this.
        if fs::metadata(path).unwrap().uid() == 0 {
            chown(path, Some(12_345), None).unwrap();
            check_refused("12345");
        }
    }

    #[test]
    fn a_link_is_followed_and_stays() {
        let folder = folder();
        let (real, link) = (folder.path().join("real/tuner.toml"), folder.path().join("link.toml"));
        let mut cache = TunerCache::default();
        cache.set("a", [1, 1, 1]);
        cache.save(&real).unwrap();
        symlink(&real, &link).unwrap();
        cache.set("b", [2, 1, 1]);
        cache.save(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(TunerCache::load(&real).unwrap(), cache);
        assert_eq!(TunerCache::load(&link).unwrap(), cache);
        assert_eq!(names_in(folder.path()), ["link.toml", "real"]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_not_replaced() {
        let folder = folder();
        let link = folder.path().join("link.toml");
        symlink("nowhere", &link).unwrap();
        assert_eq!(PgoTable::load(&link).unwrap(), PgoTable::default());
        assert!(PgoTable::default().save(&link).unwrap_err().to_string().contains("link"));
        assert_eq!(names_in(folder.path()), ["link.toml"]);
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_its_writer() {
        let folder = folder();
        let path = folder.path().join("pgo.toml");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = PgoTable::load(&path).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = PgoTable::default().save(Path::new("/proc/vyre/pgo.toml")).unwrap_err();
        assert!(
            matches!(error, TableError::System { .. }) && error.to_string().contains("/proc/vyre"),
            "{error}"
        );
    }
}
