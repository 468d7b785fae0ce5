//! The routing table: which backend was measured fastest for an op, and whether its results were right.
//!
//! A row is made by certifying: every backend runs the program once to warm up, then [`PGO_TIMED_ITERS`] times, the
//! backends taking turns in random order; the median counts. With an oracle, every output of every run is compared
//! with the oracle's, and a backend that is wrong once is rejected. Rows made without an oracle are not `verified`, and
//! the router ignores them.
//!
//! `routes` has one row per op id: its latest certification. Speed depends on size, so each certification whose size
//! is known is also kept under the op id and its size bucket, ⌊log2 elements⌋, in `routes_by_size`;
//! [`PgoTable::route_for`] looks there first.

mod certify;
mod compare;

use crate::tables::{self, Fault, Home, Locked, OnDisk, TableError, TableFormat, stamp_after, user_file};
use crate::{BackendError, DispatchConfig, VyreBackend};
use certify::Trial;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::KernelDomain;
use vyre_foundation::launch::{Launch, Overrides};

/// How many timed runs each backend gets, after one to warm up.
pub const PGO_TIMED_ITERS: usize = 7;

/// How long a backend took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendLatency {
    /// The backend's id.
    pub backend: String,
    /// The median run in nanoseconds; saturates at `i64::MAX`, the largest integer that TOML has.
    #[serde(serialize_with = "saturated")]
    pub latency_ns: u64,
}

/// A backend that must not be routed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RejectedBackend {
    /// The backend's id.
    pub backend: String,
    /// Its error, or where its results first differed from the oracle's.
    pub reason: String,
}

/// The device and driver that a backend had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendIdentity {
    /// The backend's id.
    pub backend: String,
    /// Its device.
    pub device: String,
    /// Its driver and the driver's version.
    pub driver: String,
}

/// What was found about one op, and what it is valid for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteDecision {
    /// The fastest backend.
    pub backend: String,
    /// Every backend that ran, fastest first; equally fast ones by id.
    pub observations: Vec<BackendLatency>,
    /// Every backend that did not, or whose results were wrong.
    pub rejected: Vec<RejectedBackend>,
    /// Whether the results were compared with an oracle's.
    pub verified: bool,
    /// The program's fingerprint in hexadecimal.
    #[serde(default)]
    pub fingerprint: String,
    /// ⌊log2⌋ of how many elements the runs were over; `None` for a row that holds for any size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bucket: Option<u32>,
    /// The fastest backend's device.
    #[serde(default)]
    pub device: String,
    /// The fastest backend's driver and its version.
    #[serde(default)]
    pub driver: String,
    /// The devices and drivers of all backends in the row; what is found of a backend holds for these only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<BackendIdentity>,
    /// The vyre that compiled the program.
    #[serde(default)]
    pub compiler_version: String,
    /// Where the row comes from; empty if it was measured here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// When, in nanoseconds since 1970: of two rows for one key the newer wins.
    #[serde(default, serialize_with = "saturated")]
    pub certified_at_ns: u64,
}

impl RouteDecision {
    /// The device and driver that a backend of the row had, where that is known.
    pub fn identity_of(&self, backend: &str) -> Option<(&str, &str)> {
        let listed = self.identities.iter().find(|identity| identity.backend == backend);
        let own = || (backend == self.backend).then_some((self.device.as_str(), self.driver.as_str()));
        listed.map(|identity| (identity.device.as_str(), identity.driver.as_str())).or_else(own)
    }

    /// Whether this row may take the other's place: not if that one is verified, this one is not, and both are of the
    /// same program.
    fn may_replace(&self, other: &RouteDecision) -> bool {
        self.verified || !other.verified || self.fingerprint != other.fingerprint
    }
}

/// Routes by op id.
///
/// ```
/// use vyre_driver::pgo::PgoTable;
/// use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::Program;
/// # struct Toy;
/// # impl VyreBackend for Toy {
/// #     fn id(&self) -> &'static str { "toy" }
/// #     fn dispatch(&self, _: &Program, inputs: &[Vec<u8>], _: &DispatchConfig)
/// #         -> Result<Vec<Vec<u8>>, BackendError> { Ok(inputs.to_vec()) }
/// # }
/// let mut table = PgoTable::default();
/// let route = table.certify_op("copy", &Program::empty(), &[], &DispatchConfig::default(), &[&Toy])?;
/// assert_eq!((route.backend.as_str(), route.verified), ("toy", false));
/// assert_eq!(table.fastest_backend("copy"), Some("toy"));
/// # Ok::<(), BackendError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PgoTable {
    /// The latest certification of each op, whatever its size.
    #[serde(default)]
    pub routes: BTreeMap<String, RouteDecision>,
    /// The latest certification of each op in each size bucket.
    #[serde(default)]
    pub routes_by_size: BTreeMap<String, BTreeMap<u32, RouteDecision>>,
}

impl PgoTable {
    /// Measures the backends on this program and keeps the outcome as the op's route, without comparing results: the
    /// row is not `verified`. Where there is a verified row of the same program, that one stays, and is what comes back.
    /// On an error the table is unchanged.
    pub fn certify_op(
        &mut self,
        op_id: impl Into<String>,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.certify_op_borrowed(op_id, program, &inputs, config, backends)
    }

    /// Like [`PgoTable::certify_op`], on borrowed inputs.
    pub fn certify_op_borrowed(
        &mut self,
        op_id: impl Into<String>,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let trial = Trial { program, inputs, config, oracle: None };
        self.certify(op_id.into(), &trial, backends)
    }

    /// Compares every output of every backend with the oracle's, rejects the wrong ones, and keeps the fastest of the
    /// others as the op's route: the row is `verified`. Results are compared by bits; with `ulp_budget` set, elements of
    /// float outputs may be off by that many units in the last place. On an error the table is unchanged.
    pub fn certify_op_verified(
        &mut self,
        oracle: &dyn VyreBackend,
        op_id: impl Into<String>,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let trial = Trial { program, inputs, config, oracle: Some(oracle) };
        self.certify(op_id.into(), &trial, backends)
    }

    fn certify(
        &mut self,
        op_id: String,
        trial: &Trial<'_>,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let mut row = trial.run(&op_id, backends)?;
        row.certified_at_ns = stamp_after(self.routes.get(&op_id).map(|route| route.certified_at_ns));
        if let Some(bucket) = row.size_bucket {
            let rows = self.routes_by_size.entry(op_id.clone()).or_default();
            if rows.get(&bucket).is_none_or(|sized| row.may_replace(sized)) {
                rows.insert(bucket, row.clone());
            }
        }
        Ok(match self.routes.entry(op_id) {
            Entry::Occupied(entry) if !row.may_replace(entry.get()) => entry.into_mut(),
            Entry::Occupied(mut entry) => {
                entry.insert(row);
                entry.into_mut()
            }
            Entry::Vacant(entry) => entry.insert(row),
        })
    }

    /// The backend that the op's latest certification found fastest, verified or not.
    pub fn fastest_backend(&self, op_id: &str) -> Option<&str> {
        self.routes.get(op_id).map(|route| route.backend.as_str())
    }

    /// The backend found fastest for the op at about this size, verified or not. `None` if that size was never
    /// certified: what is fastest at one size says little about another.
    pub fn fastest_backend_for(&self, op_id: &str, elements: u64) -> Option<&str> {
        self.route_for(op_id, elements).map(|route| route.backend.as_str())
    }

    /// The row that holds for the op at this many elements: that of its size bucket, else one that holds for any size.
    pub fn route_for(&self, op_id: &str, elements: u64) -> Option<&RouteDecision> {
        let bucket = size_bucket(elements);
        let sized = self.routes_by_size.get(op_id).and_then(|rows| rows.get(&bucket));
        let fits = |route: &&RouteDecision| route.size_bucket.is_none_or(|own| own == bucket);
        sized.or_else(|| self.routes.get(op_id).filter(fits))
    }

    /// The table in this file; an empty one if there is no such file. Anything else that is not a readable table is an
    /// error, and the file is left alone.
    pub fn load(path: &Path) -> Result<PgoTable, TableError> {
        tables::load(path)
    }

    /// Adds the rows to those in the file, making its folders if need be; of two rows for one key the newer stays, except
    /// that a row that is not verified never replaces a verified one of the same program. A corrupt file is set aside first. After an error the file is as it was, or set aside whole.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        let locked = Locked::acquire(path)?;
        let mut file: OnDisk<PgoTable> = locked.read(locked.path())?;
        file.table.merge(self);
        locked.write(locked.path(), &file)
    }

    /// Adds the rows of another table; of two for one key the newer stays.
    pub fn merge(&mut self, other: &PgoTable) {
        keep_newer(&mut self.routes, &other.routes);
        for (op_id, rows) in &other.routes_by_size {
            keep_newer(self.routes_by_size.entry(op_id.clone()).or_default(), rows);
        }
    }
}

/// The user's own routing table: `vyre/pgo.toml` in `$XDG_CONFIG_HOME`, else in `$HOME/.config`. `None`, with a warning,
/// if the user has neither: routes then stay in memory.
pub fn default_pgo_path() -> Option<PathBuf> {
    user_file(Home::Config, "pgo.toml")
}

/// The size bucket of so many elements: ⌊log2⌋, and 0 for none.
pub fn size_bucket(elements: u64) -> u32 {
    elements.checked_ilog2().unwrap_or(0)
}

/// How many elements a dispatch is over: its domain, or all invocations where the grid is given. `None` for a program
/// or inputs that cannot be run.
pub fn dispatch_elements(program: &Program, inputs: &[&[u8]], config: &DispatchConfig) -> Option<u64> {
    let kernel = program.validate().ok()?;
    let bytes: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
    let overrides = Overrides { workgroup: config.workgroup_override, grid: config.grid_override };
    let launch = Launch::from_inputs(&kernel, &bytes, overrides).ok()?;
    match kernel.domain {
        _ if config.grid_override.is_some() => Some(launch.invocations()),
        KernelDomain::Counts(counts) => {
            Some(counts.into_iter().fold(1, |all: u64, axis| all.saturating_mul(u64::from(axis))))
        }
        KernelDomain::LenOf(buffer) => launch.lengths.get(buffer.index()).copied().map(u64::from),
    }
}

fn keep_newer<Key: Ord + Clone>(
    rows: &mut BTreeMap<Key, RouteDecision>,
    others: &BTreeMap<Key, RouteDecision>,
) {
    for (key, other) in others {
        let replaces = |row: &RouteDecision| {
            let stays_verified = row.may_replace(other) && other.may_replace(row);
            // Where one is verified and the other is not, that decides; else the newer one stays.
            if stays_verified { row.certified_at_ns <= other.certified_at_ns } else { other.verified }
        };
        if rows.get(key).is_none_or(replaces) {
            rows.insert(key.clone(), other.clone());
        }
    }
}

impl TableFormat for PgoTable {
    const KIND: &'static str = "routes";
    const SCHEMA: u32 = 1;

    fn parse(text: &str) -> Result<PgoTable, Fault> {
        toml::from_str(text).map_err(Fault::whole)
    }

    fn print(&self) -> Result<String, Fault> {
        toml::to_string(self).map_err(Fault::whole)
    }
}

fn saturated<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64((*number).min(i64::MAX as u64))
}
