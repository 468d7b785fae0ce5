//! Lowers a compute entry point of a naga module to a program.
//!
//! Programs have only scalars, and functions without access to memory. Vectors, matrices and
//! structs therefore become one variable per scalar (a *leaf*), arrays become private arrays of
//! scalars, functions are inlined at each call, and a pointer is its *pointee*: a root and the
//! indices applied to it, resolved at each load or store (`pointee.rs`).
//!
//! naga evaluates an expression where an `Emit` statement names it. A value that is used once is
//! substituted into the expression that uses it; all others become `let`s. A value that reads a
//! variable or memory stays pending as an expression only until that can change, and then gets a
//! name ([`Lower::settle`]).

mod analysis;
mod arithmetic;
mod atomics;
mod bit_functions;
mod calls;
mod expression;
mod globals;
mod loops;
mod math;
mod matrices;
mod pointee;
mod scalar_type;
mod short_circuit;
mod statement;
mod statement_list;
mod subgroup;
mod switch;
mod types;

use crate::fault::{Fault, Result, span_of};
use crate::imported::{Imported, ShaderBinding};
use analysis::Facts;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, GlobalVariable, Handle, LocalVariable, Module};
use pointee::{Pointee, Root};
use statement_list::StatementList;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use types::Types;
use vyre_foundation::ir::{BufferDecl, Expr, Name, Node, Program, SourceMap, Span};

/// Maximum number of statements and expressions that a shader can become, with functions inlined:
/// each can be several values of a kernel, which has at most a million. The largest shader of
/// `filetests/import` has 635; one of 50,000 inlined statements becomes 350,000 values, and is
/// imported in 0.4 s within 48 MB.
pub(crate) const MAX_PARTS: usize = 400_000;

/// Value of an expression: its scalars in order, or what a pointer refers to.
#[derive(Clone, Debug)]
enum Value {
    Leaves(Vec<Expr>),
    Pointer(Pointee),
}

/// A function being inlined.
struct InlinedFunction<'m> {
    function: &'m naga::Function,
    info: &'m FunctionInfo,
    facts: Facts,
    arguments: Vec<Value>,
    /// Values of emitted expressions.
    values: HashMap<Handle<Expression>, Value>,
    /// The emitted expressions whose values read something that can change, in order.
    waiting: Vec<Handle<Expression>>,
    /// Remaining uses of each expression.
    uses: HashMap<Handle<Expression>, usize>,
    locals: HashMap<Handle<LocalVariable>, Root>,
    /// Variables that hold the result.
    result: Vec<Name>,
    /// Declarations before the body.
    start: StatementList,
    /// Result of a function without result variables.
    returned_leaves: Vec<Expr>,
    /// Flag that is set when the function returned from inside a loop; `None` if no loop needs it.
    returned: Option<Name>,
}

/// Target of `break`, `continue` and `return`.
#[derive(Clone, Copy)]
enum Scope<'m> {
    /// A loop of the shader, and what it does at the end of an iteration.
    Loop { end: RoundEnd<'m> },
    /// A single-iteration loop that a `break` in the middle of a switch leaves; `continue` sets a
    /// flag first.
    SwitchOnce,
    /// A switch whose breaks are all at the ends of branches.
    Switch,
    /// A single-iteration loop that a return in the middle of a function leaves.
    CallOnce,
    /// A function whose returns are all at the ends of branches.
    Call,
}

/// What happens between two iterations of a loop.
#[derive(Clone, Copy)]
struct RoundEnd<'m> {
    continuing: Option<&'m naga::Block>,
    break_if: Option<Handle<Expression>>,
}

pub(crate) struct Lower<'m> {
    module: &'m Module,
    info: &'m ModuleInfo,
    types: Types<'m>,
    entry: usize,
    code: StatementList,
    /// Statements before the body: private globals and tables.
    prologue: StatementList,
    here: Span,
    parts: usize,
    taken: HashMap<String, u32>,
    /// Variables that are assigned after their declaration.
    mutable: HashSet<Name>,
    /// Buffers that the entry point never writes.
    constant: HashSet<Name>,
    buffers: Vec<BufferDecl>,
    buffer_places: Vec<Span>,
    bindings: Vec<ShaderBinding>,
    globals: HashMap<Handle<GlobalVariable>, Root>,
    tables: HashMap<Handle<naga::Constant>, Root>,
    inlined: Vec<InlinedFunction<'m>>,
    /// Whether the current statement is the last of the entry point.
    is_tail: bool,
    scopes: Vec<Scope<'m>>,
    /// Flags of the enclosing [`Scope::SwitchOnce`]s that a `continue` sets.
    again: Vec<Name>,
}

/// Lowers an entry point to a program.
pub(crate) fn lower(
    module: &Module,
    info: &ModuleInfo,
    entry: usize,
    source: Option<Arc<str>>,
) -> Result<Imported> {
    let point = &module.entry_points[entry];
    let mut lower = Lower::new(module, info, entry);
    lower.declare_buffers()?;
    lower.entry_point()?;
    let mut body = std::mem::take(&mut lower.prologue);
    body.append(std::mem::take(&mut lower.code));
    let header = lower.here;
    let domain = lower.domain();
    let mut tree = body.places;
    tree.push(header);
    let body = vec![Node::region(point.name.as_str(), body.nodes)];
    let mut program = Program::wrapped(lower.buffers, point.workgroup_size, body)
        .with_name(point.name.as_str())
        .with_domain(domain);
    // SPIR-V has no text to show.
    if let Some(source) = source {
        let buffers = lower.buffer_places;
        let map = SourceMap { source, header, domain: header, buffers, functions: Vec::new(), tree };
        program = program.with_source(map);
    }
    Ok(Imported { program, bindings: lower.bindings })
}

impl<'m> Lower<'m> {
    fn new(module: &'m Module, info: &'m ModuleInfo, entry: usize) -> Lower<'m> {
        Lower {
            module,
            info,
            types: Types(module),
            entry,
            code: StatementList::default(),
            prologue: StatementList::default(),
            here: Span::default(),
            parts: 0,
            taken: HashMap::new(),
            mutable: HashSet::new(),
            constant: HashSet::new(),
            buffers: Vec::new(),
            buffer_places: Vec::new(),
            bindings: Vec::new(),
            globals: HashMap::new(),
            tables: HashMap::new(),
            inlined: Vec::new(),
            is_tail: true,
            scopes: Vec::new(),
            again: Vec::new(),
        }
    }

    fn innermost(&self) -> &InlinedFunction<'m> {
        self.inlined.last().unwrap_or_else(|| unreachable!("a function is being written out"))
    }

    fn innermost_mut(&mut self) -> &mut InlinedFunction<'m> {
        self.inlined.last_mut().unwrap_or_else(|| unreachable!("a function is being written out"))
    }

    /// A name that is unique in the program.
    fn fresh(&mut self, label: &str) -> Name {
        let label = if label.is_empty() { "t" } else { label };
        loop {
            let count = self.taken.entry(label.into()).or_insert(0);
            *count += 1;
            if *count == 1 {
                return label.into();
            }
            let name = format!("{label}_{count}");
            if let std::collections::hash_map::Entry::Vacant(vacant) = self.taken.entry(name.clone()) {
                vacant.insert(1);
                return name.into();
            }
        }
    }

    /// Adds a statement without blocks, at the current position in the shader.
    fn emit(&mut self, node: Node) -> Result<()> {
        let before = self.code.places.len();
        self.code.push(node, self.here);
        self.spend(self.code.places.len() - before)
    }

    fn spend(&mut self, parts: usize) -> Result<()> {
        self.parts += parts;
        if self.parts > MAX_PARTS {
            return Err(Fault::too_large(format!(
                "with its functions inlined, the shader has more than {MAX_PARTS} statements and expressions"
            ))
            .or_at(Some(self.here)));
        }
        Ok(())
    }

    /// Collects what `make` adds in a separate list. Values that were pending stay pending
    /// afterwards: a name that one got in the list is not visible outside.
    fn nested(&mut self, make: impl FnOnce(&mut Self) -> Result<()>) -> Result<StatementList> {
        let waiting = self.inlined.last().map(|inlined| inlined.waiting.clone()).unwrap_or_default();
        let value = |lower: &Self, handle| lower.innermost().values.get(handle).cloned();
        let values: Vec<_> =
            waiting.iter().filter_map(|handle| Some((*handle, value(self, handle)?))).collect();
        let outer = std::mem::take(&mut self.code);
        let made = make(self);
        let inner = std::mem::replace(&mut self.code, outer);
        if let Some(inlined) = self.inlined.last_mut() {
            inlined.waiting = waiting;
            inlined.values.extend(values);
        }
        made.map(|()| inner)
    }

    /// Declares a variable with this value that is never reassigned.
    fn name_it(&mut self, label: &str, value: Expr) -> Result<Expr> {
        let name = self.fresh(label);
        self.emit(Node::let_(name.clone(), value))?;
        Ok(Expr::Var(name))
    }

    /// The value in a form that can be used several times: itself if it is short and cannot change,
    /// otherwise a name.
    fn shared(&mut self, value: Expr) -> Result<Expr> {
        if self.is_plain(&value) { Ok(value) } else { self.name_it("t", value) }
    }

    fn shared_all(&mut self, values: Vec<Expr>) -> Result<Vec<Expr>> {
        values.into_iter().map(|value| self.shared(value)).collect()
    }

    fn is_plain(&self, value: &Expr) -> bool {
        match value {
            Expr::Literal(_) | Expr::Builtin(..) | Expr::BufLen(_) => true,
            Expr::Var(name) => !self.mutable.contains(name),
            Expr::Load(..)
            | Expr::Op(..)
            | Expr::Atomic(..)
            | Expr::Subgroup(..)
            | Expr::Workgroup(..)
            | Expr::Call(..) => false,
        }
    }

    /// Sets the position for statements and faults.
    fn at(&mut self, span: naga::Span) {
        if let Some(span) = span_of(span) {
            self.here = span;
        }
    }
}
