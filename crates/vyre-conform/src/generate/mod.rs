//! Random programs: any byte string becomes a valid, race-free, terminating program and inputs for
//! it.
//!
//! **Race-free by construction.** Every buffer has one [`Role`] for the whole program:
//! - *wild* buffers are only read, at any index, in range or not;
//! - *owned* buffers are touched by each invocation only at indices that are an injective function
//!   of its linear id (`map(id · stride + c)`, `c < stride`), so no two meet;
//! - *tally* buffers are touched only by one commutative atomic each, whose result is dropped;
//! - *exchange* memory (workgroup memory, or a slice of a storage buffer per workgroup) goes
//!   through phases between barriers: in one phase each invocation uses its own slot, or all only
//!   read, or all use one commutative atomic.
//!
//! **Terminating by construction.** A counted loop has at most 8 iterations, a `while` counts its
//! own iterations, and a cost budget covers the product of nested trip counts.
//!
//! **Uniform where required.** Barriers and subgroup ops appear only where control flow is uniform
//! by the rules of validation: under conditions and bounds made from uniform leaves, and never
//! after a divergent `return`.

mod expr;
mod indices;
mod shape;
mod stmt;
mod values;

use crate::choices::{Choices, bytes_from_seed};
use expr::Forms;
use shape::ProgramPlan;
use std::collections::BTreeSet;
use vyre_driver::registry::backend_is_oracle;
use vyre_driver::{DeviceClass, VyreBackend};
use vyre_foundation::ir::{
    Access, AtomicOp, BufferDecl, DataType, Expr, Function, Name, Op, Program, ValueType,
};

/// What generated programs can contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// 64-bit integers, as values and elements.
    pub int64: bool,
    /// `f64`, as values and elements.
    pub f64: bool,
    /// Elements of `f16`.
    pub f16: bool,
    /// Elements of `bf16`.
    pub bf16: bool,
    /// Elements of one or two bytes (`bool` included).
    pub narrow: bool,
    /// Atomics on 64-bit integers.
    pub atomic64: bool,
    /// Subgroup ops.
    pub subgroups: bool,
    /// Subgroup shuffles and broadcasts.
    pub shuffles: bool,
    /// Workgroup memory, barriers and everything else that makes a program depend on its workgroup
    /// size.
    pub grouped: bool,
    /// Traps, in a few programs.
    pub traps: bool,
    /// Floats of any kind. Without them, results compare by bits even on devices with loose floats.
    pub floats: bool,
    /// Lanes of a subgroup; `None` varies the size from case to case.
    pub subgroup_size: Option<u32>,
    /// Table ops that must not appear.
    pub without: BTreeSet<Op>,
    /// Programs about indices only (`generate/indices.rs`): accesses that a launch proves in range
    /// or not, on integers.
    pub indices: bool,
    /// Approximate number of statements per program.
    pub max_statements: u32,
    /// Approximate number of expression nodes that one invocation evaluates.
    pub max_cost: u32,
    /// Approximate number of invocations per dispatch.
    pub max_invocations: u32,
}

impl Default for Options {
    /// Everything, in programs that take the interpreter about a millisecond.
    fn default() -> Options {
        Options {
            int64: true,
            f64: true,
            f16: true,
            bf16: true,
            narrow: true,
            atomic64: true,
            subgroups: true,
            shuffles: true,
            grouped: true,
            traps: true,
            floats: true,
            subgroup_size: None,
            without: BTreeSet::new(),
            indices: false,
            max_statements: 40,
            max_cost: 600,
            max_invocations: 96,
        }
    }
}

impl Options {
    /// Everything that the backend can run. Devices with loose floats get programs without floats:
    /// the bounds of the single operations imply no bound on the result of a chain.
    pub fn for_backend(backend: &dyn VyreBackend) -> Options {
        let profile = backend.device_profile();
        let all = Options::default();
        let lacks = |op: &Op| !backend.supported_ops().contains(&op.id());
        let without = Op::ALL.iter().copied().filter(lacks).collect();
        let floats = profile.strict_float || profile.device_class == DeviceClass::Unknown;
        let subgroup_size = Some(profile.subgroup_size).filter(|&size| size > 0);
        if profile.device_class == DeviceClass::Unknown {
            return Options { without, floats, subgroup_size, ..all };
        }
        Options {
            int64: profile.supports_int64,
            f64: profile.supports_f64,
            f16: profile.supports_f16,
            bf16: profile.supports_bf16,
            narrow: profile.supports_narrow_storage,
            atomic64: profile.supports_atomic64,
            subgroups: profile.supports_subgroup_ops,
            shuffles: profile.has_subgroup_shuffle,
            grouped: profile.has_shared_memory,
            floats,
            // The interpreter accepts any size, so its cases vary it.
            subgroup_size: if backend_is_oracle(backend.id()) { None } else { subgroup_size },
            without,
            ..all
        }
    }

    fn has_value(&self, ty: ValueType) -> bool {
        match ty {
            ValueType::U64 | ValueType::I64 => self.int64,
            ValueType::F32 => self.floats,
            ValueType::F64 => self.floats && self.f64,
            ValueType::Bool | ValueType::U32 | ValueType::I32 => true,
        }
    }

    fn has_element(&self, element: DataType) -> bool {
        if !self.has_value(element.value_type()) {
            return false;
        }
        match element {
            DataType::F16 => self.f16,
            DataType::Bf16 => self.bf16,
            DataType::Bool | DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 => self.narrow,
            DataType::U32 | DataType::I32 | DataType::F32 | DataType::U64 | DataType::I64 | DataType::F64 => {
                true
            }
        }
    }

    fn has_atomic(&self, element: DataType) -> bool {
        match element {
            DataType::U32 | DataType::I32 => true,
            DataType::U64 | DataType::I64 => self.atomic64 && self.int64,
            DataType::Bool
            | DataType::U8
            | DataType::I8
            | DataType::U16
            | DataType::I16
            | DataType::F16
            | DataType::Bf16
            | DataType::F32
            | DataType::F64 => false,
        }
    }
}

/// A program and the inputs to run it on.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The program.
    pub program: Program,
    /// One per read, uniform and read_write buffer, in binding order.
    pub inputs: Vec<Vec<u8>>,
    /// Lanes of a subgroup.
    pub subgroup_size: u32,
}

/// Generates cases. Holds the state shared by all cases.
///
/// ```
/// use vyre_conform::generate::{Generator, Options};
/// let generator = Generator::new(Options::default());
/// let case = generator.from_seed(7);
/// assert!(case.program.validate().is_ok());
/// assert_eq!(case, generator.from_seed(7));
/// ```
#[derive(Debug)]
pub struct Generator {
    options: Options,
    forms: Forms,
}

impl Generator {
    /// A generator of programs within these options.
    pub fn new(options: Options) -> Generator {
        Generator { forms: Forms::new(&options), options }
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The case encoded by these bytes.
    pub fn from_bytes(&self, bytes: &[u8]) -> Case {
        if self.options.indices {
            return indices::case(Choices::new(bytes), self.options.subgroup_size.unwrap_or(4));
        }
        let mut state = GeneratorState {
            options: &self.options,
            forms: &self.forms,
            choices: Choices::new(bytes),
            buffers: Vec::new(),
            functions: Vec::new(),
            vars: Vec::new(),
            arrays: Vec::new(),
            names: 0,
            statements: self.options.max_statements,
            cost: self.options.max_cost,
            grouped: false,
            diverged: false,
            trap: None,
        };
        let plan = state.plan();
        state.functions();
        let body = state.regions(&plan);
        state.finish(plan, body)
    }

    /// The case of a seed; program sizes vary between seeds.
    pub fn from_seed(&self, seed: u64) -> Case {
        let length =
            200 + (bytes_from_seed(!seed, 2).iter().map(|&byte| usize::from(byte)).sum::<usize>()) * 8;
        self.from_bytes(&bytes_from_seed(seed, length))
    }
}

/// How a buffer can be used without races; see the module documentation.
#[derive(Clone, Debug)]
enum Role {
    Wild,
    Owned { stride: u32, map: Map },
    Tally(AtomicOp),
    Exchange { per_group: bool, phase: Phase },
}

/// A bijection of `u32` that spreads owned indices.
#[derive(Clone, Debug)]
enum Map {
    Identity,
    /// From the end of the buffer backwards.
    Reverse,
    Xor(u32),
    Offset(u32),
}

/// How exchange memory is used until the next barrier.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Own,
    Read,
    Tally(AtomicOp),
}

#[derive(Clone, Debug)]
struct Buffer {
    decl: BufferDecl,
    role: Role,
    /// Number of elements passed by the dispatch, if it is an input.
    length: u32,
    /// Fixed contents instead of random ones: a single `u32` from which sizes are computed.
    holds: Option<u32>,
}

#[derive(Clone, Debug)]
struct Var {
    name: Name,
    ty: ValueType,
    assignable: bool,
    uniform: bool,
}

#[derive(Clone, Debug)]
struct Array {
    name: Name,
    element: ValueType,
}

#[derive(Clone, Debug)]
struct Callable {
    function: Function,
    /// Approximate number of expression nodes that one call evaluates.
    cost: u32,
}

/// Whether something is uniform across a workgroup, across each subgroup, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Uniform,
    Subgroup,
    Divergent,
}

/// Context of a statement or expression.
#[derive(Clone, Copy, Debug)]
struct ProgramPlace {
    /// Uniformity of the control flow that leads there.
    control: Flow,
    /// Uniformity of the innermost loop.
    innermost: Option<Flow>,
    /// Whether this is inside a branch or loop that contains barriers, where a divergent return is
    /// not allowed.
    phased: bool,
    /// Whether this is in a function: no memory but arrays, nothing about the invocation.
    in_function: bool,
    /// Number of enclosing blocks.
    depth: u32,
    /// Product of the trip counts of all enclosing loops.
    trips: u32,
}

impl ProgramPlace {
    const TOP: ProgramPlace = ProgramPlace {
        control: Flow::Uniform,
        innermost: None,
        phased: false,
        in_function: false,
        depth: 0,
        trips: 1,
    };

    fn nested(self) -> ProgramPlace {
        ProgramPlace { depth: self.depth + 1, ..self }
    }

    fn divergent(self) -> ProgramPlace {
        ProgramPlace { control: Flow::Divergent, ..self.nested() }
    }

    fn looped(self, flow: Flow, rounds: u32) -> ProgramPlace {
        ProgramPlace {
            control: self.control.max(flow),
            innermost: Some(flow),
            phased: self.phased || flow != Flow::Divergent,
            trips: self.trips.saturating_mul(rounds),
            ..self.nested()
        }
    }
}

struct GeneratorState<'a> {
    options: &'a Options,
    forms: &'a Forms,
    choices: Choices<'a>,
    buffers: Vec<Buffer>,
    functions: Vec<Callable>,
    vars: Vec<Var>,
    arrays: Vec<Array>,
    names: u32,
    statements: u32,
    cost: u32,
    /// Whether the program depends on its workgroup size.
    grouped: bool,
    /// Whether some invocations may have returned, after which no control flow is uniform.
    diverged: bool,
    /// The only trap code of this program: with two, the result would depend on the order of
    /// invocations.
    trap: Option<u32>,
}

impl GeneratorState<'_> {
    fn fresh(&mut self, prefix: &str) -> Name {
        self.names += 1;
        format!("{prefix}{}", self.names).into()
    }

    fn value_type(&mut self) -> ValueType {
        let all = ValueType::ALL;
        let allowed: Vec<ValueType> = all.into_iter().filter(|&ty| self.options.has_value(ty)).collect();
        self.choices.pick(&allowed).copied().unwrap_or(ValueType::U32)
    }

    fn finish(mut self, plan: ProgramPlan, body: Vec<vyre_foundation::ir::Node>) -> Case {
        let mut bound: Vec<Buffer> =
            self.buffers.iter().filter(|buffer| buffer.decl.access.is_input()).cloned().collect();
        bound.sort_by_key(|buffer| buffer.decl.binding);
        let inputs = bound
            .iter()
            .map(|buffer| match buffer.holds {
                Some(size) => size.to_le_bytes().to_vec(),
                None => values::elements(&mut self.choices, buffer.decl.element, buffer.length),
            })
            .collect();
        let decls = self.buffers.iter().map(|buffer| buffer.decl.clone()).collect();
        let functions = self.functions.into_iter().map(|callable| callable.function).collect();
        let program = Program::wrapped(decls, plan.workgroup, body)
            .with_name("generated")
            .with_domain(plan.domain)
            .with_functions(functions);
        let subgroup_size = self.options.subgroup_size.unwrap_or(plan.subgroup_size);
        Case { program, inputs, subgroup_size }
    }

    fn exchange_base(buffer: &Buffer, slot: Expr) -> Expr {
        match buffer.role {
            Role::Exchange { per_group: true, .. } => Expr::var("base") + slot,
            Role::Exchange { per_group: false, .. } | Role::Wild | Role::Owned { .. } | Role::Tally(_) => {
                slot
            }
        }
    }

    fn is_bound(access: Access) -> bool {
        access != Access::Workgroup
    }
}
