//! Compiles the text of the expansions to their checked form.
//!
//! Each function is wrapped in a kernel that loads its arguments and stores its result. Validation
//! resolves, inlines and checks it like any user function; the steps between the loads and the
//! store are the expansion.

use super::source::{function_name, is_defined, text_with_callees};
use crate::ir::{BufferDecl, Expr, Node, Program};
use crate::kernel::{BufferId, Def, KernelBody, Local, LocalId, Operands, Place, Stmt, StmtKind, ValueId};
use crate::ops::Op;
#[cfg(feature = "compiler")]
use crate::optimize::{Assume, compact, cse, dead, fold, simplify};
use crate::text;
use crate::types::{Value, ValueType};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Merges the computations that functions of one operand have in common.
#[cfg(feature = "compiler")]
fn simplified(mut body: KernelBody) -> KernelBody {
    fold::run(&mut body, &Assume::default());
    simplify::run(&mut body);
    cse::run(&mut body);
    dead::run(&mut body);
    compact::run(&mut body);
    body
}

/// Without an optimizer the expansion is only longer.
#[cfg(not(feature = "compiler"))]
fn simplified(body: KernelBody) -> KernelBody {
    body
}

/// The code of an op, with its own ids: values are numbered from 0 in definition order, parameters
/// first.
#[derive(Debug)]
pub struct Expansion {
    /// The values of the op's operands, in order.
    pub parameters: Vec<ValueId>,
    /// The value of the op's result.
    pub result: ValueId,
    /// The type of each value.
    pub values: Vec<ValueType>,
    /// The variables that the code assigns more than once.
    pub locals: Vec<Local>,
    /// The code.
    pub steps: Vec<ExpansionStep>,
}

/// A step of an expansion: a statement of a [`Kernel`](crate::kernel::Kernel) that neither accesses
/// memory nor loops.
#[derive(Clone, Debug)]
pub enum ExpansionStep {
    /// Computes a value.
    Define(ValueId, Compute),
    /// Assigns a local.
    Set(LocalId, ValueId),
    /// Runs one of two lists of steps.
    If {
        /// A `bool`.
        condition: ValueId,
        /// Runs where the condition is true.
        then: Vec<ExpansionStep>,
        /// Runs where the condition is false.
        otherwise: Vec<ExpansionStep>,
    },
}

/// How a step computes a value.
#[derive(Clone, Copy, Debug)]
pub enum Compute {
    /// A constant.
    Const(Value),
    /// The current value of a local.
    Get(LocalId),
    /// An exact table op.
    Op(Op, Operands),
}

/// The code that defines an op whose first operand has type `ty`; `None` if the op is not composed
/// of others.
///
/// ```
/// use vyre_foundation::{math, ops::Op, types::ValueType};
/// assert_eq!(math::expansion(Op::Pow, ValueType::F32).map(|e| e.parameters.len()), Some(2));
/// assert!(math::expansion(Op::Add, ValueType::F32).is_none());
/// ```
pub fn expansion(op: Op, ty: ValueType) -> Option<&'static Expansion> {
    static ALL: OnceLock<BTreeMap<(Op, ValueType), OnceLock<Expansion>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let expanded = Op::ALL.iter().filter(|op| op.row().expansion_error.is_some());
        let of_types = expanded.flat_map(|op| ValueType::ALL.map(|ty| (*op, ty)));
        let defined = of_types.filter(|(op, ty)| is_defined(&function_name(*op, *ty)));
        defined.map(|form| (form, OnceLock::new())).collect()
    });
    let place = all.get(&(op, ty))?;
    Some(place.get_or_init(|| compile(&function_name(op, ty))))
}

impl Expansion {
    /// The ops that the code uses, with repetitions.
    pub fn ops(&self) -> impl Iterator<Item = Op> {
        let mut ops = Vec::new();
        collect_ops(&self.steps, &mut ops);
        ops.into_iter()
    }
}

fn collect_ops(steps: &[ExpansionStep], ops: &mut Vec<Op>) {
    for step in steps {
        match step {
            ExpansionStep::Define(_, Compute::Op(op, _)) => ops.push(*op),
            ExpansionStep::Define(_, Compute::Const(_) | Compute::Get(_)) | ExpansionStep::Set(..) => {}
            ExpansionStep::If { then, otherwise, .. } => {
                collect_ops(then, ops);
                collect_ops(otherwise, ops);
            }
        }
    }
}

/// Compiles the named function; only it and its callees are parsed.
fn compile(name: &str) -> Expansion {
    let functions = match text::parse_functions(&text_with_callees(name)) {
        Ok(functions) => functions,
        Err(faults) => unreachable!("an expansion is not well formed: {faults}"),
    };
    let Some(function) = functions.iter().find(|function| *function.name == *name) else {
        unreachable!("only forms with a function are listed");
    };
    let element = || Expr::invocation_id(0);
    let parameters = || function.params.iter().map(|(name, _)| name.clone());
    let arguments: Vec<Expr> = parameters().map(|name| Expr::load(name, element())).collect();
    let call = Expr::Call(function.name.clone(), arguments.into());
    let types = function.params.iter().map(|(_, ty)| ty.data_type());
    let mut buffers: Vec<BufferDecl> =
        parameters().zip(types).zip(0..).map(|((name, ty), at)| BufferDecl::read(name, at, ty)).collect();
    let inputs = buffers.len();
    buffers.push(BufferDecl::output("result", inputs as u32, function.result.data_type()));
    let program = Program::wrapped(buffers, [1, 1, 1], vec![Node::store("result", element(), call)]);
    match program.with_functions(functions).validate() {
        Ok(kernel) => cut(&simplified(kernel.into_body()), inputs),
        Err(found) => unreachable!("the expansion `{name}` is not valid: {found}"),
    }
}

/// Extracts the code between the loads of the first `inputs` buffers and the store.
fn cut(kernel: &KernelBody, inputs: usize) -> Expansion {
    let mut cutter = Cutter {
        kernel,
        inputs: vec![None; inputs],
        result: None,
        numbers: HashMap::new(),
        values: Vec::new(),
    };
    let steps = cutter.steps(&kernel.body);
    let parameters =
        cutter.inputs.iter().map(|input| input.unwrap_or_else(|| unreachable!("arguments are loaded")));
    Expansion {
        parameters: parameters.collect(),
        result: cutter.result.unwrap_or_else(|| unreachable!("the result is stored")),
        values: cutter.values,
        locals: kernel.locals.clone(),
        steps,
    }
}

struct Cutter<'a> {
    kernel: &'a KernelBody,
    inputs: Vec<Option<ValueId>>,
    result: Option<ValueId>,
    numbers: HashMap<ValueId, ValueId>,
    values: Vec<ValueType>,
}

impl Cutter<'_> {
    fn define(&mut self, value: ValueId) -> ValueId {
        let number = ValueId(self.values.len() as u32);
        self.values.push(self.kernel.ty(value));
        self.numbers.insert(value, number);
        number
    }

    fn steps(&mut self, body: &[Stmt]) -> Vec<ExpansionStep> {
        let mut steps = Vec::new();
        for stmt in body {
            self.step(&stmt.kind, &mut steps);
        }
        steps
    }

    fn step(&mut self, stmt: &StmtKind, steps: &mut Vec<ExpansionStep>) {
        match stmt {
            StmtKind::Def(value, Def::Const(constant)) => {
                steps.push(ExpansionStep::Define(self.define(*value), Compute::Const(*constant)));
            }
            StmtKind::Def(value, Def::Get(local)) => {
                steps.push(ExpansionStep::Define(self.define(*value), Compute::Get(*local)));
            }
            StmtKind::Def(value, Def::Op(op, operands)) => {
                let mut operands = *operands;
                operands.iter_mut().for_each(|operand| *operand = self.numbers[operand]);
                steps.push(ExpansionStep::Define(self.define(*value), Compute::Op(*op, operands)));
            }
            StmtKind::Def(value, Def::Load { place: Place::Buffer(BufferId(buffer)), .. }) => {
                self.inputs[*buffer as usize] = Some(self.define(*value));
            }
            // The index of the element; only the loads and the store read it.
            StmtKind::Def(_, Def::Builtin(..)) => {}
            StmtKind::Set(local, value) => steps.push(ExpansionStep::Set(*local, self.numbers[value])),
            StmtKind::Store { value, .. } => self.result = Some(self.numbers[value]),
            StmtKind::If { condition, then, otherwise } => {
                let condition = self.numbers[condition];
                let (then, otherwise) = (self.steps(then), self.steps(otherwise));
                steps.push(ExpansionStep::If { condition, then, otherwise });
            }
            StmtKind::Region { body, .. } => steps.extend(self.steps(body)),
            StmtKind::Def(_, Def::Load { .. } | Def::Len(_) | Def::Atomic { .. } | Def::Subgroup(..))
            | StmtKind::Clear(_)
            | StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => unreachable!("an expansion neither touches memory nor loops"),
        }
    }
}
