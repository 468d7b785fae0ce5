//! Ready-made ops of the catalogue, by name.
//!
//! [`ROWS`] is the table: the buffer that determines the element type, the source of the op's size,
//! and the function that builds its plan. An op is loaded at its first call for an element type and
//! sizes, and cached with the runtime.

use crate::argument::{self, data_type, vyre_argument};
use crate::array;
use crate::handles;
use crate::report::vyre_report;
use crate::routine::{self, vyre_options};
use crate::runtime::{self, Ops, vyre_runtime};
use crate::status::{FunctionError, VYRE_ARGUMENT, guarded, vyre_status};
use crate::text;
use std::ffi::c_char;
use std::sync::PoisonError;
use vyre::catalogue::matmul::{Sizes, matmul_tuned};
use vyre::catalogue::scan::ScanKind;
use vyre::catalogue::sort::{self, Key};
use vyre::catalogue::{Plan, PlanError, grid, histogram, reduce, scan, softmax};
use vyre::ir::Combine;
use vyre::{DataType, Device, OpRoutine, Runtime};

/// Parameters of a plan.
struct Wanted {
    element: DataType,
    /// Size of the call.
    size: u32,
    /// Other sizes.
    sizes: [u32; 2],
}

struct Row {
    /// ID of the op in the catalogue.
    id: &'static str,
    /// Buffer whose type is the op's element type.
    element: &'static str,
    types: &'static [DataType],
    size: Size,
    /// Other sizes.
    sizes: &'static [Size],
    make: fn(&Wanted, &Device<'_>) -> Result<Plan, PlanError>,
}

/// Source of a size.
enum Size {
    /// Number of elements in this buffer.
    Count(&'static str),
    /// Value of this argument, a single u32.
    Value(&'static str),
}

const NUMBERS: &[DataType] =
    &[DataType::U32, DataType::I32, DataType::U64, DataType::I64, DataType::F32, DataType::F64];
const KEYS: &[DataType] = &[DataType::U32, DataType::I32, DataType::F32];

/// Ops that C can call. `docs/c.md` lists their buffers.
const ROWS: &[Row] = &[
    Row {
        id: "sort.keys",
        element: "keys",
        types: KEYS,
        size: Size::Count("keys"),
        sizes: &[],
        make: |wanted, device| sort::keys(key(wanted.element), wanted.size, device),
    },
    Row {
        id: "sort.pairs",
        element: "keys",
        types: KEYS,
        size: Size::Count("keys"),
        sizes: &[],
        make: |wanted, device| sort::pairs(key(wanted.element), wanted.size, device),
    },
    Row {
        id: "reduce.sum",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| reduce::reduce(Combine::Add, wanted.element, wanted.size, device),
    },
    Row {
        id: "reduce.min",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| reduce::reduce(Combine::Min, wanted.element, wanted.size, device),
    },
    Row {
        id: "reduce.max",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| reduce::reduce(Combine::Max, wanted.element, wanted.size, device),
    },
    Row {
        id: "dot",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| reduce::dot(wanted.element, wanted.size, device),
    },
    Row {
        id: "argmax",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| reduce::argmax(wanted.element, wanted.size, device),
    },
    Row {
        id: "scan.inclusive",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| scan::scan(ScanKind::Inclusive, wanted.element, wanted.size, device),
    },
    Row {
        id: "scan.exclusive",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| scan::scan(ScanKind::Exclusive, wanted.element, wanted.size, device),
    },
    Row {
        id: "compact",
        element: "x",
        types: NUMBERS,
        size: Size::Count("x"),
        sizes: &[],
        make: |wanted, device| Ok(scan::compact(wanted.element, wanted.size, device)),
    },
    Row {
        id: "histogram",
        element: "x",
        types: &[DataType::U8, DataType::U16, DataType::U32],
        size: Size::Count("x"),
        sizes: &[Size::Count("counts")],
        make: |wanted, device| histogram::histogram(wanted.element, wanted.sizes[0], wanted.size, device),
    },
    Row {
        id: "transpose",
        element: "x",
        types: NUMBERS,
        size: Size::Value("rows"),
        sizes: &[Size::Value("columns")],
        make: |wanted, device| grid::transpose(wanted.element, wanted.sizes[0], wanted.size, device),
    },
    Row {
        id: "softmax.rows",
        element: "x",
        types: &[DataType::F32],
        size: Size::Value("rows"),
        sizes: &[Size::Value("columns")],
        make: |wanted, device| softmax::rows(wanted.size, wanted.sizes[0], device),
    },
    Row {
        id: "matmul",
        element: "a",
        types: &[DataType::F32],
        size: Size::Value("rows"),
        sizes: &[Size::Value("depth"), Size::Value("columns")],
        make: |wanted, device| {
            matmul_tuned(
                Sizes { rows: wanted.size, depth: wanted.sizes[0], columns: wanted.sizes[1] },
                device,
                device.tuner(),
            )
        },
    },
];

fn key(element: DataType) -> Key {
    match element {
        DataType::I32 => Key::I32,
        DataType::F32 => Key::F32,
        // The row accepts no other type.
        _ => Key::U32,
    }
}

/// Runs a ready op of the catalogue by its name: "sort.keys", "sort.pairs", "reduce.sum",
/// "reduce.min", "reduce.max", "dot", "argmax", "scan.inclusive", "scan.exclusive", "compact",
/// "histogram", "transpose", "softmax.rows" or "matmul". docs/c.md lists the buffers of each.
/// Otherwise like `vyre_run`.
///
/// # Safety
/// As for `vyre_run`; `op` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_run_op(
    runtime: vyre_runtime,
    op: *const c_char,
    arguments: *const vyre_argument,
    count: usize,
    options: *const vyre_options,
    report: *mut vyre_report,
) -> vyre_status {
    guarded(|| {
        let used = runtime::found(runtime)?;
        let held = runtime::held(&used)?;
        // SAFETY: by contract, here and below.
        let (op, arguments) = unsafe { (text::taken(op, "`op`")?, argument::given(arguments, count)?) };
        let place = ROWS.iter().position(|row| row.id == op).ok_or_else(|| unknown(op))?;
        let row = &ROWS[place];
        // SAFETY: by contract.
        let named = unsafe { Named::new(row, arguments) }?;
        let wanted = named.wanted()?;
        let routine = loaded(&held.runtime, &held.ops, place, &wanted)?;
        let buffers: Vec<vyre_argument> = named.buffers();
        // SAFETY: by contract.
        unsafe { routine::run(routine.call(wanted.size as usize), &buffers, options, report) }
    })
}

fn unknown(op: &str) -> FunctionError {
    let known: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
    FunctionError::new(VYRE_ARGUMENT, format!("there is no op `{op}`; the ops are {}", known.join(", ")))
}

fn loaded(runtime: &Runtime, ops: &Ops, place: usize, wanted: &Wanted) -> Result<OpRoutine, FunctionError> {
    let key = (place, wanted.element, wanted.sizes);
    let mut ops = ops.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(routine) = ops.get(&key) {
        return Ok(routine.clone());
    }
    let (_, element, sizes) = key;
    let make = move |size, device: &Device<'_>| (ROWS[place].make)(&Wanted { element, size, sizes }, device);
    let routine = runtime.load_op(make)?;
    ops.insert(key, routine.clone());
    Ok(routine)
}

/// Arguments of an op, by name.
struct Named<'a> {
    row: &'static Row,
    arguments: Vec<(&'a str, &'a vyre_argument)>,
}

impl<'a> Named<'a> {
    /// # Safety
    /// The names are null or C strings.
    unsafe fn new(row: &'static Row, arguments: &'a [vyre_argument]) -> Result<Named<'a>, FunctionError> {
        let name = |argument: &'a vyre_argument| {
            // SAFETY: by contract.
            Ok((unsafe { text::taken(argument.name, "the name of an argument") }?, argument))
        };
        Ok(Named { row, arguments: arguments.iter().map(name).collect::<Result<_, FunctionError>>()? })
    }

    fn wanted(&self) -> Result<Wanted, FunctionError> {
        let (element, _) = shape(self.find(self.row.element)?)?;
        if !self.row.types.contains(&element) {
            let types: Vec<&str> = self.row.types.iter().map(|ty| ty.name()).collect();
            let message = format!("`{}` takes elements of {}, not {element}", self.row.id, types.join(", "));
            return Err(FunctionError::new(VYRE_ARGUMENT, message));
        }
        let mut sizes = [0; 2];
        for (place, size) in sizes.iter_mut().zip(self.row.sizes) {
            *place = self.size(size)?;
        }
        Ok(Wanted { element, size: self.size(&self.row.size)?, sizes })
    }

    fn find(&self, name: &str) -> Result<&'a vyre_argument, FunctionError> {
        let found = self.arguments.iter().find(|argument| argument.0 == name).map(|argument| argument.1);
        found.ok_or_else(|| {
            FunctionError::new(VYRE_ARGUMENT, format!("`{}` needs an argument `{name}`", self.row.id))
        })
    }

    fn size(&self, size: &Size) -> Result<u32, FunctionError> {
        match size {
            Size::Count(name) => {
                let (_, count) = shape(self.find(name)?)?;
                let few = u32::try_from(count).ok();
                few.ok_or_else(|| {
                    FunctionError::new(VYRE_ARGUMENT, format!("`{name}` has 2^32 elements or more"))
                })
            }
            Size::Value(name) => {
                let argument = self.find(name)?;
                if argument.type_ != argument::VYRE_U32 || argument.count != 1 || argument.data.is_null() {
                    let message =
                        format!("`{name}` of `{}` is a size: give one number of VYRE_U32", self.row.id);
                    return Err(FunctionError::new(VYRE_ARGUMENT, message));
                }
                // SAFETY: the caller of `vyre_run_op` guarantees that the memory is valid; it need
                // not be aligned.
                Ok(unsafe { argument.data.cast::<u32>().read_unaligned() })
            }
        }
    }

    /// Arguments that are buffers.
    fn buffers(&self) -> Vec<vyre_argument> {
        let sizes = || std::iter::once(&self.row.size).chain(self.row.sizes);
        let is_size = |name: &str| sizes().any(|size| matches!(size, Size::Value(known) if *known == name));
        self.arguments.iter().filter(|(name, _)| !is_size(name)).map(|(_, argument)| **argument).collect()
    }
}

/// Element type and number of elements of an argument.
fn shape(argument: &vyre_argument) -> Result<(DataType, usize), FunctionError> {
    if argument.array.is_null() {
        return Ok((data_type(argument.type_)?, argument.count));
    }
    let used = handles::find(argument.array.0 as usize).ok_or_else(|| FunctionError::handle("array"))?;
    let array: &array::HeldArray = used.get().ok_or_else(|| FunctionError::handle("array"))?;
    Ok((array.element, array.buffer.len() / array.element.size()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_are_those_of_the_catalogue() {
        for row in ROWS {
            assert!(vyre::catalogue::find(row.id).is_some(), "{}", row.id);
        }
    }
}
