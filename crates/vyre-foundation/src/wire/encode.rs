//! Encodes a program. Total: every program that can be built has bytes, and therefore a
//! fingerprint.

use super::{MAGIC, PLAIN_VERSION, SIZES_VERSION, TOO_DEEP, VERSION, domain_tag, expr_tag, node_tag};
use crate::ir::{
    Args, Axis, Block, BufferDecl, Domain, Expr, Function, Name, Node, Program, Value, walk_block,
};
use hashbrown::HashMap;

/// The program's canonical bytes up to the checksum.
pub(super) fn unsealed(program: &Program) -> Vec<u8> {
    let version = version(program);
    let mut encoder = Encoder { bytes: Vec::with_capacity(256), names: HashMap::new(), version };
    encoder.bytes.extend_from_slice(&MAGIC);
    encoder.bytes.push(version);
    encoder.program(program);
    encoder.bytes
}

/// The oldest version that can express the program.
fn version(program: &Program) -> u8 {
    let worked_out = program.domain().formulas().next().is_some()
        || program.buffers().iter().any(|buffer| buffer.length.is_some());
    let mut speaks = false;
    let blocks = program.functions().iter().map(|function| &function.body).chain([program.entry()]);
    blocks.for_each(|block| walk_block(block, &mut |node| speaks |= node.is_message(), &mut |_| {}));
    match (speaks, worked_out) {
        (true, _) => VERSION,
        (false, true) => SIZES_VERSION,
        (false, false) => PLAIN_VERSION,
    }
}

struct Encoder<'a> {
    bytes: Vec<u8>,
    /// The names written so far, numbered from 1.
    names: HashMap<&'a str, u64>,
    version: u8,
}

impl<'a> Encoder<'a> {
    fn program(&mut self, program: &'a Program) {
        self.optional_name(program.name());
        for size in program.workgroup_size() {
            self.number(size.into());
        }
        self.domain(program.domain());
        self.number(program.buffers().len() as u64);
        for buffer in program.buffers() {
            self.buffer(buffer);
        }
        self.number(program.functions().len() as u64);
        for function in program.functions() {
            self.function(function);
        }
        self.block(program.entry());
    }

    fn domain(&mut self, domain: &'a Domain) {
        match domain {
            Domain::Default => self.bytes.push(domain_tag::DEFAULT),
            Domain::Counts(counts) => {
                self.bytes.push(domain_tag::COUNTS);
                for &count in counts {
                    self.number(count.into());
                }
            }
            Domain::LenOf(buffer) => {
                self.bytes.push(domain_tag::LEN_OF);
                self.name(buffer);
            }
            Domain::Axes(axes) => {
                self.bytes.push(domain_tag::AXES);
                for axis in axes {
                    match axis {
                        Axis::Count(count) => {
                            self.bytes.push(expr_tag::LITERAL);
                            self.literal(Value::U32(*count));
                        }
                        Axis::Of(formula) => self.expr(formula.expr()),
                    }
                }
            }
        }
    }

    fn buffer(&mut self, buffer: &'a BufferDecl) {
        // No `..`: a new field must be encoded, or two programs could share a fingerprint.
        let BufferDecl { name, binding, access, element, count, len_of, length } = buffer;
        self.name(name);
        self.number((*binding).into());
        self.bytes.push(*access as u8);
        self.bytes.push(*element as u8);
        self.number((*count).into());
        self.optional_name(len_of.as_ref());
        if self.version > PLAIN_VERSION {
            self.bytes.push(length.is_some().into());
            if let Some(length) = length {
                self.expr(length.expr());
            }
        }
    }

    fn function(&mut self, function: &'a Function) {
        let Function { name, params, result, body, value } = function;
        self.name(name);
        self.number(params.len() as u64);
        for (name, ty) in params {
            self.name(name);
            self.bytes.push(*ty as u8);
        }
        self.bytes.push(*result as u8);
        self.block(body);
        self.expr(value);
    }

    fn block(&mut self, block: &'a Block) {
        if block.is_too_deep() {
            return self.number(TOO_DEEP);
        }
        self.number(block.len() as u64 + 1);
        for node in block {
            self.node(node);
        }
    }

    fn node(&mut self, node: &'a Node) {
        match node {
            Node::Let { name, value } => {
                self.tag_and_name(node_tag::LET, name);
                self.expr(value);
            }
            Node::Array { name, element, count } => {
                self.tag_and_name(node_tag::ARRAY, name);
                self.bytes.push(*element as u8);
                self.number((*count).into());
            }
            Node::Assign { name, value } => {
                self.tag_and_name(node_tag::ASSIGN, name);
                self.expr(value);
            }
            Node::Store { to, index, value } => {
                self.tag_and_name(node_tag::STORE, to);
                self.expr(index);
                self.expr(value);
            }
            Node::Eval(value) => {
                self.bytes.push(node_tag::EVAL);
                self.expr(value);
            }
            Node::If { condition, then, otherwise } => {
                self.bytes.push(node_tag::IF);
                self.expr(condition);
                self.block(then);
                self.block(otherwise);
            }
            Node::For { counter, from, to, step, body } => {
                self.tag_and_name(node_tag::FOR, counter);
                self.expr(from);
                self.expr(to);
                self.expr(step);
                self.block(body);
            }
            Node::While { condition, body } => {
                self.bytes.push(node_tag::WHILE);
                self.expr(condition);
                self.block(body);
            }
            Node::Break => self.bytes.push(node_tag::BREAK),
            Node::Continue => self.bytes.push(node_tag::CONTINUE),
            Node::Return => self.bytes.push(node_tag::RETURN),
            Node::Barrier => self.bytes.push(node_tag::BARRIER),
            Node::Block(body) => {
                self.bytes.push(node_tag::BLOCK);
                self.block(body);
            }
            Node::Region { generator, body } => {
                self.tag_and_name(node_tag::REGION, generator);
                self.block(body);
            }
            Node::Trap(code) => {
                self.bytes.push(node_tag::TRAP);
                self.number((*code).into());
            }
            Node::Print { format, args } => {
                self.tag_and_name(node_tag::PRINT, format);
                self.exprs(args);
            }
            Node::Assert { condition, format, args } => {
                self.bytes.push(node_tag::ASSERT);
                self.expr(condition);
                self.name(format);
                self.exprs(args);
            }
        }
    }

    fn exprs(&mut self, exprs: &'a [Expr]) {
        self.number(exprs.len() as u64);
        exprs.iter().for_each(|expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Literal(value) => {
                self.bytes.push(expr_tag::LITERAL);
                self.literal(*value);
            }
            Expr::Var(name) => self.tag_and_name(expr_tag::VAR, name),
            Expr::Builtin(builtin, axis) => {
                self.bytes.extend_from_slice(&[expr_tag::BUILTIN, *builtin as u8, *axis]);
            }
            Expr::BufLen(buffer) => self.tag_and_name(expr_tag::BUF_LEN, buffer),
            Expr::Load(from, args) => {
                self.tag_and_name(expr_tag::LOAD, from);
                self.args(args);
            }
            Expr::Op(op, args) => {
                self.bytes.extend_from_slice(&[expr_tag::OP, op.row().tag]);
                self.args(args);
            }
            Expr::Atomic(op, buffer, args) => {
                self.bytes.extend_from_slice(&[expr_tag::ATOMIC, op.row().tag]);
                self.name(buffer);
                self.args(args);
            }
            Expr::Subgroup(op, args) => {
                self.bytes.extend_from_slice(&[expr_tag::SUBGROUP, op.tag()]);
                self.args(args);
            }
            Expr::Workgroup(op, args) => {
                self.bytes.extend_from_slice(&[expr_tag::WORKGROUP, op.row().tag]);
                self.args(args);
            }
            Expr::Call(function, args) => {
                self.tag_and_name(expr_tag::CALL, function);
                self.args(args);
            }
        }
    }

    fn args(&mut self, args: &'a Args) {
        if args.is_too_deep() {
            return self.number(TOO_DEEP);
        }
        self.number(args.len() as u64 + 1);
        for arg in args {
            self.expr(arg);
        }
    }

    /// Integers are mostly small; floats mostly use all their bits.
    fn literal(&mut self, value: Value) {
        self.bytes.push(value.ty() as u8);
        match value {
            Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => {
                self.number(value.to_bits());
            }
            Value::F32(x) => self.bytes.extend_from_slice(&x.to_bits().to_le_bytes()),
            Value::F64(x) => self.bytes.extend_from_slice(&x.to_bits().to_le_bytes()),
        }
    }

    fn tag_and_name(&mut self, tag: u8, name: &'a Name) {
        self.bytes.push(tag);
        self.name(name);
    }

    fn optional_name(&mut self, name: Option<&'a Name>) {
        self.bytes.push(name.is_some().into());
        if let Some(name) = name {
            self.name(name);
        }
    }

    /// 0 and the name itself at its first occurrence, its number afterwards.
    fn name(&mut self, name: &'a Name) {
        let next = self.names.len() as u64 + 1;
        let number = *self.names.entry(name).or_insert(next);
        if number != next {
            return self.number(number);
        }
        self.number(0);
        self.number(name.len() as u64);
        self.bytes.extend_from_slice(name.as_bytes());
    }

    /// Seven bits per byte, lowest first; the top bit marks that more follow.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }
}
