//! The checked form of a program, on which the compiler works.
//!
//! Only [`Program::validate`](crate::ir::Program::validate) and the optimizer create a [`Kernel`].
//! Names are resolved to handles, functions are inlined, and every value has a type and a known
//! uniformity. Code that takes a kernel can rely on these invariants and treat a violation as
//! `unreachable!`.
//!
//! **Values.** A [`StmtKind::Def`] statement computes a [`ValueId`]. Each value is defined once,
//! never changes, and is used only where its definition dominates: later in the same block, or in
//! blocks nested there.
//!
//! **Locals** are the variables that the program assigns more than once: [`Def::Get`] reads one,
//! [`StmtKind::Set`] writes it. Lowering guarantees that a `Set` runs before any `Get`.
//!
//! **Effects** (stores, atomics, barriers, traps, and the loads between them) happen in statement
//! order.
//!
//! A `while` loop is a [`StmtKind::Loop`] whose first statements compute the condition and break.

#[cfg(feature = "compiler")]
mod coverage;
pub(crate) mod facts;
pub(crate) mod ids;
pub(crate) mod interval;
pub(crate) mod known;
pub(crate) mod proof;
pub(crate) mod uniformity;

#[cfg(feature = "compiler")]
pub use coverage::{Coverage, coverage};
pub use facts::AccessMark;
pub use ids::{ArrayId, BufferId, LocalId, ValueId};
pub use known::Known;
pub use proof::{Doubts, Proof};

use crate::diagnostics::Diagnostics;
use crate::ir::{Access, BufferDecl, Builtin, Name, Span};
use crate::ops::{AtomicOp, Op, OpId, SubgroupOp};
use crate::types::{DataType, Value, ValueType};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// A checked program, as a shared handle that is cheap to clone.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<KernelBody>);

impl Deref for Kernel {
    type Target = KernelBody;
    fn deref(&self) -> &KernelBody {
        &self.0
    }
}

impl Kernel {
    /// Seals a body that upholds the invariants of this module.
    pub(crate) fn new(body: KernelBody) -> Kernel {
        Kernel(Arc::new(body))
    }

    /// Returns the kernel with the domain left to each dispatch, so that no proof relies on the
    /// program's domain.
    #[must_use]
    pub fn over_given_domain(&self) -> Kernel {
        let mut body = self.clone().into_body();
        body.domain = KernelDomain::Given;
        Kernel::new(body)
    }

    /// Takes the body out so that a pass can change it and seal it again.
    pub(crate) fn into_body(self) -> KernelBody {
        Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone())
    }
}

/// The contents of a kernel.
#[derive(Clone, Debug)]
pub struct KernelBody {
    /// The program's name.
    pub name: Option<Name>,
    /// The fingerprint of the source program.
    pub fingerprint: [u8; 32],
    /// Invocations per workgroup on each axis; none is zero.
    pub workgroup_size: [u32; 3],
    /// The domain that a dispatch runs over.
    pub domain: KernelDomain,
    /// The buffers, in declaration order.
    pub buffers: Vec<KernelBuffer>,
    /// The mutable variables.
    pub locals: Vec<Local>,
    /// The private arrays.
    pub arrays: Vec<PrivateArray>,
    /// Type and uniformity of each value.
    pub values: Vec<ValueInfo>,
    /// The statements.
    pub body: Vec<Stmt>,
    /// Whether the result is independent of the workgroup size, so that a tuner can choose it.
    pub shape_free: bool,
    /// Elements of the domain's first axis that one invocation handles: 1 unless the optimizer
    /// coarsened the kernel. A coarsened kernel cannot be dispatched over a caller-supplied grid.
    pub coarsening: u32,
    /// The accesses and guards that a dispatch must prove to run this form of the kernel
    /// (`Launch::doubts`). Empty unless the optimizer may assume that dispatches are checked.
    pub proof: Proof,
    /// The program's `print` and `assert` statements, in order. The kernel itself does not act on
    /// them.
    pub messages: Vec<Site>,
    /// Whether the domain or a length depends on elements of uniforms, so that a launch must read
    /// them.
    pub sized_by_elements: bool,
    /// The features that a device needs to run the kernel.
    pub needs: Needs,
    /// Warnings from validation; never errors.
    pub warnings: Diagnostics,
    /// The source text of the program, for positions in reports.
    pub source: Option<Arc<str>>,
}

/// A `print` or `assert` of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Whether it is an `assert`.
    pub is_assert: bool,
    /// The literal text around the operands: one piece more than there are operands.
    pub pieces: Vec<String>,
    /// The types of the operands.
    pub types: Vec<ValueType>,
    /// Line and column in the source text, if the program was parsed from text.
    pub at: Option<(usize, usize)>,
}

/// A domain with its buffer names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelDomain {
    /// A fixed number of invocations on each axis.
    Counts([u32; 3]),
    /// One invocation per element of the buffer.
    LenOf(BufferId),
    /// A `u32` expression for each axis, evaluated at dispatch.
    Axes([Known; 3]),
    /// Supplied by each dispatch, regardless of the program's domain.
    Given,
}

impl KernelDomain {
    /// The number of invocations on an axis; `None` where the dispatch supplies it.
    pub fn axis(&self, axis: usize) -> Option<Known> {
        match self {
            KernelDomain::Counts(counts) => Some(Known::Const(Value::U32(counts[axis]))),
            KernelDomain::LenOf(buffer) if axis == 0 => Some(Known::Len(*buffer)),
            KernelDomain::LenOf(_) => Some(Known::Const(Value::U32(1))),
            KernelDomain::Axes(axes) => Some(axes[axis].clone()),
            KernelDomain::Given => None,
        }
    }

    /// The expressions that a dispatch evaluates to compute the domain.
    pub fn known(&self) -> impl Iterator<Item = &Known> {
        let axes: &[Known] = match self {
            KernelDomain::Axes(axes) => axes,
            KernelDomain::Counts(_) | KernelDomain::LenOf(_) | KernelDomain::Given => &[],
        };
        axes.iter()
    }
}

/// A buffer and how the kernel uses it.
#[derive(Clone, Debug)]
pub struct KernelBuffer {
    /// The declaration.
    pub decl: BufferDecl,
    /// The buffer whose length this one has.
    pub len_of: Option<BufferId>,
    /// The number of elements, a `u32` expression evaluated at dispatch.
    pub length: Option<Known>,
    /// Whether some statement loads from it or updates it atomically.
    pub loaded: bool,
    /// Whether some statement stores to it or updates it atomically.
    pub stored: bool,
    /// Whether some statement updates it atomically.
    pub atomic: bool,
    /// Whether it is workgroup memory that only invocation 0 writes, with a barrier before and
    /// after, so that loads from it are uniform.
    pub broadcast: bool,
}

/// A mutable variable.
#[derive(Clone, Debug)]
pub struct Local {
    /// The name in the program.
    pub name: Name,
    /// The type of its values.
    pub ty: ValueType,
}

/// An array private to one invocation.
#[derive(Clone, Debug)]
pub struct PrivateArray {
    /// The name in the program.
    pub name: Name,
    /// The type of its elements.
    pub element: ValueType,
    /// The number of elements.
    pub count: u32,
}

/// Type and uniformity of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// The type.
    pub ty: ValueType,
    /// Whether all invocations of a workgroup that compute it together get the same value.
    pub uniform: bool,
}

/// Optional device features that a kernel uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// 64-bit integers, as values or elements.
    pub int64: bool,
    /// `f64`, as values or elements.
    pub f64: bool,
    /// Elements of `f16`.
    pub f16_storage: bool,
    /// Elements of `bf16`.
    pub bf16_storage: bool,
    /// Elements of one or two bytes.
    pub narrow_storage: bool,
    /// Atomics on 64-bit integers.
    pub atomic64: bool,
    /// Subgroup ops of any kind.
    pub subgroups: bool,
    /// Subgroup shuffles or broadcasts.
    pub shuffle: bool,
    /// Bytes of workgroup memory, each buffer rounded up to a multiple of 8.
    pub workgroup_bytes: u64,
    /// The table ops that the kernel uses.
    pub ops: BTreeSet<OpId>,
}

/// A statement and its position in the source.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Position in the source text, if the program was parsed from text.
    pub at: Option<Span>,
}

/// What a statement does.
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// Computes a value.
    Def(ValueId, Def),
    /// Assigns a local.
    Set(LocalId, ValueId),
    /// Zeroes a private array.
    Clear(ArrayId),
    /// Writes an element; does nothing if the index is out of range.
    Store {
        /// The memory.
        place: Place,
        /// The element's index, a `u32`.
        index: ValueId,
        /// The value to write.
        value: ValueId,
        /// Whether the index was proved in range.
        in_bounds: bool,
    },
    /// Runs one of two blocks.
    If {
        /// A `bool`.
        condition: ValueId,
        /// Runs where the condition is true.
        then: Vec<Stmt>,
        /// Runs where the condition is false.
        otherwise: Vec<Stmt>,
    },
    /// Runs a block with a counter. The trip count is exactly ⌈(to − from) / step⌉, or 0 if that is
    /// not positive or `step` is 0; the counter is `from + k · step` in iteration k.
    For {
        /// Defined once per iteration.
        counter: ValueId,
        /// The first value; `from`, `to` and `step` have the counter's type, an integer.
        from: ValueId,
        /// The limit, exclusive.
        to: ValueId,
        /// The increment per iteration; a negative one counts down.
        step: ValueId,
        /// The loop body.
        body: Vec<Stmt>,
    },
    /// Runs a block until it reaches a `Break`.
    Loop(Vec<Stmt>),
    /// Leaves the innermost loop.
    Break,
    /// Starts the next iteration of the innermost loop.
    Continue,
    /// Ends this invocation.
    Return,
    /// Waits for the whole workgroup; occurs only in uniform control flow.
    Barrier,
    /// A named part of the kernel.
    Region {
        /// The name under which it is profiled.
        generator: Name,
        /// The statements.
        body: Vec<Stmt>,
    },
    /// Fails the dispatch with this code.
    Trap(u32),
}

/// How a value is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Def {
    /// A constant.
    Const(Value),
    /// The current value of a local.
    Get(LocalId),
    /// A table op; the operand types match its signature.
    Op(Op, Operands),
    /// An element, widened to its value type; zero if the index is out of range.
    Load {
        /// The memory.
        place: Place,
        /// The element's index, a `u32`.
        index: ValueId,
        /// Whether the index was proved in range.
        in_bounds: bool,
    },
    /// The number of elements in a buffer.
    Len(BufferId),
    /// A coordinate or size of the grid, on axis 0, 1 or 2.
    Builtin(Builtin, u8),
    /// A read-modify-write that yields the old value; out of range it does nothing and yields zero.
    Atomic {
        /// The operation.
        op: AtomicOp,
        /// Storage or workgroup memory of 32- or 64-bit integers.
        buffer: BufferId,
        /// The element's index, a `u32`.
        index: ValueId,
        /// The operand, or the expected and the new value, or nothing.
        operands: Operands,
        /// Whether the index was proved in range.
        in_bounds: bool,
    },
    /// An exchange within the subgroup; occurs only in control flow that is uniform across the
    /// subgroup.
    Subgroup(SubgroupOp, Operands),
}

/// Memory with elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A buffer: storage, uniform or workgroup memory.
    Buffer(BufferId),
    /// A private array.
    Array(ArrayId),
}

/// Up to four operands, stored inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operands {
    items: [ValueId; 4],
    count: u8,
}

impl Operands {
    /// The operands in order; a table op has at most four.
    pub(crate) fn new(items: &[ValueId]) -> Operands {
        let mut operands = Operands { items: [ValueId(0); 4], count: items.len() as u8 };
        operands.items[..items.len()].copy_from_slice(items);
        operands
    }
}

impl std::fmt::Debug for Operands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Deref for Operands {
    type Target = [ValueId];
    fn deref(&self) -> &[ValueId] {
        &self.items[..self.count.into()]
    }
}

impl std::ops::DerefMut for Operands {
    fn deref_mut(&mut self) -> &mut [ValueId] {
        &mut self.items[..self.count.into()]
    }
}

impl Def {
    /// The values that the definition reads, in evaluation order.
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + '_ {
        let (index, rest): (Option<ValueId>, &[ValueId]) = match self {
            Def::Const(_) | Def::Get(_) | Def::Len(_) | Def::Builtin(..) => (None, &[]),
            Def::Op(_, operands) | Def::Subgroup(_, operands) => (None, operands),
            Def::Load { index, .. } => (Some(*index), &[]),
            Def::Atomic { index, operands, .. } => (Some(*index), operands),
        };
        index.into_iter().chain(rest.iter().copied())
    }

    /// Mutable references to the values that the definition reads.
    pub(crate) fn operands_mut(&mut self) -> impl Iterator<Item = &mut ValueId> {
        let (index, rest): (Option<&mut ValueId>, &mut [ValueId]) = match self {
            Def::Const(_) | Def::Get(_) | Def::Len(_) | Def::Builtin(..) => (None, &mut []),
            Def::Op(_, operands) | Def::Subgroup(_, operands) => (None, operands),
            Def::Load { index, .. } => (Some(index), &mut []),
            Def::Atomic { index, operands, .. } => (Some(index), operands),
        };
        index.into_iter().chain(rest.iter_mut())
    }
}

impl KernelBody {
    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> ValueType {
        self.values[value.index()].ty
    }

    /// The buffer behind a handle.
    pub fn buffer(&self, id: BufferId) -> &KernelBuffer {
        &self.buffers[id.index()]
    }

    /// The buffers that a dispatch binds (all except workgroup memory), in binding order.
    pub fn bound_buffers(&self) -> Vec<BufferId> {
        let bound = |id: &BufferId| self.buffer(*id).decl.access != Access::Workgroup;
        let mut ids: Vec<BufferId> = (0..self.buffers.len() as u32).map(BufferId).filter(bound).collect();
        ids.sort_by_key(|&id| self.buffer(id).decl.binding);
        ids
    }

    /// The element type of a place, as stored in memory.
    pub fn element(&self, place: Place) -> DataType {
        match place {
            Place::Buffer(id) => self.buffer(id).decl.element,
            Place::Array(id) => self.arrays[id.index()].element.data_type(),
        }
    }

    /// The buffers whose contents determine the size of a dispatch, which the host must therefore
    /// read.
    pub fn sizing_buffers(&self) -> Vec<BufferId> {
        let lengths = self.buffers.iter().filter_map(|buffer| buffer.length.as_ref());
        let mut found = Vec::new();
        self.domain.known().chain(lengths).for_each(|known| known.elements(&mut found));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The kernel's name, for messages.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or("(unnamed)")
    }
}
