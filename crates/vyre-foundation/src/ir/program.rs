//! Programs: buffers, functions, shape and body.

use super::{Axis, Block, BufferDecl, Expr, Formula, Name, Node, SourceMap};
use crate::diagnostics::Diagnostics;
use crate::kernel::Kernel;
use crate::types::ValueType;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The generator name of the region in which [`Program::wrapped`] puts a bare body.
pub const ROOT_GENERATOR: &str = "vyre.program.root";

/// What a dispatch runs over: the grid is ⌈domain / workgroup size⌉ per axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    /// The length of the first output, else of the first read_write buffer, else one invocation.
    #[default]
    Default,
    /// So many invocations on each axis.
    Counts([u32; 3]),
    /// As many invocations as the named buffer has elements.
    LenOf(Name),
    /// What a dispatch works out from its uniforms and lengths, on each axis; at least one of them.
    Axes([Axis; 3]),
}

impl Domain {
    /// The expressions that a dispatch works out.
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

    /// The same, counts alone as [`Counts`](Domain::Counts): equal domains are equal values.
    pub(crate) fn canonical(self) -> Domain {
        match self {
            Domain::Axes([Axis::Count(x), Axis::Count(y), Axis::Count(z)]) => Domain::Counts([x, y, z]),
            Domain::Default | Domain::Counts(_) | Domain::LenOf(_) | Domain::Axes(_) => self,
        }
    }
}

/// A pure function of scalars that a program defines for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The name that calls use.
    pub name: Name,
    /// Names and types of the parameters.
    pub params: Vec<(Name, ValueType)>,
    /// The type of the result.
    pub result: ValueType,
    /// Statements that run before the result is taken; they reach no memory outside the function.
    pub body: Block,
    /// The result.
    pub value: Expr,
}

/// A compute kernel as a person writes it. Immutable, cheap to clone, not yet checked.
///
/// ```
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), Expr::u32(9))]);
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
    /// The same content, nothing remembered about it.
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
    /// A program whose body is kept as it is: one that is not all regions can be printed and encoded, not run.
    pub fn new(buffers: Vec<BufferDecl>, workgroup_size: [u32; 3], body: Vec<Node>) -> Program {
        let buffers = buffers.into_iter().map(BufferDecl::canonical).collect();
        Program(Arc::new(Inner { buffers, workgroup_size, entry: body.into(), ..Inner::default() }))
    }

    /// A program; a body that is empty or not all regions is put in one region named [`ROOT_GENERATOR`].
    pub fn wrapped(buffers: Vec<BufferDecl>, workgroup_size: [u32; 3], body: Vec<Node>) -> Program {
        let all_regions = !body.is_empty() && body.iter().all(|node| matches!(node, Node::Region { .. }));
        let body = if all_regions { body } else { vec![Node::region(ROOT_GENERATOR, body)] };
        Program::new(buffers, workgroup_size, body)
    }

    /// No buffers, one invocation, one empty region. Valid, and does nothing.
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

    /// The same program under a name. The name is the op under which it is routed.
    #[must_use]
    pub fn with_name(self, name: impl Into<Name>) -> Program {
        self.edit(|inner| inner.name = Some(name.into()))
    }

    /// The same program over another domain.
    #[must_use]
    pub fn with_domain(self, domain: Domain) -> Program {
        self.edit(|inner| inner.domain = domain.canonical())
    }

    /// The same program with these functions.
    #[must_use]
    pub fn with_functions(self, functions: Vec<Function>) -> Program {
        self.edit(|inner| inner.functions = functions)
    }

    /// The same program at another workgroup size.
    #[must_use]
    pub fn with_workgroup_size(self, size: [u32; 3]) -> Program {
        self.edit(|inner| inner.workgroup_size = size)
    }

    /// The same program, its parts placed in a text. A map that does not fit only misplaces messages.
    #[must_use]
    pub fn with_source(self, source: SourceMap) -> Program {
        self.edit(|inner| inner.source = Some(Arc::new(source)))
    }

    /// The same program, a body that is not all regions put in one region as [`Program::wrapped`] does. What takes
    /// programs from people does this, so that a first kernel needs no region.
    #[must_use]
    pub fn in_regions(self) -> Program {
        if self.is_region_wrapped() {
            return self;
        }
        self.edit(|inner| {
            let body: Vec<Node> = inner.entry.iter().cloned().collect();
            inner.entry = vec![Node::region(ROOT_GENERATOR, body)].into();
            if let Some(source) = &mut inner.source {
                // The region is the last statement in post-order, and stands where the kernel does.
                let source = Arc::make_mut(source);
                source.tree.push(source.header);
            }
        })
    }

    /// The program's name, if it has one.
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

    /// What a dispatch runs over.
    pub fn domain(&self) -> &Domain {
        &self.0.domain
    }

    /// The body.
    pub fn entry(&self) -> &Block {
        &self.0.entry
    }

    /// Where the parts stand in the text that the program was read from.
    pub fn source(&self) -> Option<&SourceMap> {
        self.0.source.as_deref()
    }

    /// Whether the top level is regions only, as everything that runs a program demands.
    pub fn is_region_wrapped(&self) -> bool {
        !self.entry().is_empty() && self.entry().iter().all(|node| matches!(node, Node::Region { .. }))
    }

    /// The id under which the program is routed and measured: its name, else `fp:` and its fingerprint in hex.
    pub fn op_id(&self) -> crate::ops::OpId {
        match self.name() {
            Some(name) => crate::ops::OpId::new(name.clone()),
            None => crate::ops::OpId::new(format!("fp:{}", hex(&self.fingerprint()))),
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Default for Program {
    fn default() -> Program {
        Program::empty()
    }
}

impl PartialEq for Program {
    /// By content; where it was read from does not matter.
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
