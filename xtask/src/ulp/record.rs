//! Results of a sweep, and the two files that hold them.

use super::Tally;
use super::wide::WideTally;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use vyre_foundation::docs::{MEASURED_BEGIN as BEGIN, MEASURED_END as END};
use vyre_foundation::math;
use vyre_foundation::ops::Op;
use vyre_foundation::types::ValueType;

/// Contents of docs/ulp.json: the latest measurement of every function, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) functions: BTreeMap<String, Measurement>,
}

/// Comparison of one function with the true one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// Name of the measurement: the op, and for `f64` the type.
    #[serde(skip)]
    name: String,
    /// BLAKE3 hash of the measured code.
    pub(super) fingerprint: String,
    /// Number of inputs compared with true values.
    inputs: u64,
    /// For a sample on `f64`, the number of points taken, including those without a true value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    points: Option<u64>,
    /// Largest error in units in the last place.
    pub(super) max_ulp: f64,
    /// Inputs at which it occurs, as bits.
    at: Vec<String>,
    /// Share of results that are the number nearest to the true value.
    nearest: f64,
}

impl Measurement {
    /// Measurement on `f64`, with the type in its name.
    pub(super) fn wide(op: Op, points: u64, tally: WideTally) -> Measurement {
        let at = &tally.at[..op.row().signature.arity()];
        Measurement {
            name: wide_name(op),
            fingerprint: math::fingerprint(op, ValueType::F64).unwrap_or_default(),
            inputs: tally.inputs,
            points: Some(points),
            max_ulp: (tally.error * 1e4).ceil() / 1e4,
            at: at.iter().map(|bits| format!("0x{bits:016x}")).collect(),
            nearest: (tally.nearest as f64 / tally.inputs.max(1) as f64 * 1e6).floor() / 1e6,
        }
    }

    /// Whether this is of the current expansion and of at least `points` points.
    pub(super) fn covers(&self, fingerprint: &str, points: u64) -> bool {
        self.fingerprint == fingerprint && self.points.unwrap_or(self.inputs) >= points
    }

    pub(super) fn new(op: Op, tally: Tally) -> Measurement {
        let at = &tally.at[..op.row().signature.arity()];
        Measurement {
            name: op.row().name.into(),
            fingerprint: math::fingerprint(op, ValueType::F32).unwrap_or_default(),
            inputs: tally.inputs,
            points: None,
            max_ulp: (tally.error * 1e4).ceil() / 1e4,
            at: at.iter().map(|bits| format!("0x{bits:08x}")).collect(),
            nearest: (tally.nearest as f64 / tally.inputs as f64 * 1e6).floor() / 1e6,
        }
    }

    /// Inputs of the largest error in readable form.
    fn place(&self) -> String {
        let number = |text: &String| {
            let bits = u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0);
            match text.len() {
                18 => format!("{:?}", f64::from_bits(bits)),
                _ => format!("{:?}", f32::from_bits(bits as u32)),
            }
        };
        self.at.iter().map(number).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measurement { name, max_ulp, at, nearest, inputs, .. } = self;
        let (place, at, share) = (self.place(), at.join(", "), nearest * 100.0);
        write!(f, "{name}: at most {max_ulp} ULP, at {place} ({at}); {share:.3}% nearest; {inputs} inputs")
    }
}

impl Record {
    /// Reads docs/ulp.json; empty if there is no such file.
    pub(super) fn read() -> Result<Record, String> {
        let path = docs("ulp.json");
        if !path.exists() {
            return Ok(Record::default());
        }
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Adds or replaces a measurement.
    pub(super) fn with(mut self, measurement: Measurement) -> Record {
        self.functions.insert(measurement.name.clone(), measurement);
        self
    }

    /// Writes docs/ulp.json and the table in docs/ops.md.
    pub(super) fn write(&self) -> Result<(), String> {
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write(&docs("ulp.json"), json + "\n")?;
        let page = docs("ops.md");
        let text = std::fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        write(&page, self.insert_table(&text)?)
    }

    /// Replaces the table of errors in the page with this record's.
    pub(super) fn insert_table(&self, page: &str) -> Result<String, String> {
        let parts = page.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
        let (head, tail) = parts.ok_or(format!("docs/ops.md has no lines `{BEGIN}` and `{END}`"))?;
        Ok(format!("{head}{BEGIN}\n{}{END}{tail}", self.table()))
    }

    fn table(&self) -> String {
        let mut table =
            String::from("| op | largest error (ULP) | where | nearest | inputs |\n|---|---|---|---|---|\n");
        for (name, measurement) in &self.functions {
            let Measurement { max_ulp, nearest, inputs, .. } = measurement;
            let inputs = if *inputs == 1 << 32 { "all".into() } else { inputs.to_string() };
            let (place, share) = (measurement.place(), nearest * 100.0);
            table += &format!("| `{name}` | {max_ulp:.4} | {place} | {share:.2}% | {inputs} |\n");
        }
        table
    }
}

/// Name of a function's measurement on `f64`.
pub(super) fn wide_name(op: Op) -> String {
    format!("{} f64", op.row().name)
}

/// Path of a file in the workspace's docs folder.
pub(super) fn docs(name: &str) -> PathBuf {
    crate::root().join("docs").join(name)
}
