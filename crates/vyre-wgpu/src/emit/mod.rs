//! From a kernel to a naga module.
//!
//! The module is built directly. Text in between would have to be printed here and parsed, typed and lowered again by
//! naga, for every kernel; and WGSL refuses what kernels contain: infinities and NaNs as constants, shifts that its
//! compiler can tell to be too wide, arithmetic on constants that overflows. Naga's own form takes what is meant.
//!
//! Assumes a kernel without the ops of [`LACKING`] and without transcendental functions. What follows the semantics
//! exactly is the arithmetic written here, never a device's idea of it:
//! - all memory is words of unsigned bits, so no NaN passes through a float type on its way from buffer to buffer;
//! - an index that is not proved to be in range is compared with the length; out of range, the first element is loaded
//!   (every buffer has one) and zero taken instead, and stores and atomics are skipped;
//! - elements of one or two bytes are written with two atomics on their word, so that neighbours survive;
//! - `min`, `max`, float → integer conversions and tests for NaN are sequences of comparisons and bit operations.
//!
//! **Parameters** (binding 0): one uniform buffer holds the box of invocations that run, the grid, the lengths of
//! run-time sized buffers and the elements of small uniform buffers; see [`Layout`]. It also holds a zero that
//! drivers cannot see, which stands for ±0.0 wherever a driver would fold arithmetic on the literal wrongly.
//!
//! **Status** (last binding): two words that a trap leaves a mark and its code in.

mod build;
mod memory;
mod nesting;
mod ops;
mod subgroup;

use build::{Builder, Expr};
use memory::Slot;
use naga::{
    AddressSpace, ArraySize, AtomicFunction, Barrier, BinaryOperator, Binding, Block, BuiltIn, EntryPoint,
    Expression, FunctionArgument, GlobalVariable, Handle, MemoryDecorations, Module, ResourceBinding, Scalar,
    ScalarKind, ShaderStage, Span, Statement, StorageAccess, Type, TypeInner, UnaryOperator, VectorSize,
};
use std::num::NonZeroU32;
use vyre_driver::native::Form;
use vyre_foundation::ir::{Access, Builtin};
use vyre_foundation::kernel::{BufferId, Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use vyre_foundation::legalise::{Steps, Wanted};
use vyre_foundation::ops::Op;
use vyre_foundation::types::{Value, ValueType};

/// The name of the entry point.
pub(crate) const ENTRY: &str = "main";

/// Ops that a kernel must not hold when it is emitted: the optimizer decomposes them.
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

/// Forms that a kernel must have been brought into. Stores are of bits, which has one NaN.
pub(crate) const WANTED: Wanted =
    Wanted { steps: Steps::One, nan_stores: false, half_floats: true, exits: false };

/// What the first status word says where an invocation trapped; the code is in the second word.
pub(crate) const TRAPPED: u32 = 1;

/// What the device is like, as far as code depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Whether its own `fma` rounds once.
    pub(crate) fused_fma: bool,
    /// Whether the driver folds float arithmetic on literal zeros, and x - x, to zero.
    pub(crate) folds_floats: bool,
    /// Whether the driver may rewrite float arithmetic, since nothing keeps it from that: `(x + c) - c` becomes x, on which
    /// vyre's own expansions of functions rest.
    pub(crate) rewrites_floats: bool,
    /// Whether the driver searches what a kernel computes for values that come of uniform memory alone, to compile it again
    /// for the values that it finds there. Lavapipe 22.3 does, going through shared operands once per use: through an
    /// expression forty levels deep in more time than anyone has.
    pub(crate) inlines_uniforms: bool,
    /// Whether the driver may unroll a loop as if a condition that leaves it held in rounds where it does not. Lavapipe 22.3
    /// does for `while w < 5 { w = w + 1; if 1 > w { …; break } }`: it looks at `w` before the sum.
    pub(crate) miscounts_exits: bool,
    /// Whether the driver mistakes a choice between integers with the bits of -1.0 and 0.0, or of 1.0 and -0.0, for one between
    /// floats whose zeros are equal, and gives the other zero. Mesa's NIR does: `select(c, 0xBF800000, 0)` is 0x80000000
    /// where `c` is false, however the two constants came about.
    pub(crate) confuses_zeros: bool,
    /// Lanes per subgroup.
    pub(crate) subgroup_size: u32,
    /// How many rounds of loops the driver lets one invocation run in all before it silently stops.
    pub(crate) loop_limit: Option<u64>,
    /// How many blocks may lie in one another before the driver silently takes a wrong branch; see [`Emitted::nesting`].
    pub(crate) nesting_limit: Option<u32>,
}

/// Where a dispatch finds and puts things: the parameters' words and the bindings' order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The buffers with a binding of their own, from binding 1 on.
    pub(crate) bindings: Vec<BufferId>,
    /// Uniform buffers kept in the parameters, and the word where each starts.
    pub(crate) packed: Vec<(BufferId, u32)>,
    /// Buffers whose length is a parameter, and its word.
    pub(crate) lengths: Vec<(BufferId, u32)>,
    /// How many words the parameters have; a multiple of four.
    pub(crate) words: u32,
    /// Whether there is a status buffer, behind the other bindings.
    pub(crate) status: bool,
}

/// The words of the parameters that every kernel has.
pub(crate) mod word {
    /// The box of invocations that run: three words.
    pub(crate) const LIMIT: u32 = 0;
    /// A zero that no compiler knows to be one.
    pub(crate) const ZERO: u32 = 3;
    /// The grid: three words.
    pub(crate) const GRID: u32 = 4;
    /// Workgroups in a row of the device's grid, where the kernel's is folded.
    pub(crate) const ROW: u32 = 7;
    /// The first of the words that depend on the kernel.
    pub(crate) const FIRST: u32 = 8;
}

/// Uniform buffers up to so many words are kept in the parameters: less than any device's limit for uniform memory.
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
                // Eight-byte elements are put together from two words, so any word will do to start at.
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

/// A module and how to call it.
#[derive(Debug)]
pub(crate) struct Emitted {
    pub(crate) module: Module,
    pub(crate) layout: Layout,
    /// Invocations per workgroup on the device's axes.
    pub(crate) workgroup: [u32; 3],
}

/// Emits a kernel for one form of dispatch.
pub(crate) fn emit(kernel: &KernelBody, form: Form, traits: &Traits) -> Emitted {
    let layout = Layout::new(kernel, kernel.traps());
    let mut emitter = Emitter::new(kernel, form, *traits, layout);
    emitter.entry();
    emitter.finish()
}

/// Rounds of the loops that emission adds, beside those that clear private arrays: they clear workgroup memory.
pub(crate) fn own_rounds(kernel: &KernelBody, form: Form) -> u64 {
    let invocations: u64 = form.workgroup.iter().map(|&n| u64::from(n)).product();
    let shared = kernel.buffers.iter().filter(|buffer| buffer.decl.access == Access::Workgroup);
    shared.map(|buffer| u64::from(buffer.decl.count).div_ceil(invocations) + 1).sum()
}

/// Emission under way.
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
    slots: Vec<Slot>,
    parameters: Expr,
    status: Option<Expr>,
    ids: Ids,
    /// The opaque zero, as a `u32`.
    zero: Expr,
    /// What the loop around begins with: the condition of a `while`.
    leading: Option<&'a Stmt>,
    around: Around,
}

/// Whether what is emitted lies in a branch, or in a loop.
#[derive(Clone, Copy, Default)]
struct Around {
    branch: bool,
    cycle: bool,
}

/// Where the invocation is; each on three axes.
#[derive(Clone, Copy)]
struct Ids {
    invocation: [Expr; 3],
    workgroup: [Expr; 3],
    local: [Expr; 3],
    grid: [Expr; 3],
    /// The position in the workgroup as one number.
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
            slots: Vec::new(),
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

    /// Subgroups hold neighbours in the linear order, which devices promise for one axis only.
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

    /// A word of the parameters.
    fn parameter(&mut self, word: u32) -> Expr {
        let loaded = self.parameter_as_it_is(word);
        self.not_inlined(loaded)
    }

    fn parameter_as_it_is(&mut self, word: u32) -> Expr {
        let quad = self.build.component(self.parameters, word / 4);
        let pointer = self.build.component(quad, word % 4);
        self.build.load(pointer)
    }

    /// The same word of uniform memory, such that the driver does not see that it is one; see [`Traits::inlines_uniforms`].
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

    /// The workgroup's place in the grid, from its place in the device's grid: rows of rows, counted through.
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

    /// The device's grid may be larger than the kernel's; whole workgroups end here, so barriers are not affected.
    fn skip_padding(&mut self) {
        let outside =
            self.build.binary(BinaryOperator::GreaterEqual, self.ids.workgroup[2], self.ids.grid[2]);
        self.return_if(outside);
    }

    /// On an axis where workgroups have one invocation, the grid is the domain.
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

    /// Emits statements; `false` if control does not go on behind them.
    fn statements(&mut self, block: &'a [Stmt]) -> bool {
        // Naga takes no statement behind one that leaves.
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
                // Naga refuses divisors and indices that are literally wrong, however they came about.
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
                // Nothing but values may stand before it: a condition behind a step is one that the driver may misjudge.
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

    /// Leaves word in the status buffer and ends the invocation.
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

    /// A loop whose body leaves it by `Break`, with what runs behind each round.
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

    /// A counted loop. Its step is one: other loops were brought into this form.
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

/// Whether a branch can end the loop around the condition.
fn leaves_loop(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break | StmtKind::Return | StmtKind::Trap(_) => true,
        StmtKind::If { then, otherwise, .. } => leaves_loop(then) || leaves_loop(otherwise),
        StmtKind::Region { body, .. } => leaves_loop(body),
        // What breaks out of an inner loop stays in this one; a return does not.
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

/// Rows of workgroups that a plane of a folded grid has; see `fold` in the dispatch.
pub(crate) const FOLD: u32 = 32_768;

/// The unsigned integer as wide as the integer.
fn unsigned(ty: ValueType) -> ValueType {
    if ty.bits() == 64 { ValueType::U64 } else { ValueType::U32 }
}

fn count(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap_or_else(|| unreachable!("memory in a kernel has elements"))
}

/// A variable of the module.
struct Global<'a> {
    name: &'a str,
    space: AddressSpace,
    binding: Option<u32>,
    ty: Handle<Type>,
}

/// Declares a variable of the module; gives the pointer to it.
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
