//! Writes a kernel's statements.
//!
//! **Values** become constants `v<n>` in the block that defines them; literals and buffer lengths
//! are inlined at their uses. Variables are `l<n>_<name>`, private arrays `a<n>_<name>`, buffers
//! `b<n>_<name>` with `n<n>_<name>` elements unless the length is fixed. The numbers disambiguate
//! names that would be equal in C, and avoid its keywords.
//!
//! **Domain.** A shape-free kernel is a function with two entries: one skips invocations outside
//! the domain; the other, for workgroups entirely inside, does not, because compilers that run a
//! workgroup as a loop over its invocations do not vectorize a loop with such a test.
//!
//! **Barriers.** PoCL (3.1) runs a workgroup as loops over its invocations, which it splits at
//! barriers. Exits from loops with barriers are removed before the text is written
//! ([`exits`](crate::legalise)), so that such a loop has one test. Three more forms are needed.
//! They are applied to the text, because a kernel cannot express them and every simplification
//! would undo them:
//!
//! - If a barrier is under a condition, PoCL computes wrong results for variables that only some
//!   invocations assign, even if the condition is uniform across the workgroup. Such a block
//!   therefore becomes a loop of at most one iteration, counted by `once`.
//! - A compiler that sees that a loop ends after its first iteration turns it into a condition
//!   before PoCL splits it. The test of a loop with a barrier therefore has an opaque part: `zero`,
//!   which is zero.
//! - That part must change between iterations (`more`): a compiler that unswitches a loop-invariant
//!   test leaves an infinite loop in one branch, and PoCL treats every barrier after it as
//!   conditional.
//!
//! **Early exit.** A kernel that traps, or can be stopped, has the argument `control`, whose first
//! word becomes nonzero when the dispatch must end. Without barriers, an invocation that traps or
//! sees the word returns. A kernel with barriers must bring all its invocations to each of them: a
//! trap then only sets the word, loops without a barrier exit when they see it, and loops with one
//! exit together, based on what one invocation saw (`ended`). Code after a loop that exited early
//! runs on values that no proof covers, so every access in such a kernel is checked. Its further
//! results are discarded.

use super::dialect::Dialect;
use super::functions;
use super::{EmittedKernel, EntryArgument, Settings};
use crate::ir::{Access, Builtin};
use crate::kernel::{
    ArrayId, BufferId, Def, KernelBody, KernelBuffer, LocalId, Operands, Place, Stmt, StmtKind, ValueId,
};
use crate::legalise::exits::{holds_barrier, leading_exit};
use crate::ops::AtomicOp;
use crate::optimize::any_stmt;
use crate::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, DataType, Value, ValueType};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Maximum number of iterations of a counted loop that does not poll for a reason to stop: it
/// delays the end of a cancelled call by about that many rounds. Chosen, not measured.
const SHORT_LOOP: u64 = 1024;

pub(super) struct Writer<'a> {
    pub(super) kernel: &'a KernelBody,
    pub(super) dialect: &'a Dialect,
    pub(super) settings: &'a Settings,
    out: String,
    indent: usize,
    /// Values that are inlined at their uses.
    inline: Vec<Option<Inline>>,
    /// Functions called so far.
    called: BTreeSet<(&'static str, ValueType)>,
    /// Whether loops and the kernel's start poll for a reason to end.
    polls: bool,
    /// Whether there are barriers at which a compiler may split loops over invocations.
    barriers: bool,
    traps: bool,
    /// Whether invocations can end while others that rely on them continue, which voids the proofs
    /// of accesses.
    unproved: bool,
}

#[derive(Clone, Copy)]
enum Inline {
    Constant(Value),
    Length(BufferId),
}

pub(super) fn write(kernel: &KernelBody, dialect: &Dialect, settings: &Settings) -> EmittedKernel {
    let traps = any_stmt(&kernel.body, &|kind| matches!(kind, StmtKind::Trap(_)));
    let meets = holds_barrier(&kernel.body);
    let barriers = meets && dialect.zero.is_some();
    let mut writer = Writer {
        kernel,
        dialect,
        settings,
        out: String::new(),
        indent: 1,
        inline: vec![None; kernel.values.len()],
        called: BTreeSet::new(),
        polls: settings.stoppable || (traps && barriers),
        barriers,
        traps,
        unproved: (settings.stoppable || traps) && (meets || kernel.needs.subgroups),
    };
    writer.body();
    writer.source()
}

impl Writer<'_> {
    fn source(self) -> EmittedKernel {
        let mut text = self.dialect.header.to_string();
        for (needed, lines) in self.dialect.optional {
            if needed(&self.kernel.needs) {
                text += lines;
            }
        }
        text += "\n";
        for (stem, ty) in &self.called {
            text += &functions::text(self.dialect, stem, *ty);
        }
        let name = identifier(self.kernel.name.as_deref().unwrap_or(""));
        let head = self.sized(self.dialect.kernel);
        let arguments = self.arguments();
        let parameters = |arguments: &[EntryArgument]| {
            let each: Vec<String> = arguments.iter().map(|argument| self.parameter(*argument)).collect();
            each.join(", ")
        };
        let entry = format!("k_{name}");
        let (folding, guards) = (self.folding(), self.guards());
        let two_entries = self.dialect.zero.is_some() && !guards.is_empty();
        let whole_entry = two_entries.then(|| format!("whole_{name}"));
        let all = parameters(&arguments);
        if let Some(whole_entry) = &whole_entry {
            let of_body: Vec<EntryArgument> = arguments
                .iter()
                .copied()
                .filter(|argument| !matches!(argument, EntryArgument::Last(_)))
                .collect();
            let names: Vec<String> = of_body.iter().map(|argument| self.argument(*argument)).collect();
            let call = format!("  body_{name}({});\n", names.join(", "));
            let (function, of_body) = (self.dialect.function, parameters(&of_body));
            let _ = write!(text, "\n{function} void body_{name}({of_body}) {{\n{}}}\n", self.out);
            let _ = write!(text, "\n{head} {entry}({all}) {{\n{guards}{call}}}\n");
            let _ = write!(text, "\n{head} {whole_entry}({all}) {{\n{call}}}\n");
        } else {
            let _ = write!(text, "\n{head} {entry}({all}) {{\n{folding}{guards}{}}}\n", self.out);
        }
        EmittedKernel { text, entry, whole_entry, arguments }
    }

    /// The lines that skip invocations outside the domain.
    fn guards(&self) -> String {
        let guard = |axis: u8| {
            let position = self.builtin(Builtin::InvocationId, usize::from(axis));
            format!("  if ((u32){position} > {}) return;\n", self.argument(EntryArgument::Last(axis)))
        };
        self.guarded_axes().map(guard).collect()
    }

    /// The lines that compute the workgroup's position in a folded grid.
    fn folding(&self) -> String {
        if !self.settings.folded {
            return String::new();
        }
        let place = self.dialect.workgroup[0];
        format!(
            "  const u64 group = first_group + {place};
  const u32 group_x = (u32)(group % grid_x), group_y = (u32)(group / grid_x % grid_y);
  const u32 group_z = (u32)(group / grid_x / grid_y);
"
        )
    }

    /// Substitutes the workgroup size into a text of the dialect.
    fn sized(&self, text: &str) -> String {
        let [x, y, z] = self.settings.workgroup.map(u64::from);
        let sizes = [("{x}", x), ("{y}", y), ("{z}", z), ("{n}", x * y * z)];
        sizes.iter().fold(text.into(), |text, (mark, size)| text.replace(mark, &size.to_string()))
    }

    fn arguments(&self) -> Vec<EntryArgument> {
        let mut arguments = Vec::new();
        if self.polls || self.traps {
            arguments.push(EntryArgument::Control);
        }
        for id in self.kernel.bound_buffers() {
            let buffer = self.kernel.buffer(id);
            arguments.push(if by_value(buffer) {
                EntryArgument::Value(id)
            } else {
                EntryArgument::Memory(id)
            });
            if buffer.decl.count == 0 {
                arguments.push(EntryArgument::Length(id));
            }
        }
        arguments.extend(self.guarded_axes().map(EntryArgument::Last));
        if self.settings.folded {
            arguments.extend([
                EntryArgument::FirstGroup,
                EntryArgument::Grid(0),
                EntryArgument::Grid(1),
                EntryArgument::Grid(2),
            ]);
        }
        arguments
    }

    /// The axes on which invocations outside the domain are skipped.
    fn guarded_axes(&self) -> impl Iterator<Item = u8> + use<> {
        let guarded = self.settings.workgroup.map(|size| self.kernel.shape_free && size > 1);
        (0..3).filter(move |&axis| guarded[usize::from(axis)])
    }

    fn parameter(&self, argument: EntryArgument) -> String {
        let Dialect { global, restrict, .. } = self.dialect;
        let ty = match argument {
            EntryArgument::Control => format!("volatile {global}u32 *"),
            EntryArgument::Memory(id) => {
                let decl = &self.kernel.buffer(id).decl;
                let readonly = if decl.access.is_output() { "" } else { "const " };
                format!("{global}{readonly}{} *{restrict} ", stored(decl.element))
            }
            EntryArgument::Value(id) => format!("const {} ", stored(self.kernel.buffer(id).decl.element)),
            EntryArgument::FirstGroup => "const u64 ".into(),
            EntryArgument::Length(_) | EntryArgument::Last(_) | EntryArgument::Grid(_) => "const u32 ".into(),
        };
        ty + &self.argument(argument)
    }

    /// The name of an argument.
    fn argument(&self, argument: EntryArgument) -> String {
        match argument {
            EntryArgument::Control => "control".into(),
            EntryArgument::Memory(id) | EntryArgument::Value(id) => self.buffer(id),
            EntryArgument::Length(id) => self.length(id),
            EntryArgument::Last(axis) => format!("last_{}", AXES[usize::from(axis)]),
            EntryArgument::FirstGroup => "first_group".into(),
            EntryArgument::Grid(axis) => format!("grid_{}", AXES[usize::from(axis)]),
        }
    }

    // Names and operands.

    fn buffer(&self, id: BufferId) -> String {
        format!("b{}_{}", id.0, identifier(&self.kernel.buffer(id).decl.name))
    }

    fn local(&self, id: LocalId) -> String {
        format!("l{}_{}", id.0, identifier(&self.kernel.locals[id.index()].name))
    }

    fn array(&self, id: ArrayId) -> String {
        format!("a{}_{}", id.0, identifier(&self.kernel.arrays[id.index()].name))
    }

    fn length(&self, id: BufferId) -> String {
        let decl = &self.kernel.buffer(id).decl;
        if decl.count > 0 {
            format!("{}u", decl.count)
        } else {
            format!("n{}_{}", id.0, identifier(&decl.name))
        }
    }

    pub(super) fn operand(&self, value: ValueId) -> String {
        match self.inline[value.index()] {
            Some(Inline::Constant(value)) => self.literal(value),
            Some(Inline::Length(buffer)) => self.length(buffer),
            None => format!("v{}", value.0),
        }
    }

    pub(super) fn constant(&self, value: ValueId) -> Option<Value> {
        match self.inline[value.index()] {
            Some(Inline::Constant(value)) => Some(value),
            Some(Inline::Length(_)) | None => None,
        }
    }

    pub(super) fn literal(&self, value: Value) -> String {
        let [u64_suffix, i64_suffix] = self.dialect.wide_suffix;
        match value {
            Value::Bool(x) => x.to_string(),
            Value::U32(x) => format!("{x}u"),
            // The minimum integer has no literal: it would be the negation of one that is out of
            // range.
            Value::I32(i32::MIN) => format!("({} - 1)", -i32::MAX),
            Value::I64(i64::MIN) => format!("({}{i64_suffix} - 1)", -i64::MAX),
            Value::I32(x) if x < 0 => format!("({x})"),
            Value::I32(x) => x.to_string(),
            Value::U64(x) => format!("{x}{u64_suffix}"),
            Value::I64(x) if x < 0 => format!("({x}{i64_suffix})"),
            Value::I64(x) => format!("{x}{i64_suffix}"),
            Value::F32(x) if !x.is_finite() => {
                let bits = if x.is_nan() { CANONICAL_NAN_F32 } else { x.to_bits() };
                format!("{}(0x{bits:08x}u)", self.dialect.reinterpret[0][1])
            }
            Value::F64(x) if !x.is_finite() => {
                let bits = if x.is_nan() { CANONICAL_NAN_F64 } else { x.to_bits() };
                format!("{}(0x{bits:016x}{u64_suffix})", self.dialect.reinterpret[1][1])
            }
            Value::F32(x) if x.is_sign_negative() => format!("({x:?}f)"),
            Value::F32(x) => format!("{x:?}f"),
            Value::F64(x) if x.is_sign_negative() => format!("({x:?})"),
            Value::F64(x) => format!("{x:?}"),
        }
    }

    /// A call to a function that the text defines.
    pub(super) fn call(&mut self, stem: &'static str, ty: ValueType, args: &[String]) -> String {
        self.called.insert((stem, ty));
        format!("{stem}_{ty}({})", args.join(", "))
    }

    // Lines.

    pub(super) fn line(&mut self, text: &str) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
        self.out.push_str(text);
        self.out.push('\n');
    }

    pub(super) fn nested(&mut self, head: &str, inner: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.indent += 1;
        inner(self);
        self.indent -= 1;
        self.line("}");
    }

    fn body(&mut self) {
        let kernel = self.kernel;
        let shared: Vec<BufferId> = (0..kernel.buffers.len() as u32)
            .map(BufferId)
            .filter(|&id| is_shared(kernel.buffer(id)))
            .collect();
        for &id in &shared {
            let decl = &kernel.buffer(id).decl;
            let (space, element, name) = (self.dialect.local, stored(decl.element), self.buffer(id));
            self.line(&format!("{space} {element} {name}[{}];", decl.count));
        }
        for (k, array) in kernel.arrays.iter().enumerate() {
            let name = self.array(ArrayId(k as u32));
            self.line(&format!("{} {name}[{}];", stored(array.element.data_type()), array.count));
        }
        for (k, local) in kernel.locals.iter().enumerate() {
            let name = self.local(LocalId(k as u32));
            self.line(&format!("{} {name};", local.ty));
        }
        let body = &kernel.body;
        if self.polls && self.barriers {
            self.line(&format!("{} u32 stop;", self.dialect.local));
            self.line("u32 ended = 0u;");
        }
        let branches =
            |kind: &StmtKind| matches!(kind, StmtKind::If { .. } | StmtKind::For { .. } | StmtKind::Loop(_));
        if let Some(zero) = self.dialect.zero.filter(|_| self.barriers && any_stmt(body, &branches)) {
            self.line(&format!("const u32 zero = {zero};"));
        }
        self.declare_lanes();
        self.clear_shared(&shared);
        // A kernel with barriers polls only in loops: a return before a barrier would make the
        // barrier conditional.
        if self.polls && !self.barriers {
            self.line("if (control[0] != 0u) return;");
        }
        self.block(body);
    }

    /// Zeroes workgroup memory at the start of a workgroup.
    fn clear_shared(&mut self, shared: &[BufferId]) {
        if shared.is_empty() {
            return;
        }
        let [x, y, z] = self.settings.workgroup.map(u64::from);
        let place = self.place_in_group();
        for &id in shared {
            let (name, count) = (self.buffer(id), self.kernel.buffer(id).decl.count);
            self.line(&format!("for (u32 k = {place}; k < {count}u; k += {}u) {name}[k] = 0;", x * y * z));
        }
        self.line(self.dialect.barrier);
    }

    /// The linear index of the invocation in its workgroup.
    pub(super) fn place_in_group(&self) -> String {
        let [x, y, _] = self.settings.workgroup;
        let [i, j, k] = self.dialect.local_id;
        format!("(u32){i} + {x}u * ((u32){j} + {y}u * (u32){k})")
    }

    fn block(&mut self, block: &[Stmt]) {
        for stmt in block {
            self.stmt(&stmt.kind);
        }
    }

    fn stmt(&mut self, kind: &StmtKind) {
        match kind {
            StmtKind::Def(value, def) => self.define(*value, def),
            StmtKind::Set(local, value) => {
                let line = format!("{} = {};", self.local(*local), self.operand(*value));
                self.line(&line);
            }
            StmtKind::Clear(array) => {
                let (name, count) = (self.array(*array), self.kernel.arrays[array.index()].count);
                self.line(&format!("for (u32 k = 0u; k < {count}u; ++k) {name}[k] = 0;"));
            }
            StmtKind::Store { place, index, value, in_bounds } => {
                self.store(*place, *index, *value, *in_bounds);
            }
            StmtKind::If { condition, then, otherwise } => self.branch(*condition, then, otherwise),
            StmtKind::For { counter, from, to, body, .. } => self.counted(*counter, [*from, *to], body),
            StmtKind::Loop(body) => self.endless(body),
            StmtKind::Break => self.line("break;"),
            StmtKind::Continue => self.line("continue;"),
            StmtKind::Return => self.line("return;"),
            StmtKind::Barrier => self.line(self.dialect.barrier),
            StmtKind::Region { generator, body } => {
                self.line(&format!("{{ // region {}", identifier(generator)));
                self.indent += 1;
                self.block(body);
                self.indent -= 1;
                self.line("}");
            }
            StmtKind::Trap(code) => {
                let args = ["control".to_string(), format!("{code}u")];
                let trap = self.call("trap", ValueType::U32, &args);
                self.line(&format!("{trap};"));
                if !self.barriers {
                    self.line("return;");
                }
            }
        }
    }

    /// A block that runs if the condition holds; the block can change the operands of the
    /// condition.
    fn under_condition(&mut self, condition: &str, block: &[Stmt]) {
        let head = match self.is_cut(block) {
            true => format!("for (u32 once = 0u; once < (u32)({condition}) + zero; ++once)"),
            false => format!("if ({condition})"),
        };
        self.nested(&head, |writer| writer.block(block));
    }

    /// Whether a compiler may split the block at a barrier.
    fn is_cut(&self, block: &[Stmt]) -> bool {
        self.barriers && holds_barrier(block)
    }

    fn branch(&mut self, condition: ValueId, then: &[Stmt], otherwise: &[Stmt]) {
        let condition = self.operand(condition);
        if !then.is_empty() {
            self.under_condition(&condition, then);
        }
        if !otherwise.is_empty() {
            if then.is_empty() || self.is_cut(then) || self.is_cut(otherwise) {
                self.under_condition(&format!("!{condition}"), otherwise);
            } else {
                self.nested("else", |writer| writer.block(otherwise));
            }
        }
    }

    fn define(&mut self, value: ValueId, def: &Def) {
        let expression = match def {
            Def::Const(constant) => {
                self.inline[value.index()] = Some(Inline::Constant(*constant));
                return;
            }
            Def::Len(buffer) => {
                self.inline[value.index()] = Some(Inline::Length(*buffer));
                return;
            }
            Def::Builtin(Builtin::WorkgroupSize, axis) => {
                let size = Value::U32(self.settings.workgroup[usize::from(*axis)]);
                self.inline[value.index()] = Some(Inline::Constant(size));
                return;
            }
            Def::Builtin(builtin, axis) => format!("(u32){}", self.builtin(*builtin, usize::from(*axis))),
            Def::Get(local) => self.local(*local),
            Def::Op(op, operands) => self.op(*op, operands),
            Def::Load { place, index, in_bounds } => self.load(*place, *index, *in_bounds),
            Def::Atomic { op, buffer, index, operands, in_bounds } => {
                self.atomic(*op, *buffer, *index, operands, *in_bounds)
            }
            Def::Subgroup(op, operands) => return self.exchange(value, *op, operands),
        };
        let line = format!("const {} v{} = {expression};", self.kernel.ty(value), value.0);
        self.line(&line);
    }

    /// A position or size on an axis.
    fn builtin(&self, builtin: Builtin, axis: usize) -> String {
        let Dialect { invocation, workgroup, local_id, grid, .. } = self.dialect;
        let folded = self.settings.folded;
        match builtin {
            Builtin::InvocationId => match invocation {
                Some(invocation) if !folded => invocation[axis].into(),
                Some(_) | None => {
                    let group = self.builtin(Builtin::WorkgroupId, axis);
                    format!("({group} * {}u + {})", self.settings.workgroup[axis], local_id[axis])
                }
            },
            Builtin::WorkgroupId if folded => format!("group_{}", AXES[axis]),
            Builtin::WorkgroupId => workgroup[axis].into(),
            Builtin::LocalId => local_id[axis].into(),
            Builtin::GridSize if folded => self.argument(EntryArgument::Grid(axis as u8)),
            Builtin::GridSize => self.sized(grid[axis]),
            Builtin::WorkgroupSize => unreachable!("the size is known when the text is written"),
        }
    }

    // Memory.

    /// Guard condition for an access; `None` when the access is proved in range.
    fn guard(&self, place: Place, index: ValueId, in_bounds: bool) -> Option<String> {
        // A loop that exited early voids the proofs; see the module documentation.
        if in_bounds && !self.unproved {
            return None;
        }
        let count = match place {
            Place::Buffer(id) => self.length(id),
            Place::Array(id) => format!("{}u", self.kernel.arrays[id.index()].count),
        };
        Some(format!("{} < {count}", self.operand(index)))
    }

    fn element(&self, place: Place, index: ValueId) -> String {
        let name = match place {
            Place::Buffer(id) if by_value(self.kernel.buffer(id)) => return self.buffer(id),
            Place::Buffer(id) => self.buffer(id),
            Place::Array(id) => self.array(id),
        };
        format!("{name}[{}]", self.operand(index))
    }

    fn load(&mut self, place: Place, index: ValueId, in_bounds: bool) -> String {
        let element = self.element(place, index);
        let ty = self.kernel.element(place);
        let loaded = match ty {
            DataType::Bool => format!("{element} != 0"),
            DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 => {
                format!("({}){element}", ty.value_type())
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are stored as their bits"),
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                element
            }
        };
        match self.guard(place, index, in_bounds) {
            Some(guard) => format!("{guard} ? {loaded} : {}", self.literal(Value::zero(ty.value_type()))),
            None => loaded,
        }
    }

    fn store(&mut self, place: Place, index: ValueId, value: ValueId, in_bounds: bool) {
        let given = self.operand(value);
        let ty = self.kernel.element(place);
        let kept = match ty {
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are stored as their bits"),
            DataType::Bool | DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 => {
                format!("({}){given}", stored(ty))
            }
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                given
            }
        };
        let assignment = format!("{} = {kept};", self.element(place, index));
        match self.guard(place, index, in_bounds) {
            Some(guard) => self.line(&format!("if ({guard}) {assignment}")),
            None => self.line(&assignment),
        }
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        buffer: BufferId,
        index: ValueId,
        operands: &Operands,
        in_bounds: bool,
    ) -> String {
        let place = Place::Buffer(buffer);
        let ty = self.kernel.element(place).value_type();
        let Some((_, called)) = self.dialect.atomics.iter().find(|(other, _)| *other == op) else {
            unreachable!("every dialect has all atomics")
        };
        let mut args = vec![format!("&{}", self.element(place, index))];
        args.extend(operands.iter().map(|&operand| self.operand(operand)));
        if op == AtomicOp::Load {
            args.push(self.literal(Value::zero(ty)));
        }
        let update = self.called(*called, ty, &args);
        match self.guard(place, index, in_bounds) {
            Some(guard) => format!("{guard} ? {update} : {}", self.literal(Value::zero(ty))),
            None => update,
        }
    }

    // Loops.

    /// A counted loop. Its step is one: other loops were rewritten into this form.
    fn counted(&mut self, counter: ValueId, [from, to]: [ValueId; 2], body: &[Stmt]) {
        let (ty, n) = (self.kernel.ty(counter), counter.0);
        let [first, last] = [from, to].map(|value| self.operand(value));
        let poll = self.polls && !self.is_short(from, to);
        let foreseen = [from, to].iter().all(|&bound| self.constant(bound).is_some()) && !poll;
        let head = if self.is_cut(body) && !foreseen {
            let ended = if poll { " && ended == 0u" } else { "" };
            format!(
                "for ({ty} v{n} = {first}, more = zero; (v{n} < {last}{ended}) | (more != 0u); ++v{n}, more >>= 1)"
            )
        } else {
            format!("for ({ty} v{n} = {first}; v{n} < {last}; ++v{n})")
        };
        self.nested(&head, |writer| writer.round(poll, body));
    }

    /// A loop that ends only through its exits.
    fn endless(&mut self, body: &[Stmt]) {
        let exit = leading_exit(body).filter(|_| self.barriers).map(|at| (at, &body[at].kind));
        match exit {
            Some((at, StmtKind::If { condition, then, .. })) => {
                self.nested("for (u32 more = zero;; more >>= 1)", |writer| {
                    writer.block(&body[..at]);
                    let negation = if then.is_empty() { "!" } else { "" };
                    let ended = if writer.polls { " || ended != 0u" } else { "" };
                    let condition = writer.operand(*condition);
                    writer.line(&format!("if (({negation}{condition}{ended}) & (more == 0u)) break;"));
                    writer.round(writer.polls, &body[at + 1..]);
                });
            }
            _ if self.is_cut(body) && self.polls => {
                let head = "for (u32 more = zero; (ended == 0u) | (more != 0u); more >>= 1)";
                self.nested(head, |writer| writer.round(true, body));
            }
            _ => self.nested("for (;;)", |writer| writer.round(writer.polls, body)),
        }
    }

    /// The body of a loop, which polls for a reason to end if `poll` is set.
    fn round(&mut self, poll: bool, body: &[Stmt]) {
        if !poll {
            return self.block(body);
        }
        if !self.is_cut(body) {
            self.line(if self.barriers {
                "if (control[0] != 0u) break;"
            } else {
                "if (control[0] != 0u) return;"
            });
            return self.block(body);
        }
        self.block(body);
        // One invocation polls for all.
        let (barrier, place) = (self.dialect.barrier, self.place_in_group());
        self.line(barrier);
        self.line(&format!("if ({place} == 0u) stop = control[0];"));
        self.line(barrier);
        self.line("ended = stop;");
    }

    fn is_short(&self, from: ValueId, to: ValueId) -> bool {
        let bound = |value| self.constant(value).and_then(Value::as_integer);
        match (bound(from), bound(to)) {
            (Some(from), Some(to)) => (to - from).unsigned_abs() <= u128::from(SHORT_LOOP),
            (Some(_) | None, _) => false,
        }
    }
}

const AXES: [char; 3] = ['x', 'y', 'z'];

/// Whether a buffer is a single number passed by value.
fn by_value(buffer: &KernelBuffer) -> bool {
    buffer.decl.access == Access::Uniform && buffer.decl.count == 1
}

/// Whether a buffer is workgroup memory that the kernel uses.
fn is_shared(buffer: &KernelBuffer) -> bool {
    buffer.decl.access == Access::Workgroup && (buffer.loaded || buffer.stored)
}

/// The type of an element in memory.
fn stored(element: DataType) -> &'static str {
    match element {
        DataType::Bool => "u8",
        DataType::F16 | DataType::Bf16 => unreachable!("half floats are stored as their bits"),
        DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64
        | DataType::F32
        | DataType::F64 => element.name(),
    }
}

/// Converts a name to characters that C allows. Names need not be unique, since numbers
/// disambiguate them.
fn identifier(name: &str) -> String {
    name.chars().take(32).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
