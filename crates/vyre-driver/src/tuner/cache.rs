//! Tuning decisions and the samples behind them, in memory and on disk.
//!
//! The decision file has one top-level `"key" = [x, y, z]` per decision and nothing else. The time
//! of a decision and its samples are in `<file>.samples` beside it, under the same lock. Decisions
//! are written first: a process killed between the two writes leaves a decision that looks older
//! than it is and can be replaced, never a timestamp that keeps a newer decision out.
//!
//! **Merging**: of two decisions for one key the newer stays, with its samples. A shape that was
//! found wrong stays quarantined whatever is decided later, so the quarantines of both sides are
//! kept, and quarantining a shape does not make its decision newer.

use super::{Shape, TunerProgramKey};
use crate::tables::{
    self, InvalidTable, OnDisk, Row, Rows, TableError, TableLock, now_ns, stamp_after, stamp_counts,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The measurements of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateSamples {
    /// The candidate's workgroup size.
    pub workgroup_size: [u32; 3],
    /// Elements per invocation; one if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements_per_invocation: Option<u32>,
    /// Why it is quarantined, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Its run times in nanoseconds, in the order of measurement. They saturate at `i64::MAX`.
    pub samples_ns: Vec<u64>,
}

impl CandidateSamples {
    /// The candidate's shape.
    pub fn shape(&self) -> Shape {
        let elements_per_invocation = self.elements_per_invocation.unwrap_or(1);
        Shape { workgroup_size: self.workgroup_size, elements_per_invocation }
    }

    /// Its median time; `None` if it was not timed.
    pub fn median_ns(&self) -> Option<u64> {
        let mut times = self.samples_ns.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }
}

/// Workgroup sizes by key, each with the time of its decision and the samples behind it.
///
/// ```
/// use vyre_driver::tuner::TunerCache;
/// let mut cache = TunerCache::default();
/// cache.set("saxpy", [128, 1, 1]);
/// assert_eq!(cache.get("saxpy"), Some([128, 1, 1]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunerCache {
    decisions: Rows<Decision>,
    evidence: Rows<DecisionRecord>,
}

impl TunerCache {
    /// The decision for this key.
    pub fn get(&self, key: &str) -> Option<[u32; 3]> {
        self.decisions.0.get(key).map(|decision| decision.0)
    }

    /// The keys that have a decision.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.decisions.0.keys().map(String::as_str)
    }

    /// The decision for this program and shape.
    pub fn get_key(&self, key: &TunerProgramKey) -> Option<[u32; 3]> {
        self.get(key.as_str())
    }

    /// Records a decision, stamped now. A size with a zero cannot run: it is refused with a
    /// warning, and the earlier decision stays.
    pub fn set(&mut self, key: impl Into<String>, workgroup_size: [u32; 3]) {
        self.set_shape(key, Shape { workgroup_size, elements_per_invocation: 1 });
    }

    /// Records a decision for this program and shape, stamped now.
    pub fn set_key(&mut self, key: &TunerProgramKey, workgroup_size: [u32; 3]) {
        self.set(key.as_str(), workgroup_size);
    }

    /// The complete shape decided for this key.
    pub fn shape(&self, key: &str) -> Option<Shape> {
        let elements = self.evidence.0.get(key).and_then(|evidence| evidence.elements_per_invocation);
        Some(Shape { workgroup_size: self.get(key)?, elements_per_invocation: elements.unwrap_or(1) })
    }

    /// Records a complete shape, stamped now; a shape with a zero is refused as in
    /// [`TunerCache::set`].
    pub fn set_shape(&mut self, key: impl Into<String>, shape: Shape) {
        let key = key.into();
        let decided_at_ns = stamp_after(Some(self.decided_at_ns(&key)));
        self.set_decided(&key, shape, decided_at_ns);
    }

    /// Adopts a decision with its original timestamp.
    pub(crate) fn set_decided(&mut self, key: &str, shape: Shape, decided_at_ns: u64) {
        if shape.workgroup_size.contains(&0) || shape.elements_per_invocation == 0 {
            tracing::warn!("shape {shape} for {key:?} is not possible and not recorded");
            return;
        }
        let elements = shape.elements_per_invocation;
        let evidence = self.evidence.0.entry(key.to_owned()).or_default();
        evidence.changed_at_ns = decided_at_ns;
        evidence.elements_per_invocation = (elements > 1).then_some(elements);
        self.decisions.0.insert(key.to_owned(), Decision(shape.workgroup_size));
    }

    /// When the decision for this key was made or its samples taken; 0 if unknown.
    pub fn decided_at_ns(&self, key: &str) -> u64 {
        changed_at(&self.evidence, key)
    }

    /// Quarantines a candidate for this key.
    pub fn quarantine(&mut self, key: &str, shape: Shape, reason: &str) {
        self.evidence.0.entry(key.to_owned()).or_default().quarantine(shape, reason);
    }

    /// Whether a candidate for this key is quarantined.
    pub fn is_quarantined(&self, key: &str, shape: Shape) -> bool {
        self.samples(key).iter().any(|other| other.shape() == shape && other.quarantined.is_some())
    }

    /// Every decision, by key.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, Shape)> {
        self.decisions.0.keys().filter_map(|key| Some((key.as_str(), self.shape(key)?)))
    }

    /// The samples behind the decision for this key; empty if it was not measured.
    pub fn samples(&self, key: &str) -> &[CandidateSamples] {
        self.evidence.0.get(key).map_or(&[], |evidence| &evidence.candidates)
    }

    /// Replaces the samples behind the decision for this key.
    pub fn set_samples(&mut self, key: impl Into<String>, mut candidates: Vec<CandidateSamples>) {
        for sample in candidates.iter_mut().flat_map(|candidate| &mut candidate.samples_ns) {
            *sample = (*sample).min(i64::MAX as u64);
        }
        let row = self.evidence.0.entry(key.into()).or_default();
        let changed_at_ns = stamp_after(Some(row.changed_at_ns));
        row.replace(DecisionRecord { changed_at_ns, candidates, ..*row });
    }

    /// Loads the decisions in this file and the samples beside it. A missing file gives no
    /// decisions. A malformed file is an error that names the file and the entry.
    pub fn load(path: &Path) -> Result<TunerCache, TableError> {
        let path = tables::real_path(path);
        let evidence = tables::sibling(&path, SAMPLES_SUFFIX)?;
        Ok(TunerCache { decisions: tables::load(&path)?, evidence: tables::load(&evidence)? })
    }

    /// Merges the decisions and samples into the file, replacing older ones. A corrupt file is set
    /// aside first.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        let mut file = LockedCache::lock(path)?;
        let now = now_ns();
        for key in self.decisions.0.keys().chain(self.evidence.0.keys()) {
            let age = |evidence| stamp_counts(changed_at(evidence, key), now);
            let decisions = &mut file.decisions.table.0;
            let newer = age(&self.evidence) > age(&file.evidence.table) || !decisions.contains_key(key);
            if let Some(decision) = self.decisions.0.get(key).filter(|_| newer) {
                decisions.insert(key.clone(), *decision);
            }
            if let Some(ours) = self.evidence.0.get(key) {
                let row = file.evidence.table.0.entry(key.clone()).or_default();
                if newer { row.replace(ours.clone()) } else { row.keep_quarantines(ours) }
            }
        }
        file.write()
    }

    /// Loads the file; a corrupt one is set aside first.
    pub(super) fn load_or_set_aside(path: &Path) -> Result<TunerCache, TableError> {
        match TunerCache::load(path) {
            Err(error) if error.is_corrupt() => {
                let file = LockedCache::lock(path)?;
                Ok(TunerCache { decisions: file.decisions.table, evidence: file.evidence.table })
            }
            loaded => loaded,
        }
    }
}

pub(crate) const SAMPLES_SUFFIX: &str = ".samples";

/// Both files of a cache, locked, with their contents.
struct LockedCache {
    locked: TableLock,
    decisions: OnDisk<Rows<Decision>>,
    evidence: OnDisk<Rows<DecisionRecord>>,
}

impl LockedCache {
    fn lock(path: &Path) -> Result<LockedCache, TableError> {
        let locked = TableLock::acquire(path)?;
        let evidence_path = tables::sibling(locked.path(), SAMPLES_SUFFIX)?;
        let (decisions, evidence) = (locked.read(locked.path())?, locked.read(&evidence_path)?);
        Ok(LockedCache { locked, decisions, evidence })
    }

    fn write(mut self) -> Result<(), TableError> {
        let with_evidence = |key: &String| self.evidence.table.0.contains_key(key);
        let known: Vec<String> =
            self.decisions.table.0.keys().filter(|key| with_evidence(key)).cloned().collect();
        // Drop a decision together with its evidence: without it, a shape that failed could be used
        // again.
        self.evidence.fit()?;
        for key in known.into_iter().filter(|key| !self.evidence.table.0.contains_key(key)) {
            self.decisions.table.0.remove(&key);
        }
        self.locked.write(&mut self.decisions)?;
        self.locked.write(&mut self.evidence)
    }
}

/// A decided workgroup size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "[u32; 3]")]
pub(crate) struct Decision([u32; 3]);

impl TryFrom<[u32; 3]> for Decision {
    type Error = String;

    fn try_from(size: [u32; 3]) -> Result<Decision, String> {
        let reason = || format!("wanted three sizes from 1 to {}, found {size:?}", u32::MAX);
        if size.contains(&0) { Err(reason()) } else { Ok(Decision(size)) }
    }
}

impl Row for Decision {
    const KIND: &'static str = "tuner decisions";

    // Decisions without samples were entered manually: nothing shows which are older.
    fn stamp(&self) -> u64 {
        0
    }

    fn print(rows: &BTreeMap<String, Decision>) -> Result<String, InvalidTable> {
        let row =
            |(key, Decision([x, y, z])): (&String, &Decision)| format!("{} = [{x}, {y}, {z}]\n", quoted(key));
        Ok(rows.iter().map(row).collect())
    }
}

/// The key as a TOML basic string.
fn quoted(key: &str) -> String {
    let mut text = String::from('"');
    for character in key.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            // Escape what TOML requires, and the other control characters, so that a row is one
            // line in every editor.
            _ if character.is_control() => text += &format!("\\u{:04X}", u32::from(character)),
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

/// The evidence behind one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DecisionRecord {
    /// When the decision or its samples last changed, in nanoseconds since 1970: the newest row of
    /// a key wins.
    changed_at_ns: u64,
    /// Elements per invocation of the decided shape; one if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elements_per_invocation: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<CandidateSamples>,
}

/// When the row changed; 0 if there is none.
fn changed_at(evidence: &Rows<DecisionRecord>, key: &str) -> u64 {
    evidence.0.get(key).map_or(0, |evidence| evidence.changed_at_ns)
}

impl Row for DecisionRecord {
    const KIND: &'static str = "tuner samples";

    fn stamp(&self) -> u64 {
        self.changed_at_ns
    }
}

impl DecisionRecord {
    fn quarantine(&mut self, shape: Shape, reason: &str) {
        match self.candidates.iter_mut().find(|candidate| candidate.shape() == shape) {
            Some(candidate) => candidate.quarantined = Some(reason.to_owned()),
            None => self.candidates.push(CandidateSamples {
                workgroup_size: shape.workgroup_size,
                elements_per_invocation: Some(shape.elements_per_invocation),
                quarantined: Some(reason.to_owned()),
                samples_ns: Vec::new(),
            }),
        }
    }

    fn keep_quarantines(&mut self, other: &DecisionRecord) {
        for candidate in &other.candidates {
            if let Some(reason) = &candidate.quarantined {
                self.quarantine(candidate.shape(), reason);
            }
        }
    }

    /// Replaces this row with a newer one, keeping its quarantines.
    fn replace(&mut self, newer: DecisionRecord) {
        let older = std::mem::replace(self, newer);
        self.keep_quarantines(&older);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TableFormat;

    type Decisions = Rows<Decision>;

    fn check_refused(text: &str, entry: Option<&str>) {
        let fault = Decisions::parse(text).expect_err(text);
        assert_eq!(fault.entry.as_deref(), entry, "{text}");
    }

    #[test]
    fn a_text_is_all_decisions_or_refused() {
        let parsed =
            Decisions::parse("# any comment\n\"a b\" = [1, 2, 4294967295]\nbare = [64,1,1]").expect("valid");
        assert_eq!(parsed.0.get("a b"), Some(&Decision([1, 2, u32::MAX])));
        assert_eq!(parsed.0.get("bare"), Some(&Decision([64, 1, 1])));
        assert_eq!(Decisions::parse("").expect("an empty text has no decisions"), Decisions::default());
        for value in
            ["[0, 1, 1]", "[1, -1, 1]", "[1, 1, 4294967296]", "[1, 1]", "[1, 1, 1, 1]", "[]", "[1, 1, 1.0]"]
        {
            check_refused(&format!("good = [1, 1, 1]\nbad = {value}"), Some("bad"));
        }
        for value in ["64", "\"64\"", "true", "{ x = 1 }", "[\"1\", \"1\", \"1\"]"] {
            check_refused(&format!("bad = {value}"), Some("bad"));
        }
        check_refused("[bad]\nx = [1, 1, 1]", Some("bad"));
        check_refused("no equals sign", None);
        check_refused("a = [1, 1, 1]\na = [1, 1, 1]", None);
    }

    #[test]
    fn a_row_is_one_line_with_its_key_quoted() {
        let mut cache = TunerCache::default();
        cache.set("a\"\\\n\u{0}\u{7f}\u{85}é", [1, 2, 3]);
        let text = cache.decisions.print().expect("prints");
        assert_eq!(text, "\"a\\\"\\\\\\u000A\\u0000\\u007F\\u0085é\" = [1, 2, 3]\n");
        assert_eq!(Decisions::parse(&text).expect("parses"), cache.decisions);
    }

    #[test]
    fn an_impossible_size_is_not_recorded() {
        let mut cache = TunerCache::default();
        cache.set("key", [64, 1, 1]);
        let before = cache.clone();
        cache.set("key", [64, 0, 1]);
        assert_eq!(cache, before);
    }
}
