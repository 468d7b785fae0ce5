//! Lowers the named tree to the typed kernel and checks it on the way.
//!
//! One walk in evaluation order. Expressions become definitions in the current block; a variable
//! that is never assigned is just its value; a call is replaced by the body of the function. Every
//! function is also walked once on its own, called or not, so that its errors are reported once and
//! at their source location; calls inside that walk are checked but not followed.
//!
//! The walk tracks the post-order position of each node, which indexes the source spans
//! ([`SourceMap`](crate::ir::SourceMap)).

use super::declarations::Declarations;
use super::faults::{self, Found};
use crate::diagnostics::{Diagnostic, Severity, closest, line_column};
use crate::ir::{
    Args, AtomicOp, Block, BufferDecl, Builtin, Expr, Formula, Function, MAX_BLOCK_DEPTH,
    MAX_MESSAGE_OPERANDS, Name, Node, Program, Span, SubgroupOp, WorkgroupOp, message_pieces, telling,
    walk_block,
};
use crate::kernel::{
    ArrayId, BufferId, Def, KernelBody, KernelBuffer, Local, LocalId, Needs, Operands, Place, PrivateArray,
    Proof, Site, Stmt, StmtKind, ValueId, ValueInfo,
};
use crate::ops::{Op, eval};
use crate::types::{Value, ValueType};
use hashbrown::{HashMap, HashSet};

/// Limit on the combined nesting of blocks and expressions after inlining. Twice what a program
/// without calls can reach leaves room for calls, and keeps every recursion over a kernel within a
/// small thread's stack.
const MAX_DEPTH: usize = 512;
/// Limit on the number of values, and on the number of statements, in a kernel: a bound against
/// hostile programs. The largest filetest has 247 values. A kernel of 994,000 values is validated
/// in 0.6 s and optimized in 2.7 s, within 421 MB.
const MAX_SIZE: usize = 1_000_000;
/// Limit on the elements of an array. The largest of the benchmarks have 64 (`dct`, `tridiagonal`).
const MAX_ARRAY_COUNT: u32 = 65_536;
/// Limit on the arrays of an invocation together. `tridiagonal` has the most of the benchmarks, 512
/// bytes.
const MAX_ARRAY_BYTES: u64 = 1 << 20;

/// What lowering recorded about expressions and declarations, for editors.
#[derive(Default)]
pub(crate) struct LoweringRecord {
    /// Names that may be declared in parts that could not be parsed.
    pub(crate) unread: HashSet<Name>,
    /// Expressions by source span; of several with one span the outermost is last.
    pub(crate) expressions: Vec<(Span, Noted)>,
    /// Variables and counters, keyed by the start of their statement.
    pub(crate) declarations: HashMap<u32, Noted>,
}

/// Type and identity of a recorded value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    pub(crate) ty: ValueType,
    /// The kernel value; `None` in functions, whose bodies are inlined once per call.
    pub(crate) value: Option<ValueId>,
}

pub(super) fn lower(
    program: &Program,
    declared: Declarations,
    found: &mut Found,
    record: Option<&mut LoweringRecord>,
) -> KernelBody {
    let body = KernelBody {
        name: program.name().cloned(),
        fingerprint: program.fingerprint(),
        workgroup_size: program.workgroup_size(),
        domain: declared.domain.clone(),
        buffers: declared.buffers.clone(),
        locals: Vec::new(),
        arrays: Vec::new(),
        values: Vec::new(),
        body: Vec::new(),
        shape_free: false,
        coarsening: 1,
        proof: Proof::default(),
        messages: Vec::new(),
        sized_by_elements: false,
        needs: Needs::default(),
        warnings: Default::default(),
        source: None,
    };
    let mut lowering = Lowering {
        program,
        used: vec![false; declared.buffers.len()],
        declared,
        kernel: body,
        found,
        position: 0,
        function_positions: Vec::new(),
        scope: NameScope::default(),
        output: Vec::new(),
        depth: 0,
        blocks: 0,
        telling: telling(program.functions()),
        loops: 0,
        array_bytes: 0,
        constants: HashMap::new(),
        walked: 0,
        gave_up: false,
        record,
    };
    for index in 0..program.functions().len() {
        lowering.check_function(index);
    }
    lowering.reset();
    lowering.scope = NameScope { assigned: assigned_names(program.entry()), ..NameScope::default() };
    lowering.kernel.body = lowering.block(program.entry());
    lowering.remark_unused();
    lowering.kernel.sized_by_elements = !lowering.kernel.sizing_buffers().is_empty();
    lowering.kernel
}

/// What a name refers to.
#[derive(Clone, Copy)]
enum Meaning {
    /// A variable that is never assigned again.
    Fixed(ValueId),
    Local(LocalId),
    Counter(ValueId),
    Parameter(ValueId),
    Array(ArrayId),
    /// Declared with an erroneous value; uses of it are not reported again.
    Faulty,
}

impl Meaning {
    fn describe(self) -> &'static str {
        match self {
            Meaning::Fixed(_) | Meaning::Local(_) | Meaning::Faulty => "a variable",
            Meaning::Counter(_) => "a loop counter",
            Meaning::Parameter(_) => "a parameter",
            Meaning::Array(_) => "an array",
        }
    }
}

/// The names visible in the current body or function.
#[derive(Default)]
struct NameScope {
    meanings: HashMap<Name, Meaning>,
    /// Declared names in order, so that leaving a block can remove them.
    order: Vec<Name>,
    /// Names that are assigned somewhere in this body.
    assigned: HashSet<Name>,
    /// How the function that owns this scope is being walked; `None` in the kernel body.
    function: Option<LoweringMode>,
}

/// Why a function's body is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoweringMode {
    /// To find its errors.
    Check,
    /// To inline it at a call.
    Inline,
}

struct Lowering<'a> {
    program: &'a Program,
    declared: Declarations,
    kernel: KernelBody,
    found: &'a mut Found,
    /// Post-order number of the next node.
    position: usize,
    /// Per function: the position of its first node, and whether it is free of errors.
    function_positions: Vec<(usize, bool)>,
    scope: NameScope,
    output: Vec<Stmt>,
    depth: usize,
    /// Current block nesting, including the blocks that replace calls to functions that emit
    /// messages.
    blocks: usize,
    /// Functions that emit messages.
    telling: HashSet<Name>,
    loops: usize,
    array_bytes: u64,
    /// Values known to be constant.
    constants: HashMap<ValueId, Value>,
    used: Vec<bool>,
    /// Statements walked so far; those of inlined functions count once per call.
    walked: usize,
    /// A limit was exceeded and reported; later errors are suppressed.
    gave_up: bool,
    record: Option<&'a mut LoweringRecord>,
}

fn assigned_names(block: &Block) -> HashSet<Name> {
    let mut names = HashSet::new();
    let mut on_node = |node: &Node| {
        if let Node::Assign { name, .. } = node {
            names.insert(name.clone());
        }
    };
    walk_block(block, &mut on_node, &mut |_| {});
    names
}

impl Lowering<'_> {
    /// Discards what checking the functions left behind, except their positions.
    fn reset(&mut self) {
        self.kernel.locals.clear();
        self.kernel.arrays.clear();
        self.kernel.values.clear();
        self.constants.clear();
        self.output.clear();
        self.array_bytes = 0;
        self.walked = 0;
        self.gave_up = false;
    }

    fn remark_unused(&mut self) {
        for formula in self.program.domain().formulas() {
            self.use_all(formula);
        }
        if let crate::kernel::KernelDomain::LenOf(id) = self.kernel.domain {
            self.used[id.index()] |= self.program.domain() != &crate::ir::Domain::Default;
        }
        for buffer in &self.kernel.buffers {
            if let Some(id) = buffer.len_of {
                self.used[id.index()] = true;
            }
        }
        let program = self.program;
        program
            .buffers()
            .iter()
            .filter_map(|decl| decl.length.as_ref())
            .for_each(|length| self.use_all(length));
        for (index, decl) in program.buffers().iter().enumerate() {
            if !self.used[index] && !self.is_unread(&decl.name) {
                let at = self.program.source().and_then(|map| map.buffers.get(index).copied());
                self.found.push(faults::unused_buffer(decl).at(at).edit(self.without_buffer(index)));
            }
        }
    }

    /// The edit that removes a buffer together with its comma.
    fn without_buffer(&self, index: usize) -> Option<(Span, String)> {
        let spans = &self.program.source()?.buffers;
        let own = *spans.get(index)?;
        let span = match (spans.get(index + 1), index.checked_sub(1).and_then(|before| spans.get(before))) {
            (Some(next), _) => Span { start: own.start, end: next.start },
            (None, Some(before)) => Span { start: before.end, end: own.end },
            (None, None) => own,
        };
        Some((span, String::new()))
    }

    /// The edit that makes a read-only buffer writable.
    fn writable(&self, buffer: BufferId) -> Option<(Span, String)> {
        let map = self.program.source()?;
        let own = *map.buffers.get(buffer.index())?;
        let text = map.source.get(own.start as usize..own.end as usize)?;
        let behind = text.find(':')?;
        let word = behind + text[behind..].find("read ")?;
        let start = own.start + word as u32;
        Some((Span { start, end: start + 4 }, "read_write".into()))
    }

    /// The edit that replaces the first whole-word occurrence of a name within a span.
    fn renamed(&self, at: Option<Span>, name: &str, by: Option<&str>) -> Option<(Span, String)> {
        let (at, by) = (at?, by?);
        let text = self.program.source()?.source.get(at.start as usize..at.end as usize)?;
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let whole = |&(start, _): &(usize, &str)| {
            !text[..start].ends_with(is_part) && !text[start + name.len()..].starts_with(is_part)
        };
        let start = at.start + text.match_indices(name).find(whole)?.0 as u32;
        Some((Span { start, end: start + name.len() as u32 }, by.into()))
    }

    /// The edits that wrap a value in two texts. Empty when the value has no separate span in the
    /// statement, as in `x += 1`.
    fn around(
        &self,
        value: Option<Span>,
        statement: Option<Span>,
        texts: [String; 2],
    ) -> Vec<(Span, String)> {
        let Some(value) = value.filter(|value| statement.is_none_or(|at| at.start < value.start)) else {
            return Vec::new();
        };
        let [before, behind] = texts;
        let at = |position| Span { start: position, end: position };
        vec![(at(value.start), before), (at(value.end), behind)]
    }

    /// The edits that convert a value to a type.
    fn converted(&self, value: Option<Span>, statement: Option<Span>, to: ValueType) -> Vec<(Span, String)> {
        self.around(value, statement, [format!("{to}("), ")".into()])
    }

    /// Whether the name may be declared in a part that could not be parsed.
    fn is_unread(&self, name: &Name) -> bool {
        self.record.as_ref().is_some_and(|record| record.unread.contains(name))
    }

    /// Records the value at a span.
    fn note(&mut self, at: Option<Span>, value: Option<ValueId>) {
        let is_kernel = self.scope.function.is_none();
        if self.scope.function == Some(LoweringMode::Inline) {
            return;
        }
        if let (Some(record), Some(at), Some(value)) = (&mut self.record, at, value) {
            let ty = self.kernel.ty(value);
            record.expressions.push((at, Noted { ty, value: is_kernel.then_some(value) }));
        }
    }

    /// Records the variable or counter of a statement.
    fn note_declared(&mut self, at: Option<Span>, value: Option<ValueId>) {
        let is_kernel = self.scope.function.is_none();
        if self.scope.function == Some(LoweringMode::Inline) {
            return;
        }
        if let (Some(record), Some(at), Some(value)) = (&mut self.record, at, value) {
            let ty = self.kernel.ty(value);
            // The variable that holds an early return's result shares the span of the returned
            // value.
            record.declarations.entry(at.start).or_insert(Noted { ty, value: is_kernel.then_some(value) });
        }
    }

    fn use_all(&mut self, formula: &Formula) {
        for name in formula.names() {
            if let Some(id) = self.declared.buffer_ids.get(name) {
                self.used[id.index()] = true;
            }
        }
    }

    /// The span of the node that was just finished.
    fn finish(&mut self) -> Option<Span> {
        let at = self.program.source().and_then(|map| map.tree.get(self.position).copied());
        self.position += 1;
        at
    }

    fn report(&mut self, fault: Diagnostic, at: Option<Span>) {
        if !self.gave_up && self.scope.function != Some(LoweringMode::Inline) {
            self.found.push(fault.at(at));
        }
    }

    /// Reports an exceeded limit, once, and suppresses later errors.
    fn give_up(&mut self, fault: Diagnostic, at: Option<Span>) {
        if !self.gave_up {
            self.found.push(fault.at(at));
        }
        self.gave_up = true;
    }

    // Statements.

    fn block(&mut self, block: &Block) -> Vec<Stmt> {
        let visible = self.scope.order.len();
        let outer = std::mem::take(&mut self.output);
        self.depth += 1;
        self.blocks += 1;
        if block.is_too_deep() || self.depth > MAX_DEPTH {
            self.give_up(faults::too_deep(), None);
        } else {
            for node in block {
                self.node(node);
            }
        }
        self.depth -= 1;
        self.blocks -= 1;
        self.forget(visible);
        std::mem::replace(&mut self.output, outer)
    }

    fn forget(&mut self, visible: usize) {
        for name in self.scope.order.drain(visible..) {
            self.scope.meanings.remove(&name);
        }
    }

    fn emit(&mut self, kind: StmtKind, at: Option<Span>) {
        self.output.push(Stmt { kind, at });
    }

    fn node(&mut self, node: &Node) {
        self.walked += 1;
        if self.walked > MAX_SIZE {
            return self.give_up(faults::too_large(), None);
        }
        match node {
            Node::Let { name, value } => self.declare_variable(name, value),
            Node::Array { name, element, count } => self.declare_array(name, *element, *count),
            Node::Assign { name, value } => self.assign(name, value),
            Node::Store { to, index, value } => self.store(to, index, value),
            Node::Eval(expr) => {
                self.expr(expr);
                self.finish();
            }
            Node::If { condition, then, otherwise } => self.conditional(condition, then, otherwise),
            Node::For { counter, from, to, step, body } => self.counted(counter, [from, to, step], body),
            Node::While { condition, body } => self.repeated(condition, body),
            Node::Break => self.leave_loop(StmtKind::Break, "break"),
            Node::Continue => self.leave_loop(StmtKind::Continue, "continue"),
            Node::Return => self.effect(StmtKind::Return, "a return"),
            Node::Barrier => self.effect(StmtKind::Barrier, "a barrier"),
            Node::Trap(code) => self.effect(StmtKind::Trap(*code), "a trap"),
            Node::Print { format, args } => self.message(None, format, args),
            Node::Assert { condition, format, args } => self.message(Some(condition), format, args),
            Node::Block(body) => {
                let stmts = self.block(body);
                self.output.extend(stmts);
                self.finish();
            }
            Node::Region { generator, body } => {
                let body = self.block(body);
                self.effect(StmtKind::Region { generator: generator.clone(), body }, "a region");
            }
        }
    }

    /// A statement that is not allowed in a function.
    fn effect(&mut self, kind: StmtKind, what: &str) {
        let at = self.finish();
        if self.scope.function.is_some() {
            self.report(faults::not_pure(what), at);
        }
        self.emit(kind, at);
    }

    /// A `print` or, with a condition, an `assert`. It is only checked and recorded here;
    /// `messages::lower` expands it before a program runs with messages on.
    fn message(&mut self, condition: Option<&Expr>, format: &Name, args: &[Expr]) {
        let before = self.output.len();
        if let Some(condition) = condition {
            self.condition(condition);
        }
        let values: Vec<Option<ValueId>> = args.iter().map(|arg| self.expr(arg)).collect();
        // Nothing evaluated for it has an effect, so the kernel drops those statements.
        self.output.truncate(before);
        let at = self.finish();
        // The separate check of each function already recorded its messages.
        if self.scope.function == Some(LoweringMode::Inline) {
            return;
        }
        for expr in condition.into_iter().chain(args) {
            let message = expr.calls(&self.telling).then_some("a call of a function that prints or asserts");
            if let Some(what) = expr.exchange().or(message) {
                self.report(faults::message_effect(what), at);
            }
        }
        if args.len() > MAX_MESSAGE_OPERANDS {
            self.report(faults::message_length(args.len()), at);
        }
        match message_pieces(format) {
            None => self.report(faults::message_braces(format), at),
            Some(pieces) if pieces.len() != args.len() + 1 => {
                self.report(faults::message_operands(pieces.len() - 1, args.len()), at);
            }
            Some(pieces) => {
                let types = values.iter().flatten().map(|&value| self.kernel.ty(value)).collect();
                let at = at.zip(self.program.source()).map(|(at, map)| line_column(&map.source, at.start));
                self.kernel.messages.push(Site { is_assert: condition.is_some(), pieces, types, at });
            }
        }
    }

    fn leave_loop(&mut self, kind: StmtKind, what: &str) {
        let at = self.finish();
        if self.loops == 0 {
            self.report(faults::outside_loop(what), at);
        }
        self.emit(kind, at);
    }

    fn declare_variable(&mut self, name: &Name, value: &Expr) {
        let value = self.expr(value);
        let at = self.finish();
        self.note_declared(at, value);
        let meaning = match value {
            None => Meaning::Faulty,
            Some(value) if self.scope.assigned.contains(name) => {
                let local = LocalId(self.kernel.locals.len() as u32);
                self.kernel.locals.push(Local { name: name.clone(), ty: self.kernel.ty(value) });
                self.emit(StmtKind::Set(local, value), at);
                Meaning::Local(local)
            }
            Some(value) => Meaning::Fixed(value),
        };
        self.declare(name, meaning, at);
    }

    fn declare_array(&mut self, name: &Name, element: ValueType, count: u32) {
        let at = self.finish();
        if count == 0 || count > MAX_ARRAY_COUNT {
            self.report(faults::array_count(name, count), at);
            return self.declare(name, Meaning::Faulty, at);
        }
        self.array_bytes += u64::from(count) * element.data_type().size() as u64;
        if self.array_bytes > MAX_ARRAY_BYTES {
            self.give_up(faults::array_bytes(self.array_bytes), at);
        }
        let array = ArrayId(self.kernel.arrays.len() as u32);
        self.kernel.arrays.push(PrivateArray { name: name.clone(), element, count });
        self.emit(StmtKind::Clear(array), at);
        self.declare(name, Meaning::Array(array), at);
    }

    fn declare(&mut self, name: &Name, meaning: Meaning, at: Option<Span>) {
        let buffer = self.scope.function.is_none() && self.declared.buffer_ids.contains_key(name);
        if buffer {
            self.report(faults::duplicate_name(name, "a buffer"), at);
        } else if let Some(known) = self.scope.meanings.get(name) {
            self.report(faults::duplicate_name(name, known.describe()), at);
        } else {
            self.scope.meanings.insert(name.clone(), meaning);
            self.scope.order.push(name.clone());
        }
    }

    fn assign(&mut self, name: &Name, value: &Expr) {
        let value = self.expr(value);
        let at_value = self.last_place();
        let at = self.finish();
        match self.scope.meanings.get(name).copied() {
            Some(Meaning::Local(local)) => {
                let Some(value) = value else { return };
                let (has, given) = (self.kernel.locals[local.index()].ty, self.kernel.ty(value));
                if has == given {
                    self.emit(StmtKind::Set(local, value), at);
                } else {
                    let edits = self.converted(at_value, at, has);
                    self.report(faults::assign_type(name, has, given).edit(edits), at);
                }
            }
            Some(Meaning::Faulty) => {}
            Some(other @ (Meaning::Counter(_) | Meaning::Parameter(_) | Meaning::Array(_))) => {
                self.report(faults::assign_target(name, other.describe()), at);
            }
            Some(Meaning::Fixed(_)) => unreachable!("a variable that is assigned is a local"),
            None if self.visible_buffer(name).is_some() => {
                self.report(faults::assign_target(name, "a buffer"), at);
            }
            None if self.is_unread(name) => {}
            None => {
                let fault = self.unknown_variable(name, at);
                self.report(fault, at);
            }
        }
    }

    fn store(&mut self, to: &Name, index: &Expr, value: &Expr) {
        let index = self.expr(index);
        let at_index = self.last_place();
        let value = self.expr(value);
        let at_value = self.last_place();
        let at = self.finish();
        let Some(place) = self.place(to, at) else { return };
        if let Place::Buffer(buffer) = place
            && !self.kernel.buffer(buffer).decl.access.is_writable()
        {
            let fault = faults::not_writable(&self.kernel.buffer(buffer).decl).edit(self.writable(buffer));
            return self.report(fault, at);
        }
        let index = self.index(to, place, index, [at, at_index]);
        let (Some(index), Some(value)) = (index, value) else { return };
        let (takes, given) = (self.kernel.element(place).value_type(), self.kernel.ty(value));
        if takes != given {
            let edits = self.converted(at_value, at, takes);
            return self.report(faults::store_type(to, takes, given).edit(edits), at);
        }
        self.emit(StmtKind::Store { place, index, value, in_bounds: false }, at);
    }

    fn conditional(&mut self, condition: &Expr, then: &Block, otherwise: &Block) {
        let condition = self.condition(condition);
        let then = self.block(then);
        let otherwise = self.block(otherwise);
        let at = self.finish();
        if let Some(condition) = condition {
            self.emit(StmtKind::If { condition, then, otherwise }, at);
        }
    }

    /// A value that must be `bool`; the error is reported at the condition's span.
    fn condition(&mut self, condition: &Expr) -> Option<ValueId> {
        let value = self.expr(condition)?;
        let ty = self.kernel.ty(value);
        if ty == ValueType::Bool {
            return Some(value);
        }
        let at = self.last_place();
        let fault = faults::condition_type(ty);
        let edits = match ty.is_integer() {
            true => self.around(at, None, ["(".into(), ") != 0".into()]),
            false => Vec::new(),
        };
        self.report(fault.edit(edits), at);
        None
    }

    fn last_place(&self) -> Option<Span> {
        let last = self.position.checked_sub(1)?;
        self.program.source().and_then(|map| map.tree.get(last).copied())
    }

    fn counted(&mut self, counter: &Name, bounds: [&Expr; 3], body: &Block) {
        let [from, to, step] = bounds.map(|bound| self.expr(bound));
        let at_bounds = self.last_place();
        let types = [from, to, step].map(|bound| bound.map(|value| self.kernel.ty(value)));
        let mut counter_type = None;
        if let [Some(a), Some(b), Some(c)] = types {
            if a == b && b == c && a.is_integer() {
                counter_type = Some(a);
            } else {
                self.report(faults::loop_bounds(a, b, c), at_bounds);
            }
        }
        let visible = self.scope.order.len();
        let value = counter_type.map(|ty| self.new_value(ty));
        self.declare(counter, value.map_or(Meaning::Faulty, Meaning::Counter), at_bounds);
        self.loops += 1;
        let body = self.block(body);
        self.loops -= 1;
        self.forget(visible);
        let at = self.finish();
        self.note_declared(at, value);
        if let (Some(counter), Some(from), Some(to), Some(step)) = (value, from, to, step) {
            self.emit(StmtKind::For { counter, from, to, step, body }, at);
        }
    }

    fn repeated(&mut self, condition: &Expr, body: &Block) {
        let outer = std::mem::take(&mut self.output);
        let condition = self.condition(condition);
        let at_condition = self.last_place();
        if let Some(condition) = condition {
            let otherwise = vec![Stmt { kind: StmtKind::Break, at: at_condition }];
            self.emit(StmtKind::If { condition, then: Vec::new(), otherwise }, at_condition);
        }
        let mut stmts = std::mem::replace(&mut self.output, outer);
        self.loops += 1;
        stmts.extend(self.block(body));
        self.loops -= 1;
        let at = self.finish();
        self.emit(StmtKind::Loop(stmts), at);
    }

    // Expressions. Each returns its value, or `None` after an error that was reported.

    fn new_value(&mut self, ty: ValueType) -> ValueId {
        let value = ValueId(self.kernel.values.len() as u32);
        self.kernel.values.push(ValueInfo { ty, uniform: false });
        if self.kernel.values.len() > MAX_SIZE {
            self.give_up(faults::too_large(), None);
        }
        value
    }

    fn define(&mut self, def: Def, ty: ValueType, at: Option<Span>) -> Option<ValueId> {
        let value = self.new_value(ty);
        self.emit(StmtKind::Def(value, def), at);
        Some(value)
    }

    fn expr(&mut self, expr: &Expr) -> Option<ValueId> {
        if self.gave_up {
            return None;
        }
        self.depth += 1;
        let too_deep = expr.arg_list().is_some_and(Args::is_too_deep) || self.depth > MAX_DEPTH;
        let value = if too_deep {
            self.give_up(faults::too_deep(), None);
            None
        } else {
            self.shallow_expr(expr)
        };
        self.depth -= 1;
        value
    }

    fn shallow_expr(&mut self, expr: &Expr) -> Option<ValueId> {
        let args: Vec<Option<ValueId>> = expr.args().iter().map(|arg| self.expr(arg)).collect();
        let at_last = self.last_place();
        let at = self.finish();
        let value = self.value_of(expr, &args, at, at_last);
        self.note(at, value);
        value
    }

    /// The value of an expression at a span; `at_last` is the span of its last operand.
    fn value_of(
        &mut self,
        expr: &Expr,
        args: &[Option<ValueId>],
        at: Option<Span>,
        at_last: Option<Span>,
    ) -> Option<ValueId> {
        match expr {
            Expr::Literal(value) => {
                let id = self.define(Def::Const(value.canonical()), value.ty(), at)?;
                self.constants.insert(id, value.canonical());
                Some(id)
            }
            Expr::Var(name) => self.variable(name, at),
            Expr::Builtin(builtin, axis) => self.builtin(*builtin, *axis, at),
            Expr::BufLen(name) => self.length(name, at),
            Expr::Load(from, _) => self.load(from, args, [at, at_last]),
            Expr::Op(op, _) => self.op(*op, args, at),
            Expr::Atomic(op, buffer, _) => self.atomic(*op, buffer, args, at),
            Expr::Subgroup(op, _) => self.subgroup(*op, args, at),
            Expr::Workgroup(WorkgroupOp::Broadcast, _) => self.workgroup_broadcast(args, at),
            Expr::Call(name, _) => self.call(name, args, at),
        }
    }

    fn variable(&mut self, name: &Name, at: Option<Span>) -> Option<ValueId> {
        match self.scope.meanings.get(name).copied() {
            Some(Meaning::Fixed(value) | Meaning::Counter(value) | Meaning::Parameter(value)) => Some(value),
            Some(Meaning::Local(local)) => {
                let ty = self.kernel.locals[local.index()].ty;
                self.define(Def::Get(local), ty, at)
            }
            Some(Meaning::Array(_)) => {
                self.report(faults::not_a_variable(name, "an array"), at);
                None
            }
            Some(Meaning::Faulty) => None,
            None if self.is_unread(name) => None,
            None => {
                let fault = match self.visible_buffer(name) {
                    Some(_) => faults::not_a_variable(name, "a buffer"),
                    None => self.unknown_variable(name, at),
                };
                self.report(fault, at);
                None
            }
        }
    }

    fn unknown_variable(&self, name: &str, at: Option<Span>) -> Diagnostic {
        let meant = self.similar_variable(name);
        faults::unknown_variable(name, meant).edit(self.renamed(at, name, meant))
    }

    fn similar_variable(&self, name: &str) -> Option<&str> {
        // Sorted, so that the same program always gets the same suggestion.
        let mut names: Vec<&str> = self.scope.meanings.keys().map(|known| &**known).collect();
        names.sort_unstable();
        closest(name, names)
    }

    fn builtin(&mut self, builtin: Builtin, axis: u8, at: Option<Span>) -> Option<ValueId> {
        if axis > 2 {
            self.report(faults::axis(axis), at);
            return None;
        }
        if self.scope.function.is_some() {
            self.report(faults::not_pure("ids or sizes"), at);
            return None;
        }
        self.define(Def::Builtin(builtin, axis), ValueType::U32, at)
    }

    fn length(&mut self, name: &Name, at: Option<Span>) -> Option<ValueId> {
        let place = self.place(name, at)?;
        match place {
            Place::Buffer(buffer) => self.define(Def::Len(buffer), ValueType::U32, at),
            Place::Array(array) => {
                let count = Value::U32(self.kernel.arrays[array.index()].count);
                self.define(Def::Const(count), ValueType::U32, at)
            }
        }
    }

    fn visible_buffer(&self, name: &Name) -> Option<BufferId> {
        let visible = self.scope.function.is_none();
        visible.then(|| self.declared.buffer_ids.get(name).copied()).flatten()
    }

    /// The buffer or array that a name refers to.
    fn place(&mut self, name: &Name, at: Option<Span>) -> Option<Place> {
        if let Some(buffer) = self.visible_buffer(name) {
            self.used[buffer.index()] = true;
            return Some(Place::Buffer(buffer));
        }
        let fault = match self.scope.meanings.get(name) {
            Some(Meaning::Array(array)) => return Some(Place::Array(*array)),
            Some(Meaning::Faulty) => return None,
            Some(_) => faults::unknown_buffer(name, None),
            None if self.declared.buffer_ids.contains_key(name) => faults::buffer_in_function(name),
            None if self.is_unread(name) => return None,
            None => {
                let mut names: Vec<&str> = self.declared.buffer_ids.keys().map(|known| &**known).collect();
                names.sort_unstable();
                let meant = closest(name, names);
                faults::unknown_buffer(name, meant).edit(self.renamed(at, name, meant))
            }
        };
        self.report(fault, at);
        None
    }

    /// Checks the type of an index, and reports a constant one that is always out of range.
    fn index(
        &mut self,
        name: &Name,
        place: Place,
        index: Option<ValueId>,
        [at, at_index]: [Option<Span>; 2],
    ) -> Option<ValueId> {
        let index = index?;
        let ty = self.kernel.ty(index);
        if ty != ValueType::U32 {
            let edits = self.converted(at_index, None, ValueType::U32);
            self.report(faults::index_type(name, ty).edit(edits), at);
            return None;
        }
        let count = match place {
            Place::Buffer(buffer) => self.kernel.buffer(buffer).decl.count,
            Place::Array(array) => self.kernel.arrays[array.index()].count,
        };
        if let Some(Value::U32(constant)) = self.constants.get(&index).copied()
            && count > 0
            && constant >= count
        {
            self.report(faults::index_out_of_range(name, constant, count), at);
        }
        Some(index)
    }

    fn load(
        &mut self,
        from: &Name,
        args: &[Option<ValueId>],
        [at, at_index]: [Option<Span>; 2],
    ) -> Option<ValueId> {
        let place = self.place(from, at)?;
        self.operand_count(from, 1, args.len(), at)?;
        let index = self.index(from, place, args[0], [at, at_index])?;
        let ty = self.kernel.element(place).value_type();
        self.define(Def::Load { place, index, in_bounds: false }, ty, at)
    }

    fn operand_count(&mut self, name: &str, wanted: usize, given: usize, at: Option<Span>) -> Option<()> {
        if wanted == given {
            return Some(());
        }
        self.report(faults::operand_count(name, wanted, given), at);
        None
    }

    fn op(&mut self, op: Op, args: &[Option<ValueId>], at: Option<Span>) -> Option<ValueId> {
        let row = op.row();
        self.operand_count(row.name, row.signature.arity(), args.len(), at)?;
        let args: Vec<ValueId> = args.iter().copied().collect::<Option<_>>()?;
        let types: Vec<ValueType> = args.iter().map(|&arg| self.kernel.ty(arg)).collect();
        let Some(ty) = row.signature.result(&types) else {
            self.report(faults::operand_types(row, &types), at);
            return None;
        };
        let value = self.define(Def::Op(op, Operands::new(&args)), ty, at)?;
        let known: Option<Vec<Value>> = args.iter().map(|arg| self.constants.get(arg).copied()).collect();
        if let Some(result) = known.and_then(|known| eval(op, &known)) {
            self.constants.insert(value, result);
        }
        Some(value)
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        name: &Name,
        args: &[Option<ValueId>],
        at: Option<Span>,
    ) -> Option<ValueId> {
        if self.scope.function.is_some() {
            self.report(faults::not_pure("an atomic"), at);
            return None;
        }
        let place = self.place(name, at)?;
        let Place::Buffer(buffer) = place else {
            self.report(faults::atomic_target(op, name, "it is a private array"), at);
            return None;
        };
        let decl = &self.kernel.buffer(buffer).decl;
        let ty = decl.element.value_type();
        if !decl.access.is_writable() {
            let fault = faults::not_writable(decl).edit(self.writable(buffer));
            self.report(fault, at);
            return None;
        }
        if !ty.is_integer() || decl.element != ty.data_type() {
            let problem = format!("its elements are {}", decl.element);
            self.report(faults::atomic_target(op, name, &problem), at);
            return None;
        }
        self.operand_count(&format!("atomic_{}", op.row().name), op.operands() + 1, args.len(), at)?;
        let index = self.index(name, place, args[0], [at, None])?;
        let operands: Vec<ValueId> = args[1..].iter().copied().collect::<Option<_>>()?;
        if let Some(&wrong) = operands.iter().find(|&&operand| self.kernel.ty(operand) != ty) {
            let fault = faults::atomic_types(op, name, ty, self.kernel.ty(wrong));
            self.report(fault, at);
            return None;
        }
        let operands = Operands::new(&operands);
        self.define(Def::Atomic { op, buffer, index, operands, in_bounds: false }, ty, at)
    }

    fn subgroup(&mut self, op: SubgroupOp, args: &[Option<ValueId>], at: Option<Span>) -> Option<ValueId> {
        if self.scope.function.is_some() {
            self.report(faults::not_pure("a subgroup op"), at);
            return None;
        }
        let row = op.row();
        self.operand_count(&format!("subgroup_{}", row.name), row.arity, args.len(), at)?;
        let args: Vec<ValueId> = args.iter().copied().collect::<Option<_>>()?;
        let types: Vec<ValueType> = args.iter().map(|&arg| self.kernel.ty(arg)).collect();
        let Some(ty) = op.result(&types) else {
            self.report(faults::subgroup_types(&row.name, &types), at);
            return None;
        };
        self.define(Def::Subgroup(op, Operands::new(&args)), ty, at)
    }

    /// Invocation 0 stores its value in workgroup memory and all invocations load it. One barrier
    /// separates the store from the loads, a second one the loads from the next broadcast.
    fn workgroup_broadcast(&mut self, args: &[Option<ValueId>], at: Option<Span>) -> Option<ValueId> {
        if self.scope.function.is_some() {
            self.report(faults::not_pure("a workgroup op"), at);
            return None;
        }
        let row = WorkgroupOp::Broadcast.row();
        self.operand_count(&format!("workgroup_{}", row.name), row.arity, args.len(), at)?;
        let value = args[0]?;
        let is_bool = self.kernel.ty(value) == ValueType::Bool;
        let sent = if is_bool { self.op(Op::ToU32, &[Some(value)], at)? } else { value };
        let ty = self.kernel.ty(sent);
        let place = Place::Buffer(self.broadcast_buffer(ty));
        let index = self.define(Def::Const(Value::U32(0)), ValueType::U32, at)?;
        let first = self.is_first_invocation(index, at)?;
        let store = StmtKind::Store { place, index, value: sent, in_bounds: false };
        let then = vec![Stmt { kind: store, at }];
        self.emit(StmtKind::If { condition: first, then, otherwise: Vec::new() }, at);
        self.emit(StmtKind::Barrier, at);
        let received = self.define(Def::Load { place, index, in_bounds: false }, ty, at)?;
        self.emit(StmtKind::Barrier, at);
        if is_bool { self.op(Op::ToBool, &[Some(received)], at) } else { Some(received) }
    }

    /// Whether this is invocation 0 of the workgroup.
    fn is_first_invocation(&mut self, zero: ValueId, at: Option<Span>) -> Option<ValueId> {
        let mut any = self.define(Def::Builtin(Builtin::LocalId, 0), ValueType::U32, at)?;
        for axis in [1, 2] {
            let id = self.define(Def::Builtin(Builtin::LocalId, axis), ValueType::U32, at)?;
            any = self.op(Op::Or, &[Some(any), Some(id)], at)?;
        }
        self.op(Op::Eq, &[Some(any), Some(zero)], at)
    }

    /// The workgroup buffer for broadcasts of a type, shared by all of them.
    fn broadcast_buffer(&mut self, ty: ValueType) -> BufferId {
        let element = ty.data_type();
        let known = |buffer: &KernelBuffer| buffer.broadcast && buffer.decl.element == element;
        if let Some(index) = self.kernel.buffers.iter().position(known) {
            return BufferId(index as u32);
        }
        let decl = BufferDecl::workgroup(format!("workgroup_broadcast of {ty}"), 1, element);
        let unused = KernelBuffer {
            decl,
            len_of: None,
            length: None,
            loaded: false,
            stored: false,
            atomic: false,
            broadcast: true,
        };
        self.kernel.buffers.push(unused);
        BufferId(self.kernel.buffers.len() as u32 - 1)
    }

    // Functions.

    fn call(&mut self, name: &Name, args: &[Option<ValueId>], at: Option<Span>) -> Option<ValueId> {
        let Some(&id) = self.declared.function_ids.get(name) else {
            if self.is_unread(name) {
                return None;
            }
            let mut names: Vec<&str> = self.declared.function_ids.keys().map(|known| &**known).collect();
            names.extend(Op::ALL.iter().map(|op| op.row().name));
            names.sort_unstable();
            let meant = closest(name, names);
            let fault = faults::unknown_function(name, meant).edit(self.renamed(at, name, meant));
            self.report(fault, at);
            return None;
        };
        let program = self.program;
        let function = &program.functions()[id];
        self.operand_count(name, function.params.len(), args.len(), at)?;
        let args: Vec<ValueId> = args.iter().copied().collect::<Option<_>>()?;
        let given: Vec<ValueType> = args.iter().map(|&arg| self.kernel.ty(arg)).collect();
        let wanted: Vec<ValueType> = function.params.iter().map(|(_, ty)| *ty).collect();
        if given != wanted {
            self.report(faults::call_types(name, &given, &wanted), at);
            return None;
        }
        // When only checking, or when the callee has errors, the type of its result is enough.
        let sound =
            self.declared.finite[id] && self.function_positions.get(id).is_none_or(|&(_, sound)| sound);
        if self.scope.function == Some(LoweringMode::Check) || !sound {
            return Some(self.new_value(function.result));
        }
        self.inline(id, function, &args, at)
    }

    fn inline(
        &mut self,
        id: usize,
        function: &Function,
        args: &[ValueId],
        at: Option<Span>,
    ) -> Option<ValueId> {
        let after = std::mem::replace(&mut self.position, self.function_positions[id].0);
        // Expanding its messages turns the body into a block, possibly inside a loop.
        let around = if self.telling.contains(&function.name) { 2 } else { 0 };
        if around > 0 && self.blocks + around + function.body.depth() > MAX_BLOCK_DEPTH {
            self.give_up(faults::too_deep(), at);
        }
        self.blocks += around;
        let (value, _) = self.function_body(function, args, LoweringMode::Inline);
        self.blocks -= around;
        self.position = after;
        if self.gave_up {
            return None;
        }
        // Its errors were found by the separate check; inlining can only hit a limit.
        let Some(value) = value else { unreachable!("a function without faults gives its result: {at:?}") };
        Some(value)
    }

    /// Walks the body of a function with these arguments, in a new scope.
    fn function_body(
        &mut self,
        function: &Function,
        args: &[ValueId],
        mode: LoweringMode,
    ) -> (Option<ValueId>, Option<Span>) {
        let assigned = assigned_names(&function.body);
        let scope = NameScope { assigned, function: Some(mode), ..NameScope::default() };
        let outer = std::mem::replace(&mut self.scope, scope);
        let loops = std::mem::take(&mut self.loops);
        self.depth += 1;
        if self.depth > MAX_DEPTH || function.body.is_too_deep() {
            self.give_up(faults::too_deep(), None);
        }
        for ((name, _), &value) in function.params.iter().zip(args) {
            self.declare(name, Meaning::Parameter(value), None);
        }
        for node in &function.body {
            self.node(node);
        }
        let value = self.expr(&function.value);
        let at = self.last_place();
        self.depth -= 1;
        self.loops = loops;
        self.scope = outer;
        (value, at)
    }

    /// Checks a function on its own.
    fn check_function(&mut self, index: usize) {
        let program = self.program;
        let function = &program.functions()[index];
        let errors = |found: &Found| found.iter().filter(|item| item.severity() == Severity::Error).count();
        let before = errors(self.found);
        let start = self.position;
        self.reset();
        let args: Vec<ValueId> = function.params.iter().map(|(_, ty)| self.new_value(*ty)).collect();
        let (value, at) = self.function_body(function, &args, LoweringMode::Check);
        if let Some(value) = value
            && self.kernel.ty(value) != function.result
        {
            let given = self.kernel.ty(value);
            // The result of early returns is a variable whose name cannot be written in source.
            let is_written = !matches!(&function.value, Expr::Var(name) if name.contains(' '));
            let edits = self.converted(at.filter(|_| is_written), None, function.result);
            self.report(faults::result_type(&function.name, function.result, given).edit(edits), at);
        }
        let sound = errors(self.found) == before && !self.gave_up;
        self.function_positions.push((start, sound));
    }
}
