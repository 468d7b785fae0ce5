//! Types of the ops, for the translator from Python, which queries the op table instead of
//! duplicating it.

use pyo3::prelude::*;
use vyre::ir::ValueType;
use vyre::unstable::foundation::ops::{Op, Signature};

/// Return every op by its name in text, with a word for each operand: the type that it must have,
/// `alike` for operands that must have the same type, `own` for one independent of the others.
#[pyfunction]
pub(crate) fn signatures() -> Vec<(&'static str, Vec<&'static str>)> {
    Op::ALL.iter().map(|op| (op.row().name, operands(op.row().signature))).collect()
}

fn operands(signature: Signature) -> Vec<&'static str> {
    match signature {
        Signature::Same(arity, _) => vec!["alike"; arity.into()],
        Signature::Compare(_) | Signature::Distance => vec!["alike"; 2],
        Signature::Test(_) | Signature::Count(_) | Signature::Gives(..) => vec!["own"],
        Signature::Cast(_) | Signature::Bitcast(_) => vec!["own"],
        Signature::Shift => vec!["alike", "u32"],
        Signature::Scale => vec!["alike", "i32"],
        Signature::Field(integers) => [vec!["alike"; integers.into()], vec!["u32"; 2]].concat(),
        Signature::Select => vec!["bool", "alike", "alike"],
    }
}

/// Return the result type of an op for operands of these types; `None` if it does not accept them.
#[pyfunction]
pub(crate) fn result(name: &str, operands: Vec<String>) -> Option<&'static str> {
    let op = Op::ALL.iter().find(|op| op.row().name == name)?;
    let typed = |name: &String| ValueType::ALL.into_iter().find(|ty| ty.name() == name);
    let operands: Vec<ValueType> = operands.iter().map(typed).collect::<Option<_>>()?;
    op.row().signature.result(&operands).map(ValueType::name)
}
