//! Functions and the kernel: everything around the statements.

use super::Constants;
use super::cursor::{Missing, Parsed, Parser, excerpt};
use super::lexer::Lexeme;
use super::notes::{Notes, SymbolKind};
use super::returns::{self, Ended};
use super::unsuffixed::{Settled, Surroundings};
use super::vocabulary::{self, ImpliedBindings};
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::ir::{
    Access, Axis, Block, BufferDecl, DataType, Domain, Expr, Function, Name, Program, SourceMap, Span,
    ValueType,
};

/// Workgroup size of a kernel that specifies none.
const DEFAULT_WORKGROUP_SIZE: [u32; 3] = [64, 1, 1];

/// The parts of a kernel, with their spans.
struct ParsedKernel {
    header: Header,
    body: Block,
    tree: Vec<Span>,
}

struct Header {
    name: Option<Name>,
    span: Span,
    buffers: Vec<BufferDecl>,
    buffer_spans: Vec<Span>,
    domain: Domain,
    domain_span: Span,
    workgroup_size: [u32; 3],
}

/// A function, with the span of its header.
struct ParsedFunction {
    function: Function,
    header: Span,
    tree: Vec<Span>,
}

/// `fn name(params) -> result`.
struct FunctionHeader {
    name: Name,
    params: Vec<(Name, ValueType)>,
    result: ValueType,
}

/// A buffer as declared; an implied binding depends on the buffers before it.
struct ParsedBuffer {
    decl: BufferDecl,
    binding: Option<u32>,
    span: Span,
}

#[derive(Default)]
struct Items {
    functions: Vec<ParsedFunction>,
    kernels: Vec<ParsedKernel>,
}

pub(super) fn program(source: &str, constants: &Constants) -> Result<Program, Diagnostics> {
    let mut parser = Parser::new(source)?;
    parser.settings = constants.clone();
    let mut items = parser.items();
    parser.settle(&mut items);
    parser.check_settings();
    let kernel = items.kernels.pop();
    if kernel.is_none() && !parser.has_faults() {
        parser.no_kernel();
    }
    match parser.finish(kernel)? {
        Some(kernel) => Ok(assemble(source, items.functions, kernel)),
        None => unreachable!("a missing kernel is a fault"),
    }
}

/// Parses as much of a program as possible despite errors, and records its names.
pub(super) fn partial(source: &str) -> Result<(Program, Vec<Diagnostic>, Notes), Diagnostics> {
    let mut parser = Parser::new(source)?;
    parser.notes = Some(Box::default());
    let mut items = parser.items();
    parser.settle(&mut items);
    let kernel = items.kernels.pop();
    if kernel.is_none() && !parser.has_faults() {
        parser.no_kernel();
    }
    let kernel = kernel.unwrap_or_else(ParsedKernel::nothing);
    let (faults, notes) = parser.into_notes();
    Ok((assemble(source, items.functions, kernel), faults, notes))
}

pub(super) fn functions(source: &str) -> Result<Vec<Function>, Diagnostics> {
    let mut parser = Parser::new(source)?;
    let mut items = parser.items();
    parser.settle(&mut items);
    for kernel in &items.kernels {
        let diagnostic = Diagnostic::new(Code::OneKernel, "there is a kernel where only functions are read");
        parser.fault(diagnostic, kernel.header.span);
    }
    parser.finish(items.functions.into_iter().map(|parsed| parsed.function).collect())
}

fn assemble(source: &str, functions: Vec<ParsedFunction>, kernel: ParsedKernel) -> Program {
    let header = kernel.header;
    let mut map = SourceMap {
        source: source.into(),
        header: header.span,
        domain: header.domain_span,
        buffers: header.buffer_spans,
        ..SourceMap::default()
    };
    let mut defined = Vec::with_capacity(functions.len());
    for parsed in functions {
        map.functions.push(parsed.header);
        map.tree.extend(parsed.tree);
        defined.push(parsed.function);
    }
    map.tree.extend(kernel.tree);
    let program = Program::new(header.buffers, header.workgroup_size, kernel.body.into_vec())
        .with_domain(header.domain)
        .with_functions(defined);
    let program = if let Some(name) = header.name { program.with_name(name) } else { program };
    program.with_source(map)
}

impl ParsedKernel {
    /// A kernel that does nothing, for texts without one.
    fn nothing() -> ParsedKernel {
        let header = Header {
            name: None,
            span: Span::default(),
            buffers: Vec::new(),
            buffer_spans: Vec::new(),
            domain: Domain::Default,
            domain_span: Span::default(),
            workgroup_size: DEFAULT_WORKGROUP_SIZE,
        };
        ParsedKernel { header, body: Block::default(), tree: Vec::new() }
    }
}

impl Parser<'_> {
    fn no_kernel(&mut self) {
        let end = self.source().len() as u32;
        let diagnostic = Diagnostic::new(Code::OneKernel, "the text holds no kernel");
        self.fault(diagnostic.help("add `kernel name(…) { … }`"), Span { start: end, end });
    }

    fn items(&mut self) -> Items {
        let mut items = Items::default();
        while !self.at_end() && !self.gave_up() {
            let start = self.position();
            let read = if self.at_word("fn") {
                self.function().map(|function| items.functions.push(function))
            } else if self.at_word("kernel") {
                self.another_kernel(&mut items)
            } else if self.at_word("const") {
                self.constant_item()
            } else {
                let known = ["fn", "kernel", "const"];
                Err(self.unknown_word(Code::UnexpectedToken, "`fn`, `kernel` or `const`", &known))
            };
            if read.is_err() {
                self.skip_to_item(start);
                self.note_unread(start);
            }
        }
        items
    }

    fn another_kernel(&mut self, items: &mut Items) -> Parsed<()> {
        let keyword = self.peek().span;
        if !items.kernels.is_empty() {
            let diagnostic = Diagnostic::new(Code::OneKernel, "the text holds a second kernel");
            self.fault(diagnostic.help("put each kernel in a separate text"), keyword);
        }
        items.kernels.push(self.kernel()?);
        Ok(())
    }

    // Functions.

    fn function(&mut self) -> Parsed<ParsedFunction> {
        self.open_scope();
        let function = self.function_inside();
        self.close_scope();
        function
    }

    fn function_inside(&mut self) -> Parsed<ParsedFunction> {
        let start = self.bump().span.start;
        self.scalars.clear();
        let header = self.function_header();
        let header_span = self.span_from(start);
        if header.is_err() {
            self.skip_to_body()?;
        }
        let first_span = self.tree.len();
        self.returns = Some(0);
        let body = self.block();
        self.returns = None;
        let last = self.previous().span;
        let (body, FunctionHeader { name, params, result }) = (body?, header?);
        let tree = self.tree.split_off(first_span);
        let read = returns::FunctionParts { statements: body.into_vec(), tree, result };
        let Ok(Ended { body, value, tree }) = returns::at_the_end(read) else {
            if self.is_unclosed() {
                return Err(Missing);
            }
            let diagnostic = Diagnostic::new(
                Code::NoResult,
                format!("the function `{}` does not end with its result", excerpt(&name)),
            );
            let help = format!("end it with an expression of type {result}");
            return Err(self.fault(diagnostic.help(help), last));
        };
        let function = Function { name, params, result, body, value };
        Ok(ParsedFunction { function, header: header_span, tree })
    }

    fn function_header(&mut self) -> Parsed<FunctionHeader> {
        let start = self.previous().span.start;
        let name = self.name("the function's name")?;
        let declared = self.declared(SymbolKind::Function, &name, start);
        let rest = self.function_signature();
        self.note_declared(declared);
        let (params, result) = rest?;
        Ok(FunctionHeader { name, params, result })
    }

    fn function_signature(&mut self) -> Parsed<(Vec<(Name, ValueType)>, ValueType)> {
        self.expect_symbol("(")?;
        let params = self.list(")", |parser| {
            let start = parser.peek().span.start;
            let name = parser.new_name("a parameter")?;
            let mut declared = parser.declared(SymbolKind::Parameter, &name, start);
            declared.ty = parser.peek_type();
            parser.note_declared(declared);
            parser.expect_symbol(":")?;
            Ok((name, parser.value_type()?))
        })?;
        self.expect_symbol("->")?;
        Ok((params, self.value_type()?))
    }

    /// The type after the `:` that comes next.
    fn peek_type(&self) -> Option<ValueType> {
        let word = self.text(self.peek_ahead(1));
        ValueType::ALL.into_iter().find(|ty| ty.name() == word)
    }

    pub(super) fn value_type(&mut self) -> Parsed<ValueType> {
        let token = self.peek();
        let word = self.text(token);
        let found = ValueType::ALL.into_iter().find(|ty| token.kind == Lexeme::Word && ty.name() == word);
        match found {
            Some(ty) => {
                self.bump();
                Ok(ty)
            }
            None => Err(self.unknown_word(
                Code::UnknownType,
                "a value type",
                &ValueType::ALL.map(ValueType::name),
            )),
        }
    }

    // The kernel.

    fn kernel(&mut self) -> Parsed<ParsedKernel> {
        self.open_scope();
        let kernel = self.kernel_inside();
        self.close_scope();
        kernel
    }

    fn kernel_inside(&mut self) -> Parsed<ParsedKernel> {
        let start = self.bump().span.start;
        self.scalars.clear();
        let mut header = self.kernel_header(start);
        let read = header.as_mut().map_err(|failed| *failed).and_then(|header| self.clauses(header));
        if read.is_err() {
            self.skip_to_body()?;
        }
        let first_span = self.tree.len();
        let body = self.block()?;
        Ok(ParsedKernel { header: header?, body, tree: self.tree.split_off(first_span) })
    }

    fn kernel_header(&mut self, start: u32) -> Parsed<Header> {
        let name = self.kernel_name()?;
        let span = self.span_from(start);
        self.expect_symbol("(")?;
        let declared: Vec<_> = self.list(")", Self::buffer_or_skip)?.into_iter().flatten().collect();
        let header = Header {
            name,
            span,
            buffer_spans: declared.iter().map(|parsed| parsed.span).collect(),
            buffers: bound(declared),
            domain: Domain::Default,
            domain_span: Span::default(),
            workgroup_size: DEFAULT_WORKGROUP_SIZE,
        };
        Ok(header)
    }

    /// The clauses between the buffers and the body.
    fn clauses(&mut self, header: &mut Header) -> Parsed<()> {
        if self.eat_word("over") {
            let start = self.peek().span.start;
            header.domain = self.domain()?;
            header.domain_span = self.span_from(start);
        }
        if self.eat_word("workgroup") {
            header.workgroup_size = self.three_counts()?;
        }
        if !self.at_symbol("{") {
            let token = self.peek();
            let failed = match token.kind {
                Lexeme::Word => self.unknown_word(
                    Code::UnexpectedToken,
                    "`over`, `workgroup` or `{`",
                    &["over", "workgroup"],
                ),
                Lexeme::Quoted
                | Lexeme::String
                | Lexeme::Number
                | Lexeme::Symbol
                | Lexeme::Bad
                | Lexeme::End => self.unexpected("`over`, `workgroup` or `{`"),
            };
            return Err(failed);
        }
        Ok(())
    }

    fn kernel_name(&mut self) -> Parsed<Option<Name>> {
        let token = self.peek();
        if self.at_symbol("(") {
            return Ok(None);
        }
        let start = self.previous().span.start;
        let name = if token.kind == Lexeme::String {
            self.bump();
            self.quoted_name(token)
        } else {
            self.name("the kernel's name or `(`")?
        };
        let declared = self.declared(SymbolKind::Kernel, &name, start);
        self.note_declared(declared);
        Ok(Some(name))
    }

    /// Parses a buffer; after an error, skips to the start of the next one.
    fn buffer_or_skip(&mut self) -> Parsed<Option<ParsedBuffer>> {
        let start = self.position();
        match self.buffer() {
            Ok(buffer) => Ok(Some(buffer)),
            Err(Missing) => {
                let skipped = self.skip_to_comma(")");
                self.note_unread(start);
                skipped.map(|()| None)
            }
        }
    }

    fn buffer(&mut self) -> Parsed<ParsedBuffer> {
        let start = self.peek().span.start;
        let binding = if self.eat_symbol("@") { Some(self.binding()?) } else { None };
        let name = self.new_name("a buffer")?;
        let declared = self.declared(SymbolKind::Buffer, &name, start);
        let rest = self.buffer_behind(name, binding, start);
        self.note_declared(declared);
        rest
    }

    /// The declaration of a buffer after its name.
    fn buffer_behind(&mut self, name: Name, binding: Option<u32>, start: u32) -> Parsed<ParsedBuffer> {
        self.expect_symbol(":")?;
        let token = self.peek();
        let word = if token.kind == Lexeme::Word { self.text(token) } else { "" };
        let (access, element, size) = match (vocabulary::access(word), DataType::from_name(word)) {
            (Some(access), _) => self.sized_buffer(access)?,
            (None, Some(element)) => self.scalar_uniform(element)?,
            (None, None) => {
                let known: Vec<_> = Access::ALL.iter().map(|access| access.name()).collect();
                return Err(self.unknown_word(Code::UnknownType, "an access", &known));
            }
        };
        let len_of = if self.eat_word("len_of") { Some(self.used_name("a buffer")?) } else { None };
        let (count, length) = match size {
            Axis::Count(count) => (count, None),
            Axis::Of(length) => (0, Some(length)),
        };
        let decl = BufferDecl { name, binding: 0, access, element, count, len_of, length };
        if vocabulary::is_scalar_uniform(&decl) {
            self.scalars.insert(decl.name.clone(), decl.element.value_type());
        }
        Ok(ParsedBuffer { decl, binding, span: self.span_from(start) })
    }

    /// `binding(3)`; the `@` has been consumed.
    fn binding(&mut self) -> Parsed<u32> {
        if !self.eat_word("binding") {
            return Err(self.unexpected("`binding`"));
        }
        self.expect_symbol("(")?;
        let binding = self.integer("a binding")?;
        self.expect_symbol(")")?;
        Ok(binding)
    }

    /// `read f32[128]`, with an optional count.
    fn sized_buffer(&mut self, access: Access) -> Parsed<(Access, DataType, Axis)> {
        self.bump();
        let token = self.peek();
        let Some(element) = DataType::from_name(self.text(token)) else {
            return Err(self.unknown_word(
                Code::UnknownType,
                "an element type",
                &DataType::ALL.map(DataType::name),
            ));
        };
        self.bump();
        if !self.eat_symbol("[") {
            let help = match access {
                Access::Uniform => format!("a single value is declared as `{element} uniform`"),
                Access::Read | Access::ReadWrite | Access::Output => {
                    format!("write `{element}[]` for a buffer that is sized at dispatch")
                }
                Access::Workgroup => format!("give it a size, as in `{element}[64]`"),
            };
            return Err(self.unexpected_with("`[`", Some(help)));
        }
        let open = self.previous().span;
        self.brackets += 1;
        let size = if self.at_symbol("]") { Axis::Count(0) } else { self.elements()? };
        self.close("]", open)?;
        Ok((access, element, size))
    }

    /// `f32 uniform`.
    fn scalar_uniform(&mut self, element: DataType) -> Parsed<(Access, DataType, Axis)> {
        self.bump();
        if !self.eat_word("uniform") {
            let help =
                format!("a single value is `{element} uniform`; a buffer is declared as `read {element}[]`");
            return Err(self.unexpected_with("`uniform`", Some(help)));
        }
        Ok((Access::Uniform, element, Axis::Count(1)))
    }

    fn domain(&mut self) -> Parsed<Domain> {
        let token = self.peek();
        if self.at_symbol("[") {
            let axes = self.up_to_three(Self::axis)?;
            let mut given = axes.into_iter();
            return Ok(Domain::Axes([(); 3].map(|()| given.next().unwrap_or(Axis::Count(1)))).canonical());
        }
        if token.kind == Lexeme::Number {
            return Ok(Domain::Counts([self.integer("a number of invocations")?, 1, 1]));
        }
        if token.kind == Lexeme::Word && self.constants.contains_key(self.text(token)) {
            return Ok(Domain::Counts([self.count("a number of invocations")?, 1, 1]));
        }
        let help = "write expressions in brackets, one for each axis: `over [width, height]`";
        if self.at_symbol("(") {
            return Err(self.unexpected_with("a buffer or a number of invocations", Some(help.into())));
        }
        let name = self.used_name("a buffer or a number of invocations")?;
        if !self.at_symbol("{") && !self.at_word("workgroup") {
            return Err(self.unexpected_with("`workgroup` or `{`", Some(help.into())));
        }
        Ok(Domain::LenOf(name))
    }

    fn axis(&mut self) -> Parsed<Axis> {
        self.size_expression(ValueType::U32).map(Axis::from)
    }

    /// The element count of a buffer. An expression that evaluates to zero is rejected, since a
    /// count of zero means a size set at dispatch.
    fn elements(&mut self) -> Parsed<Axis> {
        let token = self.peek();
        let size = self.axis()?;
        if size == Axis::Count(0) && token.kind != Lexeme::Number {
            let diagnostic = Diagnostic::new(Code::Constant, "this buffer would have no elements");
            let help = "leave the size out for a buffer that is sized at dispatch";
            return Err(self.fault(diagnostic.help(help), token.span));
        }
        Ok(size)
    }

    /// An expression of a required type, in the kernel's header or a constant; it adds no spans to
    /// the tree.
    pub(super) fn size_expression(&mut self, ty: ValueType) -> Parsed<Expr> {
        let spans = self.tree.len();
        let expr = self.expression();
        let tree = self.tree.split_off(spans);
        let expr = expr?;
        let around = Surroundings { elements: self.scalars.clone(), ..Surroundings::default() };
        let settled = Settled::of_expr(self.source(), &tree, &around, (&expr, ty));
        let expr = settled.in_expr(expr, &mut 0);
        let diagnostics = settled.faults.into_iter().map(|(diagnostic, span)| self.fault(diagnostic, span));
        diagnostics.last().map_or(Ok(expr), Err)
    }

    /// Assigns types to numbers without a suffix, if everything parsed without errors.
    fn settle(&mut self, items: &mut Items) {
        // An editor needs the types of the parts without errors.
        if self.has_faults() && self.notes.is_none() {
            return;
        }
        let source = self.source();
        let buffers = items.kernels.iter().flat_map(|kernel| &kernel.header.buffers);
        let around = Surroundings::new(buffers, items.functions.iter().map(|parsed| &parsed.function));
        let mut settled = Vec::new();
        for ParsedFunction { function, tree, .. } in &mut items.functions {
            let found = Settled::of_function(source, tree, &around, function);
            let position = &mut 0;
            function.body = found.in_block(std::mem::take(&mut function.body), position);
            let value = std::mem::replace(&mut function.value, Expr::bool(false));
            function.value = found.in_expr(value, position);
            settled.push(found);
        }
        for ParsedKernel { body, tree, .. } in &mut items.kernels {
            let found = Settled::of_body(source, tree, &around, body);
            *body = found.in_block(std::mem::take(body), &mut 0);
            settled.push(found);
        }
        for (diagnostic, span) in settled.into_iter().flat_map(|settled| settled.faults) {
            self.fault(diagnostic, span);
        }
    }

    /// `64` or `[8, 8, 1]`; missing axes are 1.
    fn three_counts(&mut self) -> Parsed<[u32; 3]> {
        if !self.at_symbol("[") {
            return Ok([self.count("a size or `[`")?, 1, 1]);
        }
        let given = self.up_to_three(|parser| parser.count("a size"))?;
        let mut counts = [1; 3];
        counts[..given.len()].copy_from_slice(&given);
        Ok(counts)
    }

    /// One to three sizes in brackets.
    fn up_to_three<T>(&mut self, size: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let start = self.bump().span.start;
        let given = self.list("]", size)?;
        if given.is_empty() || given.len() > 3 {
            let diagnostic = Diagnostic::new(
                Code::UnexpectedToken,
                format!("expected 1 to 3 sizes, found {}", given.len()),
            );
            let span = self.span_from(start);
            return Err(self.fault(diagnostic.help("write `[x, y, z]`"), span));
        }
        Ok(given)
    }
}

/// The declarations with their bindings, explicit or implied.
fn bound(declared: Vec<ParsedBuffer>) -> Vec<BufferDecl> {
    let mut bindings = ImpliedBindings::default();
    let give = |parsed: ParsedBuffer| {
        let mut decl = parsed.decl;
        decl.binding = parsed.binding.unwrap_or_else(|| bindings.implied(decl.access));
        bindings.declare(&decl);
        decl
    };
    declared.into_iter().map(give).collect()
}
