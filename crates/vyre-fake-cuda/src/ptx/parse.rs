//! Parser of PTX.
//!
//! A module is a list of entries; each has parameters, registers, variables in shared and local
//! memory, and instructions with resolved operands: registers and parameters are numbers, labels
//! are positions. Comments and irrelevant directives (`.maxntid`, `.pragma`) are skipped, and so
//! are the module's functions and variables, which come from NVRTC's headers: an entry that calls
//! or names one is an error. Other directives are errors.

use std::collections::HashMap;

/// Start of shared memory in the generic address space.
pub(super) const SHARED: u64 = 1 << 60;
/// Start of local memory in the generic address space.
pub(super) const LOCAL: u64 = 1 << 61;

/// PTX module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Entries of the module.
    pub entries: Vec<EntryFunction>,
}

/// Function that can be launched.
#[derive(Clone, Debug, Default)]
pub struct EntryFunction {
    /// Name of the function.
    pub name: String,
    /// Offset and size of each parameter, in bytes.
    pub parameters: Vec<Parameter>,
    /// Width of each register in bits; 1 for predicates.
    pub(super) registers: Vec<u32>,
    /// Bytes of shared memory.
    pub(super) shared: usize,
    /// Bytes of local memory per invocation.
    pub(super) local: usize,
    pub(super) code: Vec<Instruction>,
}

/// Parameter of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset among the parameters, in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
}

impl EntryFunction {
    /// Total size of the parameters in bytes.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.offset + last.bytes)
    }
}

/// Instruction with its guard and source line.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    /// Guard predicate: the register, and the value that it must have.
    pub(super) guard: Option<(usize, bool)>,
    pub(super) op: Op,
    pub(super) line: usize,
}

/// PTX type: its kind and width in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Pred,
    Bits(u32),
    Unsigned(u32),
    Signed(u32),
    Float(u32),
}

impl Type {
    pub(super) fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::Bits(bits) | Type::Unsigned(bits) | Type::Signed(bits) | Type::Float(bits) => bits,
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Type::Float(_))
    }

    pub(super) fn is_signed(self) -> bool {
        matches!(self, Type::Signed(_))
    }

    fn parse(text: &str) -> Option<Type> {
        Some(match text {
            "pred" => Type::Pred,
            "b8" => Type::Bits(8),
            "b16" => Type::Bits(16),
            "b32" => Type::Bits(32),
            "b64" => Type::Bits(64),
            "u8" => Type::Unsigned(8),
            "u16" => Type::Unsigned(16),
            "u32" => Type::Unsigned(32),
            "u64" => Type::Unsigned(64),
            "s8" => Type::Signed(8),
            "s16" => Type::Signed(16),
            "s32" => Type::Signed(32),
            "s64" => Type::Signed(64),
            "f32" => Type::Float(32),
            "f64" => Type::Float(64),
            _ => return None,
        })
    }
}

/// Value that an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceOperand {
    Register(usize),
    Constant(u64),
    Special(Special, usize),
}

/// Special registers with the position of an invocation, per axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Tid,
    CtaId,
    NTid,
    NCtaId,
}

/// Memory address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) base: SourceOperand,
    pub(super) offset: u64,
}

/// Arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    MulHigh,
    /// The product has twice the bits.
    MulWide,
    Mad,
    MadWide,
    Div,
    Rem,
    Fma,
    Min,
    Max,
    And,
    Or,
    Xor,
    Not,
    Neg,
    Abs,
    Shl,
    Shr,
    Sqrt,
    Reciprocal,
    Popc,
    Clz,
    Brev,
    Bfi,
    Bfe,
    Prmt,
    ShfLeft,
    ShfRight,
    Copysign,
}

/// Comparison; `unordered` float comparisons hold for NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) test: Test,
    pub(super) unordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    IsNumber,
    IsNan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Exact, or between integers.
    None,
    Nearest,
    /// To an integer: nearest, toward zero, down, up.
    NearestInteger,
    ZeroInteger,
    DownInteger,
    UpInteger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Update {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    Compare,
}

/// Operation of an instruction.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Move {
        to: usize,
        from: SourceOperand,
    },
    /// Combines several registers into one.
    Pack {
        to: usize,
        from: Vec<SourceOperand>,
        each: u32,
    },
    Unpack {
        to: Vec<Option<usize>>,
        from: SourceOperand,
        each: u32,
    },
    Compute {
        what: Arithmetic,
        ty: Type,
        to: usize,
        from: [SourceOperand; 4],
    },
    Compare {
        what: Comparison,
        also: Option<(Arithmetic, SourceOperand)>,
        ty: Type,
        to: usize,
        from: [SourceOperand; 2],
    },
    Select {
        to: usize,
        from: [SourceOperand; 2],
        by: SourceOperand,
    },
    Convert {
        to: usize,
        to_ty: Type,
        from: SourceOperand,
        from_ty: Type,
        rounding: Rounding,
    },
    LoadParameter {
        to: usize,
        ty: Type,
        at: usize,
    },
    Load {
        to: Vec<usize>,
        ty: Type,
        at: Address,
    },
    Store {
        from: Vec<SourceOperand>,
        ty: Type,
        at: Address,
    },
    Atomic {
        what: Update,
        ty: Type,
        to: Option<usize>,
        at: Address,
        from: [SourceOperand; 2],
    },
    Branch {
        to: usize,
    },
    Barrier,
    Shuffle {
        to: usize,
        found: Option<usize>,
        from: SourceOperand,
        lane: SourceOperand,
        clamp: SourceOperand,
        mask: SourceOperand,
    },
    Ballot {
        to: usize,
        from: SourceOperand,
        negated: bool,
        mask: SourceOperand,
    },
    Nothing,
    Return,
}

/// Parses a module; the error names what is not supported, and where.
pub fn parse(text: &str) -> Result<Module, String> {
    let mut module = Module::default();
    let mut lines = Lines { rest: text.lines().enumerate() };
    while let Some((number, line)) = lines.next() {
        let fail = |message: String| format!("PTX line {number}: {message}");
        let mut words = line.split_whitespace();
        match words.next() {
            Some(".version" | ".target" | ".address_size") => {}
            Some(".visible") if line.contains(".entry ") => {
                module.entries.push(entry(line, &mut lines).map_err(fail)?);
            }
            Some(".visible" | ".weak" | ".extern" | ".func") if line.contains(".func ") => {
                skip_function(line, &mut lines).map_err(fail)?;
            }
            Some(".visible" | ".weak" | ".global") if line.contains(".global ") && line.ends_with(';') => {}
            _ => return Err(fail(format!("`{line}` is not known"))),
        }
    }
    Ok(module)
}

/// Non-empty lines, trimmed and without comments.
struct Lines<'a> {
    rest: std::iter::Enumerate<std::str::Lines<'a>>,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<(usize, &'a str)> {
        self.rest.by_ref().find_map(|(number, line)| {
            let line = line.split("//").next().unwrap_or_default().trim();
            (!line.is_empty()).then_some((number + 1, line))
        })
    }
}

/// Skips a function or its declaration.
fn skip_function(head: &str, lines: &mut Lines<'_>) -> Result<(), String> {
    let mut depth = 0;
    for line in std::iter::once(head).chain(lines.map(|(_, line)| line)) {
        depth += line.matches('{').count();
        depth -= line.matches('}').count().min(depth);
        if depth == 0 && line.ends_with(['}', ';']) {
            return Ok(());
        }
    }
    Err("the function has no end".into())
}

/// State of the parser within an entry.
#[derive(Default)]
struct Reader {
    entry: EntryFunction,
    parameters: HashMap<String, usize>,
    registers: HashMap<String, usize>,
    variables: HashMap<String, u64>,
    labels: HashMap<String, usize>,
    /// Registers of the current block: their names there, and their names in the entry. Blocks are
    /// not nested.
    block: Option<Vec<(String, String)>>,
    blocks: usize,
}

fn entry(head: &str, lines: &mut Lines<'_>) -> Result<EntryFunction, String> {
    let mut reader = Reader::default();
    let name = head.split(".entry").nth(1).unwrap_or_default();
    reader.entry.name = name.split('(').next().unwrap_or_default().trim().to_string();
    let mut started = false;
    // Instructions can name later labels, so they are parsed when all labels are known.
    let mut pending: Vec<(usize, String)> = Vec::new();
    for (number, line) in lines.by_ref() {
        let fail = |message: String| format!("line {number}: {message}");
        if !started {
            match line.split_whitespace().next() {
                Some("{") => started = true,
                Some(".param") => reader.parameter(line).map_err(fail)?,
                Some(")" | ".maxntid" | ".minnctapersm") => {}
                _ => return Err(fail(format!("`{line}` is not known"))),
            }
            continue;
        }
        if line == "{" && reader.block.is_none() {
            reader.begin_block();
            continue;
        }
        if line == "}" && reader.block.take().is_some() {
            continue;
        }
        if let Some(inner) = line.strip_prefix("{ ").and_then(|rest| rest.strip_suffix(" }"))
            && reader.block.is_none()
        {
            reader.begin_block();
            for text in inner.split(';').map(str::trim).filter(|text| !text.is_empty()) {
                match text.starts_with('.') {
                    true => reader.directive(text).map_err(fail)?,
                    false => pending.push((number, reader.in_block(text))),
                }
            }
            reader.block = None;
            continue;
        }
        if line == "}" {
            reader.registers.shrink_to_fit();
            for (number, text) in &pending {
                let instruction = reader.instruction(*number, text);
                let instruction =
                    instruction.map_err(|message| format!("line {number}: `{text}`: {message}"))?;
                reader.entry.code.push(instruction);
            }
            return Ok(reader.entry);
        }
        if let Some(label) = line.strip_suffix(':') {
            reader.labels.insert(label.to_string(), pending.len());
        } else if line.starts_with('.') {
            reader.directive(line).map_err(fail)?;
        } else {
            for text in line.split(';').map(str::trim).filter(|text| !text.is_empty()) {
                pending.push((number, reader.in_block(text)));
            }
        }
    }
    Err("the entry has no end".into())
}

fn number(text: &str) -> Option<u64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

impl Reader {
    fn begin_block(&mut self) {
        self.block = Some(Vec::new());
        self.blocks += 1;
    }

    /// Replaces the block's register names with their names in the entry.
    fn in_block(&self, text: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        let mut renamed = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let split = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(split);
            let found = self.block.iter().flatten().find(|(name, _)| name == word);
            renamed.push_str(found.map_or(word, |(_, name)| name));
            let next = behind.chars().next().map_or(0, char::len_utf8);
            renamed.push_str(&behind[..next]);
            rest = &behind[next..];
        }
        renamed
    }

    fn parameter(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.trim_end_matches(',').split_whitespace().collect();
        // Newer PTX specifies the alignment of a pointer's target.
        let ([".param", ty, name] | [".param", ty, ".ptr", ".align", _, name]) = words[..] else {
            return Err(format!("`{line}` is not known"));
        };
        let ty = ty.strip_prefix('.').and_then(Type::parse).ok_or(format!("the type `{ty}` is not known"))?;
        let bytes = ty.bytes();
        let offset = self.entry.parameter_bytes().next_multiple_of(bytes.max(1));
        self.parameters.insert(name.into(), offset);
        self.entry.parameters.push(Parameter { offset, bytes });
        Ok(())
    }

    fn directive(&mut self, line: &str) -> Result<(), String> {
        let unknown = || format!("`{line}` is not known");
        let text = line.trim_end_matches(';');
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [".pragma", ..] => Ok(()),
            [".reg", ty, name] => {
                let ty = ty.strip_prefix('.').and_then(Type::parse).ok_or_else(unknown)?;
                match name.split_once('<') {
                    None => self.register(name.into(), ty),
                    Some((stem, count)) => {
                        let count = count.trim_end_matches('>').parse::<u32>().map_err(|_| unknown())?;
                        (0..count).for_each(|k| self.register(format!("{stem}{k}"), ty));
                    }
                }
                Ok(())
            }
            [space @ (".shared" | ".local"), ".align", align, ty, name] => {
                let align: usize = align.parse().map_err(|_| unknown())?;
                let ty = ty.strip_prefix('.').and_then(Type::parse).ok_or_else(unknown)?;
                let (name, count) = name.split_once('[').ok_or_else(unknown)?;
                let count: usize = count.trim_end_matches(']').parse().map_err(|_| unknown())?;
                let (end, window) = match space {
                    ".shared" => (&mut self.entry.shared, SHARED),
                    _ => (&mut self.entry.local, LOCAL),
                };
                let at = end.next_multiple_of(align.max(1));
                *end = at + count * ty.bytes();
                self.variables.insert(name.into(), window + at as u64);
                Ok(())
            }
            _ => Err(unknown()),
        }
    }

    fn register(&mut self, mut name: String, ty: Type) {
        if let Some(block) = &mut self.block {
            let own = format!("{name}_of_block_{}", self.blocks);
            block.push((name, own.clone()));
            name = own;
        }
        self.registers.insert(name, self.entry.registers.len());
        self.entry.registers.push(ty.bits());
    }

    fn target(&self, text: &str) -> Result<usize, String> {
        self.registers.get(text).copied().ok_or(format!("`{text}` is no register"))
    }

    fn source(&self, text: &str) -> Result<SourceOperand, String> {
        if let Some(register) = self.registers.get(text) {
            return Ok(SourceOperand::Register(*register));
        }
        if let Some(address) = self.variables.get(text) {
            return Ok(SourceOperand::Constant(*address));
        }
        if let Some((name, axis)) = text.rsplit_once('.') {
            let axis = ["x", "y", "z"].iter().position(|other| *other == axis);
            let special = match name {
                "%tid" => Some(Special::Tid),
                "%ctaid" => Some(Special::CtaId),
                "%ntid" => Some(Special::NTid),
                "%nctaid" => Some(Special::NCtaId),
                _ => None,
            };
            if let (Some(special), Some(axis)) = (special, axis) {
                return Ok(SourceOperand::Special(special, axis));
            }
        }
        let float =
            |prefix, radix| text.strip_prefix(prefix).and_then(|hex| u64::from_str_radix(hex, radix).ok());
        let constant = float("0f", 16).or_else(|| float("0d", 16)).or_else(|| number(text));
        constant.map(SourceOperand::Constant).ok_or(format!("`{text}` is no operand that is known"))
    }

    fn address(&self, text: &str) -> Result<Address, String> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let inner = inner.ok_or(format!("`{text}` is no address"))?;
        let (base, offset) = match inner.find(['+', '-']).filter(|&at| at > 0) {
            Some(at) => (&inner[..at], number(inner[at..].trim_start_matches('+')).ok_or("a bad offset")?),
            None => (inner, 0),
        };
        Ok(Address { base: self.source(base)?, offset })
    }

    /// Parses a register, or several in braces.
    fn targets(&self, text: &str) -> Result<Vec<usize>, String> {
        group(text).iter().map(|name| self.target(name)).collect()
    }

    fn sources(&self, text: &str) -> Result<Vec<SourceOperand>, String> {
        group(text).iter().map(|name| self.source(name)).collect()
    }

    fn instruction(&self, line: usize, text: &str) -> Result<Instruction, String> {
        let (guard, text) = match text.strip_prefix('@') {
            None => (None, text),
            Some(rest) => {
                let (name, rest) = rest.split_once(char::is_whitespace).ok_or("a guard of nothing")?;
                let (name, wanted) = name.strip_prefix('!').map_or((name, true), |name| (name, false));
                (Some((self.target(name)?, wanted)), rest.trim())
            }
        };
        let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = split(operands);
        let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
        let parts: Vec<&str> = opcode.split('.').collect();
        let op = self.op(&parts, &operands)?;
        Ok(Instruction { guard, op, line })
    }

    fn op(&self, parts: &[&str], operands: &[&str]) -> Result<Op, String> {
        let unknown =
            || format!("the instruction `{}` with {} operands is not known", parts.join("."), operands.len());
        let last = parts.last().and_then(|part| Type::parse(part));
        if let (Some(ty), Some((what, count))) = (last, arithmetic(&parts[..parts.len() - 1], last)) {
            let [to, from @ ..] = operands else { return Err(unknown()) };
            if from.len() != count {
                return Err(unknown());
            }
            let mut all = [SourceOperand::Constant(0); 4];
            for (slot, text) in all.iter_mut().zip(from) {
                *slot = self.source(text)?;
            }
            return Ok(Op::Compute { what, ty, to: self.target(to)?, from: all });
        }
        Ok(match (parts, operands) {
            (["mov", _], [to, from]) if to.starts_with('{') => {
                let names = group(to);
                let target = |name: &String| if name == "_" { Ok(None) } else { self.target(name).map(Some) };
                let each = last.ok_or_else(unknown)?.bits() / names.len().max(1) as u32;
                Op::Unpack {
                    to: names.iter().map(target).collect::<Result<_, _>>()?,
                    from: self.source(from)?,
                    each,
                }
            }
            (["mov", _], [to, from]) if from.starts_with('{') => {
                let from = self.sources(from)?;
                let each = last.ok_or_else(unknown)?.bits() / from.len().max(1) as u32;
                Op::Pack { to: self.target(to)?, from, each }
            }
            (["mov", _], [to, from]) if last.is_some() => {
                Op::Move { to: self.target(to)?, from: self.source(from)? }
            }
            (
                ["cvta", "to", "global" | "shared" | "local", "u64"]
                | ["cvta", "global" | "shared" | "local", "u64"],
                [to, from],
            ) => Op::Move { to: self.target(to)?, from: self.source(from)? },
            (["setp", test, also @ .., _], [to, a, b, more @ ..]) => {
                let also = match (also, more) {
                    ([], []) => None,
                    (["and"], [c]) => Some((Arithmetic::And, self.source(c)?)),
                    (["or"], [c]) => Some((Arithmetic::Or, self.source(c)?)),
                    (["xor"], [c]) => Some((Arithmetic::Xor, self.source(c)?)),
                    _ => return Err(unknown()),
                };
                let ty = last.ok_or_else(unknown)?;
                let what = comparison(test, ty).ok_or_else(unknown)?;
                Op::Compare { what, also, ty, to: self.target(to)?, from: [self.source(a)?, self.source(b)?] }
            }
            (["selp", _], [to, a, b, by]) if last.is_some() => Op::Select {
                to: self.target(to)?,
                from: [self.source(a)?, self.source(b)?],
                by: self.source(by)?,
            },
            (["cvt", modifiers @ .., to_ty, from_ty], [to, from]) => {
                let (Some(to_ty), Some(from_ty)) = (Type::parse(to_ty), Type::parse(from_ty)) else {
                    return Err(unknown());
                };
                let rounding = rounding(modifiers, to_ty, from_ty).ok_or_else(unknown)?;
                Op::Convert { to: self.target(to)?, to_ty, from: self.source(from)?, from_ty, rounding }
            }
            (["ld", "param", _], [to, at]) => {
                let inner = at.trim_matches(['[', ']']);
                let (name, offset) = inner.split_once('+').unwrap_or((inner, "0"));
                let start = self.parameters.get(name).ok_or(format!("`{name}` is no parameter"))?;
                let offset: usize = offset.parse().map_err(|_| unknown())?;
                Op::LoadParameter { to: self.target(to)?, ty: last.ok_or_else(unknown)?, at: start + offset }
            }
            (["ld", modifiers @ .., _], [to, at]) => {
                let count = access(modifiers).ok_or_else(unknown)?;
                let to = self.targets(to)?;
                if to.len() != count {
                    return Err(unknown());
                }
                Op::Load { to, ty: last.ok_or_else(unknown)?, at: self.address(at)? }
            }
            (["st", modifiers @ .., _], [at, from]) => {
                let count = access(modifiers).ok_or_else(unknown)?;
                let from = self.sources(from)?;
                if from.len() != count {
                    return Err(unknown());
                }
                Op::Store { from, ty: last.ok_or_else(unknown)?, at: self.address(at)? }
            }
            (["atom", space @ .., name, _], [to, at, from @ ..]) => {
                self.atomic(Some(to), (space, name, last), (at, from)).ok_or_else(unknown)??
            }
            (["red", space @ .., name, _], [at, from @ ..]) => {
                self.atomic(None, (space, name, last), (at, from)).ok_or_else(unknown)??
            }
            (["bra"] | ["bra", "uni"], [label]) => {
                Op::Branch { to: *self.labels.get(*label).ok_or(format!("`{label}` is no label"))? }
            }
            (["bar", "sync"], ["0"]) | (["barrier", "sync"], ["0"]) => Op::Barrier,
            (["bar", "warp", "sync"], [_]) | (["membar", _], []) | (["fence", ..], []) => Op::Nothing,
            (["shfl", "sync", "idx", "b32"], [to, from, lane, clamp, mask]) => {
                let (to, found) = to.split_once('|').map_or((*to, None), |(to, found)| (to, Some(found)));
                Op::Shuffle {
                    to: self.target(to.trim())?,
                    found: found.map(|name| self.target(name.trim())).transpose()?,
                    from: self.source(from)?,
                    lane: self.source(lane)?,
                    clamp: self.source(clamp)?,
                    mask: self.source(mask)?,
                }
            }
            (["vote", "sync", "ballot", "b32"], [to, from, mask]) => {
                let (from, negated) = from.strip_prefix('!').map_or((*from, false), |from| (from, true));
                Op::Ballot {
                    to: self.target(to)?,
                    from: self.source(from)?,
                    negated,
                    mask: self.source(mask)?,
                }
            }
            (["ret"] | ["exit"], []) => Op::Return,
            _ => return Err(unknown()),
        })
    }

    fn atomic(
        &self,
        to: Option<&str>,
        (space, name, ty): (&[&str], &str, Option<Type>),
        (at, from): (&str, &[&str]),
    ) -> Option<Result<Op, String>> {
        if !matches!(space, [] | ["global" | "shared"]) {
            return None;
        }
        let what = match name {
            "add" => Update::Add,
            "min" => Update::Min,
            "max" => Update::Max,
            "and" => Update::And,
            "or" => Update::Or,
            "xor" => Update::Xor,
            "exch" => Update::Exchange,
            "cas" => Update::Compare,
            _ => return None,
        };
        let ty = ty.filter(|ty| !ty.is_float() && ty.bits() >= 32)?;
        let from = match from {
            [x] if what != Update::Compare => [*x, "0"],
            [expected, x] if what == Update::Compare => [*expected, *x],
            _ => return None,
        };
        let op = || {
            let to = to.filter(|to| *to != "_").map(|to| self.target(to)).transpose()?;
            let from = [self.source(from[0])?, self.source(from[1])?];
            Ok(Op::Atomic { what, ty, to, at: self.address(at)?, from })
        };
        Some(op())
    }
}

/// Splits operands at commas, keeping brackets and braces together.
fn split(text: &str) -> Vec<String> {
    let (mut all, mut depth, mut one) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                all.push(std::mem::take(&mut one).trim().to_string());
                continue;
            }
            _ => {}
        }
        one.push(c);
    }
    if !one.trim().is_empty() {
        all.push(one.trim().to_string());
    }
    all
}

/// Names in braces, or a single name.
fn group(text: &str) -> Vec<String> {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    inner.split(',').map(|name| name.trim().to_string()).collect()
}

/// Arithmetic operation for these parts and type, and its number of operands.
fn arithmetic(parts: &[&str], ty: Option<Type>) -> Option<(Arithmetic, usize)> {
    use Arithmetic::*;
    let ty = ty?;
    if ty.is_float() {
        return Some(match parts {
            ["add", "rn"] => (Add, 2),
            ["sub", "rn"] => (Sub, 2),
            ["mul", "rn"] => (Mul, 2),
            ["div", "rn"] => (Div, 2),
            ["fma", "rn"] => (Fma, 3),
            ["sqrt", "rn"] => (Sqrt, 1),
            ["rcp", "rn"] => (Reciprocal, 1),
            ["min"] => (Min, 2),
            ["max"] => (Max, 2),
            ["neg"] => (Neg, 1),
            ["abs"] => (Abs, 1),
            ["copysign"] => (Copysign, 2),
            _ => return None,
        });
    }
    let integer = matches!(ty, Type::Unsigned(_) | Type::Signed(_));
    Some(match parts {
        ["add"] if integer => (Add, 2),
        ["sub"] if integer => (Sub, 2),
        ["mul", "lo"] if integer => (Mul, 2),
        ["mul", "hi"] if integer => (MulHigh, 2),
        ["mul", "wide"] if integer => (MulWide, 2),
        ["mad", "lo"] if integer => (Mad, 3),
        ["mad", "wide"] if integer => (MadWide, 3),
        ["div"] if integer => (Div, 2),
        ["rem"] if integer => (Rem, 2),
        ["min"] if integer => (Min, 2),
        ["max"] if integer => (Max, 2),
        ["neg"] if integer => (Neg, 1),
        ["abs"] if integer => (Abs, 1),
        ["shr"] => (Shr, 2),
        ["bfe"] if integer => (Bfe, 3),
        ["and"] if !integer => (And, 2),
        ["or"] if !integer => (Or, 2),
        ["xor"] if !integer => (Xor, 2),
        ["not"] if !integer => (Not, 1),
        ["shl"] if !integer => (Shl, 2),
        ["popc"] if !integer => (Popc, 1),
        ["clz"] if !integer => (Clz, 1),
        ["brev"] if !integer => (Brev, 1),
        ["bfi"] if !integer => (Bfi, 4),
        ["prmt"] if ty == Type::Bits(32) => (Prmt, 3),
        ["shf", "l", "wrap"] if ty == Type::Bits(32) => (ShfLeft, 3),
        ["shf", "r", "wrap"] if ty == Type::Bits(32) => (ShfRight, 3),
        _ => return None,
    })
}

fn comparison(text: &str, ty: Type) -> Option<Comparison> {
    let (name, unordered) = match text.strip_suffix('u').filter(|name| ty.is_float() && name.len() == 2) {
        Some(name) => (name, true),
        None => (text, false),
    };
    let test = match name {
        "eq" => Test::Eq,
        "ne" => Test::Ne,
        "lt" => Test::Lt,
        "le" => Test::Le,
        "gt" => Test::Gt,
        "ge" => Test::Ge,
        "num" if ty.is_float() => Test::IsNumber,
        "nan" if ty.is_float() => Test::IsNan,
        _ => return None,
    };
    Some(Comparison { test, unordered })
}

fn rounding(modifiers: &[&str], to: Type, from: Type) -> Option<Rounding> {
    let kinds = (from.is_float(), to.is_float());
    Some(match (modifiers, kinds) {
        ([], (false, false)) => Rounding::None,
        ([], (true, true)) if to.bits() >= from.bits() => Rounding::None,
        (["rn"], (false, true)) => Rounding::Nearest,
        (["rn"], (true, true)) if to.bits() < from.bits() => Rounding::Nearest,
        (["rni"], (true, _)) => Rounding::NearestInteger,
        (["rzi"], (true, _)) => Rounding::ZeroInteger,
        (["rmi"], (true, _)) => Rounding::DownInteger,
        (["rpi"], (true, _)) => Rounding::UpInteger,
        _ => return None,
    })
}

/// Number of elements of an access with these modifiers; `None` if they are not supported. A
/// volatile access is like any other, since memory is not cached here.
fn access(modifiers: &[&str]) -> Option<usize> {
    let mut rest = modifiers;
    if let ["volatile", more @ ..] = rest {
        rest = more;
    }
    if let ["global" | "shared" | "local", more @ ..] = rest {
        rest = more;
    }
    if let ["nc", more @ ..] = rest {
        rest = more;
    }
    match rest {
        [] => Some(1),
        ["v2"] => Some(2),
        ["v4"] => Some(4),
        _ => None,
    }
}
