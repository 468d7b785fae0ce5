//! Proves that a kernel works element by element, so that its elements can be split into batches
//! freely.
//!
//! A kernel is *elementwise* if invocation `i` accesses only element `i` of every column, and what
//! it writes there depends only on the values of element `i` before the call and on parameters.
//! *Columns* are the buffers sized at dispatch that are not uniforms; *parameters* are uniforms and
//! `read` buffers of a fixed size. The guarantee applies to dispatches in which all columns have
//! the same length: regardless of the contents of other elements and of how the columns are split
//! into dispatches, an element gets the same bits.
//!
//! **Proof.** One walk assigns each value a [`Dependence`]: the position itself, the number of
//! elements, a value of the element, or something that varies with the position or the number. A
//! position can index columns and be compared with the number of elements, which is above every
//! position; it must not affect a stored value, a condition, a loop bound or an index in any other
//! way. A variable has the dependence that all its assignments share.
//!
//! **Other rejections.** Atomics, barriers, subgroup ops, workgroup memory and queries about the
//! grid couple invocations. A trap or a failed assert in one element would discard the results of
//! all others, and the output of a `print` includes positions; a caller that splits batches, or
//! whose columns hold arbitrary data where there is no value, wants none of these.
//!
//! **Termination is not guaranteed.** A loop can run for as long as the values of one element make
//! it. [`iteration_bound`](crate::optimize::iteration_bound) returns a bound if all values lead to
//! an end.

use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{Access, Builtin, Name, Span};
use crate::kernel::{BufferId, Def, KernelBody, KernelDomain, Known, Place, Site, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use crate::types::Value;

/// The buffers of an elementwise kernel, in binding order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elementwise {
    /// The buffers with one value per element.
    pub columns: Vec<BufferId>,
    /// The buffers that are the same for all elements.
    pub parameters: Vec<BufferId>,
}

/// Proves that a kernel is elementwise; the error is the first reason found against it
/// ([`Code::NotElementwise`]).
///
/// ```
/// use vyre_foundation::elementwise::elementwise;
/// use vyre_foundation::text::parse;
/// let kernel = |line: &str| {
///     let text = format!(
///         "kernel k(a: f32 uniform, x: read f32[], y: output f32[]) {{ region \"r\" {{ {line} }} }}"
///     );
///     parse(&text).and_then(|program| program.validate())
/// };
/// let (scale, shift) = (
///     kernel("let i = invocation.x; y[i] = a * x[i]")?,
///     kernel("let i = invocation.x; y[i] = a * x[i + 1]")?,
/// );
/// let proved = elementwise(&scale);
/// assert_eq!(proved.map(|found| (found.columns.len(), found.parameters.len())), Ok((2, 1)));
/// let refused = elementwise(&shift).unwrap_err();
/// assert_eq!(
///     refused.message,
///     "`k` is not elementwise: it reads `x` at a position other than its own"
/// );
/// # Ok::<(), vyre_foundation::diagnostics::Diagnostics>(())
/// ```
pub fn elementwise(kernel: &KernelBody) -> Result<Elementwise, Diagnostic> {
    prove(kernel).map_err(|NotElementwise { why, at }| why.diagnostic(kernel, at))
}

fn prove(kernel: &KernelBody) -> Result<Elementwise, NotElementwise> {
    if let Some(site) = kernel.messages.first() {
        return Err(Why::Message { is_assert: site.is_assert }.at(place_of(kernel, site)));
    }
    if kernel.coarsening != 1 {
        return Err(Why::Grid.nowhere());
    }
    let (mut columns, mut parameters) = (Vec::new(), Vec::new());
    for id in kernel.bound_buffers() {
        match role(kernel, id) {
            BufferRole::Column if has_all_elements(kernel, id) => columns.push(id),
            BufferRole::Column => return Err(Why::Length(id).nowhere()),
            BufferRole::Parameter => parameters.push(id),
            BufferRole::Shared => return Err(Why::Fixed(id).nowhere()),
            BufferRole::Workgroup => unreachable!("workgroup memory is not bound"),
        }
    }
    if !runs_over_elements(kernel) {
        return Err(Why::Domain.nowhere());
    }
    Walk::new(kernel).run()?;
    Ok(Elementwise { columns, parameters })
}

/// The source position of a message's keyword.
fn place_of(kernel: &KernelBody, site: &Site) -> Option<Span> {
    let (line, column) = site.at?;
    let source = kernel.source.as_deref()?;
    let lines = source.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
    let columns = source.get(lines..)?.chars().take(column - 1).map(char::len_utf8).sum::<usize>();
    let start = u32::try_from(lines + columns).ok()?;
    let keyword = if site.is_assert { "assert" } else { "print" };
    Some(Span { start, end: start + keyword.len() as u32 })
}

/// The role of a buffer in an elementwise kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BufferRole {
    Column,
    Parameter,
    /// Written and of a fixed size, so that the elements would share it.
    Shared,
    Workgroup,
}

fn role(kernel: &KernelBody, id: BufferId) -> BufferRole {
    let decl = &kernel.buffer(id).decl;
    match decl.access {
        Access::Uniform => BufferRole::Parameter,
        Access::Workgroup => BufferRole::Workgroup,
        Access::Read if decl.count > 0 => BufferRole::Parameter,
        Access::ReadWrite | Access::Output if decl.count > 0 => BufferRole::Shared,
        Access::Read | Access::ReadWrite | Access::Output => BufferRole::Column,
    }
}

/// Whether a column cannot have a length other than that of all columns.
fn has_all_elements(kernel: &KernelBody, id: BufferId) -> bool {
    let buffer = kernel.buffer(id);
    let borrowed = buffer.len_of.is_none_or(|from| role(kernel, from) == BufferRole::Column);
    borrowed && buffer.length.as_ref().is_none_or(|length| is_count(kernel, length))
}

fn runs_over_elements(kernel: &KernelBody) -> bool {
    let one = |known: &Known| *known == Known::Const(Value::U32(1));
    match &kernel.domain {
        KernelDomain::LenOf(id) => role(kernel, *id) == BufferRole::Column,
        KernelDomain::Axes([x, y, z]) => is_count(kernel, x) && one(y) && one(z),
        KernelDomain::Counts(_) | KernelDomain::Given => false,
    }
}

/// Whether the expression is the number of elements.
fn is_count(kernel: &KernelBody, known: &Known) -> bool {
    match known {
        Known::Len(id) => role(kernel, *id) == BufferRole::Column,
        Known::Op(op, args) => keeps_equal(*op) && args.iter().all(|arg| is_count(kernel, arg)),
        Known::Const(_) | Known::Element(..) | Known::Groups(_) => false,
    }
}

/// Whether an op yields `n` for the operands `n` and `n`.
fn keeps_equal(op: Op) -> bool {
    op == Op::Min || op == Op::Max
}

/// Why a kernel is not elementwise, and where.
#[derive(Clone, Debug)]
struct NotElementwise {
    why: Why,
    at: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
enum Why {
    Domain,
    Length(BufferId),
    Fixed(BufferId),
    Message { is_assert: bool },
    Reads(BufferId),
    Writes(BufferId),
    Atomic(BufferId),
    Workgroup(BufferId),
    Barrier,
    Subgroup,
    Grid,
    Trap,
    Position,
    Count,
}

impl Why {
    fn at(self, at: Option<Span>) -> NotElementwise {
        NotElementwise { why: self, at }
    }

    fn nowhere(self) -> NotElementwise {
        self.at(None)
    }

    fn diagnostic(self, kernel: &KernelBody, at: Option<Span>) -> Diagnostic {
        let name = |id: BufferId| -> Name { kernel.buffer(id).decl.name.clone() };
        let shared = "declare what is the same for all elements as a uniform, or with a fixed size";
        let (because, help): (String, Option<String>) = match self {
            Why::Domain => (
                "it does not run over the elements of a buffer that is sized at dispatch".into(),
                Some("run it `over` one of its columns".into()),
            ),
            Why::Length(id) => (
                format!("`{}` differs in length from the elements", name(id)),
                Some("give it the length of a column: `len_of`".into()),
            ),
            Why::Fixed(id) => (
                format!("it writes `{}`, whose size does not follow the elements", name(id)),
                Some(format!("leave out the count of `{}`", name(id))),
            ),
            Why::Message { is_assert: true } => {
                ("it asserts, and one failing element would fail them all".into(), None)
            }
            Why::Message { is_assert: false } => {
                ("it prints, and its messages contain positions".into(), None)
            }
            Why::Reads(id) => (
                format!("it reads `{}` at a position other than its own", name(id)),
                (kernel.buffer(id).decl.access == Access::Read).then(|| shared.into()),
            ),
            Why::Writes(id) => (format!("it writes `{}` at a position other than its own", name(id)), None),
            Why::Atomic(id) => (format!("it updates `{}` atomically", name(id)), None),
            Why::Workgroup(id) => (format!("it shares `{}` with its workgroup", name(id)), None),
            Why::Barrier => ("it waits for its workgroup".into(), None),
            Why::Subgroup => ("it exchanges values with its subgroup".into(), None),
            Why::Grid => ("it depends on how invocations are grouped".into(), None),
            Why::Trap => ("it can trap, and one trapping element would fail them all".into(), None),
            Why::Position => ("a result depends on the position of its element".into(), None),
            Why::Count => ("a result depends on how many elements there are".into(), None),
        };
        let message = format!("`{}` is not elementwise: {because}", kernel.display_name());
        let diagnostic = Diagnostic::new(Code::NotElementwise, message).at(at);
        match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }
}

/// What a value depends on.
#[derive(Clone, Copy, Debug)]
enum Dependence {
    /// Only the values of the element, and parameters.
    Element,
    /// The position of the element itself.
    Position,
    /// The number of elements itself.
    Count,
    /// The position or the number of elements in some other way, since this source position.
    Varying(Why, Option<Span>),
}

impl Dependence {
    /// The dependence of a value that can be either.
    fn or(self, other: Dependence, at: Option<Span>) -> Dependence {
        match (self, other) {
            (Dependence::Element, Dependence::Element) => Dependence::Element,
            (Dependence::Position, Dependence::Position) => Dependence::Position,
            (Dependence::Count, Dependence::Count) => Dependence::Count,
            (Dependence::Varying(..), _) => self,
            (_, Dependence::Varying(..)) => other,
            (Dependence::Position, _) | (_, Dependence::Position) => Dependence::Varying(Why::Position, at),
            (Dependence::Count, Dependence::Element) | (Dependence::Element, Dependence::Count) => {
                Dependence::Varying(Why::Count, at)
            }
        }
    }

    /// The dependence of a value computed from it.
    fn used(self, at: Option<Span>) -> Dependence {
        match self {
            Dependence::Element | Dependence::Varying(..) => self,
            Dependence::Position => Dependence::Varying(Why::Position, at),
            Dependence::Count => Dependence::Varying(Why::Count, at),
        }
    }

    fn is_varying(self) -> bool {
        matches!(self, Dependence::Varying(..))
    }
}

struct Walk<'k> {
    kernel: &'k KernelBody,
    values: Vec<Dependence>,
    /// `None` until the first assignment.
    locals: Vec<Option<Dependence>>,
    arrays: Vec<Dependence>,
    changed: bool,
}

/// Number of rounds after which all variables are taken to vary.
///
/// Each round advances the dependence of a variable along a short chain; real kernels need two or
/// three rounds. Giving up keeps the time linear for adversarial programs.
const MAX_ROUNDS: usize = 16;

impl<'k> Walk<'k> {
    fn new(kernel: &'k KernelBody) -> Walk<'k> {
        Walk {
            kernel,
            values: vec![Dependence::Element; kernel.values.len()],
            locals: vec![None; kernel.locals.len()],
            arrays: vec![Dependence::Element; kernel.arrays.len()],
            changed: true,
        }
    }

    fn run(mut self) -> Result<(), NotElementwise> {
        let mut rounds = 0;
        let mut found = Ok(());
        while self.changed {
            self.changed = false;
            rounds += 1;
            if rounds == MAX_ROUNDS {
                self.locals.fill(Some(Dependence::Varying(Why::Position, None)));
                self.arrays.fill(Dependence::Varying(Why::Position, None));
            }
            // A reason found before all dependences are known may not be the first one, but it is
            // valid.
            found = self.block(&self.kernel.body);
            if found.is_err() {
                break;
            }
        }
        found
    }

    fn block(&mut self, block: &[Stmt]) -> Result<(), NotElementwise> {
        block.iter().try_for_each(|stmt| self.stmt(&stmt.kind, stmt.at))
    }

    fn stmt(&mut self, kind: &StmtKind, at: Option<Span>) -> Result<(), NotElementwise> {
        match kind {
            StmtKind::Def(value, def) => self.values[value.index()] = self.dependence_of(def, at)?,
            StmtKind::Set(local, value) => {
                let dependence = self.values[value.index()];
                let known = &mut self.locals[local.index()];
                let joined = known.map_or(dependence, |known| known.or(dependence, at));
                self.changed |=
                    known.is_none() || joined.is_varying() != known.is_some_and(Dependence::is_varying);
                *known = Some(joined);
            }
            StmtKind::Clear(_) => {}
            StmtKind::Store { place: Place::Buffer(id), index, value, .. } => {
                self.memory(*id, at)?;
                if !matches!(self.values[index.index()], Dependence::Position) {
                    return Err(Why::Writes(*id).at(at));
                }
                self.free(*value, at)?;
            }
            StmtKind::Store { place: Place::Array(array), index, value, .. } => {
                let dependence =
                    self.values[index.index()].used(at).or(self.values[value.index()].used(at), at);
                let joined = self.arrays[array.index()].or(dependence, at);
                self.changed |= joined.is_varying() != self.arrays[array.index()].is_varying();
                self.arrays[array.index()] = joined;
            }
            StmtKind::If { condition, then, otherwise } => {
                self.free(*condition, at)?;
                self.block(then)?;
                self.block(otherwise)?;
            }
            StmtKind::For { counter, from, to, step, body } => {
                [from, to, step].into_iter().try_for_each(|bound| self.free(*bound, at))?;
                self.values[counter.index()] = Dependence::Element;
                self.block(body)?;
            }
            StmtKind::Loop(body) | StmtKind::Region { body, .. } => self.block(body)?,
            StmtKind::Barrier => return Err(Why::Barrier.at(at)),
            StmtKind::Trap(_) => return Err(Why::Trap.at(at)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Return => {}
        }
        Ok(())
    }

    /// Requires that a value is independent of the position and the number of elements.
    fn free(&self, value: ValueId, at: Option<Span>) -> Result<(), NotElementwise> {
        match self.values[value.index()].used(at) {
            Dependence::Varying(why, since) => Err(why.at(since.or(at))),
            Dependence::Element | Dependence::Position | Dependence::Count => Ok(()),
        }
    }

    /// Rejects workgroup memory, which belongs to no element.
    fn memory(&self, id: BufferId, at: Option<Span>) -> Result<(), NotElementwise> {
        match role(self.kernel, id) {
            BufferRole::Workgroup => Err(Why::Workgroup(id).at(at)),
            BufferRole::Column | BufferRole::Parameter | BufferRole::Shared => Ok(()),
        }
    }

    fn dependence_of(&self, def: &Def, at: Option<Span>) -> Result<Dependence, NotElementwise> {
        Ok(match def {
            Def::Const(_) => Dependence::Element,
            // Not yet assigned in this round; a later round will know the dependence.
            Def::Get(local) => self.locals[local.index()].unwrap_or(Dependence::Element),
            Def::Op(op, operands) => self.op(*op, operands, at),
            Def::Load { place: Place::Array(array), index, .. } => {
                self.arrays[array.index()].or(self.values[index.index()].used(at), at)
            }
            Def::Load { place: Place::Buffer(id), index, .. } => self.load(*id, *index, at)?,
            Def::Len(id) if role(self.kernel, *id) == BufferRole::Column => Dependence::Count,
            Def::Len(_) => Dependence::Element,
            Def::Builtin(Builtin::InvocationId, 0) => Dependence::Position,
            // The domain is a single row.
            Def::Builtin(Builtin::InvocationId, _) => Dependence::Element,
            Def::Builtin(
                Builtin::WorkgroupId | Builtin::LocalId | Builtin::GridSize | Builtin::WorkgroupSize,
                _,
            ) => return Err(Why::Grid.at(at)),
            Def::Atomic { buffer, .. } => return Err(Why::Atomic(*buffer).at(at)),
            Def::Subgroup(..) => return Err(Why::Subgroup.at(at)),
        })
    }

    fn load(&self, id: BufferId, index: ValueId, at: Option<Span>) -> Result<Dependence, NotElementwise> {
        let index = self.values[index.index()];
        match (role(self.kernel, id), index) {
            (BufferRole::Column, Dependence::Position) => Ok(Dependence::Element),
            (BufferRole::Column | BufferRole::Shared, _) => Err(Why::Reads(id).at(at)),
            (BufferRole::Parameter, _) => Ok(index.used(at)),
            (BufferRole::Workgroup, _) => Err(Why::Workgroup(id).at(at)),
        }
    }

    fn op(&self, op: Op, operands: &[ValueId], at: Option<Span>) -> Dependence {
        let dependences = operands.iter().map(|operand| self.values[operand.index()]);
        match (
            op,
            operands.first().map(|a| self.values[a.index()]),
            operands.get(1).map(|b| self.values[b.index()]),
        ) {
            (
                Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::Eq | Op::Ne,
                Some(Dependence::Position),
                Some(Dependence::Count),
            )
            | (
                Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::Eq | Op::Ne,
                Some(Dependence::Count),
                Some(Dependence::Position),
            ) => {
                // Every position is below the number of elements, so the result is constant.
                Dependence::Element
            }
            (_, Some(Dependence::Count), Some(Dependence::Count)) if keeps_equal(op) => Dependence::Count,
            (..) => dependences.fold(Dependence::Element, |all, dependence| all.or(dependence.used(at), at)),
        }
    }
}
