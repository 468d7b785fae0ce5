//! A compute entry point of a naga module as a program.
//!
//! Programs know scalars only, and functions that see no memory. So vectors, matrices and structs become one variable
//! per scalar (a *leaf*), arrays become private arrays of scalars, functions are written out where they are called,
//! and pointers are *places*: a root and the indices that were applied to it, resolved when something is loaded or
//! stored (`place.rs`).
//!
//! naga evaluates an expression where an `Emit` statement names it. A value that is used once is put into the
//! expression that uses it; all others become `let`s. A value that reads a variable or memory waits as an expression
//! only until that may change, and is then given a name ([`Lower::settle`]).

mod analysis;
mod arithmetic;
mod atomics;
mod calls;
mod code;
mod expression;
mod fields;
mod globals;
mod kind;
mod loops;
mod math;
mod matrices;
mod place;
mod short_circuit;
mod statement;
mod subgroup;
mod switch;
mod types;

use crate::fault::{Fault, Result, place as place_of};
use crate::imported::{Binding, Imported};
use analysis::Facts;
use code::Code;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{Expression, GlobalVariable, Handle, LocalVariable, Module};
use place::{Place, Root};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use types::Types;
use vyre_foundation::ir::{BufferDecl, Expr, Name, Node, Program, SourceMap, Span};

/// A shader may become this many statements and expressions, functions written out at each call.
pub(crate) const MAX_PARTS: usize = 400_000;

/// A value of an expression: its scalars in order, or a place that a pointer names.
#[derive(Clone, Debug)]
enum Value {
    Leaves(Vec<Expr>),
    Place(Place),
}

/// A function that is being written out.
struct Frame<'m> {
    function: &'m naga::Function,
    info: &'m FunctionInfo,
    facts: Facts,
    arguments: Vec<Value>,
    /// Values of emitted expressions.
    values: HashMap<Handle<Expression>, Value>,
    /// Those of them that read what may change, in the order in which they came.
    waiting: Vec<Handle<Expression>>,
    /// How often each expression is still used.
    uses: HashMap<Handle<Expression>, usize>,
    locals: HashMap<Handle<LocalVariable>, Root>,
    /// Variables that hold the result.
    result: Vec<Name>,
    /// Declarations before the body.
    start: Code,
    /// What a function without result variables returned.
    returned_leaves: Vec<Expr>,
    /// The flag that tells loops inside that the function returned; `None` where no loop has to know.
    returned: Option<Name>,
}

/// What `break`, `continue` and `return` leave.
#[derive(Clone, Copy)]
enum Scope<'m> {
    /// A loop of the shader, with what it does at the end of a round.
    Loop { end: RoundEnd<'m> },
    /// A loop of one round, which a `break` out of the middle of a switch leaves; `continue` sets a flag first.
    SwitchOnce,
    /// A switch whose breaks all stand at ends.
    Switch,
    /// A loop of one round, which a return out of the middle of a function leaves.
    CallOnce,
    /// A function whose returns all stand at ends.
    Call,
}

/// What happens between two rounds of a loop.
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
    code: Code,
    /// Statements before the body: private globals and tables.
    prologue: Code,
    here: Span,
    parts: usize,
    taken: HashMap<String, u32>,
    /// Variables that are assigned after their declaration.
    mutable: HashSet<Name>,
    /// Buffers that the entry point never writes.
    constant: HashSet<Name>,
    buffers: Vec<BufferDecl>,
    buffer_places: Vec<Span>,
    bindings: Vec<Binding>,
    globals: HashMap<Handle<GlobalVariable>, Root>,
    tables: HashMap<Handle<naga::Constant>, Root>,
    frames: Vec<Frame<'m>>,
    /// Nothing of the entry point follows the present statement.
    is_tail: bool,
    scopes: Vec<Scope<'m>>,
    /// Flags of the enclosing [`Scope::SwitchOnce`]s that a `continue` sets.
    again: Vec<Name>,
}

/// The entry point as a program.
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
    // Words have no text to show.
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
            code: Code::default(),
            prologue: Code::default(),
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
            frames: Vec::new(),
            is_tail: true,
            scopes: Vec::new(),
            again: Vec::new(),
        }
    }

    fn frame(&self) -> &Frame<'m> {
        self.frames.last().unwrap_or_else(|| unreachable!("a function is being written out"))
    }

    fn frame_mut(&mut self) -> &mut Frame<'m> {
        self.frames.last_mut().unwrap_or_else(|| unreachable!("a function is being written out"))
    }

    /// A name that nothing else in the program has.
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

    /// Adds a statement without blocks, at the place in the shader that is being read.
    fn emit(&mut self, node: Node) -> Result<()> {
        let before = self.code.places.len();
        self.code.push(node, self.here);
        self.spend(self.code.places.len() - before)
    }

    fn spend(&mut self, parts: usize) -> Result<()> {
        self.parts += parts;
        if self.parts > MAX_PARTS {
            return Err(Fault::too_large(format!(
                "with its functions written out, the shader has more than {MAX_PARTS} statements and expressions"
            ))
            .or_at(Some(self.here)));
        }
        Ok(())
    }

    /// What `make` adds, as a list of its own. Values that wait around it still do so afterwards: a name that one got
    /// in the list is not known outside.
    fn nested(&mut self, make: impl FnOnce(&mut Self) -> Result<()>) -> Result<Code> {
        let waiting = self.frames.last().map(|frame| frame.waiting.clone()).unwrap_or_default();
        let value = |lower: &Self, handle| lower.frame().values.get(handle).cloned();
        let values: Vec<_> =
            waiting.iter().filter_map(|handle| Some((*handle, value(self, handle)?))).collect();
        let outer = std::mem::take(&mut self.code);
        let made = make(self);
        let inner = std::mem::replace(&mut self.code, outer);
        if let Some(frame) = self.frames.last_mut() {
            frame.waiting = waiting;
            frame.values.extend(values);
        }
        made.map(|()| inner)
    }

    /// A variable with this value, which is never assigned again.
    fn name_it(&mut self, label: &str, value: Expr) -> Result<Expr> {
        let name = self.fresh(label);
        self.emit(Node::let_(name.clone(), value))?;
        Ok(Expr::Var(name))
    }

    /// The value as something that may stand in several places: itself if that is short and cannot change.
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

    /// Sets the place that statements and faults are at.
    fn at(&mut self, span: naga::Span) {
        if let Some(span) = place_of(span) {
            self.here = span;
        }
    }
}
