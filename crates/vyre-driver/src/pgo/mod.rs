//! The routing table: which backend was measured fastest for an op, and whether its results were
//! right.
//!
//! Rows are made by certification: every backend runs the program once to warm up, then
//! [`PGO_TIMED_ITERS`] times, with the backends interleaved in random order; the median counts.
//! With an oracle, every output of every run is compared with the oracle's, and a backend that is
//! wrong once is rejected. Rows made without an oracle are not `verified`, and the router ignores
//! them.
//!
//! `routes` has one row per op id: its latest certification. Speed depends on size, and one op id
//! can name several programs (an op for each element type, kernels of different users). Each
//! certification with a known size, and everything the router learns, is therefore stored per
//! program ([`row_key`]) and size bucket, ⌊log2 elements⌋, in `routes_by_size`.
//!
//! **Merging**: of two rows for one key the newer stays; a timestamp in the future comes from a
//! clock that runs ahead, and counts as the oldest. In `routes_by_size` the row that stays adopts
//! the other's findings about further backends, if both are of the same program and compiler
//! version, and all its rejections: one rejection outweighs any number of matches. An unverified
//! row never replaces a verified one.
//!
//! **Bounds**: a save keeps the newest [`MAX_ROWS`] rows, or as many as fit the size limit of a
//! table file.

mod certify;

use crate::tables::{
    self, InvalidTable, TableError, TableFormat, UserFolder, now_ns, saturated, stamp_after, stamp_counts,
    user_file,
};
use crate::{BackendError, DispatchConfig, VyreBackend};
use certify::Certification;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vyre_foundation::ir::Program;
use vyre_foundation::launch::Launch;

/// Number of timed runs of each backend, after one to warm up. Up to three disturbed runs leave the
/// median of seven among the others.
pub const PGO_TIMED_ITERS: usize = 7;

/// Maximum number of rows in a routing table's file. A row that names two backends takes 0.9 KB, so
/// that a table of such rows reaches the limit on a file's size (32 MiB) first, at 35,000 rows.
/// These load in 1.8 s, and saving one more takes 76 ms.
pub const MAX_ROWS: usize = 40_000;

/// The key of a program's rows in [`PgoTable::routes_by_size`]: `<name>@<first 16 hexadecimal
/// digits of its fingerprint>`, where the name is its op id, or `fp:<fingerprint>` without one.
pub fn row_key(name: &str, fingerprint: &str) -> String {
    format!("{name}@{}", fingerprint.get(..16).unwrap_or(fingerprint))
}

/// Identifies a program's rows.
#[derive(Debug)]
pub(crate) struct ProgramKey {
    /// Its op id, or `fp:<fingerprint>`.
    pub(crate) name: String,
    /// In hexadecimal.
    pub(crate) fingerprint: String,
    /// The [`row_key`] of both.
    pub(crate) row_key: String,
}

impl ProgramKey {
    pub(crate) fn new(name: String, fingerprint: String) -> ProgramKey {
        let row_key = row_key(&name, &fingerprint);
        ProgramKey { name, fingerprint, row_key }
    }
}

/// The time of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendLatency {
    /// The backend's id.
    pub backend: String,
    /// The median run in nanoseconds; saturates at `i64::MAX`, the largest TOML integer.
    #[serde(serialize_with = "saturated")]
    pub latency_ns: u64,
}

/// A backend that must not be routed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedBackend {
    /// The backend's id.
    pub backend: String,
    /// Its error, or where its results first differed from the oracle's.
    pub reason: String,
}

/// The device and driver of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendIdentity {
    /// The backend's id.
    pub backend: String,
    /// Its device.
    pub device: String,
    /// Its driver and driver version.
    pub driver: String,
}

impl BackendIdentity {
    pub(crate) fn new(backend: &str, device: &str, driver: &str) -> BackendIdentity {
        let [backend, device, driver] = [backend, device, driver].map(str::to_owned);
        BackendIdentity { backend, device, driver }
    }
}

/// The findings about one op, and their scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteDecision {
    /// The fastest backend.
    pub backend: String,
    /// Every backend that ran, fastest first; ties are ordered by id.
    pub observations: Vec<BackendLatency>,
    /// Every backend that failed or gave wrong results.
    pub rejected: Vec<RejectedBackend>,
    /// Whether the results were compared with an oracle's.
    pub verified: bool,
    /// The program's fingerprint in hexadecimal.
    #[serde(default)]
    pub fingerprint: String,
    /// ⌊log2⌋ of the number of elements in the runs; `None` for a row that applies to any size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bucket: Option<u32>,
    /// The fastest backend's device.
    #[serde(default)]
    pub device: String,
    /// The fastest backend's driver and driver version.
    #[serde(default)]
    pub driver: String,
    /// The devices and drivers of all backends in the row; findings about a backend apply to these
    /// only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<BackendIdentity>,
    /// The version of vyre that compiled the program.
    #[serde(default)]
    pub compiler_version: String,
    /// The origin of the row; empty if it was measured here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// When the row was made, in nanoseconds since 1970: of two rows for one key the newer wins.
    #[serde(default, serialize_with = "saturated")]
    pub certified_at_ns: u64,
}

impl RouteDecision {
    /// The device and driver of a backend in the row, if known.
    pub fn identity_of(&self, backend: &str) -> Option<(&str, &str)> {
        let listed = self.identities.iter().find(|identity| identity.backend == backend);
        let own = || (backend == self.backend).then_some((self.device.as_str(), self.driver.as_str()));
        listed.map(|identity| (identity.device.as_str(), identity.driver.as_str())).or_else(own)
    }

    /// Whether this row can replace the other: not if both are of the same program and only the
    /// other is verified.
    fn may_replace(&self, other: &RouteDecision) -> bool {
        self.verified || !other.verified || self.fingerprint != other.fingerprint
    }

    /// Whether this row replaces the other when tables are merged.
    fn replaces(&self, other: &RouteDecision) -> bool {
        match (self.may_replace(other), other.may_replace(self)) {
            (true, true) => self.stamp() >= other.stamp(),
            (may, _) => may,
        }
    }

    /// The effective timestamp of the row.
    fn stamp(&self) -> u64 {
        stamp_counts(self.certified_at_ns, now_ns())
    }

    /// This row as a replacement for another of its key: stamped later, and with the findings that
    /// only the other has.
    pub(crate) fn in_place_of(mut self, other: &RouteDecision) -> RouteDecision {
        self.certified_at_ns = stamp_after(Some(other.certified_at_ns));
        self.take_over(other);
        self
    }

    /// Adopts the findings of another row of the same program and compiler version about backends
    /// that this one does not mention, and its rejections.
    fn take_over(&mut self, other: &RouteDecision) {
        let same = self.fingerprint == other.fingerprint && self.compiler_version == other.compiler_version;
        if !same || self.verified != other.verified {
            return;
        }
        let seen = other.observations.iter().map(|seen| &seen.backend);
        let ids = seen.chain(other.rejected.iter().map(|rejected| &rejected.backend));
        if ids.filter(|id| self.take_over_backend(other, id)).count() > 0 {
            self.put_fastest_first();
        }
    }

    /// Adopts the findings about one backend, unless this row has it with another device or driver.
    /// Returns whether anything was added.
    fn take_over_backend(&mut self, other: &RouteDecision, id: &str) -> bool {
        let Some((device, driver)) = other.identity_of(id) else { return false };
        if self.identity_of(id).is_some_and(|own| own != (device, driver)) {
            return false;
        }
        let rejected = |row: &RouteDecision| row.rejected.iter().find(|one| one.backend == id).cloned();
        let seen = |row: &RouteDecision| row.observations.iter().find(|one| one.backend == id).cloned();
        match (rejected(self), rejected(other), seen(self), seen(other)) {
            (None, Some(rejected), _, _) => {
                self.observations.retain(|one| one.backend != id);
                self.rejected.push(rejected);
            }
            (None, None, None, Some(seen)) => self.observations.push(seen),
            _ => return false,
        }
        if self.identities.iter().all(|identity| identity.backend != id) {
            self.identities.push(BackendIdentity::new(id, device, driver));
        }
        true
    }

    /// Sorts the observations, and sets the first as the fastest.
    pub(crate) fn put_fastest_first(&mut self) {
        self.observations.sort_by(|a, b| (a.latency_ns, &a.backend).cmp(&(b.latency_ns, &b.backend)));
        let fastest = self.observations.first().map_or("", |seen| seen.backend.as_str());
        let (device, driver) = self.identity_of(fastest).unwrap_or_default();
        let [fastest, device, driver] = [fastest, device, driver].map(str::to_owned);
        (self.backend, self.device, self.driver) = (fastest, device, driver);
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
/// let route =
///     table.certify_op("copy", &Program::empty(), &[], &DispatchConfig::default(), &[&Toy])?;
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
    /// The latest finding, certified or learnt, about each program ([`row_key`]) in each size
    /// bucket.
    #[serde(default)]
    pub routes_by_size: BTreeMap<String, BTreeMap<u32, RouteDecision>>,
}

impl PgoTable {
    /// Measures the backends on this program and stores the outcome as the op's route, without
    /// comparing results: the row is not `verified`. A verified row of the same program stays, and
    /// is returned instead. On an error the table is unchanged.
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
        let certification = Certification { program, inputs, config, oracle: None };
        self.certify(op_id.into(), &certification, backends)
    }

    /// Compares every output of every backend with the oracle's, rejects the wrong ones, and stores
    /// the fastest of the others as the op's route: the row is `verified`. Results are compared bit
    /// for bit; with `ulp_budget` set, elements of float outputs can differ by that many units in
    /// the last place. On an error the table is unchanged.
    pub fn certify_op_verified(
        &mut self,
        oracle: &dyn VyreBackend,
        op_id: impl Into<String>,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let certification = Certification { program, inputs, config, oracle: Some(oracle) };
        self.certify(op_id.into(), &certification, backends)
    }

    fn certify(
        &mut self,
        op_id: String,
        certification: &Certification<'_>,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let mut row = certification.run(&op_id, backends)?;
        row.certified_at_ns = stamp_after(self.routes.get(&op_id).map(|route| route.certified_at_ns));
        if let Some(bucket) = row.size_bucket {
            let rows = self.routes_by_size.entry(row_key(&op_id, &row.fingerprint)).or_default();
            let sized = rows.entry(bucket).or_insert_with(|| row.clone());
            if row.may_replace(sized) {
                sized.clone_from(&row);
            }
        }
        let latest = self.routes.entry(op_id).or_insert_with(|| row.clone());
        if row.may_replace(latest) {
            *latest = row;
        }
        Ok(latest)
    }

    /// The backend that the op's latest certification found fastest, verified or not.
    pub fn fastest_backend(&self, op_id: &str) -> Option<&str> {
        self.routes.get(op_id).map(|route| route.backend.as_str())
    }

    /// The backend found fastest for the op at about this size, verified or not. `None` if that
    /// size was never certified: the fastest backend at one size says little about another.
    pub fn fastest_backend_for(&self, op_id: &str, elements: u64) -> Option<&str> {
        self.route_for(op_id, elements).map(|route| route.backend.as_str())
    }

    /// The row for this many elements of the program in the op's latest certification: that of its
    /// size bucket, otherwise one that applies to any size.
    pub fn route_for(&self, op_id: &str, elements: u64) -> Option<&RouteDecision> {
        let latest = self.routes.get(op_id)?;
        let program = ProgramKey::new(op_id.to_owned(), latest.fingerprint.clone());
        self.rows_at(&program, size_bucket(elements)).next()
    }

    /// The rows of a program, of all sizes, with the size buckets that they apply to: first those
    /// under its key, then those under its name.
    pub(crate) fn rows_of<'a>(
        &'a self,
        program: &ProgramKey,
    ) -> impl Iterator<Item = (Option<u32>, &'a RouteDecision)> {
        let ProgramKey { name, fingerprint, row_key } = program;
        let sized = [row_key, name].into_iter().filter_map(|key| self.routes_by_size.get(key)).flatten();
        let sized = sized.map(|(&bucket, row)| (Some(bucket), row));
        let latest = self.routes.get(name).map(|row| (row.size_bucket, row));
        sized.chain(latest).filter(move |(_, row)| row.fingerprint == *fingerprint)
    }

    /// The rows that apply to a size bucket, in order of precedence.
    pub(crate) fn rows_at<'a>(
        &'a self,
        program: &ProgramKey,
        bucket: u32,
    ) -> impl Iterator<Item = &'a RouteDecision> {
        let holds = move |&(own, _): &(Option<u32>, _)| own.is_none_or(|own| own == bucket);
        self.rows_of(program).filter(holds).map(|(_, row)| row)
    }

    /// Loads the table in this file; an empty one if there is no such file. Anything else that is
    /// not a readable table is an error, and the file is left alone.
    pub fn load(path: &Path) -> Result<PgoTable, TableError> {
        tables::load(path)
    }

    /// Merges the rows into the file, creating its folders if necessary; the oldest rows are
    /// dropped to stay within the bounds of a table. A corrupt file is set aside first. After an
    /// error the file is unchanged, or set aside whole.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        tables::add(path, self)
    }

    /// Merges the rows of another table; the [module](self) documents the rules for two rows with
    /// one key.
    pub fn merge(&mut self, other: &PgoTable) {
        for (op_id, row) in &other.routes {
            merge_row(&mut self.routes, op_id, row, |row, _| row);
        }
        for (key, rows) in &other.routes_by_size {
            let own = self.routes_by_size.entry(key.clone()).or_default();
            for (bucket, row) in rows {
                merge_row(own, bucket, row, |mut row, other| {
                    row.take_over(other);
                    row
                });
            }
        }
    }
}

/// The user's routing table: `vyre/pgo.toml` in `$XDG_CONFIG_HOME`, otherwise in `$HOME/.config`.
/// `None`, with a warning, if the user has neither: routes then stay in memory.
pub fn default_pgo_path() -> Option<PathBuf> {
    user_file(UserFolder::Config, "pgo.toml")
}

/// The size bucket of a number of elements: ⌊log2⌋, and 0 for none.
pub fn size_bucket(elements: u64) -> u32 {
    elements.checked_ilog2().unwrap_or(0)
}

/// The number of elements that a dispatch covers: its domain, or all invocations if the grid is
/// explicit. `None` if the program or inputs cannot be run.
pub fn dispatch_elements(program: &Program, inputs: &[&[u8]], config: &DispatchConfig) -> Option<u64> {
    let kernel = program.validate().ok()?;
    let launch = Launch::from_inputs(&kernel, inputs, config.overrides()).ok()?;
    let elements =
        |axes: [u32; 3]| axes.into_iter().fold(1, |all: u64, axis| all.saturating_mul(axis.into()));
    Some(launch.domain.map_or_else(|| launch.invocations(), elements))
}

/// Inserts a row. Of two rows for one key, the one that stays can adopt findings of the other.
fn merge_row<Key: Ord + Clone>(
    rows: &mut BTreeMap<Key, RouteDecision>,
    key: &Key,
    row: &RouteDecision,
    take_over: impl FnOnce(RouteDecision, &RouteDecision) -> RouteDecision,
) {
    let merged = match rows.get(key) {
        None => row.clone(),
        Some(known) if row.replaces(known) => take_over(row.clone(), known),
        Some(known) => take_over(known.clone(), row),
    };
    rows.insert(key.clone(), merged);
}

impl TableFormat for PgoTable {
    const KIND: &'static str = "routes";
    const MAX_ROWS: usize = MAX_ROWS;
    // Schema 2 allows rows to be appended.
    const SCHEMA: u32 = 2;
    const GROWS: bool = true;

    fn add(&mut self, rows: &PgoTable) -> Result<(), InvalidTable> {
        self.merge(rows);
        Ok(())
    }

    fn rows(&self) -> usize {
        self.routes.len() + self.routes_by_size.values().map(BTreeMap::len).sum::<usize>()
    }

    fn drop_oldest(&mut self, count: usize) {
        let latest = self.routes.iter().map(|(op, row)| ((op.clone(), None), row.certified_at_ns));
        let of_sizes = |(op, rows): (&String, &BTreeMap<u32, RouteDecision>)| {
            let row =
                |(bucket, row): (&u32, &RouteDecision)| ((op.clone(), Some(*bucket)), row.certified_at_ns);
            rows.iter().map(row).collect::<Vec<_>>()
        };
        let sized = self.routes_by_size.iter().flat_map(of_sizes);
        for (op, bucket) in tables::oldest(latest.chain(sized), count) {
            match (bucket, self.routes_by_size.get_mut(&op)) {
                (Some(bucket), Some(rows)) => drop(rows.remove(&bucket)),
                (_, _) => drop(self.routes.remove(&op)),
            }
        }
        self.routes_by_size.retain(|_, rows| !rows.is_empty());
    }
}
