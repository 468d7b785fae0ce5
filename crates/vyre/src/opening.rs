//! Opening backends, and first contact with their drivers.
//!
//! A driver that is new to vyre can crash or hang the process that opens it. A helper process
//! (`vyre` itself) with a time limit therefore opens it first, runs the conformance set and prints
//! a certificate. If the helper crashes, hangs or fails, the driver is refused, and the caller's
//! process never opens it. Certificates are keyed by backend, device, driver and build, and by a
//! stamp of what is installed, so that a replaced driver is certified again before it is opened.
//! Without a helper the set runs in this process, and the certificate says so. Backends without a
//! driver, such as the embedded one, are already part of this process and need no helper.
//!
//! ```text
//! known backend? ── no ──▶ helper ── crashed, hung or failed ──▶ refused
//!      │ yes                 │ passed, or there is no helper
//!      ▼                     ▼
//! open here ─▶ certificate for this device and driver? ── no ──▶ conformance set
//!                     │ yes                                              │
//!                     └─────────────▶ candidate or refused ◀─────────────┘
//! ```

use crate::backend::{Opened, has_driver};
use crate::conformance;
use crate::helper::{Answer, Helper};
pub use crate::helper::{HELPER_LIMIT_VARIABLE, HELPER_SUBCOMMAND, HELPER_VARIABLE, command, set_command};
pub use crate::helper_trial::try_program;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use vyre_driver::certificates::{Certificate, CertificateKey, CertificateTable};
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::registry::{self, SelectionFacts, compare_selection_facts};
use vyre_driver::router::RefusedBackend;
use vyre_driver::storage::Storage;
use vyre_driver::tables::now_ns;
use vyre_driver::{VyreBackend, contain, open_all};

/// Time limit for a backend to open and pass in this process: the minute that a helper has as well.
const OPENING_LIMIT: Duration = Duration::from_secs(60);
/// A rejection holds for this long, then the driver gets another chance: a repaired driver
/// is found without a command, and a bad one costs a helper process per day.
const REJECTION_HOLDS: Duration = Duration::from_secs(24 * 60 * 60);
const UNMET: &str = "its driver has not been checked on this machine yet; run `vyre certify` to check it";
const CHANGED: &str = "in this process; the device or driver changed since a helper process checked it";
const IN_PROCESS: &str = "in this process; no helper process was found";

/// A backend that opened and passed.
pub(crate) struct CertifiedBackend {
    pub(crate) opened: Opened,
    pub(crate) facts: SelectionFacts,
    pub(crate) certificate: Certificate,
}

/// Outcome of opening all backends.
#[derive(Default)]
pub(crate) struct OpenedBackends {
    /// In selection order.
    pub(crate) met: Vec<CertifiedBackend>,
    pub(crate) refused: Vec<RefusedBackend>,
    /// Certificates that were issued or found valid.
    pub(crate) learnt: CertificateTable,
}

/// Policy for opening drivers.
#[derive(Clone, Debug)]
pub(crate) struct OpeningPolicy {
    pub(crate) helper: Helper,
    /// Treatment of drivers without a certificate on this machine.
    pub(crate) unknown_drivers: UnknownDrivers,
    /// Whether certified drivers, too, are opened while calls run on other backends.
    pub(crate) opens_later: bool,
}

/// Treatment of drivers without a certificate on this machine. Certifying one can take seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownDrivers {
    /// Certified while calls run on other backends.
    CertifyLater,
    /// Certified before anything runs.
    CertifyFirst,
    /// Not opened.
    Skip,
}

impl OpeningPolicy {
    /// The default policy, with the helper that was found.
    pub(crate) fn usual() -> OpeningPolicy {
        OpeningPolicy {
            helper: Helper::usual(),
            unknown_drivers: UnknownDrivers::CertifyLater,
            opens_later: false,
        }
    }

    /// Whether the backend is opened later, when calls may already be running.
    pub(crate) fn puts_off(&self, wanted: &BackendToOpen, known: &CertificateTable) -> bool {
        match wanted {
            BackendToOpen::Registered(id) => {
                let is_unknown = rows_of(id, known).is_empty();
                has_driver(id)
                    && if is_unknown {
                        self.unknown_drivers == UnknownDrivers::CertifyLater
                    } else {
                        self.opens_later
                    }
            }
            BackendToOpen::Instance(_) => false,
        }
    }
}

/// A backend to open.
pub(crate) enum BackendToOpen {
    /// A linked backend.
    Registered(String),
    /// An instance supplied by the caller.
    Instance(Arc<dyn VyreBackend>),
}

impl BackendToOpen {
    pub(crate) fn id(&self) -> String {
        match self {
            BackendToOpen::Registered(id) => id.clone(),
            BackendToOpen::Instance(instance) => {
                contain(|| instance.id()).unwrap_or("(its id panics)").to_owned()
            }
        }
    }
}

/// The linked backends that can be routed to, and why the others cannot.
pub(crate) fn linked() -> (Vec<BackendToOpen>, Vec<RefusedBackend>) {
    let (selectable, refused) = registry::selectable();
    let wanted = selectable.iter().map(|linked| BackendToOpen::Registered(linked.id.to_owned())).collect();
    (wanted, refused)
}

/// Opens all of these in parallel, each on its own thread: a driver that panics or hangs refuses
/// only itself.
pub(crate) fn open_backends(
    wanted: Vec<BackendToOpen>,
    known: &CertificateTable,
    policy: &OpeningPolicy,
) -> OpenedBackends {
    // A helper has its own limit; a backend that passed it still has to open here.
    let limit = policy.helper.limit.saturating_add(OPENING_LIMIT);
    let meeting = |wanted: BackendToOpen| {
        let (id, known, policy) = (wanted.id(), known.clone(), policy.clone());
        (id.clone(), format!("open-{id}"), move || meet(&id, wanted, &known, &policy))
    };
    let mut opened = OpenedBackends::default();
    for (id, outcome) in open_all(limit, wanted.into_iter().map(meeting)) {
        match outcome {
            Ok(Meeting::Passed(met)) => opened.pass(*met),
            Ok(Meeting::Rejected(certificate)) => {
                let reason = certificate.failure.clone().unwrap_or_default();
                opened.learnt.merge(*certificate);
                opened.refused.push(RefusedBackend { backend: id, reason });
            }
            Err(reason) => opened.refused.push(RefusedBackend { backend: id, reason }),
        }
    }
    opened
}

impl OpenedBackends {
    /// Merges the outcome of another round.
    pub(crate) fn add(&mut self, other: OpenedBackends) {
        other.met.into_iter().for_each(|met| self.pass(met));
        self.refused.extend(other.refused);
        other.learnt.certificates.into_iter().for_each(|row| self.learnt.merge(row));
    }

    /// Adds a backend that opened and passed; the first of an id counts.
    fn pass(&mut self, met: CertifiedBackend) {
        self.learnt.merge(met.certificate.clone());
        if self.met.iter().any(|other| other.facts.id == met.facts.id) {
            let (backend, reason) =
                (met.facts.id.to_owned(), "another backend with this id came first".into());
            return self.refused.push(RefusedBackend { backend, reason });
        }
        self.met.push(met);
        self.met.sort_by(|a, b| compare_selection_facts(&a.facts, &b.facts));
    }
}

enum Meeting {
    Passed(Box<CertifiedBackend>),
    Rejected(Box<Certificate>),
}

/// The certificates of a backend that are valid for this build and the installed drivers.
pub(crate) fn rows_of<'a>(id: &str, known: &'a CertificateTable) -> Vec<&'a Certificate> {
    let stamp = registry::driver_stamp(id);
    let ours = |row: &&Certificate| row.key.backend == id && row.stamp == stamp && is_of_this_build(row);
    let mut rows: Vec<&Certificate> = known.certificates.iter().filter(ours).collect();
    rows.retain(|row| row.failure.is_none() || is_recent(row.certified_at_ns));
    rows
}

fn is_of_this_build(row: &Certificate) -> bool {
    row.key.compiler_version == COMPILER_VERSION && row.key.conformance_set == conformance::set_digest()
}

/// Whether not even a helper could open the driver: the certificate names no device.
fn is_unopened(row: &Certificate) -> bool {
    row.key.device.is_empty() && row.failure.is_some()
}

/// Certifies unknown drivers for a program that is about to open drivers itself. Helper processes
/// certify those of the linked drivers in `wanted`, or of all if it is empty, that have no
/// certificate in the user's tables, and the results are kept there. A driver that crashed or hung
/// its helper is [refused](registry::refuse): opening it returns the reason instead. Without a
/// helper no driver is certified.
pub fn meet_unknown_drivers(wanted: &[&str]) {
    let (tables, policy) = (Storage::of_user(), OpeningPolicy::usual());
    let known = tables.load_certificates();
    let ids = linked().0.into_iter().filter_map(|item| match item {
        BackendToOpen::Registered(id) => (wanted.is_empty() || wanted.contains(&id.as_str())).then_some(id),
        BackendToOpen::Instance(_) => None,
    });
    let mut learnt = CertificateTable::default();
    thread::scope(|scope| {
        let policy = &policy;
        let ask = |id: String| scope.spawn(move || (ask_helper(policy, &id), id));
        let (met, unknown): (Vec<String>, Vec<String>) = ids.partition(|id| !rows_of(id, &known).is_empty());
        for row in met.iter().flat_map(|id| rows_of(id, &known)) {
            refuse_unopened(row);
        }
        let (unknown, embedded): (Vec<String>, Vec<String>) =
            unknown.into_iter().partition(|id| has_driver(id));
        let asked: Vec<_> = unknown.into_iter().map(ask).collect();
        // If all are wanted, the embedded backends are certified too; one that is named just runs.
        for id in embedded.into_iter().filter(|_| wanted.is_empty()) {
            if let Ok(Meeting::Passed(met)) = meet(&id, BackendToOpen::Registered(id.clone()), &known, policy)
            {
                learnt.merge(met.certificate);
            }
        }
        for (answer, id) in asked.into_iter().filter_map(|helper| helper.join().ok()) {
            match answer {
                Ok(Some(row)) => {
                    refuse_unopened(&row);
                    learnt.merge(row);
                }
                Ok(None) => {}
                Err(reason) => registry::refuse(&id, &reason),
            }
        }
    });
    if !learnt.certificates.is_empty() {
        tables.save_certificates(&learnt);
    }
}

fn refuse_unopened(row: &Certificate) {
    if let Some(reason) = row.failure.as_ref().filter(|_| is_unopened(row)) {
        registry::refuse(&row.key.backend, reason);
    }
}

fn meet(
    id: &str,
    wanted: BackendToOpen,
    known: &CertificateTable,
    policy: &OpeningPolicy,
) -> Result<Meeting, String> {
    let rows = rows_of(id, known);
    let mut fresh = None;
    let mut began = Instant::now();
    let (driver, registered) = match wanted {
        BackendToOpen::Instance(driver) => (driver, false),
        BackendToOpen::Registered(_) => {
            if has_driver(id) {
                if let Some(row) = rows.iter().find(|row| is_unopened(row)) {
                    return Ok(Meeting::Rejected(Box::new((*row).clone())));
                }
                if rows.is_empty() && policy.unknown_drivers == UnknownDrivers::Skip {
                    return Err(UNMET.into());
                }
                if rows.is_empty() {
                    fresh = ask_helper(policy, id)?;
                }
                if let Some(certificate) = fresh.take_if(|certificate| certificate.failure.is_some()) {
                    return Ok(Meeting::Rejected(Box::new(certificate)));
                }
                began = Instant::now();
            }
            (registry::acquire(id).map_err(|error| error.to_string())?.into(), true)
        }
    };
    let acquisition = began.elapsed();
    let opened = Opened::new(driver, registered);
    let key = CertificateKey::new(&opened.profile, conformance::set_digest());
    let found =
        fresh.filter(|row| row.key == key).or_else(|| rows.into_iter().find(|row| row.key == key).cloned());
    // The caller's instance may share its id and device with another implementation, so it is
    // always certified itself.
    let certificate = match found.filter(|_| registered) {
        Some(certificate) => certificate,
        None => {
            let how = if registered && has_driver(id) { CHANGED } else { IN_PROCESS };
            conformance::certify(&opened.driver, &opened.profile, how)
        }
    };
    if certificate.failure.is_some() {
        return Ok(Meeting::Rejected(Box::new(certificate)));
    }
    let facts = SelectionFacts::new(&opened.profile, acquisition);
    Ok(Meeting::Passed(Box::new(CertifiedBackend { opened, facts, certificate })))
}

/// Whether a rejection still holds; one dated in the future does not.
fn is_recent(certified_at_ns: u64) -> bool {
    now_ns().checked_sub(certified_at_ns).is_some_and(|age| age < REJECTION_HOLDS.as_nanos() as u64)
}

/// The helper's side: opens the backend, runs the conformance set, and returns the text to print.
pub fn helper_answer(backend: &str) -> String {
    let certificate = match registry::acquire(backend) {
        Ok(driver) => {
            let opened = Opened::new(driver.into(), true);
            Some(conformance::certify(&opened.driver, &opened.profile, "in a helper process"))
        }
        Err(vyre_driver::BackendError::NotLinked { .. }) => None,
        Err(error) => Some(unopened(backend, error.to_string())),
    };
    serde_json::to_string(&certificate).unwrap_or_default()
}

/// The certificate of a backend that could not report its device.
fn unopened(backend: &str, failure: String) -> Certificate {
    let key = CertificateKey {
        backend: backend.into(),
        compiler_version: COMPILER_VERSION.into(),
        conformance_set: conformance::set_digest().into(),
        ..CertificateKey::default()
    };
    let (how, stamp) = ("in a helper process".into(), registry::driver_stamp(backend));
    Certificate {
        key,
        failure: Some(failure),
        how,
        stamp,
        certified_at_ns: now_ns(),
        ..Certificate::default()
    }
}

/// Has a helper certify the driver. `None` without a usable helper: there is none, it cannot be
/// started, is of another build, or lacks the backend. An error if it gave no answer, which says
/// little about the driver: it is asked again the next time.
fn ask_helper(policy: &OpeningPolicy, id: &str) -> Result<Option<Certificate>, String> {
    let answer = match policy.helper.ask(&[id], &[])? {
        None => return Ok(None),
        Some(Answer::Text(text)) => text,
        Some(Answer::Crash(reason)) => return Ok(Some(unopened(id, reason))),
    };
    // Anything that is not a helper of this build prints something else.
    let certificate: Option<Certificate> = serde_json::from_str(answer.trim()).unwrap_or_default();
    Ok(certificate.filter(is_of_this_build))
}
