//! Lowers `print` and `assert` before a program runs, and decodes their messages afterwards.
//!
//! The kernel of a program ignores its messages. [`lower`] produces another program in which
//! ordinary statements replace them and write to an added buffer, last in binding order:
//!
//! ```text
//! word 0    number of messages
//! word 1    number of failed asserts among them
//! then      records of one length: the number of the message in the program, the invocation's
//!           x, y and z, the operands
//! ```
//! Functions that emit messages are inlined first (`inline`), since only the kernel can access
//! buffers. An atomic add on word 0 reserves a record; nothing is written past the last record, so
//! excess messages are counted but otherwise dropped. One invocation reserves its records in order,
//! so [`Lowered::said`] only sorts by invocation. Counting stops at 2³¹, far enough below the limit
//! of `u32` that concurrent invocations cannot make it wrap.

mod inline;

use crate::diagnostics::Diagnostics;
use crate::ir::{
    Access, AtomicOp, Block, BufferDecl, Domain, Expr, Name, Node, Op, Program, SourceMap, Span, walk_block,
    walk_expr,
};
use crate::kernel::{Kernel, KernelDomain, Site};
use crate::types::{DataType, Value, ValueType};
use std::fmt;

/// Words before the first record.
const HEADER_WORDS: u32 = 2;
/// Words of a record before its operands.
const RECORD_HEADER_WORDS: u32 = 4;
const COUNTING_ENDS: u32 = 1 << 31;

/// Which messages a program emits, and how many fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedMessages {
    /// Whether asserts are checked.
    pub asserts: bool,
    /// Capacity of the buffer, in messages.
    pub records: u32,
}

/// A program whose messages are lowered to statements.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The program. Its last buffer, in declaration order, is the added one.
    pub program: Program,
    sites: Vec<Site>,
    /// Length of a record in words.
    stride: u32,
    records: u32,
}

/// A message from an invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The invocation that emitted it.
    pub invocation: [u32; 3],
    /// The text, with operands formatted as by Rust's `Display`.
    pub text: String,
    /// Whether it comes from a failed assert.
    pub is_assert: bool,
    /// Line and column of the statement, if the program was parsed from text.
    pub at: Option<(usize, usize)>,
}

/// The messages of a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// The messages by invocation (`z`, then `y`, then `x`), in order of emission within one.
    pub messages: Vec<Message>,
    /// Total number of messages, including those that did not fit.
    pub count: u32,
    /// Number of failed asserts.
    pub failed: u32,
}

impl Messages {
    /// Whether all messages fitted.
    pub fn is_complete(&self) -> bool {
        self.count as usize == self.messages.len()
    }
}

/// Lowers the messages of a program; `None` if it has none that are wanted and can run unchanged.
pub fn lower(program: &Program, wanted: WantedMessages) -> Result<Option<Lowered>, Diagnostics> {
    program.validate()?;
    let inlined = inline::inline(program);
    let program = inlined.as_ref().unwrap_or(program);
    let kernel = program.validate()?;
    if !kernel.messages.iter().any(|site| wanted.asserts || !site.is_assert) {
        return Ok(None);
    }
    let operand_words = |site: &Site| site.types.iter().map(|ty| words(*ty)).sum::<u32>();
    let stride = RECORD_HEADER_WORDS + kernel.messages.iter().map(operand_words).max().unwrap_or(0);
    let names = FreeNames::new(program);
    let count = HEADER_WORDS.saturating_add(stride.saturating_mul(wanted.records));
    let mut buffers = program.buffers().to_vec();
    buffers
        .push(BufferDecl::read_write(&*names.buffer, free_binding(program), DataType::U32).with_count(count));
    let source = program.source();
    let functions = source.map_or(0, |_| function_nodes(program));
    let mut lowering = MessageLowering {
        wanted,
        kernel: &kernel,
        names,
        stride,
        next: 0,
        spans: source.map_or(&[], |source| source.tree.get(functions..).unwrap_or_default()),
        tree: source.map_or_else(Vec::new, |source| source.tree[..functions.min(source.tree.len())].to_vec()),
    };
    let body = lowering.block(program.entry());
    let tree = lowering.tree;
    let mut lowered = Program::new(buffers, program.workgroup_size(), body.into_vec())
        .with_domain(resolved_domain(program, &kernel))
        .with_functions(program.functions().to_vec());
    if let Some(name) = program.name() {
        lowered = lowered.with_name(name.clone());
    }
    if let Some(source) = source {
        lowered = lowered.with_source(SourceMap { tree, ..source.clone() });
    }
    Ok(Some(Lowered { program: lowered, sites: kernel.messages.clone(), stride, records: wanted.records }))
}

impl Lowered {
    /// Initial contents of the added buffer.
    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.bytes()]
    }

    fn bytes(&self) -> usize {
        4 * (HEADER_WORDS as usize + self.stride as usize * self.records as usize)
    }

    /// Size of one record in bytes.
    pub fn record_bytes(&self) -> usize {
        4 * self.stride as usize
    }

    /// Capacity of the buffer, in messages.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Position of the added buffer among the buffers whose access matches, in binding order.
    pub fn position(&self, among: impl Fn(Access) -> bool) -> usize {
        let Some((added, others)) = self.program.buffers().split_last() else { return 0 };
        others.iter().filter(|decl| among(decl.access) && decl.binding < added.binding).count()
    }

    /// Decodes the messages from the added buffer after a dispatch.
    pub fn said(&self, buffer: &[u8]) -> Messages {
        let words: Vec<u32> =
            buffer.chunks_exact(4).filter_map(|word| DataType::U32.load(word)?.as_u32()).collect();
        let &[count, failed, ref records @ ..] = words.as_slice() else { return Messages::default() };
        let kept = records.chunks_exact(self.stride as usize).take(count.min(self.records) as usize);
        let mut kept: Vec<([u32; 3], Message)> = kept.filter_map(|record| self.message(record)).collect();
        // The sort is stable, so messages of one invocation stay in order.
        kept.sort_by_key(|(place, _)| *place);
        Messages { messages: kept.into_iter().map(|(_, message)| message).collect(), count, failed }
    }

    /// Decodes a record, with its sort key.
    fn message(&self, record: &[u32]) -> Option<([u32; 3], Message)> {
        let &[site, x, y, z, ref operands @ ..] = record else { return None };
        let site = self.sites.get(site as usize)?;
        let mut rest = operands.iter().copied();
        let mut text = site.pieces.first().cloned().unwrap_or_default();
        for (ty, piece) in site.types.iter().zip(site.pieces.iter().skip(1)) {
            let low = rest.next()?;
            let high = if words(*ty) > 1 { rest.next()? } else { 0 };
            let value = Value::from_bits(*ty, u64::from(high) << 32 | u64::from(low));
            text += &Displayed(value).to_string();
            text += piece;
        }
        Some(([z, y, x], Message { invocation: [x, y, z], text, is_assert: site.is_assert, at: site.at }))
    }
}

/// Formats a value as Rust's `Display` does.
struct Displayed(Value);

impl fmt::Display for Displayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Bool(value) => value.fmt(f),
            Value::U32(value) => value.fmt(f),
            Value::I32(value) => value.fmt(f),
            Value::U64(value) => value.fmt(f),
            Value::I64(value) => value.fmt(f),
            Value::F32(value) => value.fmt(f),
            Value::F64(value) => value.fmt(f),
        }
    }
}

fn words(ty: ValueType) -> u32 {
    match ty {
        ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::F32 => 1,
        ValueType::U64 | ValueType::I64 | ValueType::F64 => 2,
    }
}

/// The largest binding plus one or, if that overflows, any free one.
fn free_binding(program: &Program) -> u32 {
    let bindings = || program.buffers().iter().map(|decl| decl.binding);
    let next = bindings().max().map_or(Some(0), |last| last.checked_add(1));
    next.or_else(|| (0..).find(|free| bindings().all(|taken| taken != *free))).unwrap_or_default()
}

/// The domain of the program made explicit, so that the added buffer cannot change it.
fn resolved_domain(program: &Program, kernel: &Kernel) -> Domain {
    match (program.domain(), &kernel.domain) {
        (Domain::Default, KernelDomain::LenOf(buffer)) => {
            Domain::LenOf(kernel.buffer(*buffer).decl.name.clone())
        }
        (Domain::Default, KernelDomain::Counts(_) | KernelDomain::Axes(_) | KernelDomain::Given) => {
            Domain::Counts([1, 1, 1])
        }
        (domain @ (Domain::Counts(_) | Domain::LenOf(_) | Domain::Axes(_)), _) => domain.clone(),
    }
}

/// Number of statements and expressions in all functions, as a source map counts them.
fn function_nodes(program: &Program) -> usize {
    program.functions().iter().map(|function| block_nodes(&function.body) + expr_nodes(&function.value)).sum()
}

fn block_nodes(block: &Block) -> usize {
    let (mut nodes, mut exprs) = (0, 0);
    walk_block(block, &mut |_| nodes += 1, &mut |_| exprs += 1);
    nodes + exprs
}

fn expr_nodes(expr: &Expr) -> usize {
    let mut count = 0;
    walk_expr(expr, &mut |_| count += 1);
    count
}

/// Free names: those that the program does not use.
struct FreeNames {
    buffer: String,
}

impl FreeNames {
    fn new(program: &Program) -> FreeNames {
        let mut longest = 0;
        let mut see = |name: &Name| {
            let rest = name.strip_prefix("messages").unwrap_or_default();
            longest = longest.max(rest.len() - rest.trim_start_matches('_').len() + 1);
        };
        program.buffers().iter().for_each(|decl| see(&decl.name));
        program.functions().iter().for_each(|function| see(&function.name));
        let mut declared = |node: &Node| match node {
            Node::Let { name, .. } | Node::Array { name, .. } | Node::For { counter: name, .. } => see(name),
            Node::Assign { .. }
            | Node::Store { .. }
            | Node::Eval(_)
            | Node::If { .. }
            | Node::While { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_)
            | Node::Print { .. }
            | Node::Assert { .. } => {}
        };
        walk_block(program.entry(), &mut declared, &mut |_| {});
        FreeNames { buffer: format!("messages{}", "_".repeat(longest)) }
    }

    /// A variable for a message.
    fn variable(&self, what: impl fmt::Display) -> Name {
        format!("{}{what}", self.buffer).into()
    }
}

struct MessageLowering<'a> {
    wanted: WantedMessages,
    kernel: &'a Kernel,
    names: FreeNames,
    stride: u32,
    /// Index of the next message.
    next: u32,
    /// Spans of the nodes still to be lowered, in post-order.
    spans: &'a [Span],
    /// Spans of the lowered nodes.
    tree: Vec<Span>,
}

impl MessageLowering<'_> {
    fn block(&mut self, block: &Block) -> Block {
        let nodes: Vec<Node> = block.iter().filter_map(|node| self.node(node)).collect();
        Block::new(nodes)
    }

    fn node(&mut self, node: &Node) -> Option<Node> {
        let exprs: usize = node.exprs().into_iter().map(expr_nodes).sum();
        let (condition, args) = match node {
            Node::Print { args, .. } => (None, args),
            Node::Assert { condition, args, .. } => (Some(condition), args),
            Node::Let { .. }
            | Node::Array { .. }
            | Node::Assign { .. }
            | Node::Store { .. }
            | Node::Eval(_)
            | Node::If { .. }
            | Node::For { .. }
            | Node::While { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_) => {
                let mut node = node.clone();
                self.keep(exprs);
                for block in node.blocks_mut() {
                    *block = self.block(block);
                }
                self.keep(1);
                return Some(node);
            }
        };
        let (_, rest) = self.spans.split_at(exprs.min(self.spans.len()));
        let place = rest.first().copied();
        self.spans = rest.get(1..).unwrap_or_default();
        let number = self.next;
        self.next += 1;
        if condition.is_some() && !self.wanted.asserts {
            return None;
        }
        let lowered = self.message(number, condition, args);
        let nodes = block_nodes(&vec![lowered.clone()].into());
        self.tree.extend(place.into_iter().flat_map(|place| std::iter::repeat_n(place, nodes)));
        Some(lowered)
    }

    /// Copies the spans of the next `nodes` nodes.
    fn keep(&mut self, nodes: usize) {
        let (kept, rest) = self.spans.split_at(nodes.min(self.spans.len()));
        self.tree.extend_from_slice(kept);
        self.spans = rest;
    }

    /// Lowers a message: evaluates its operands, reserves a record and fills it.
    fn message(&self, number: u32, condition: Option<&Expr>, args: &[Expr]) -> Node {
        let (buffer, at, base) =
            (&*self.names.buffer, self.names.variable("at"), self.names.variable("base"));
        let mut nodes = Vec::new();
        let holds = self.names.variable("holds");
        if let Some(condition) = condition {
            nodes.push(Node::let_(holds.clone(), condition.clone()));
        }
        let mut contents = vec![Expr::u32(number)];
        contents.extend((0..3).map(Expr::invocation_id));
        let types = self.kernel.messages.get(number as usize).map_or(&[][..], |site| &site.types);
        for (k, (arg, ty)) in args.iter().zip(types).enumerate() {
            let operand = self.names.variable(k);
            nodes.push(Node::let_(operand.clone(), arg.clone()));
            contents.extend(to_words(Expr::Var(operand), *ty));
        }
        let word = |k: usize| Expr::Var(base.clone()) + Expr::u32(k as u32);
        let mut fill = vec![Node::let_(
            base.clone(),
            Expr::Var(at.clone()) * Expr::u32(self.stride) + Expr::u32(HEADER_WORDS),
        )];
        fill.extend(contents.into_iter().enumerate().map(|(k, value)| Node::store(buffer, word(k), value)));
        let mut record = vec![
            Node::let_(at.clone(), Expr::atomic_add(buffer, Expr::u32(0), Expr::u32(1))),
            Node::if_(Expr::Var(at).lt(Expr::u32(self.wanted.records)), fill),
        ];
        if condition.is_some() {
            record.push(Node::eval(Expr::atomic_add(buffer, Expr::u32(1), Expr::u32(1))));
        }
        let count = Expr::Atomic(AtomicOp::Load, buffer.into(), [Expr::u32(0)].into());
        let counted = Node::if_(count.lt(Expr::u32(COUNTING_ENDS)), record);
        nodes.push(match condition {
            None => counted,
            Some(_) => Node::if_else(Expr::Var(holds), Vec::new(), vec![counted]),
        });
        Node::block(nodes)
    }
}

/// The bits of a value as words, low word first.
fn to_words(value: Expr, ty: ValueType) -> Vec<Expr> {
    let halves = |bits: Expr| {
        let high = Expr::op(Op::Shr, [bits.clone(), Expr::u32(32)]);
        [bits, high].map(|half| Expr::op(Op::ToU32, [half])).to_vec()
    };
    match ty {
        ValueType::U32 => vec![value],
        ValueType::Bool => vec![Expr::op(Op::ToU32, [value])],
        ValueType::I32 | ValueType::F32 => vec![Expr::op(Op::BitsU32, [value])],
        ValueType::U64 => halves(value),
        ValueType::I64 | ValueType::F64 => halves(Expr::op(Op::BitsU64, [value])),
    }
}

#[cfg(test)]
mod tests {
    use super::{WantedMessages, lower};
    use crate::diagnostics::Code;
    use crate::ir::{MAX_BLOCK_DEPTH, Program};
    use crate::text::parse;

    /// A chain of functions that each call the next inside `blocks` nested blocks; the last emits a
    /// message.
    fn chain(functions: usize, blocks: usize, looped: bool) -> Program {
        let nested = |inside: &str| {
            let (open, close) = ("if x > 0 { ".repeat(blocks), " }".repeat(blocks));
            format!("{open}{inside}{close};")
        };
        let mut text = format!("fn f0(x: u32) -> u32 {{ {} x }}\n", nested("print(\"{}\", x)"));
        for k in 1..=functions {
            let call = match looped {
                true => format!("while f{}(x) > 1 {{ break }}", k - 1),
                false => format!("t = f{}(x)", k - 1),
            };
            text += &format!("fn f{k}(x: u32) -> u32 {{ let t = x; {} t }}\n", nested(&call));
        }
        text += "kernel (y: output u32[1]) { region \"r\" { let x = 3\n";
        text += &nested(&format!("y[0] = f{functions}(x)"));
        parse(&(text + "} }")).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// In a valid program, inlined calls never nest deeper than the block limit.
    #[test]
    fn every_valid_program_reports_its_messages() {
        let wanted = WantedMessages { asserts: true, records: 8 };
        let (mut valid, mut too_deep) = (0, 0);
        for functions in 0..8 {
            for blocks in (0..MAX_BLOCK_DEPTH - 6).step_by(5) {
                let program = chain(functions, blocks, blocks % 2 == 0);
                match program.validate() {
                    Ok(_) => {
                        let lowered = lower(&program, wanted).unwrap_or_else(|faults| panic!("{faults}"));
                        let lowered = lowered.unwrap_or_else(|| panic!("it has messages"));
                        lowered.program.validate().unwrap_or_else(|faults| panic!("{faults}"));
                        valid += 1;
                    }
                    Err(faults) => {
                        assert!(faults.iter().all(|fault| fault.code == Code::TooDeep), "{faults}");
                        too_deep += 1;
                    }
                }
            }
        }
        assert!(valid > 30 && too_deep > 30, "{valid} {too_deep}");
    }
}
