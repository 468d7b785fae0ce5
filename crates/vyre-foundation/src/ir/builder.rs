//! Builders for programs and blocks.

use super::{Access, Axis, Block, BufferDecl, Domain, Expr, Function, Name, Node, Program};
use crate::types::{DataType, ValueType};

/// Collects buffers, shape and regions into a [`Program`]. Bindings are numbered in declaration
/// order.
///
/// ```
/// use vyre_foundation::ir::{DataType, Expr, ProgramBuilder};
/// let mut saxpy = ProgramBuilder::new("saxpy").workgroup([64, 1, 1]);
/// let a = saxpy.uniform("a", DataType::F32);
/// let x = saxpy.read("x", DataType::F32);
/// let y = saxpy.read_write("y", DataType::F32);
/// saxpy.over(&y);
/// saxpy.region("blas.saxpy", |body| {
///     let i = body.bind("i", Expr::invocation_id(0));
///     body.when(i.clone().lt(y.len()), |body| {
///         body.store(&y, &i, a.value() * x.at(&i) + y.at(&i));
///     });
/// });
/// assert!(saxpy.finish().validate().is_ok());
/// ```
#[derive(Debug)]
pub struct ProgramBuilder {
    name: Name,
    buffers: Vec<BufferDecl>,
    functions: Vec<Function>,
    workgroup_size: [u32; 3],
    domain: Domain,
    body: Vec<Node>,
}

/// A declared buffer or private array, for use in expressions.
#[derive(Clone, Debug)]
pub struct Buffer(Name);

impl Buffer {
    /// The element at `index`.
    pub fn at(&self, index: impl Into<Expr>) -> Expr {
        Expr::load(self.0.clone(), index)
    }

    /// The only element of a uniform.
    pub fn value(&self) -> Expr {
        Expr::uniform(self.0.clone())
    }

    /// The number of elements.
    pub fn len(&self) -> Expr {
        Expr::buf_len(self.0.clone())
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.0
    }
}

impl From<&Buffer> for Name {
    fn from(buffer: &Buffer) -> Name {
        buffer.0.clone()
    }
}

impl ProgramBuilder {
    /// A program with this name, with workgroups of 64 invocations over the default domain.
    pub fn new(name: impl Into<Name>) -> ProgramBuilder {
        ProgramBuilder {
            name: name.into(),
            buffers: Vec::new(),
            functions: Vec::new(),
            workgroup_size: [64, 1, 1],
            domain: Domain::Default,
            body: Vec::new(),
        }
    }

    /// Sets the workgroup size.
    #[must_use]
    pub fn workgroup(mut self, size: [u32; 3]) -> ProgramBuilder {
        self.workgroup_size = size;
        self
    }

    /// Runs one invocation per element of a buffer.
    pub fn over(&mut self, buffer: &Buffer) {
        self.domain = Domain::LenOf(buffer.0.clone());
    }

    /// Runs a fixed number of invocations on each axis.
    pub fn over_counts(&mut self, counts: [u32; 3]) {
        self.domain = Domain::Counts(counts);
    }

    /// Runs the number of invocations per axis that a dispatch computes from single-value uniforms
    /// and lengths.
    ///
    /// ```
    /// use vyre_foundation::ir::{DataType, Expr, ProgramBuilder};
    /// let mut fill = ProgramBuilder::new("fill").workgroup([8, 8, 1]);
    /// let (width, height) =
    ///     (fill.uniform("width", DataType::U32), fill.uniform("height", DataType::U32));
    /// let y = fill.output_of("y", DataType::U32, width.value() * height.value());
    /// fill.over_axes([width.value(), height.value(), Expr::u32(1)]);
    /// fill.region("fill", |body| {
    ///     let at = Expr::invocation_id(1) * width.value() + Expr::invocation_id(0);
    ///     body.store(&y, at.clone(), at);
    /// });
    /// assert!(fill.finish().validate().is_ok());
    /// ```
    pub fn over_axes(&mut self, axes: [Expr; 3]) {
        self.domain = Domain::Axes(axes.map(Axis::from));
    }

    /// Declares a buffer that the kernel only loads from, sized at dispatch.
    pub fn read(&mut self, name: impl Into<Name>, element: DataType) -> Buffer {
        let binding = self.next_binding();
        self.declare(BufferDecl::read(name, binding, element))
    }

    /// Declares a buffer that the kernel loads from and stores to, sized at dispatch.
    pub fn read_write(&mut self, name: impl Into<Name>, element: DataType) -> Buffer {
        let binding = self.next_binding();
        self.declare(BufferDecl::read_write(name, binding, element))
    }

    /// Declares a buffer that the kernel fills, sized at dispatch.
    pub fn output(&mut self, name: impl Into<Name>, element: DataType) -> Buffer {
        let binding = self.next_binding();
        self.declare(BufferDecl::output(name, binding, element))
    }

    /// Declares a buffer that the kernel fills, whose length a dispatch computes from single-value
    /// uniforms and lengths.
    pub fn output_of(&mut self, name: impl Into<Name>, element: DataType, length: Expr) -> Buffer {
        let binding = self.next_binding();
        self.declare(BufferDecl::output(name, binding, element).with_length(length))
    }

    /// Declares a single value that is the same for all invocations.
    pub fn uniform(&mut self, name: impl Into<Name>, element: DataType) -> Buffer {
        let binding = self.next_binding();
        self.declare(BufferDecl::uniform(name, binding, element))
    }

    /// Declares memory shared by the invocations of a workgroup.
    pub fn shared(&mut self, name: impl Into<Name>, count: u32, element: DataType) -> Buffer {
        self.declare(BufferDecl::workgroup(name, count, element))
    }

    /// Declares any buffer.
    pub fn declare(&mut self, decl: BufferDecl) -> Buffer {
        let buffer = Buffer(decl.name.clone());
        self.buffers.push(decl);
        buffer
    }

    /// Defines a function.
    pub fn function(&mut self, function: Function) {
        self.functions.push(function);
    }

    /// Adds a named part of the kernel.
    pub fn region(&mut self, generator: impl Into<Name>, fill: impl FnOnce(&mut BlockBuilder)) {
        self.body.push(Node::region(generator, BlockBuilder::filled(fill)));
    }

    /// Builds the program. Without regions, it is empty.
    pub fn finish(self) -> Program {
        Program::wrapped(self.buffers, self.workgroup_size, self.body)
            .with_name(self.name)
            .with_domain(self.domain)
            .with_functions(self.functions)
    }

    fn next_binding(&self) -> u32 {
        let bound = self.buffers.iter().filter(|decl| decl.access != Access::Workgroup);
        bound.map(|decl| decl.binding.saturating_add(1)).max().unwrap_or(0)
    }
}

/// Collects the statements of one block.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    nodes: Vec<Node>,
}

impl BlockBuilder {
    fn filled(fill: impl FnOnce(&mut BlockBuilder)) -> Block {
        let mut builder = BlockBuilder::default();
        fill(&mut builder);
        builder.nodes.into()
    }

    /// Appends any statement.
    pub fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Declares a variable and returns the expression that reads it.
    pub fn bind(&mut self, name: impl Into<Name>, value: impl Into<Expr>) -> Expr {
        let name = name.into();
        self.push(Node::let_(name.clone(), value));
        Expr::Var(name)
    }

    /// Declares a private array of zeros.
    pub fn array(&mut self, name: impl Into<Name>, element: ValueType, count: u32) -> Buffer {
        let name = name.into();
        self.push(Node::array(name.clone(), element, count));
        Buffer(name)
    }

    /// Assigns a variable.
    pub fn assign(&mut self, name: impl Into<Name>, value: impl Into<Expr>) {
        self.push(Node::assign(name, value));
    }

    /// Writes an element.
    pub fn store(&mut self, to: impl Into<Name>, index: impl Into<Expr>, value: impl Into<Expr>) {
        self.push(Node::store(to, index, value));
    }

    /// Runs a block if the condition holds.
    pub fn when(&mut self, condition: impl Into<Expr>, then: impl FnOnce(&mut BlockBuilder)) {
        self.push(Node::if_(condition, BlockBuilder::filled(then)));
    }

    /// Runs one of two blocks.
    pub fn when_else(
        &mut self,
        condition: impl Into<Expr>,
        then: impl FnOnce(&mut BlockBuilder),
        otherwise: impl FnOnce(&mut BlockBuilder),
    ) {
        let (then, otherwise) = (BlockBuilder::filled(then), BlockBuilder::filled(otherwise));
        self.push(Node::if_else(condition, then, otherwise));
    }

    /// Runs a block with a `u32` counter from `from` up to but not including `to`; the block
    /// receives the counter.
    pub fn count(
        &mut self,
        counter: impl Into<Name>,
        from: impl Into<Expr>,
        to: impl Into<Expr>,
        body: impl FnOnce(&mut BlockBuilder, Expr),
    ) {
        let counter = counter.into();
        let reads = Expr::Var(counter.clone());
        let body = BlockBuilder::filled(|block| body(block, reads));
        self.push(Node::for_range(counter, from, to, body));
    }

    /// Runs a block while a condition holds.
    pub fn repeat_while(&mut self, condition: impl Into<Expr>, body: impl FnOnce(&mut BlockBuilder)) {
        self.push(Node::while_(condition, BlockBuilder::filled(body)));
    }

    /// Reports a message to the caller, with `{}` for each operand.
    pub fn print(&mut self, format: impl Into<Name>, args: impl Into<Vec<Expr>>) {
        self.push(Node::print(format, args));
    }

    /// Fails the call with a message if the condition is false.
    pub fn assert(
        &mut self,
        condition: impl Into<Expr>,
        format: impl Into<Name>,
        args: impl Into<Vec<Expr>>,
    ) {
        self.push(Node::assert(condition, format, args));
    }

    /// Waits for the whole workgroup.
    pub fn barrier(&mut self) {
        self.push(Node::Barrier);
    }
}
