//! Lowers a kernel to a naga module.
//!
//! The module is built directly, not through WGSL. Text would have to be printed here and then
//! parsed, typed and lowered again by naga for every kernel, and WGSL rejects things that kernels
//! contain: infinite and NaN constants, shifts that are provably too wide, constant arithmetic that
//! overflows. Naga's IR accepts them.
//!
//! Expects a kernel without the ops in [`LACKING`] and without transcendental functions. Exact
//! semantics come from the arithmetic emitted here, never from the device:
//! - All memory is words of unsigned bits, so no NaN passes through a float type on its way from
//!   buffer to buffer.
//! - An index that is not proved in range is compared with the length. Out of range, a load reads
//!   the first element (every buffer has one) and yields zero; stores and atomics are skipped.
//! - Elements of one or two bytes are written with two atomics on their word, which preserves their
//!   neighbours.
//! - `min`, `max`, float-to-integer conversions and NaN tests are sequences of comparisons and bit
//!   operations.
//!
//! **Parameters** (binding 0): one uniform buffer holds the box of active invocations, the grid,
//! the lengths of run-time sized buffers and the elements of small uniform buffers; see [`Layout`].
//! It also holds an opaque zero, used for ±0.0 wherever a driver would wrongly fold arithmetic on
//! the literal.
//!
//! **Status** (last binding): two words that a trap sets, a flag and the trap's code.

mod build;
mod memory;
mod nesting;
mod ops;
mod subgroup;

use build::{Builder, Expr};
use memory::ElementStorage;
use naga::{
    AddressSpace, ArraySize, AtomicFunction, Barrier, BinaryOperator, Binding, Block, BuiltIn, EntryPoint,
    Expression, FunctionArgument, GlobalVariable, Handle, MemoryDecorations, Module, ResourceBinding, Scalar,
    ScalarKind, ShaderStage, Span, Statement, StorageAccess, Type, TypeInner, UnaryOperator, VectorSize,
};
use std::num::NonZeroU32;
use vyre_driver::native::Form;
use vyre_foundation::ir::{Access, Builtin};
use vyre_foundation::kernel::{BufferId, Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use vyre_foundation::legalise::{Steps, WantedPasses};
use vyre_foundation::ops::Op;
use vyre_foundation::types::{Value, ValueType};

/// Name of the entry point.
pub(crate) const ENTRY: &str = "main";

/// Ops that must be gone before emission; the optimizer decomposes them.
pub(crate) const LACKING: &[Op] = &[
    Op::Clamp,
    Op::Sign,
    Op::SatAdd,
    Op::SatSub,
    Op::AbsDiff,
    Op::RotateLeft,
    Op::RotateRight,
    Op::MulHi,
    Op::Rsqrt,
    Op::Copysign,
];

/// Forms that the legaliser must establish. Stores canonicalise NaNs here, so they need no help.
pub(crate) const WANTED: WantedPasses =
    WantedPasses { steps: Steps::One, nan_stores: false, half_floats: true, exits: false };

/// Value of the first status word after an invocation trapped; the second word holds the code.
pub(crate) const TRAPPED: u32 = 1;

/// Device properties that affect the emitted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Whether the device's own `fma` rounds once.
    pub(crate) fused_fma: bool,
    /// Whether the driver folds float arithmetic on literal zeros, and x - x, to zero.
    pub(crate) folds_floats: bool,
    /// Whether the driver is free to rewrite float arithmetic, for example `(x + c) - c` to `x`, a
    /// pattern that vyre's expansions of functions depend on.
    pub(crate) rewrites_floats: bool,
    /// Whether the driver searches a kernel for values that depend on uniform memory alone, to
    /// recompile it for the values found there. Lavapipe 22.3 does, and visits shared operands once
    /// per use, which takes exponential time: an expression forty levels deep does not finish.
    pub(crate) inlines_uniforms: bool,
    /// Whether the driver can unroll a loop as if its exit condition held in iterations where it
    /// does not. Lavapipe 22.3 does for `while w < 5 { w = w + 1; if 1 > w { …; break } }`: it
    /// evaluates `w` before the addition.
    pub(crate) miscounts_exits: bool,
    /// Whether the driver mistakes a select between integers with the bits of -1.0 and 0.0, or of
    /// 1.0 and -0.0, for one between floats, and returns the zero with the other sign. Mesa's NIR
    /// does: `select(c, 0xBF800000, 0)` is 0x80000000 where `c` is false, however the two constants
    /// were computed.
    pub(crate) confuses_zeros: bool,
    /// Lanes per subgroup.
    pub(crate) subgroup_size: u32,
    /// Total loop iterations that the driver lets one invocation run before it silently stops.
    pub(crate) loop_limit: Option<u64>,
    /// Nesting depth of blocks above which the driver silently takes a wrong branch; see
    /// [`Emitted::nesting`].
    pub(crate) nesting_limit: Option<u32>,
}

/// Memory layout of a dispatch: the words of the parameters and the order of the bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Buffers that have their own binding, starting at binding 1.
    pub(crate) bindings: Vec<BufferId>,
    /// Uniform buffers stored in the parameters, each with its first word.
    pub(crate) packed: Vec<(BufferId, u32)>,
    /// Buffers whose length is a parameter, each with its word.
    pub(crate) lengths: Vec<(BufferId, u32)>,
    /// Size of the parameters in words; a multiple of four.
    pub(crate) words: u32,
    /// Whether there is a status buffer, after the other bindings.
    pub(crate) status: bool,
}

/// Parameter words that every kernel has.
pub(crate) mod word {
    /// Box of active invocations: three words.
    pub(crate) const LIMIT: u32 = 0;
    /// Zero that no compiler can recognise as one.
    pub(crate) const ZERO: u32 = 3;
    /// Grid: three words.
    pub(crate) const GRID: u32 = 4;
    /// Workgroups per row of the device's grid, when the kernel's grid is folded.
    pub(crate) const ROW: u32 = 7;
    /// First of the words that depend on the kernel.
    pub(crate) const FIRST: u32 = 8;
}

/// Size, in words, up to which uniform buffers are stored in the parameters: 8 KiB, half of the
/// least that Vulkan guarantees for uniform memory (16 KiB).
const MOST_PACKED_WORDS: u32 = 2048;

impl Layout {
    fn new(kernel: &KernelBody, status: bool) -> Layout {
        let mut layout = Layout { words: word::FIRST, status, ..Layout::default() };
        for id in kernel.bound_buffers() {
            let decl = &kernel.buffer(id).decl;
            if decl.count == 0 {
                layout.lengths.push((id, layout.words));
                layout.words += 1;
            }
        }
        for id in kernel.bound_buffers() {
            let decl = &kernel.buffer(id).decl;
            let words = (u64::from(decl.count) * decl.element.size() as u64).div_ceil(4);
            let room = u64::from(MOST_PACKED_WORDS.saturating_sub(layout.words));
            if decl.access == Access::Uniform && decl.count > 0 && words <= room {
                // Eight-byte elements are assembled from two words, so the start needs no
                // alignment.
                layout.packed.push((id, layout.words));
                layout.words += words as u32;
            } else {
                layout.bindings.push(id);
            }
        }
        layout.words = layout.words.next_multiple_of(4);
        layout
    }
}

/// A naga module and how to call it.
#[derive(Debug)]
pub(crate) struct Emitted {
    pub(crate) module: Module,
    pub(crate) layout: Layout,
    /// Invocations per workgroup along the device's axes.
    pub(crate) workgroup: [u32; 3],
}

/// Emits a kernel for one form of dispatch.
pub(crate) fn emit(kernel: &KernelBody, form: Form, traits: &Traits) -> Emitted {
    let layout = Layout::new(kernel, kernel.traps());
    let mut emitter = Emitter::new(kernel, form, *traits, layout);
    emitter.entry();
    emitter.finish()
}

/// Iterations of the loops that emission adds to clear workgroup memory. Loops that clear private
/// arrays are not included.
pub(crate) fn own_rounds(kernel: &KernelBody, form: Form) -> u64 {
    let invocations: u64 = form.workgroup.iter().map(|&n| u64::from(n)).product();
    let shared = kernel.buffers.iter().filter(|buffer| buffer.decl.access == Access::Workgroup);
    shared.map(|buffer| u64::from(buffer.decl.count).div_ceil(invocations) + 1).sum()
}

/// State of one emission.
struct Emitter<'a> {
    kernel: &'a KernelBody,
    form: Form,
    traits: Traits,
    layout: Layout,
    build: Builder,
    values: Vec<Option<Expr>>,
    constants: Vec<Option<Value>>,
    locals: Vec<Expr>,
    arrays: Vec<Expr>,
    storages: Vec<ElementStorage>,
    parameters: Expr,
    status: Option<Expr>,
    ids: Ids,
    /// The opaque zero, as a `u32`.
    zero: Expr,
    /// First statement of the enclosing loop that is not a definition: the condition of a `while`.
    leading: Option<&'a Stmt>,
    around: Around,
}

/// Whether the current code is inside a branch, or inside a loop.
#[derive(Clone, Copy, Default)]
struct Around {
    branch: bool,
    cycle: bool,
}

/// Position of the invocation, on three axes each.
#[derive(Clone, Copy)]
struct Ids {
    invocation: [Expr; 3],
    workgroup: [Expr; 3],
    local: [Expr; 3],
    grid: [Expr; 3],
    /// Linear position in the workgroup.
    linear: Expr,
}

impl<'a> Emitter<'a> {
    fn new(kernel: &'a KernelBody, form: Form, traits: Traits, layout: Layout) -> Emitter<'a> {
        let mut build = Builder::new();
        let words = layout.words;
        let quad = build.ty(TypeInner::Vector { size: VectorSize::Quad, scalar: Scalar::U32 });
        let size = ArraySize::Constant(count(words / 4));
        let block = build.ty(TypeInner::Array { base: quad, size, stride: 16 });
        let parameters = global(
            &mut build,
            Global { name: "parameters", space: AddressSpace::Uniform, binding: Some(0), ty: block },
        );
        let status = layout.status.then(|| {
            let base = build.ty(TypeInner::Atomic(Scalar::U32));
            let ty = build.ty(TypeInner::Array { base, size: ArraySize::Constant(count(2)), stride: 4 });
            let space = AddressSpace::Storage { access: StorageAccess::LOAD | StorageAccess::STORE };
            let binding = Some(1 + layout.bindings.len() as u32);
            global(&mut build, Global { name: "status", space, binding, ty })
        });
        let nothing = build.u32(0);
        let ids = Ids {
            invocation: [nothing; 3],
            workgroup: [nothing; 3],
            local: [nothing; 3],
            grid: [nothing; 3],
            linear: nothing,
        };
        Emitter {
            kernel,
            form,
            traits,
            layout,
            build,
            values: vec![None; kernel.values.len()],
            constants: vec![None; kernel.values.len()],
            locals: Vec::new(),
            arrays: Vec::new(),
            storages: Vec::new(),
            parameters,
            status,
            ids,
            zero: nothing,
            leading: None,
            around: Around::default(),
        }
    }

    fn finish(self) -> Emitted {
        let workgroup = self.device_workgroup();
        let (mut module, mut function) = self.build.finish();
        function.name = Some(ENTRY.into());
        module.entry_points.push(EntryPoint {
            name: ENTRY.into(),
            stage: ShaderStage::Compute,
            early_depth_test: None,
            workgroup_size: workgroup,
            workgroup_size_overrides: None,
            function,
            mesh_info: None,
            task_payload: None,
            incoming_ray_payload: None,
        });
        Emitted { module, layout: self.layout, workgroup }
    }

    /// Whether workgroups are flattened to one axis. Subgroups hold invocations that are adjacent
    /// in linear order, which devices guarantee on one axis only.
    fn is_linear(&self) -> bool {
        self.kernel.needs.subgroups
    }

    fn device_workgroup(&self) -> [u32; 3] {
        let [x, y, z] = self.form.workgroup;
        if self.is_linear() { [x * y * z, 1, 1] } else { [x, y, z] }
    }

    fn entry(&mut self) {
        self.declare();
        self.ids();
        if self.form.folded {
            self.skip_padding();
        }
        if self.form.within_domain {
            self.skip_outside();
        }
        self.clear_shared();
        let body = &self.kernel.body;
        self.statements(body);
    }

    fn declare(&mut self) {
        for local in &self.kernel.locals {
            let ty = self.build.value_ty(local.ty);
            self.locals.push(self.build.variable(Some(&local.name), ty));
        }
        self.declare_memory();
    }

    /// One word of the parameters.
    fn parameter(&mut self, word: u32) -> Expr {
        let loaded = self.parameter_as_it_is(word);
        self.not_inlined(loaded)
    }

    fn parameter_as_it_is(&mut self, word: u32) -> Expr {
        let quad = self.build.component(self.parameters, word / 4);
        let pointer = self.build.component(quad, word % 4);
        self.build.load(pointer)
    }

    /// Hides from the driver that a word comes from uniform memory; see
    /// [`Traits::inlines_uniforms`].
    fn not_inlined(&mut self, word: Expr) -> Expr {
        if self.traits.inlines_uniforms {
            self.build.binary(BinaryOperator::ExclusiveOr, word, self.zero)
        } else {
            word
        }
    }

    fn argument(&mut self, builtin: BuiltIn) -> Expr {
        let ty = self.build.ty(TypeInner::Vector { size: VectorSize::Tri, scalar: Scalar::U32 });
        let number = self.build.function.arguments.len() as u32;
        let binding = Some(Binding::BuiltIn(builtin));
        self.build.function.arguments.push(FunctionArgument { name: None, ty, binding });
        self.build.name(Expression::FunctionArgument(number))
    }

    fn ids(&mut self) {
        let [local, group] = [BuiltIn::LocalInvocationId, BuiltIn::WorkGroupId].map(|id| self.argument(id));
        let local = [0, 1, 2].map(|axis| self.build.component(local, axis));
        let group = [0, 1, 2].map(|axis| self.build.component(group, axis));
        self.zero = self.parameter_as_it_is(word::ZERO);
        if self.traits.inlines_uniforms {
            self.zero = self.build.binary(BinaryOperator::And, self.zero, group[0]);
        }
        self.ids.grid = [0, 1, 2].map(|axis| self.parameter(word::GRID + axis));
        self.ids.workgroup = if self.form.folded { self.unfolded(group) } else { group };
        let [x, y, z] = self.form.workgroup;
        (self.ids.linear, self.ids.local) = if self.is_linear() {
            let linear = local[0];
            let row = self.build.with_u32(BinaryOperator::Divide, linear, x);
            let in_row = self.build.with_u32(BinaryOperator::Modulo, linear, x);
            let in_plane = self.build.with_u32(BinaryOperator::Modulo, row, y);
            let plane = self.build.with_u32(BinaryOperator::Divide, row, y);
            (linear, [in_row, in_plane, plane])
        } else {
            let plane = self.build.with_u32(BinaryOperator::Multiply, local[2], y);
            let row = self.build.binary(BinaryOperator::Add, plane, local[1]);
            let row = self.build.with_u32(BinaryOperator::Multiply, row, x);
            (self.build.binary(BinaryOperator::Add, row, local[0]), local)
        };
        let sizes = [x, y, z];
        self.ids.invocation = [0, 1, 2].map(|axis: usize| {
            let start = self.build.with_u32(BinaryOperator::Multiply, self.ids.workgroup[axis], sizes[axis]);
            self.build.binary(BinaryOperator::Add, start, self.ids.local[axis])
        });
    }

    /// Position of the workgroup in the kernel's grid, from its position in the device's folded
    /// grid.
    fn unfolded(&mut self, group: [Expr; 3]) -> [Expr; 3] {
        let row = self.parameter(word::ROW);
        let rows = self.build.with_u32(BinaryOperator::Multiply, group[2], FOLD);
        let rows = self.build.binary(BinaryOperator::Add, rows, group[1]);
        let before = self.build.binary(BinaryOperator::Multiply, rows, row);
        let linear = self.build.binary(BinaryOperator::Add, before, group[0]);
        let x = self.build.binary(BinaryOperator::Modulo, linear, self.ids.grid[0]);
        let rest = self.build.binary(BinaryOperator::Divide, linear, self.ids.grid[0]);
        let y = self.build.binary(BinaryOperator::Modulo, rest, self.ids.grid[1]);
        let z = self.build.binary(BinaryOperator::Divide, rest, self.ids.grid[1]);
        [x, y, z]
    }

    /// Ends workgroups beyond the kernel's grid, which the device's grid can exceed. Whole
    /// workgroups end, so barriers are unaffected.
    fn skip_padding(&mut self) {
        let outside =
            self.build.binary(BinaryOperator::GreaterEqual, self.ids.workgroup[2], self.ids.grid[2]);
        self.return_if(outside);
    }

    /// Ends invocations outside the domain. On an axis where workgroups have one invocation, the
    /// grid is the domain.
    fn skip_outside(&mut self) {
        let sizes = self.form.workgroup;
        for axis in (0..3).filter(|&axis| sizes[axis] > 1) {
            let limit = self.parameter(word::LIMIT + axis as u32);
            let outside = self.build.binary(BinaryOperator::GreaterEqual, self.ids.invocation[axis], limit);
            self.return_if(outside);
        }
    }

    fn return_if(&mut self, condition: Expr) {
        let accept = self.nested(|this| this.build.push(Statement::Return { value: None }));
        self.build.push(Statement::If { condition, accept, reject: Block::new() });
    }

    fn nested(&mut self, build: impl FnOnce(&mut Self)) -> Block {
        Builder::nested(self, |this| &mut this.build, build)
    }

    fn value(&self, id: ValueId) -> Expr {
        self.values[id.index()]
            .unwrap_or_else(|| unreachable!("a value is used where its definition has run"))
    }

    /// Emits statements; returns `false` if control does not continue after them.
    fn statements(&mut self, block: &'a [Stmt]) -> bool {
        // Naga accepts no statement after one that leaves the block.
        block.iter().all(|stmt| self.statement(stmt))
    }

    fn block(&mut self, block: &'a [Stmt]) -> Block {
        self.nested(|this| {
            this.statements(block);
        })
    }

    fn statement(&mut self, stmt: &'a Stmt) -> bool {
        match &stmt.kind {
            StmtKind::Def(value, def) => {
                let expr = self.define(*value, def);
                self.values[value.index()] = Some(expr);
                // Naga rejects divisors and indices that are invalid literals, however they were
                // computed.
                self.constants[value.index()] = self.constants[value.index()].or(self.build.integer(expr));
            }
            StmtKind::Set(local, value) => {
                let value = self.chosen_by_control(*value);
                self.build.store(self.locals[local.index()], value);
            }
            StmtKind::Clear(array) => self.clear_array(*array),
            StmtKind::Store { place, index, value, in_bounds } => {
                let value = self.value(*value);
                let at = self.at(*place, *index, *in_bounds);
                self.store_element(at, value);
            }
            StmtKind::If { condition, then, otherwise } => {
                let mut condition = self.value(*condition);
                let exits = leaves_loop(then) || leaves_loop(otherwise);
                let leads = self.leading.is_some_and(|leading| std::ptr::eq(leading, stmt));
                if exits && !leads && self.traits.miscounts_exits {
                    condition = self.disguised_condition(condition);
                }
                let outer = self.around;
                self.around.branch = true;
                let accept = self.block(then);
                let reject = self.block(otherwise);
                self.around = outer;
                self.build.push(Statement::If { condition, accept, reject });
            }
            StmtKind::For { counter, from, to, body, .. } => self.counted(*counter, [*from, *to], body),
            StmtKind::Loop(body) => {
                // Only definitions can precede it: the driver can misjudge a condition that follows
                // a step.
                let leading = body.iter().find(|stmt| !matches!(stmt.kind, StmtKind::Def(..)));
                let outer = std::mem::replace(&mut self.leading, leading);
                let run = |this: &mut Self| {
                    this.statements(body);
                };
                self.repeated(run, |_| {});
                self.leading = outer;
            }
            StmtKind::Break => return self.leave(Statement::Break),
            StmtKind::Continue => return self.leave(Statement::Continue),
            StmtKind::Return => return self.leave(Statement::Return { value: None }),
            StmtKind::Barrier => {
                self.build.push(Statement::ControlBarrier(Barrier::WORK_GROUP | Barrier::STORAGE));
            }
            StmtKind::Region { body, .. } => return self.statements(body),
            StmtKind::Trap(code) => {
                self.trap(*code);
                return false;
            }
        }
        true
    }

    fn leave(&mut self, statement: Statement) -> bool {
        self.build.push(statement);
        false
    }

    fn define(&mut self, value: ValueId, def: &Def) -> Expr {
        match def {
            Def::Const(constant) => {
                self.constants[value.index()] = Some(*constant);
                self.constant(*constant)
            }
            Def::Get(local) => self.build.load(self.locals[local.index()]),
            Def::Op(op, operands) => self.op(*op, operands, self.kernel.ty(value)),
            Def::Load { place, index, in_bounds } => {
                let at = self.at(*place, *index, *in_bounds);
                self.load_element(at)
            }
            Def::Len(buffer) => self.length(*buffer),
            Def::Builtin(builtin, axis) => self.builtin(*builtin, usize::from(*axis)),
            Def::Atomic { op, buffer, index, operands, in_bounds } => {
                let at = self.at(Place::Buffer(*buffer), *index, *in_bounds);
                let operands: Vec<Expr> = operands.iter().map(|&operand| self.value(operand)).collect();
                self.atomic(*op, *buffer, at, &operands)
            }
            Def::Subgroup(op, operands) => self.subgroup(*op, operands, self.kernel.ty(value)),
        }
    }

    fn builtin(&mut self, builtin: Builtin, axis: usize) -> Expr {
        match builtin {
            Builtin::InvocationId => self.ids.invocation[axis],
            Builtin::WorkgroupId => self.ids.workgroup[axis],
            Builtin::LocalId => self.ids.local[axis],
            Builtin::GridSize => self.ids.grid[axis],
            Builtin::WorkgroupSize => self.build.u32(self.form.workgroup[axis]),
        }
    }

    /// Records the trap in the status buffer and ends the invocation.
    fn trap(&mut self, code: u32) {
        let Some(status) = self.status else { unreachable!("the layout has a status where a kernel traps") };
        let [code, trapped] = [code, TRAPPED].map(|word| self.build.u32(word));
        for (word, fun, value) in
            [(1, AtomicFunction::Exchange { compare: None }, code), (0, AtomicFunction::Max, trapped)]
        {
            let pointer = self.build.component(status, word);
            let ty = self.build.value_ty(ValueType::U32);
            let result = Some(self.build.name(Expression::AtomicResult { ty, comparison: false }));
            self.build.push(Statement::Atomic { pointer, fun, value, result });
        }
        self.build.push(Statement::Return { value: None });
    }

    // Loops.

    /// A loop that `body` leaves by `Break`; `behind` runs after each iteration.
    fn repeated(&mut self, body: impl FnOnce(&mut Self), behind: impl FnOnce(&mut Self)) {
        let outer = self.around;
        self.around.cycle = true;
        let body = self.nested(body);
        let continuing = self.nested(behind);
        self.around = outer;
        self.build.push(Statement::Loop { body, continuing, break_if: None });
    }

    fn break_unless(&mut self, condition: Expr) {
        let reject = self.nested(|this| this.build.push(Statement::Break));
        self.build.push(Statement::If { condition, accept: Block::new(), reject });
    }

    /// A counted loop with a step of one; legalisation reduces other steps to this form.
    fn counted(&mut self, counter: ValueId, [from, to]: [ValueId; 2], body: &'a [Stmt]) {
        let ty = self.kernel.ty(counter);
        let [from, limit] = [from, to].map(|bound| self.value(bound));
        let variable_ty = self.build.value_ty(ty);
        let position = self.build.variable(Some("position"), variable_ty);
        self.build.store(position, from);
        let one = self.build.constant(Value::one(ty));
        self.repeated(
            |this| {
                let now = this.build.load(position);
                let goes_on = this.build.binary(BinaryOperator::Less, now, limit);
                this.break_unless(goes_on);
                this.values[counter.index()] = Some(now);
                this.statements(body);
            },
            |this| {
                let now = this.build.load(position);
                let next = this.build.binary(BinaryOperator::Add, now, one);
                this.build.store(position, next);
            },
        );
    }

    fn unsigned_bits(&mut self, x: Expr, ty: ValueType) -> Expr {
        if ty.is_signed_integer() { self.build.bitcast(x, ScalarKind::Uint) } else { x }
    }

    fn not(&mut self, x: Expr) -> Expr {
        self.build.unary(UnaryOperator::LogicalNot, x)
    }
}

/// Whether a block can end the loop that encloses it.
fn leaves_loop(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break | StmtKind::Return | StmtKind::Trap(_) => true,
        StmtKind::If { then, otherwise, .. } => leaves_loop(then) || leaves_loop(otherwise),
        StmtKind::Region { body, .. } => leaves_loop(body),
        // A break from an inner loop stays in this one; a return does not.
        StmtKind::For { body, .. } | StmtKind::Loop(body) => returns(body),
        StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Continue
        | StmtKind::Barrier => false,
    })
}

fn returns(block: &[Stmt]) -> bool {
    let ends = |kind: &StmtKind| matches!(kind, StmtKind::Return | StmtKind::Trap(_));
    block.iter().any(|stmt| ends(&stmt.kind) || stmt.kind.blocks().into_iter().any(returns))
}

/// Rows of workgroups per plane of a folded grid; see `fold` in the dispatch. The largest power of
/// two below the 65,535 workgroups per axis that WebGPU guarantees.
pub(crate) const FOLD: u32 = 32_768;

/// Unsigned integer type of the same width.
fn unsigned(ty: ValueType) -> ValueType {
    if ty.bits() == 64 { ValueType::U64 } else { ValueType::U32 }
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap_or_else(|| unreachable!("memory in a kernel has elements"))
}

/// A global variable of the module.
struct Global<'a> {
    name: &'a str,
    space: AddressSpace,
    binding: Option<u32>,
    ty: Handle<Type>,
}

/// Declares a global variable and returns a pointer to it.
fn global(build: &mut Builder, global: Global<'_>) -> Expr {
    let variable = GlobalVariable {
        name: Some(global.name.into()),
        space: global.space,
        binding: global.binding.map(|binding| ResourceBinding { group: 0, binding }),
        ty: global.ty,
        init: None,
        memory_decorations: MemoryDecorations::empty(),
    };
    let handle = build.module.global_variables.append(variable, Span::UNDEFINED);
    build.name(Expression::GlobalVariable(handle))
}
