//! Decodes a program, rejecting everything that the encoder does not write.

use super::{PLAIN_VERSION, SIZES_VERSION, TOO_DEEP, VERSION, WireError, domain_tag, expr_tag, node_tag};
use crate::ir::{
    Access, Args, AtomicOp, Axis, Block, BufferDecl, Builtin, DataType, Domain, Expr, Formula, Function,
    MAX_BLOCK_DEPTH, MAX_EXPR_DEPTH, Name, Node, Op, Program, SubgroupOp, Value, ValueType, WorkgroupOp,
};
use hashbrown::HashSet;

/// Decodes `content`, the bytes up to the checksum; those before `start` are already checked.
pub(super) fn program(content: &[u8], version: u8, start: usize) -> Result<Program, WireError> {
    let mut decoder = Decoder {
        bytes: content,
        position: start,
        version,
        newest: PLAIN_VERSION,
        promised: 0,
        names: Vec::new(),
        known: HashSet::new(),
        expr_depth: 0,
        block_depth: 0,
    };
    let program = decoder.program()?;
    if decoder.newest != version {
        return Err(malformed_at(start - 1, "a version newer than the program needs"));
    }
    if decoder.position != content.len() {
        return Err(decoder.malformed("something after the program's end"));
    }
    Ok(program)
}

struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
    /// The version stated in the bytes.
    version: u8,
    /// The oldest version that can express what was decoded so far.
    newest: u8,
    /// Items that the open lists still have to read; each takes at least one byte.
    promised: usize,
    /// The names read so far; number `k` is at `k - 1`.
    names: Vec<Name>,
    /// The same names, to reject one that is spelt out twice.
    known: HashSet<Name>,
    expr_depth: usize,
    block_depth: usize,
}

type Result<T, E = WireError> = std::result::Result<T, E>;

impl<'a> Decoder<'a> {
    fn program(&mut self) -> Result<Program> {
        let name = self.optional_name()?;
        let workgroup_size = self.three_numbers()?;
        let domain = self.domain()?;
        let buffers = self.counted(Self::buffer)?;
        let functions = self.counted(Self::function)?;
        let body = self.block()?;
        let program = Program::new(buffers, workgroup_size, body.into_vec())
            .with_domain(domain)
            .with_functions(functions);
        Ok(match name {
            Some(name) => program.with_name(name),
            None => program,
        })
    }

    fn domain(&mut self) -> Result<Domain> {
        match self.byte()? {
            domain_tag::DEFAULT => Ok(Domain::Default),
            domain_tag::COUNTS => Ok(Domain::Counts(self.three_numbers()?)),
            domain_tag::LEN_OF => Ok(Domain::LenOf(self.name()?)),
            domain_tag::AXES if self.version > PLAIN_VERSION => self.axes(),
            _ => Err(self.malformed_byte("an unknown domain")),
        }
    }

    fn axes(&mut self) -> Result<Domain> {
        let start = self.position;
        let axes = [self.axis()?, self.axis()?, self.axis()?];
        if axes.iter().all(|axis| matches!(axis, Axis::Count(_))) {
            return Err(malformed_at(start, "an expression where a count would do"));
        }
        self.newest = self.newest.max(SIZES_VERSION);
        Ok(Domain::Axes(axes))
    }

    fn axis(&mut self) -> Result<Axis> {
        let start = self.position;
        match self.expr()? {
            Expr::Literal(Value::U32(count)) => Ok(Axis::Count(count)),
            expr => self.formula(expr, start).map(Axis::Of),
        }
    }

    fn formula(&self, expr: Expr, start: usize) -> Result<Formula> {
        Formula::new(expr).map_err(|_| malformed_at(start, "an expression where a count would do"))
    }

    /// The length computed at dispatch.
    fn length(&mut self) -> Result<Option<Formula>> {
        if self.version == PLAIN_VERSION {
            return Ok(None);
        }
        match self.byte()? {
            0 => Ok(None),
            1 => {
                let start = self.position;
                self.newest = self.newest.max(SIZES_VERSION);
                let expr = self.expr()?;
                self.formula(expr, start).map(Some)
            }
            _ => Err(self.malformed_byte("neither 0 nor 1 before an optional length")),
        }
    }

    fn buffer(&mut self) -> Result<BufferDecl> {
        let buffer = BufferDecl {
            name: self.name()?,
            binding: self.number_u32()?,
            access: self.one_of(&Access::ALL, "an unknown access")?,
            element: self.one_of(&DataType::ALL, "an unknown storage type")?,
            count: self.number_u32()?,
            len_of: self.optional_name()?,
            length: self.length()?,
        };
        if buffer.length.is_some() && buffer.count > 0 {
            return Err(self.malformed("a buffer with a count and a length"));
        }
        Ok(buffer)
    }

    fn function(&mut self) -> Result<Function> {
        Ok(Function {
            name: self.name()?,
            params: self.counted(|decoder| Ok((decoder.name()?, decoder.value_type()?)))?,
            result: self.value_type()?,
            body: self.block()?,
            value: self.expr()?,
        })
    }

    fn block(&mut self) -> Result<Block> {
        let count = self.nested_count()?;
        if self.block_depth == MAX_BLOCK_DEPTH {
            return Err(self.malformed("blocks nested too deep"));
        }
        self.block_depth += 1;
        let nodes = self.list(count, Self::node)?;
        self.block_depth -= 1;
        Ok(Block::new(nodes))
    }

    fn node(&mut self) -> Result<Node> {
        Ok(match self.byte()? {
            node_tag::LET => Node::Let { name: self.name()?, value: self.expr()? },
            node_tag::ARRAY => {
                Node::Array { name: self.name()?, element: self.value_type()?, count: self.number_u32()? }
            }
            node_tag::ASSIGN => Node::Assign { name: self.name()?, value: self.expr()? },
            node_tag::STORE => Node::Store { to: self.name()?, index: self.expr()?, value: self.expr()? },
            node_tag::EVAL => Node::Eval(self.expr()?),
            node_tag::IF => {
                Node::If { condition: self.expr()?, then: self.block()?, otherwise: self.block()? }
            }
            node_tag::FOR => Node::For {
                counter: self.name()?,
                from: self.expr()?,
                to: self.expr()?,
                step: self.expr()?,
                body: self.block()?,
            },
            node_tag::WHILE => Node::While { condition: self.expr()?, body: self.block()? },
            node_tag::BREAK => Node::Break,
            node_tag::CONTINUE => Node::Continue,
            node_tag::RETURN => Node::Return,
            node_tag::BARRIER => Node::Barrier,
            node_tag::BLOCK => Node::Block(self.block()?),
            node_tag::REGION => Node::Region { generator: self.name()?, body: self.block()? },
            node_tag::TRAP => Node::Trap(self.number_u32()?),
            node_tag::PRINT if self.version == VERSION => {
                self.newest = VERSION;
                Node::Print { format: self.name()?, args: self.counted(Self::expr)? }
            }
            node_tag::ASSERT if self.version == VERSION => {
                self.newest = VERSION;
                let condition = self.expr()?;
                Node::Assert { condition, format: self.name()?, args: self.counted(Self::expr)? }
            }
            _ => return Err(self.malformed_byte("an unknown statement")),
        })
    }

    fn expr(&mut self) -> Result<Expr> {
        Ok(match self.byte()? {
            expr_tag::LITERAL => Expr::Literal(self.literal()?),
            expr_tag::VAR => Expr::Var(self.name()?),
            expr_tag::BUILTIN => {
                Expr::Builtin(self.one_of(&Builtin::ALL, "an unknown builtin")?, self.byte()?)
            }
            expr_tag::BUF_LEN => Expr::BufLen(self.name()?),
            expr_tag::LOAD => Expr::Load(self.name()?, self.args()?),
            expr_tag::OP => Expr::Op(self.tagged(Op::from_tag, "an unknown op")?, self.args()?),
            expr_tag::ATOMIC => {
                let op = self.tagged(AtomicOp::from_tag, "an unknown atomic")?;
                Expr::Atomic(op, self.name()?, self.args()?)
            }
            expr_tag::SUBGROUP => {
                let op = self.tagged(SubgroupOp::from_tag, "an unknown subgroup op")?;
                Expr::Subgroup(op, self.args()?)
            }
            expr_tag::WORKGROUP => {
                let op = self.tagged(WorkgroupOp::from_tag, "an unknown workgroup op")?;
                Expr::Workgroup(op, self.args()?)
            }
            expr_tag::CALL => Expr::Call(self.name()?, self.args()?),
            _ => return Err(self.malformed_byte("an unknown expression")),
        })
    }

    fn args(&mut self) -> Result<Args> {
        let count = self.nested_count()?;
        if self.expr_depth == MAX_EXPR_DEPTH {
            return Err(self.malformed("expressions nested too deep"));
        }
        self.expr_depth += 1;
        let args = self.list(count, Self::expr)?;
        self.expr_depth -= 1;
        Ok(Args::new(args))
    }

    fn literal(&mut self) -> Result<Value> {
        let ty = self.value_type()?;
        let start = self.position;
        let bits = match ty {
            ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => {
                self.number()?
            }
            ValueType::F32 => u32::from_le_bytes(self.fixed()?).into(),
            ValueType::F64 => u64::from_le_bytes(self.fixed()?),
        };
        let value = Value::from_bits(ty, bits);
        let fits = value.to_bits() == bits;
        if fits { Ok(value) } else { Err(malformed_at(start, "a literal too large for its type")) }
    }

    fn value_type(&mut self) -> Result<ValueType> {
        self.one_of(&ValueType::ALL, "an unknown value type")
    }

    fn optional_name(&mut self) -> Result<Option<Name>> {
        match self.byte()? {
            0 => Ok(None),
            1 => Ok(Some(self.name()?)),
            _ => Err(self.malformed_byte("neither 0 nor 1 before an optional name")),
        }
    }

    fn name(&mut self) -> Result<Name> {
        let start = self.position;
        match self.number()? {
            0 => self.new_name(start),
            number => usize::try_from(number - 1)
                .ok()
                .and_then(|index| self.names.get(index).cloned())
                .ok_or(malformed_at(start, "a name that was not given before")),
        }
    }

    fn new_name(&mut self, start: usize) -> Result<Name> {
        let length = self.number()?;
        let bytes = usize::try_from(length).ok().and_then(|length| self.take(length));
        let bytes = bytes.ok_or(WireError::Truncated { at: self.bytes.len() })?;
        let text = str::from_utf8(bytes).map_err(|_| malformed_at(start, "a name that is not UTF-8"))?;
        let name = Name::from(text);
        if !self.known.insert(name.clone()) {
            return Err(malformed_at(start, "a name spelt out twice"));
        }
        self.names.push(name.clone());
        Ok(name)
    }

    /// The length of a list of operands or statements.
    fn nested_count(&mut self) -> Result<u64> {
        let start = self.position;
        match self.number()? {
            TOO_DEEP => Err(malformed_at(start, "parts that were dropped for nesting too deep")),
            count => Ok(count - 1),
        }
    }

    fn counted<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.number()?;
        self.list(count, item)
    }

    /// Reads `count` items, each of which takes at least one byte.
    fn list<T>(&mut self, count: u64, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let free = (self.bytes.len() - self.position).saturating_sub(self.promised);
        let count = usize::try_from(count).ok().filter(|&count| count <= free);
        let count = count.ok_or(WireError::Truncated { at: self.bytes.len() })?;
        self.promised += count;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            self.promised -= 1;
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn three_numbers(&mut self) -> Result<[u32; 3]> {
        Ok([self.number_u32()?, self.number_u32()?, self.number_u32()?])
    }

    fn number_u32(&mut self) -> Result<u32> {
        let start = self.position;
        let number = self.number()?;
        u32::try_from(number).map_err(|_| malformed_at(start, "a number of more than 32 bits"))
    }

    fn number(&mut self) -> Result<u64> {
        let start = self.position;
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            number |= part << shift;
            if byte < 0x80 {
                let fits = number >> shift == part;
                let minimal = byte != 0 || shift == 0;
                return if fits && minimal {
                    Ok(number)
                } else {
                    Err(malformed_at(start, "a number that is too large or not in its shortest form"))
                };
            }
        }
        Err(malformed_at(start, "a number of more than 64 bits"))
    }

    fn tagged<T>(&mut self, from_tag: impl Fn(u8) -> Option<T>, what: &'static str) -> Result<T> {
        from_tag(self.byte()?).ok_or_else(|| self.malformed_byte(what))
    }

    fn one_of<T: Copy>(&mut self, all: &[T], what: &'static str) -> Result<T> {
        self.tagged(|tag| all.get(usize::from(tag)).copied(), what)
    }

    fn byte(&mut self) -> Result<u8> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let rest = &self.bytes[self.position..];
        let bytes = *rest.first_chunk::<N>().ok_or(WireError::Truncated { at: self.bytes.len() })?;
        self.position += N;
        Ok(bytes)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes[self.position..].get(..length)?;
        self.position += length;
        Some(taken)
    }

    /// An error at the next byte.
    fn malformed(&self, what: &'static str) -> WireError {
        malformed_at(self.position, what)
    }

    /// An error in the byte just read.
    fn malformed_byte(&self, what: &'static str) -> WireError {
        malformed_at(self.position - 1, what)
    }
}

fn malformed_at(at: usize, what: &'static str) -> WireError {
    WireError::Malformed { at, what }
}
