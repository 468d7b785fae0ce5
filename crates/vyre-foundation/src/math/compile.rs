//! From the expansions' text to their checked form.
//!
//! Each function is put into a kernel that loads its arguments and stores its result. Validation resolves, inlines and
//! checks it like any user's function; the steps between the loads and the store are the expansion.

use super::source::TEXT;
use crate::ir::{BufferDecl, DataType, Expr, Function, Node, Program};
use crate::kernel::{BufferId, Def, Kernel, Local, LocalId, Operands, Place, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use crate::text;
use crate::types::{Value, ValueType};
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// The code of an op, in ids of its own: values count from 0 in the order of their definition, parameters first.
#[derive(Debug)]
pub struct Expansion {
    /// The values that stand for the op's operands, in order.
    pub parameters: Vec<ValueId>,
    /// The value that is the op's result.
    pub result: ValueId,
    /// The type of each value.
    pub values: Vec<ValueType>,
    /// The variables that the code assigns more than once.
    pub locals: Vec<Local>,
    /// The code.
    pub steps: Vec<Step>,
}

/// A step of an expansion: the statements of a [`Kernel`] that neither touch memory nor loop.
#[derive(Clone, Debug)]
pub enum Step {
    /// Computes a value.
    Define(ValueId, Compute),
    /// Gives a local a value.
    Set(LocalId, ValueId),
    /// Runs one of two lists of steps.
    If {
        /// A `bool`.
        condition: ValueId,
        /// Runs where it holds.
        then: Vec<Step>,
        /// Runs where it does not.
        otherwise: Vec<Step>,
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

/// The code that defines an op, or `None` if the op is exact.
///
/// ```
/// use vyre_foundation::{math, ops::Op};
/// assert_eq!(math::expansion(Op::Pow).map(|e| e.parameters.len()), Some(2));
/// assert!(math::expansion(Op::Add).is_none());
/// ```
pub fn expansion(op: Op) -> Option<&'static Expansion> {
    static ALL: OnceLock<BTreeMap<Op, OnceLock<Expansion>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let expanded = Op::ALL.iter().filter(|op| op.row().expansion_error.is_some());
        expanded.map(|op| (*op, OnceLock::new())).collect()
    });
    Some(all.get(&op)?.get_or_init(|| compile(op)))
}

impl Expansion {
    /// The ops that the code uses, each as often as it does.
    pub fn ops(&self) -> impl Iterator<Item = Op> {
        let mut ops = Vec::new();
        collect_ops(&self.steps, &mut ops);
        ops.into_iter()
    }
}

fn collect_ops(steps: &[Step], ops: &mut Vec<Op>) {
    for step in steps {
        match step {
            Step::Define(_, Compute::Op(op, _)) => ops.push(*op),
            Step::Define(_, Compute::Const(_) | Compute::Get(_)) | Step::Set(..) => {}
            Step::If { then, otherwise, .. } => {
                collect_ops(then, ops);
                collect_ops(otherwise, ops);
            }
        }
    }
}

fn compile(op: Op) -> Expansion {
    let parameters = ["x", "y"].into_iter().take(op.row().signature.arity());
    let element = || Expr::invocation_id(0);
    let arguments: Vec<Expr> = parameters.clone().map(|name| Expr::load(name, element())).collect();
    let call = Expr::Call(op.row().name.into(), arguments.into());
    let mut buffers: Vec<BufferDecl> =
        parameters.zip(0..).map(|(name, binding)| BufferDecl::read(name, binding, DataType::F32)).collect();
    let inputs = buffers.len();
    buffers.push(BufferDecl::output("out", inputs as u32, DataType::F32));
    let program = Program::wrapped(buffers, [1, 1, 1], vec![Node::store("out", element(), call)]);
    match program.with_functions(functions().to_vec()).validate() {
        Ok(kernel) => cut(&kernel, inputs),
        Err(found) => unreachable!("the expansion of {op:?} is not valid: {found}"),
    }
}

/// The functions of the text, parsed once.
fn functions() -> &'static [Function] {
    static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| match text::parse_functions(TEXT) {
        Ok(functions) => functions,
        Err(faults) => unreachable!("expansions.vyre is not well formed: {faults}"),
    })
}

/// Takes the code between the loads of the first `inputs` buffers and the store out of a kernel.
fn cut(kernel: &Kernel, inputs: usize) -> Expansion {
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
    kernel: &'a Kernel,
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

    fn steps(&mut self, body: &[Stmt]) -> Vec<Step> {
        let mut steps = Vec::new();
        for stmt in body {
            self.step(&stmt.kind, &mut steps);
        }
        steps
    }

    fn step(&mut self, stmt: &StmtKind, steps: &mut Vec<Step>) {
        match stmt {
            StmtKind::Def(value, Def::Const(constant)) => {
                steps.push(Step::Define(self.define(*value), Compute::Const(*constant)));
            }
            StmtKind::Def(value, Def::Get(local)) => {
                steps.push(Step::Define(self.define(*value), Compute::Get(*local)));
            }
            StmtKind::Def(value, Def::Op(op, operands)) => {
                let mut operands = *operands;
                operands.iter_mut().for_each(|operand| *operand = self.numbers[operand]);
                steps.push(Step::Define(self.define(*value), Compute::Op(*op, operands)));
            }
            StmtKind::Def(value, Def::Load { place: Place::Buffer(BufferId(buffer)), .. }) => {
                self.inputs[*buffer as usize] = Some(self.define(*value));
            }
            // The element that the invocation works on; nothing but the loads and the store reads it.
            StmtKind::Def(_, Def::Builtin(..)) => {}
            StmtKind::Set(local, value) => steps.push(Step::Set(*local, self.numbers[value])),
            StmtKind::Store { value, .. } => self.result = Some(self.numbers[value]),
            StmtKind::If { condition, then, otherwise } => {
                let condition = self.numbers[condition];
                let (then, otherwise) = (self.steps(then), self.steps(otherwise));
                steps.push(Step::If { condition, then, otherwise });
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
