//! The checked form of a program: what the compiler works on.
//!
//! Only [`Program::validate`](crate::ir::Program::validate) and the optimizer make a [`Kernel`]. Names are resolved to
//! handles, functions are inlined, and every value has a type and a known uniformity. Everything that takes a
//! kernel may treat the impossible as `unreachable!`.
//!
//! **Values.** A statement [`StmtKind::Def`] computes a [`ValueId`]. Each value is defined once and used only where its
//! definition has run: later in its block, or in blocks nested there. Values never change.
//! **Locals** are the variables that the program assigns more than once: [`Def::Get`] reads, [`StmtKind::Set`] writes.
//! A `Get` is valid only after a `Set` has run, which the lowering guarantees.
//! **Effects** happen in statement order: stores, atomics, barriers, traps, and loads between them.
//! A `while` loop is a [`StmtKind::Loop`] whose first statements compute the condition and break.

#[cfg(feature = "compiler")]
mod coverage;
pub(crate) mod facts;
pub(crate) mod ids;
pub(crate) mod requirement;
pub(crate) mod uniformity;

#[cfg(feature = "compiler")]
pub use coverage::{Coverage, Width, coverage};
pub use ids::{ArrayId, BufferId, LocalId, ValueId};
pub use requirement::{Extent, Known, Requirement};

use crate::diagnostics::Diagnostics;
use crate::ir::{Access, BufferDecl, Builtin, Name, Span};
use crate::ops::{AtomicOp, Op, OpId, SubgroupOp};
use crate::types::{DataType, Value, ValueType};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// A checked program: a shared handle, cheap to clone.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<KernelBody>);

impl Deref for Kernel {
    type Target = KernelBody;
    fn deref(&self) -> &KernelBody {
        &self.0
    }
}

impl Kernel {
    /// Seals a body that upholds this module's promises.
    pub(crate) fn new(body: KernelBody) -> Kernel {
        Kernel(Arc::new(body))
    }

    /// The same kernel for dispatches that each bring a domain of their own. Nothing is proved from its own.
    #[must_use]
    pub fn over_given_domain(&self) -> Kernel {
        let mut body = self.clone().into_body();
        body.domain = KernelDomain::Given;
        Kernel::new(body)
    }

    /// The body, to be changed by a pass and sealed again.
    pub(crate) fn into_body(self) -> KernelBody {
        Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone())
    }
}

/// Everything a kernel holds.
#[derive(Clone, Debug)]
pub struct KernelBody {
    /// The program's name.
    pub name: Option<Name>,
    /// The fingerprint of the program that this was made from.
    pub fingerprint: [u8; 32],
    /// Invocations per workgroup on each axis; none is zero.
    pub workgroup_size: [u32; 3],
    /// What a dispatch runs over.
    pub domain: KernelDomain,
    /// The buffers, in declaration order.
    pub buffers: Vec<KernelBuffer>,
    /// The mutable variables.
    pub locals: Vec<Local>,
    /// The private arrays.
    pub arrays: Vec<PrivateArray>,
    /// What is known of each value.
    pub values: Vec<ValueInfo>,
    /// The statements.
    pub body: Vec<Stmt>,
    /// Whether the result does not depend on how invocations are grouped, so that a tuner may choose.
    pub shape_free: bool,
    /// How many elements of the domain's first axis one invocation handles: 1, unless the optimizer was asked for more. A
    /// kernel that handles several cannot be dispatched over a grid of the caller's.
    pub coarsening: u32,
    /// What a dispatch must satisfy, or else run another form of the kernel (`Launch::satisfies`). Empty unless the
    /// optimizer was told that dispatches are checked.
    pub requires: Vec<Requirement>,
    /// The program's `print` and `assert` statements, in order. The kernel itself does nothing about them.
    pub messages: Vec<Site>,
    /// Whether the domain or a length depends on elements of uniforms, so that a launch has to see them.
    pub sized_by_elements: bool,
    /// What a device must have to run the kernel.
    pub needs: Needs,
    /// What validation had to remark; never an error.
    pub warnings: Diagnostics,
    /// The text that the program was read from, for positions in reports.
    pub source: Option<Arc<str>>,
}

/// A `print` or `assert` of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Whether it is an `assert`.
    pub is_assert: bool,
    /// The message around its operands: one more than those.
    pub pieces: Vec<String>,
    /// The types of the operands.
    pub types: Vec<ValueType>,
    /// The line and column where it stands, if the program was read from a text.
    pub at: Option<(usize, usize)>,
}

/// A domain with its buffers resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelDomain {
    /// So many invocations on each axis.
    Counts([u32; 3]),
    /// As many invocations as the buffer has elements.
    LenOf(BufferId),
    /// What a dispatch works out on each axis, each a `u32`.
    Axes([Known; 3]),
    /// What every dispatch brings itself, whatever the program says.
    Given,
}

impl KernelDomain {
    /// How many invocations there are, on an axis, as something that a dispatch knows; `None` where each brings its own.
    pub fn axis(&self, axis: usize) -> Option<Known> {
        match self {
            KernelDomain::Counts(counts) => Some(Known::Const(Value::U32(counts[axis]))),
            KernelDomain::LenOf(buffer) if axis == 0 => Some(Known::Len(*buffer)),
            KernelDomain::LenOf(_) => Some(Known::Const(Value::U32(1))),
            KernelDomain::Axes(axes) => Some(axes[axis].clone()),
            KernelDomain::Given => None,
        }
    }

    /// What a dispatch has to read to work it out.
    pub fn known(&self) -> impl Iterator<Item = &Known> {
        let axes: &[Known] = match self {
            KernelDomain::Axes(axes) => axes,
            KernelDomain::Counts(_) | KernelDomain::LenOf(_) | KernelDomain::Given => &[],
        };
        axes.iter()
    }
}

/// A buffer and what the kernel does with it.
#[derive(Clone, Debug)]
pub struct KernelBuffer {
    /// The declaration.
    pub decl: BufferDecl,
    /// The buffer whose length this one takes.
    pub len_of: Option<BufferId>,
    /// How many elements it has, as a dispatch works it out: a `u32`.
    pub length: Option<Known>,
    /// Whether some statement loads from it or updates it atomically.
    pub loaded: bool,
    /// Whether some statement stores to it or updates it atomically.
    pub stored: bool,
    /// Whether some statement updates it atomically.
    pub atomic: bool,
    /// Whether it is workgroup memory that only invocation 0 writes, with barriers on both sides, so that what is loaded
    /// from it is uniform.
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

/// An array that belongs to one invocation.
#[derive(Clone, Debug)]
pub struct PrivateArray {
    /// The name in the program.
    pub name: Name,
    /// The type of its elements.
    pub element: ValueType,
    /// How many elements it has.
    pub count: u32,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Its type.
    pub ty: ValueType,
    /// Whether all invocations of a workgroup that compute it together get the same.
    pub uniform: bool,
}

/// Abilities that a device may lack.
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

/// A statement and where it came from.
#[derive(Clone, Debug)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Where it stands in the program's text, if it was read from one.
    pub at: Option<Span>,
}

/// What a statement does.
#[derive(Clone, Debug)]
pub enum StmtKind {
    /// Computes a value.
    Def(ValueId, Def),
    /// Gives a local a value.
    Set(LocalId, ValueId),
    /// Makes a private array all zeros.
    Clear(ArrayId),
    /// Writes an element; does nothing where the index is out of range.
    Store {
        /// The memory.
        place: Place,
        /// Which element, a `u32`.
        index: ValueId,
        /// What to write.
        value: ValueId,
        /// Whether the index was proved to be in range.
        in_bounds: bool,
    },
    /// Runs one of two blocks.
    If {
        /// A `bool`.
        condition: ValueId,
        /// Runs where it holds.
        then: Vec<Stmt>,
        /// Runs where it does not.
        otherwise: Vec<Stmt>,
    },
    /// Runs a block with a counter. The trip count is exact: ⌈(to − from) / step⌉, 0 if that is not positive or `step`
    /// is 0; the counter is `from + k · step` in round k.
    For {
        /// Defined anew in each round.
        counter: ValueId,
        /// The first value; all three have the counter's type, an integer.
        from: ValueId,
        /// The limit, not reached.
        to: ValueId,
        /// The distance between rounds; negative counts down.
        step: ValueId,
        /// What runs.
        body: Vec<Stmt>,
    },
    /// Runs a block until a `Break` in it.
    Loop(Vec<Stmt>),
    /// Leaves the innermost loop.
    Break,
    /// Goes on to the next round of the innermost loop.
    Continue,
    /// Ends this invocation.
    Return,
    /// Waits for the whole workgroup; stands only in uniform control flow.
    Barrier,
    /// A named part of the kernel.
    Region {
        /// The name under which it is measured.
        generator: Name,
        /// What runs.
        body: Vec<Stmt>,
    },
    /// Makes the dispatch fail with this code.
    Trap(u32),
}

/// How a value is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Def {
    /// A constant.
    Const(Value),
    /// The current value of a local.
    Get(LocalId),
    /// A table op; operand types fit its signature.
    Op(Op, Operands),
    /// An element, widened to its value type; zero where the index is out of range.
    Load {
        /// The memory.
        place: Place,
        /// Which element, a `u32`.
        index: ValueId,
        /// Whether the index was proved to be in range.
        in_bounds: bool,
    },
    /// How many elements a buffer has.
    Len(BufferId),
    /// A number about the invocation's place; the axis is 0, 1 or 2.
    Builtin(Builtin, u8),
    /// A read-modify-write; gives the old value. Out of range it does nothing and gives zero.
    Atomic {
        /// What it does.
        op: AtomicOp,
        /// Storage or workgroup memory of 32- or 64-bit integers.
        buffer: BufferId,
        /// Which element, a `u32`.
        index: ValueId,
        /// The operand, the expected and the new value, or nothing.
        operands: Operands,
        /// Whether the index was proved to be in range.
        in_bounds: bool,
    },
    /// An exchange within the subgroup; stands only in control flow that is the same for the subgroup.
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

/// Up to four operands, kept in place.
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

    /// The values that the definition reads, to be replaced.
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

    /// The buffers that a dispatch binds (all but workgroup memory), in binding order.
    pub fn bound_buffers(&self) -> Vec<BufferId> {
        let bound = |id: &BufferId| self.buffer(*id).decl.access != Access::Workgroup;
        let mut ids: Vec<BufferId> = (0..self.buffers.len() as u32).map(BufferId).filter(bound).collect();
        ids.sort_by_key(|&id| self.buffer(id).decl.binding);
        ids
    }

    /// The element type of a place, as stored.
    pub fn element(&self, place: Place) -> DataType {
        match place {
            Place::Buffer(id) => self.buffer(id).decl.element,
            Place::Array(id) => self.arrays[id.index()].element.data_type(),
        }
    }

    /// The buffers whose contents decide how large a dispatch is: the host has to read them.
    pub fn sizing_buffers(&self) -> Vec<BufferId> {
        let lengths = self.buffers.iter().filter_map(|buffer| buffer.length.as_ref());
        let mut found = Vec::new();
        self.domain.known().chain(lengths).for_each(|known| known.elements(&mut found));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The kernel's name for messages.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or("(unnamed)")
    }
}
