//! Certification and lookup of routes, with backends that count, return wrong results, fail and
//! panic.

use std::collections::BTreeSet;
use std::sync::Mutex;
use vyre_driver::pgo::{
    BackendIdentity, BackendLatency, MAX_ROWS, PGO_TIMED_ITERS, PgoTable, RejectedBackend, RouteDecision,
    dispatch_elements, row_key, size_bucket,
};
use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Domain, Expr, Node, Program, SubgroupOp};

/// Behaviour of a backend when it is called.
#[derive(Clone, Copy)]
enum Does {
    /// Returns its inputs.
    Echoes,
    /// Returns its inputs with the first bit of the last one flipped, from the given call on.
    LiesFrom(usize),
    Fails,
    Panics,
    GivesNothing,
}

struct Toy<'log> {
    id: &'static str,
    does: Does,
    subgroup_size: u32,
    log: &'log Mutex<Vec<&'static str>>,
}

impl<'log> Toy<'log> {
    fn new(id: &'static str, does: Does, log: &'log Mutex<Vec<&'static str>>) -> Toy<'log> {
        Toy { id, does, subgroup_size: 0, log }
    }
}

impl VyreBackend for Toy<'_> {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        panic!("certification must not copy inputs");
    }

    fn dispatch_borrowed(
        &self,
        _: &Program,
        inputs: &[&[u8]],
        _: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let calls = {
            let mut log = self.log.lock().unwrap();
            log.push(self.id);
            log.iter().filter(|&&id| id == self.id).count()
        };
        let mut outputs: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
        match self.does {
            Does::Echoes => {}
            Does::LiesFrom(call) => {
                let first = outputs.last_mut().and_then(|output| output.first_mut());
                if let Some(first) = first.filter(|_| calls >= call) {
                    *first ^= 1;
                }
            }
            Does::Fails => return Err(BackendError::new("out of order")),
            Does::Panics => panic!("all is lost"),
            Does::GivesNothing => outputs.clear(),
        }
        Ok(outputs)
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile {
            device_name: "Toy 3000",
            driver_version: "1.2",
            subgroup_size: self.subgroup_size,
            ..DeviceProfile::conservative(self.id)
        }
    }
}

/// One `f32` element out for each one in.
fn copy_program() -> Program {
    let x = BufferDecl::read("x", 0, DataType::F32);
    let y = BufferDecl::output("y", 1, DataType::F32).with_len_of("x");
    let i = Expr::invocation_id(0);
    Program::wrapped(vec![x, y], [64, 1, 1], vec![Node::store("y", i.clone(), Expr::load("x", i))])
}

fn certify_on<'t>(
    table: &'t mut PgoTable,
    backends: &[&dyn VyreBackend],
) -> Result<&'t RouteDecision, BackendError> {
    table.certify_op("op", &copy_program(), &[vec![0; 64]], &DispatchConfig::default(), backends)
}

fn verify_on<'t>(
    table: &'t mut PgoTable,
    oracle: &dyn VyreBackend,
    backends: &[&dyn VyreBackend],
) -> Result<&'t RouteDecision, BackendError> {
    table.certify_op_verified(
        oracle,
        "op",
        &copy_program(),
        &[&[0; 64]],
        &DispatchConfig::default(),
        backends,
    )
}

#[test]
fn every_backend_runs_once_per_round_on_borrowed_inputs() {
    let log = Mutex::default();
    let [a, b, c] = ["a", "b", "c"].map(|id| Toy::new(id, Does::Echoes, &log));
    let mut table = PgoTable::default();
    let route = certify_on(&mut table, &[&a, &b, &c]).unwrap();
    assert_eq!(route.observations.len(), 3);
    assert!(!route.verified && route.rejected.is_empty());
    let calls = log.lock().unwrap();
    assert_eq!(calls.len(), 3 * (1 + PGO_TIMED_ITERS));
    for round in calls.chunks(3) {
        assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "b", "c"]));
    }
}

#[test]
fn a_row_says_what_it_is_valid_for() {
    let log = Mutex::default();
    let mut table = PgoTable::default();
    let route = certify_on(&mut table, &[&Toy::new("a", Does::Echoes, &log)]).unwrap().clone();
    let fingerprint: String = copy_program().fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(route.fingerprint, fingerprint);
    assert_eq!(route.size_bucket, Some(4), "16 elements");
    assert_eq!((route.device.as_str(), route.driver.as_str()), ("Toy 3000", "1.2"));
    assert_eq!(route.compiler_version, vyre_driver::pipeline::COMPILER_VERSION);
    let again = certify_on(&mut table, &[&Toy::new("b", Does::Echoes, &log)]).unwrap();
    assert!(again.certified_at_ns > route.certified_at_ns);
    assert_eq!(table.fastest_backend("op"), Some("b"));
    let key = row_key("op", &fingerprint);
    assert_eq!(key, format!("op@{}", &fingerprint[..16]));
    assert_eq!((table.routes.len(), table.routes_by_size[&key].len()), (1, 1));
}

#[test]
fn failing_backends_are_listed_and_do_not_stop_the_others() {
    let log = Mutex::default();
    let [fails, panics, works] = [("fails", Does::Fails), ("panics", Does::Panics), ("works", Does::Echoes)]
        .map(|(id, does)| Toy::new(id, does, &log));
    let mut table = PgoTable::default();
    let route = certify_on(&mut table, &[&fails, &panics, &works]).unwrap();
    assert_eq!(route.backend, "works");
    let rejected: Vec<(&str, &str)> =
        route.rejected.iter().map(|rejected| (rejected.backend.as_str(), rejected.reason.as_str())).collect();
    assert_eq!(
        rejected,
        [("fails", "out of order"), ("panics", "dispatch on `panics` failed: it panicked: all is lost")]
    );
    let calls = log.lock().unwrap();
    assert_eq!(calls.iter().filter(|&&id| id == "fails").count(), 1, "not called again");
}

#[test]
fn an_error_leaves_the_table_as_it_was() {
    let log = Mutex::default();
    let good = Toy::new("good", Does::Echoes, &log);
    let [fails, panics] =
        [("fails", Does::Fails), ("panics", Does::Panics)].map(|(id, does)| Toy::new(id, does, &log));
    let mut table = PgoTable::default();
    certify_on(&mut table, &[&good]).unwrap();
    let before = table.clone();
    let mut check = |backends: &[&dyn VyreBackend], expected: &[&str]| {
        let error = certify_on(&mut table, backends).unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        assert_eq!(table, before);
    };
    check(&[], &["`op`", "without backends"]);
    check(&[&fails, &panics], &["`op`", "fails: out of order", "panics: ", "all is lost"]);
    check(&[&good, &good], &["`op`", "`good`"]);
    let error = verify_on(&mut table, &fails, &[&good]).unwrap_err();
    assert_eq!((error.to_string().as_str(), &table), ("out of order", &before));
    verify_on(&mut table, &panics, &[&good]).unwrap_err();
    assert_eq!(table, before);
}

#[test]
fn a_wrong_backend_is_rejected_whatever_its_speed() {
    let check = |does: Does, reason: &str| {
        let log = Mutex::default();
        let [oracle, right, wrong] = [("oracle", Does::Echoes), ("right", Does::Echoes), ("wrong", does)]
            .map(|(id, does)| Toy::new(id, does, &log));
        let mut table = PgoTable::default();
        let route = verify_on(&mut table, &oracle, &[&wrong, &right]).unwrap();
        assert_eq!((route.backend.as_str(), route.verified, route.observations.len()), ("right", true, 1));
        assert_eq!(
            (route.rejected[0].backend.as_str(), route.rejected[0].reason.as_str()),
            ("wrong", reason)
        );
        verify_on(&mut table, &oracle, &[&wrong]).unwrap_err();
        let calls = log.lock().unwrap();
        assert_eq!(calls.iter().filter(|&&id| id == "oracle").count(), 2, "once per certification");
    };
    let difference = "`y[0]` has bits 0x00000001, the oracle's 0x00000000";
    check(Does::LiesFrom(1), difference);
    check(Does::LiesFrom(1 + PGO_TIMED_ITERS), difference);
    check(Does::GivesNothing, "it returned 0 outputs, the oracle 1");
    check(Does::Fails, "out of order");
}

#[test]
fn a_budget_forgives_the_last_places_of_floats() {
    let log = Mutex::default();
    let (oracle, near) = (Toy::new("oracle", Does::Echoes, &log), Toy::new("near", Does::LiesFrom(1), &log));
    let input = [0, 0, 0x80, 0x3F].repeat(16);
    let certify = |ulp_budget: Option<u8>| {
        let config = DispatchConfig { ulp_budget, ..DispatchConfig::default() };
        let mut table = PgoTable::default();
        table.certify_op_verified(&oracle, "op", &copy_program(), &[&input], &config, &[&near]).map(|_| ())
    };
    assert!(certify(None).is_err() && certify(Some(0)).is_err());
    assert_eq!(certify(Some(1)), Ok(()));
}

#[test]
fn sizes_have_routes_of_their_own() {
    let log = Mutex::default();
    let [small, large] = ["small", "large"].map(|id| Toy::new(id, Does::Echoes, &log));
    let mut table = PgoTable::default();
    let config = DispatchConfig::default();
    table.certify_op("op", &copy_program(), &[vec![0; 4 * 100]], &config, &[&small]).unwrap();
    table.certify_op("op", &copy_program(), &[vec![0; 4 * 5000]], &config, &[&large]).unwrap();
    for (elements, expected) in [
        (64, Some("small")),
        (127, Some("small")),
        (63, None),
        (128, None),
        (4096, Some("large")),
        (8191, Some("large")),
        (0, None),
        (u64::MAX, None),
    ] {
        assert_eq!(table.fastest_backend_for("op", elements), expected, "{elements} elements");
    }
    assert_eq!(table.fastest_backend("op"), Some("large"));
    assert_eq!(table.fastest_backend_for("other", 64), None);
    assert_eq!(table.fastest_backend("other"), None);
}

/// Two programs with one name: the plain name has the latest, and each program has its own rows.
#[test]
fn programs_of_one_name_do_not_overwrite_each_other() {
    let log = Mutex::default();
    let [first, second] = ["first", "second"].map(|id| Toy::new(id, Does::Echoes, &log));
    let (one, other) = (copy_program(), copy_program().with_domain(Domain::Counts([16, 1, 1])));
    let (mut table, config) = (PgoTable::default(), DispatchConfig::default());
    for (program, backend) in [(&one, &first), (&other, &second)] {
        table.certify_op("op", program, &[vec![0; 64]], &config, &[backend]).unwrap();
    }
    assert_eq!((table.routes.len(), table.routes_by_size.len()), (1, 2));
    assert_eq!(table.fastest_backend("op"), Some("second"));
    assert_eq!(table.fastest_backend_for("op", 16), Some("second"), "the latest");
    assert_eq!(table.fastest_backend_for("o", 16), None);
}

#[test]
fn a_row_without_a_size_holds_for_every_size() {
    let row = RouteDecision {
        backend: "any".into(),
        observations: vec![BackendLatency { backend: "any".into(), latency_ns: 3 }],
        ..RouteDecision::default()
    };
    let table = PgoTable { routes: [("op".to_owned(), row)].into(), ..PgoTable::default() };
    assert_eq!(table.fastest_backend_for("op", 1), Some("any"));
    assert_eq!(table.fastest_backend_for("op", u64::MAX), Some("any"));
}

#[test]
fn elements_are_the_domain_or_the_whole_grid() {
    let config = DispatchConfig::default();
    let elements = |program: &Program, bytes: usize, config: &DispatchConfig| {
        dispatch_elements(program, &[&vec![0; bytes]], config)
    };
    assert_eq!(elements(&copy_program(), 400, &config), Some(100));
    assert_eq!(elements(&copy_program(), 401, &config), None);
    assert_eq!(elements(&Program::new(vec![], [0, 0, 0], vec![]), 4, &config), None);
    let cube = copy_program().with_domain(Domain::Counts([10, 10, 10]));
    assert_eq!(elements(&cube, 400, &config), Some(1000));
    let gridded = DispatchConfig { grid_override: Some([3, 1, 1]), ..config };
    assert_eq!(elements(&copy_program(), 400, &gridded), Some(192));
    assert_eq!([0, 1, 2, 3, 4, u64::MAX].map(size_bucket), [0, 0, 1, 1, 2, 63]);
}

/// An oracle that outputs the requested subgroup size.
struct SubgroupOracle;

impl VyreBackend for SubgroupOracle {
    fn id(&self) -> &'static str {
        "oracle"
    }

    fn dispatch(
        &self,
        _: &Program,
        _: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        Ok(vec![config.subgroup_size.unwrap_or(0).to_le_bytes().to_vec()])
    }
}

/// A backend that outputs its own subgroup size.
struct Lanes(&'static str, u32);

impl VyreBackend for Lanes {
    fn id(&self) -> &'static str {
        self.0
    }

    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        Ok(vec![self.1.to_le_bytes().to_vec()])
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { subgroup_size: self.1, ..DeviceProfile::conservative(self.0) }
    }
}

#[test]
fn the_oracle_runs_with_each_backends_subgroup_size() {
    let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
    let size = Expr::subgroup(SubgroupOp::Size, []);
    let program = Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), size)]);
    let mut table = PgoTable::default();
    let backends: [&dyn VyreBackend; 2] = [&Lanes("narrow", 4), &Lanes("wide", 32)];
    let config = DispatchConfig::default();
    let route = table.certify_op_verified(&SubgroupOracle, "op", &program, &[], &config, &backends).unwrap();
    assert_eq!((route.observations.len(), route.rejected.len()), (2, 0), "{route:?}");
}

/// One backend's entry in a row: `(backend, driver, latency or rejection)`.
type Said<'a> = (&'a str, &'a str, Result<u64, &'a str>);

fn row(certified_at_ns: u64, said: &[Said<'_>]) -> RouteDecision {
    let mut row = RouteDecision {
        verified: true,
        fingerprint: "f1".into(),
        compiler_version: "1".into(),
        certified_at_ns,
        ..RouteDecision::default()
    };
    for &(backend, driver, outcome) in said {
        let (backend, device, driver) = (backend.to_owned(), "Toy 3000".to_owned(), driver.to_owned());
        match outcome {
            Ok(latency_ns) => row.observations.push(BackendLatency { backend: backend.clone(), latency_ns }),
            Err(reason) => {
                row.rejected.push(RejectedBackend { backend: backend.clone(), reason: reason.into() });
            }
        }
        row.identities.push(BackendIdentity { backend, device, driver });
    }
    row.backend = row.observations.first().map_or(String::new(), |seen| seen.backend.clone());
    row
}

fn sized(row: RouteDecision) -> PgoTable {
    PgoTable { routes_by_size: [("op@f1".to_owned(), [(4, row)].into())].into(), ..PgoTable::default() }
}

/// Summary of a row: the fastest backend, all observations, all rejections.
fn said(row: &RouteDecision) -> String {
    let seen = row.observations.iter().map(|seen| format!(" {}={}", seen.backend, seen.latency_ns));
    let rejected = row.rejected.iter().map(|rejected| format!(" {}:{}", rejected.backend, rejected.reason));
    format!("{}:{}", row.backend, seen.chain(rejected).collect::<String>())
}

/// Merges the two rows both ways, in memory and on disk.
fn check_merge(name: &str, [one, other]: [&RouteDecision; 2], expected: &str) {
    for (first, second) in [(one, other), (other, one)] {
        let mut merged = sized(first.clone());
        merged.merge(&sized(second.clone()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgo.toml");
        sized(first.clone()).save(&path).unwrap();
        sized(second.clone()).save(&path).unwrap();
        assert_eq!(PgoTable::load(&path).unwrap(), merged, "{name}");
        assert_eq!(said(&merged.routes_by_size["op@f1"][&4]), expected, "{name}");
    }
}

#[test]
fn merged_rows_keep_what_only_one_of_them_says() {
    let a = ("a", "1", Ok(20));
    let b = ("b", "1", Ok(10));
    let b_wrong = ("b", "1", Err("wrong"));
    let old = row(5, &[b, ("c", "1", Ok(30))]);
    let now = u64::MAX / 4;
    let other = |change: fn(&mut RouteDecision)| {
        let mut row = row(9, &[a]);
        change(&mut row);
        row
    };
    for (name, rows, expected) in [
        ("other backends are kept", [&old, &row(9, &[a])], "b: b=10 a=20 c=30"),
        ("the newer time counts", [&old, &row(9, &[a, ("b", "1", Ok(40))])], "a: a=20 c=30 b=40"),
        ("another driver", [&old, &row(9, &[a, ("b", "2", Ok(40))])], "a: a=20 c=30 b=40"),
        ("a newer rejection", [&old, &row(9, &[a, b_wrong])], "a: a=20 c=30 b:wrong"),
        ("an older rejection", [&row(5, &[b_wrong]), &row(9, &[a, b])], "a: a=20 b:wrong"),
        ("of another driver", [&row(5, &[b_wrong]), &row(9, &[a, ("b", "2", Ok(40))])], "a: a=20 b=40"),
        ("of the only one", [&row(5, &[b_wrong]), &row(9, &[b])], ": b:wrong"),
        ("another program", [&old, &other(|row| row.fingerprint = "f2".into())], "a: a=20"),
        ("another compiler", [&old, &other(|row| row.compiler_version = "2".into())], "a: a=20"),
        ("not verified", [&old, &other(|row| row.verified = false)], "b: b=10 c=30"),
        (
            "not verified, another program",
            [
                &old,
                &other(|row| {
                    row.verified = false;
                    row.fingerprint = "f2".into();
                }),
            ],
            "a: a=20",
        ),
        ("a clock that runs ahead", [&row(now, &[b]), &row(9, &[("b", "1", Ok(40))])], "b: b=40"),
    ] {
        check_merge(name, rows, expected);
    }
}

#[test]
fn a_clock_that_runs_ahead_does_not_block_certification() {
    let log = Mutex::default();
    let mut table = PgoTable::default();
    let future = RouteDecision { certified_at_ns: i64::MAX as u64 - 1, ..RouteDecision::default() };
    table.routes.insert("op".into(), future.clone());
    let row = certify_on(&mut table, &[&Toy::new("a", Does::Echoes, &log)]).unwrap();
    assert!(row.certified_at_ns < future.certified_at_ns);
}

/// Rows with these timestamps and this reason, keyed by timestamp.
fn stamped(stamps: impl Iterator<Item = u64>, reason: &str) -> PgoTable {
    let routes = stamps.map(|stamp| (format!("{stamp:06}"), row(stamp, &[("a", "1", Err(reason))])));
    PgoTable { routes: routes.collect(), ..PgoTable::default() }
}

/// Saves the table; returns the number of rows that remain and the first of them.
fn saved(table: &PgoTable) -> (usize, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pgo.toml");
    table.save(&path).unwrap();
    let kept = PgoTable::load(&path).unwrap();
    assert!(kept.routes_by_size.is_empty());
    (kept.routes.len(), kept.routes.into_keys().next())
}

#[test]
fn saving_prunes_the_oldest_rows() {
    let many = stamped(1..MAX_ROWS as u64 + 51, "");
    assert_eq!(saved(&many), (MAX_ROWS, Some("000051".into())));
    let mut equally_old = many.clone();
    equally_old.routes.values_mut().for_each(|row| row.certified_at_ns = 5);
    assert_eq!(saved(&equally_old).0, MAX_ROWS);
    let of_the_future = PgoTable { routes: many.routes, ..sized(row(u64::MAX, &[])) };
    assert_eq!(saved(&of_the_future), (MAX_ROWS, Some("000051".into())), "which is the oldest");
    // More bytes than the file of a table is allowed.
    assert_eq!(saved(&stamped(1..10, &"long ".repeat(1 << 20))), (6, Some("000004".into())));
}
