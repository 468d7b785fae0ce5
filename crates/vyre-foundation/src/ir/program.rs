//! Programs: buffers, functions, shape and body.

use super::{Axis, Block, BufferDecl, Expr, Formula, Name, Node, SourceMap};
use crate::diagnostics::Diagnostics;
use crate::kernel::Kernel;
use crate::types::ValueType;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The generator name of the region that [`Program::wrapped`] adds around a bare body.
pub const ROOT_GENERATOR: &str = "vyre.program.root";

/// The domain of a dispatch; the grid is ⌈domain / workgroup size⌉ on each axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    /// The length of the first output, else of the first read_write buffer, else a single
    /// invocation.
    #[default]
    Default,
    /// A fixed number of invocations on each axis.
    Counts([u32; 3]),
    /// One invocation per element of the named buffer.
    LenOf(Name),
    /// Axes that a dispatch computes from its uniforms and lengths; at least one is a formula.
    Axes([Axis; 3]),
}

impl Domain {
    /// The formulas that a dispatch evaluates.
    pub fn formulas(&self) -> impl Iterator<Item = &Formula> {
        let axes: &[Axis] = match self {
            Domain::Axes(axes) => axes,
            Domain::Default | Domain::Counts(_) | Domain::LenOf(_) => &[],
        };
        axes.iter().filter_map(|axis| match axis {
            Axis::Of(formula) => Some(formula),
            Axis::Count(_) => None,
        })
    }

    /// Converts constant axes to [`Counts`](Domain::Counts), so that equal domains compare equal.
    pub(crate) fn canonical(self) -> Domain {
        match self {
            Domain::Axes([Axis::Count(x), Axis::Count(y), Axis::Count(z)]) => Domain::Counts([x, y, z]),
            Domain::Default | Domain::Counts(_) | Domain::LenOf(_) | Domain::Axes(_) => self,
        }
    }
}

/// A pure function of scalars, defined by a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The name used in calls.
    pub name: Name,
    /// Parameter names and types.
    pub params: Vec<(Name, ValueType)>,
    /// The result type.
    pub result: ValueType,
    /// Statements that run before the result is evaluated; they access no memory outside the
    /// function.
    pub body: Block,
    /// The result.
    pub value: Expr,
}

/// A compute kernel as written: immutable, cheap to clone, not yet checked.
///
/// ```
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(
///     vec![out],
///     [1, 1, 1],
///     vec![Node::store("out", Expr::u32(0), Expr::u32(9))],
/// );
/// assert!(program.validate().is_ok());
/// ```
#[derive(Clone)]
pub struct Program(pub(crate) Arc<Inner>);

#[derive(Default)]
pub(crate) struct Inner {
    name: Option<Name>,
    buffers: Vec<BufferDecl>,
    functions: Vec<Function>,
    workgroup_size: [u32; 3],
    domain: Domain,
    entry: Block,
    source: Option<Arc<SourceMap>>,
    pub(crate) fingerprint: OnceLock<[u8; 32]>,
    pub(crate) kernel: OnceLock<Result<Kernel, Diagnostics>>,
}

impl Inner {
    /// A copy of the content with empty caches.
    fn fresh(&self) -> Inner {
        Inner {
            name: self.name.clone(),
            buffers: self.buffers.clone(),
            functions: self.functions.clone(),
            workgroup_size: self.workgroup_size,
            domain: self.domain.clone(),
            entry: self.entry.clone(),
            source: self.source.clone(),
            fingerprint: OnceLock::new(),
            kernel: OnceLock::new(),
        }
    }
}

impl Program {
    /// A program with the body unchanged. A body that is not all regions can be printed and encoded
    /// but not run.
    pub fn new(buffers: Vec<BufferDecl>, workgroup_size: [u32; 3], body: Vec<Node>) -> Program {
        let buffers = buffers.into_iter().map(BufferDecl::canonical).collect();
        Program(Arc::new(Inner { buffers, workgroup_size, entry: body.into(), ..Inner::default() }))
    }

    /// A program whose body, if empty or not all regions, is wrapped in one region named
    /// [`ROOT_GENERATOR`].
    pub fn wrapped(buffers: Vec<BufferDecl>, workgroup_size: [u32; 3], body: Vec<Node>) -> Program {
        let all_regions = !body.is_empty() && body.iter().all(|node| matches!(node, Node::Region { .. }));
        let body = if all_regions { body } else { vec![Node::region(ROOT_GENERATOR, body)] };
        Program::new(buffers, workgroup_size, body)
    }

    /// A valid program that does nothing: no buffers, one invocation, one empty region.
    pub fn empty() -> Program {
        Program::wrapped(Vec::new(), [1, 1, 1], Vec::new())
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Program {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = Arc::new(self.0.fresh());
        }
        let Some(inner) = Arc::get_mut(&mut self.0) else { unreachable!("the only owner was just made") };
        change(inner);
        inner.fingerprint = OnceLock::new();
        inner.kernel = OnceLock::new();
        self
    }

    /// Sets the program's name, which is the op under which it is routed.
    #[must_use]
    pub fn with_name(self, name: impl Into<Name>) -> Program {
        self.edit(|inner| inner.name = Some(name.into()))
    }

    /// Sets the domain.
    #[must_use]
    pub fn with_domain(self, domain: Domain) -> Program {
        self.edit(|inner| inner.domain = domain.canonical())
    }

    /// Sets the functions.
    #[must_use]
    pub fn with_functions(self, functions: Vec<Function>) -> Program {
        self.edit(|inner| inner.functions = functions)
    }

    /// Sets the workgroup size.
    #[must_use]
    pub fn with_workgroup_size(self, size: [u32; 3]) -> Program {
        self.edit(|inner| inner.workgroup_size = size)
    }

    /// Attaches source positions. A map that does not match the program only misplaces messages.
    #[must_use]
    pub fn with_source(self, source: SourceMap) -> Program {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// Wraps a body that is not all regions in one region, as [`Program::wrapped`] does.
    /// User-facing entry points call this so that a simple kernel needs no region.
    #[must_use]
    pub fn in_regions(self) -> Program {
        if self.is_region_wrapped() {
            return self;
        }
        self.edit(|inner| {
            let body: Vec<Node> = inner.entry.iter().cloned().collect();
            inner.entry = vec![Node::region(ROOT_GENERATOR, body)].into();
            if let Some(source) = &mut inner.source {
                // The region is the last statement in post-order and has the position of the
                // kernel.
                let source = Arc::make_mut(source);
                source.tree.push(source.header);
            }
        })
    }

    /// The program's name, if any.
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }

    /// The buffers, in declaration order.
    pub fn buffers(&self) -> &[BufferDecl] {
        &self.0.buffers
    }

    /// The functions, in declaration order.
    pub fn functions(&self) -> &[Function] {
        &self.0.functions
    }

    /// Invocations per workgroup on each axis.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.0.workgroup_size
    }

    /// The domain of a dispatch.
    pub fn domain(&self) -> &Domain {
        &self.0.domain
    }

    /// The body.
    pub fn entry(&self) -> &Block {
        &self.0.entry
    }

    /// The source positions, if the program was parsed from text.
    pub fn source(&self) -> Option<&SourceMap> {
        self.0.source.as_deref()
    }

    /// Whether the top level consists of regions only, which running a program requires.
    pub fn is_region_wrapped(&self) -> bool {
        !self.entry().is_empty() && self.entry().iter().all(|node| matches!(node, Node::Region { .. }))
    }

    /// The id under which the program is routed and measured: its name, or `fp:` and its
    /// fingerprint in hex.
    pub fn op_id(&self) -> crate::ops::OpId {
        match self.name() {
            Some(name) => crate::ops::OpId::new(name.clone()),
            None => crate::ops::OpId::new(format!("fp:{}", hex(&self.fingerprint()))),
        }
    }
}

/// Formats bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Default for Program {
    fn default() -> Program {
        Program::empty()
    }
}

impl PartialEq for Program {
    /// Compares content; source positions are ignored.
    fn eq(&self, other: &Program) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        Arc::ptr_eq(&self.0, &other.0)
            || (a.name == b.name
                && a.buffers == b.buffers
                && a.functions == b.functions
                && a.workgroup_size == b.workgroup_size
                && a.domain == b.domain
                && a.entry == b.entry)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.0.name)
            .field("buffers", &self.0.buffers)
            .field("functions", &self.0.functions)
            .field("workgroup_size", &self.0.workgroup_size)
            .field("domain", &self.0.domain)
            .field("entry", &self.0.entry)
            .finish()
    }
}
