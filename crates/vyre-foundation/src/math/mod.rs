//! Ops composed of others, such as the transcendental ones, defined by code in exact ops.
//!
//! `expansions.vyre`, `expansions_more.vyre`, `expansions_f64.vyre` and `composites.vyre` define
//! one function per op and type, named after the op, with the type of the first operand as a suffix
//! unless that is `f32`. The function defines the op's value in the interpreter, in constant
//! folding and on every strict backend, so all of them agree bit for bit. A backend removes the ops
//! with [`expand`] and then lowers ordinary code.
//!
//! The text is parsed once. [`expansion`] caches the validated form of each function: names
//! resolved, calls inlined, types known. The error bound of an op is in its row
//! ([`OpRow::expansion_error`](crate::ops::OpRow::expansion_error)), measured by `cargo xtask ulp`.

mod compile;
mod expand;
mod source;

pub use compile::{Compute, Expansion, ExpansionStep, expansion};
pub use expand::expand;
pub(crate) use expand::expand_ops;
pub use source::fingerprint;

use crate::kernel::{LocalId, ValueId};
use crate::ops::{Op, eval};
use crate::types::{Value, ValueType};
use smallvec::SmallVec;

/// Evaluates an op that has an expansion; `None` if the op does not take these arguments.
pub(crate) fn evaluate(op: Op, args: &[Value]) -> Option<Value> {
    let types: SmallVec<[ValueType; 4]> = args.iter().map(|arg| arg.ty()).collect();
    op.row().signature.result(&types)?;
    let expansion = expansion(op, types[0])?;
    let mut state = Evaluation {
        values: vec![Value::Bool(false); expansion.values.len()],
        locals: vec![Value::Bool(false); expansion.locals.len()],
    };
    for (parameter, arg) in expansion.parameters.iter().zip(args) {
        state.values[parameter.index()] = *arg;
    }
    state.run(&expansion.steps);
    Some(state.value(expansion.result))
}

/// The values and locals of one evaluation. Each is set before it is read, so the initial contents
/// do not matter.
struct Evaluation {
    values: Vec<Value>,
    locals: Vec<Value>,
}

impl Evaluation {
    fn value(&self, id: ValueId) -> Value {
        self.values[id.index()]
    }

    fn run(&mut self, steps: &[ExpansionStep]) {
        for step in steps {
            match step {
                ExpansionStep::Define(id, compute) => self.values[id.index()] = self.compute(compute),
                ExpansionStep::Set(LocalId(local), value) => {
                    self.locals[*local as usize] = self.value(*value)
                }
                ExpansionStep::If { condition, then, otherwise } => {
                    let holds = self.value(*condition) == Value::Bool(true);
                    self.run(if holds { then } else { otherwise });
                }
            }
        }
    }

    fn compute(&self, compute: &Compute) -> Value {
        match compute {
            Compute::Const(value) => *value,
            Compute::Get(local) => self.locals[local.index()],
            Compute::Op(op, operands) => {
                let mut args = [Value::Bool(false); 4];
                for (arg, operand) in args.iter_mut().zip(operands.iter()) {
                    *arg = self.value(*operand);
                }
                eval(*op, &args[..operands.len()])
                    .unwrap_or_else(|| unreachable!("validation checked the types"))
            }
        }
    }
}
