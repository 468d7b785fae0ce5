//! Ready-made ops of the catalogue, by name.
//!
//! [`OPS`] is the table of their parameters and plans. `vyre/ops.py` has the public functions,
//! which create the arrays for results.

use crate::errors;
use crate::kernel::seconds;
use crate::parameter::Parameter;
use crate::report::Report;
use crate::run::{self, All, Given, KeywordOptions, LastCall};
use crate::runtime;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use vyre::catalogue::matmul::{Sizes, matmul_tuned};
use vyre::catalogue::scan::ScanKind;
use vyre::catalogue::sort::Key;
use vyre::catalogue::{Plan, PlanError, grid, histogram, reduce, scan, softmax, sort};
use vyre::ir::Combine;
use vyre::{DataType, Device, OpRoutine};

/// Variant of an op for which a plan is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Case {
    element: DataType,
    /// Sizes of a plan other than the one that a call specifies.
    sizes: [u32; 2],
}

/// Ready-made op.
struct Op {
    name: &'static str,
    /// Element types that it accepts.
    elements: &'static [DataType],
    /// Parameters in order: name, type if it differs from the element type, and whether it is a
    /// result.
    parameters: &'static [(&'static str, Option<DataType>, bool)],
    plan: fn(Case, u32, &Device<'_>) -> Result<Plan, PlanError>,
}

const NUMBERS: &[DataType] =
    &[DataType::U32, DataType::I32, DataType::U64, DataType::I64, DataType::F32, DataType::F64];
const KEYS: &[DataType] = &[DataType::U32, DataType::I32, DataType::F32];
const TALLIES: &[DataType] = &[DataType::U8, DataType::U16, DataType::U32];
const FLOAT: &[DataType] = &[DataType::F32];
const U32: Option<DataType> = Some(DataType::U32);
const REDUCED: &[(&str, Option<DataType>, bool)] = &[("x", None, false), ("result", None, true)];
const MAPPED: &[(&str, Option<DataType>, bool)] = &[("x", None, false), ("y", None, true)];

const OPS: &[Op] = &[
    Op {
        name: "sort",
        elements: KEYS,
        parameters: &[("keys", None, false), ("sorted", None, true)],
        plan: |case, size, device| sort::keys(key(case), size, device),
    },
    Op {
        name: "sort_pairs",
        elements: KEYS,
        parameters: &[
            ("keys", None, false),
            ("values", U32, false),
            ("sorted keys", None, true),
            ("sorted values", U32, true),
        ],
        plan: |case, size, device| sort::pairs(key(case), size, device),
    },
    Op {
        name: "sum",
        elements: NUMBERS,
        parameters: REDUCED,
        plan: |case, size, device| reduce::reduce(Combine::Add, case.element, size, device),
    },
    Op {
        name: "min",
        elements: NUMBERS,
        parameters: REDUCED,
        plan: |case, size, device| reduce::reduce(Combine::Min, case.element, size, device),
    },
    Op {
        name: "max",
        elements: NUMBERS,
        parameters: REDUCED,
        plan: |case, size, device| reduce::reduce(Combine::Max, case.element, size, device),
    },
    Op {
        name: "dot",
        elements: NUMBERS,
        parameters: &[("x", None, false), ("y", None, false), ("result", None, true)],
        plan: |case, size, device| reduce::dot(case.element, size, device),
    },
    Op {
        name: "argmax",
        elements: NUMBERS,
        parameters: &[("x", None, false), ("index", U32, true)],
        plan: |case, size, device| reduce::argmax(case.element, size, device),
    },
    Op {
        name: "scan",
        elements: NUMBERS,
        parameters: MAPPED,
        plan: |case, size, device| scan::scan(ScanKind::Inclusive, case.element, size, device),
    },
    Op {
        name: "scan_exclusive",
        elements: NUMBERS,
        parameters: MAPPED,
        plan: |case, size, device| scan::scan(ScanKind::Exclusive, case.element, size, device),
    },
    Op {
        name: "compact",
        elements: NUMBERS,
        parameters: &[("x", None, false), ("keep", U32, false), ("y", None, true), ("count", U32, true)],
        plan: |case, size, device| Ok(scan::compact(case.element, size, device)),
    },
    Op {
        name: "histogram",
        elements: TALLIES,
        parameters: &[("x", None, false), ("counts", U32, true)],
        plan: |case, size, device| histogram::histogram(case.element, case.sizes[0], size, device),
    },
    Op {
        name: "transpose",
        elements: NUMBERS,
        parameters: MAPPED,
        plan: |case, size, device| grid::transpose(case.element, case.sizes[0], size, device),
    },
    Op {
        name: "softmax_rows",
        elements: FLOAT,
        parameters: MAPPED,
        plan: |case, size, device| softmax::rows(size, case.sizes[0], device),
    },
    Op {
        name: "matmul",
        elements: FLOAT,
        parameters: &[("a", None, false), ("b", None, false), ("c", None, true)],
        plan: |case, size, device| {
            let [depth, columns] = case.sizes;
            matmul_tuned(Sizes { rows: size, depth, columns }, device, device.tuner())
        },
    },
];

fn key(case: Case) -> Key {
    Key::ALL.into_iter().find(|key| key.element() == case.element).unwrap_or(Key::U32)
}

/// Op variant loaded into the process's runtime.
struct Loaded {
    routine: OpRoutine,
    parameters: Vec<Parameter>,
    last_call: LastCall,
}

type Table = HashMap<(&'static str, Case), Arc<Loaded>>;
static LOADED: Mutex<Option<Table>> = Mutex::new(None);

fn load(py: Python<'_>, op: &'static Op, case: Case) -> PyResult<Arc<Loaded>> {
    let runtime = runtime::get(py)?;
    let mut table = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    if let Some(loaded) = table.get(&(op.name, case)) {
        return Ok(loaded.clone());
    }
    let routine = runtime
        .load_op(move |size, device| (op.plan)(case, size, device))
        .map_err(|error| errors::call(py, &error, None))?;
    let parameter = |&(name, element, is_result): &(&str, Option<DataType>, bool)| {
        let make = if is_result { Parameter::write } else { Parameter::read };
        make(name, element.unwrap_or(case.element))
    };
    let parameters = op.parameters.iter().map(parameter).collect();
    let loaded = Arc::new(Loaded { routine, parameters, last_call: LastCall::unknown() });
    table.insert((op.name, case), loaded.clone());
    Ok(loaded)
}

/// Run an op on these arguments, one per parameter. `size` is the size of the call, `sizes` are the
/// plan's other sizes.
#[pyfunction]
#[pyo3(signature = (name, element, size, sizes, arguments, on=None, timeout=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn op<'py>(
    py: Python<'py>,
    name: &str,
    element: &str,
    size: u32,
    sizes: [u32; 2],
    arguments: &Bound<'py, PyTuple>,
    on: Option<String>,
    timeout: Option<f64>,
) -> PyResult<Report> {
    let found = OPS.iter().find(|op| op.name == name);
    let op = found.ok_or_else(|| errors::argument(py, format!("there is no op `{name}`")))?;
    let title = format!("`{name}`");
    let typed = op.elements.iter().find(|known| known.name() == element);
    let Some(&element) = typed else {
        let known: Vec<&str> = op.elements.iter().map(|known| known.name()).collect();
        let message = format!("{title} takes elements of {}, not {element}", known.join(", "));
        return Err(errors::argument(py, message));
    };
    let loaded = load(py, op, Case { element, sizes })?;
    let mut given: All<'py> = All::new();
    for (object, parameter) in arguments.iter().zip(&loaded.parameters) {
        given.push(Given::read(&object, parameter, &title)?);
    }
    run::disjoint(py, &loaded.parameters, &given, &title)?;
    let timeout = timeout.map(|limit| seconds(py, limit)).transpose()?;
    let options = KeywordOptions { on, timeout, ..KeywordOptions::default() };
    let (call, memory) = (loaded.routine.call(size as usize), (&loaded.parameters[..], &mut given));
    let report = run::run(py, call, memory, &options, &loaded.last_call);
    report.map(Report).map_err(|error| errors::call(py, &error, None))
}

/// Return the ops and the element types that each accepts.
#[pyfunction]
pub(crate) fn table() -> Vec<(&'static str, Vec<&'static str>)> {
    OPS.iter().map(|op| (op.name, op.elements.iter().map(|element| element.name()).collect())).collect()
}
