//! Rewrites kernels into forms that a target supports.
//!
//! An emitter translates each statement directly. Constructs that a target lacks are first
//! rewritten into simpler ones, by passes that the target requests ([`WantedPasses`]); each is a
//! function over the kernel's body in its own file. They run after the optimizer, which handles the
//! original forms better, and keep results bit-identical.

pub(crate) mod exits;
mod half_floats;
mod nan_stores;
mod trip_counts;

use crate::ir::Span;
use crate::kernel::{Def, Kernel, KernelBody, Operands, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use crate::optimize::{finish, new_value};
use crate::types::{Value, ValueType};

/// The passes that a target requests; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedPasses {
    /// The steps that counted loops can have.
    pub steps: Steps,
    /// Whether a store to a float buffer copies bits, so that a stored NaN must be canonical.
    pub nan_stores: bool,
    /// Whether memory holds only the bits of `f16` and `bf16`.
    pub half_floats: bool,
    /// Whether a loop with a barrier can exit only by a test at its head, and a kernel with a
    /// barrier only at its end.
    pub exits: bool,
}

/// The steps that counted loops can have. A loop with any other step becomes a loop over its
/// iteration number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steps {
    /// Any step.
    #[default]
    Any,
    /// Nonzero constants.
    Constant,
    /// The constant one.
    One,
}

impl WantedPasses {
    /// The passes with these names, as used in filetests; `None` if a name is unknown.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<WantedPasses> {
        let mut wanted = WantedPasses::default();
        for name in names {
            match name {
                "trip-counts" => wanted.steps = Steps::One,
                "unknown-steps" => wanted.steps = Steps::Constant,
                "nan-stores" => wanted.nan_stores = true,
                "half-floats" => wanted.half_floats = true,
                "exits" => wanted.exits = true,
                _ => return None,
            }
        }
        Some(wanted)
    }
}

/// Rewrites the kernel into the forms that the target wants; the results stay bit-identical.
///
/// ```
/// use vyre_foundation::legalise::{Steps, WantedPasses, legalise};
/// let program = vyre_foundation::text::parse(
///     "kernel k(y: output u32[8]) { region \"r\" { for i in 0..8 step 2 { y[i] = i } } }",
/// )?;
/// let wanted = WantedPasses { steps: Steps::One, ..WantedPasses::default() };
/// let kernel = legalise(&program.validate()?, &wanted);
/// assert!(kernel.to_string().contains("for "), "{kernel}");
/// # Ok::<(), vyre_foundation::diagnostics::Diagnostics>(())
/// ```
pub fn legalise(kernel: &Kernel, wanted: &WantedPasses) -> Kernel {
    let trip_counts = trip_counts::is_needed(kernel, wanted.steps);
    let nan_stores = wanted.nan_stores && nan_stores::is_needed(kernel);
    let half_floats = wanted.half_floats && half_floats::is_needed(kernel);
    let exits = wanted.exits && exits::is_needed(kernel);
    if !(trip_counts || nan_stores || half_floats || exits) {
        return kernel.clone();
    }
    let mut body = kernel.clone().into_body();
    if half_floats {
        half_floats::run(&mut body);
    }
    if nan_stores {
        nan_stores::run(&mut body);
    }
    if trip_counts {
        trip_counts::run(&mut body, wanted.steps);
    }
    if exits {
        exits::run(&mut body);
    }
    Kernel::new(finish(body))
}

/// The constant value, if it is one.
fn constant(definitions: &[Option<Def>], value: ValueId) -> Option<Value> {
    if let Some(Def::Const(constant)) = definitions[value.index()] { Some(constant) } else { None }
}

/// A block that a pass is rewriting.
struct Lines<'a> {
    body: &'a mut KernelBody,
    out: Vec<Stmt>,
    at: Option<Span>,
}

impl Lines<'_> {
    fn push(&mut self, kind: StmtKind) {
        self.out.push(Stmt { kind, at: self.at });
    }

    fn constant(&mut self, value: Value) -> ValueId {
        let id = new_value(self.body, value.ty());
        self.push(StmtKind::Def(id, Def::Const(value)));
        id
    }

    /// Emits an op whose operands match its signature.
    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types: Vec<ValueType> = operands.iter().map(|&operand| self.body.ty(operand)).collect();
        let Some(ty) = op.row().signature.result(&types) else {
            unreachable!("a pass writes {op:?} of {types:?}, outside its signature")
        };
        let id = new_value(self.body, ty);
        self.push(StmtKind::Def(id, Def::Op(op, Operands::new(operands))));
        id
    }

    /// Collects statements in a nested block.
    fn nested(&mut self, write: impl FnOnce(&mut Lines<'_>)) -> Vec<Stmt> {
        let mut lines = Lines { body: self.body, out: Vec::new(), at: self.at };
        write(&mut lines);
        lines.out
    }
}

/// Rewrites every block, innermost first: `rule` receives each statement and emits its replacement.
fn rewrite(body: &mut KernelBody, rule: &mut dyn FnMut(&mut Lines<'_>, StmtKind)) {
    let statements = std::mem::take(&mut body.body);
    body.body = block(body, statements, rule);
}

fn block(
    body: &mut KernelBody,
    statements: Vec<Stmt>,
    rule: &mut dyn FnMut(&mut Lines<'_>, StmtKind),
) -> Vec<Stmt> {
    let mut lines = Lines { body, out: Vec::with_capacity(statements.len()), at: None };
    for mut stmt in statements {
        for nested in stmt.kind.blocks_mut().into_iter().flatten() {
            *nested = block(lines.body, std::mem::take(nested), rule);
        }
        lines.at = stmt.at;
        rule(&mut lines, stmt.kind);
    }
    lines.out
}
