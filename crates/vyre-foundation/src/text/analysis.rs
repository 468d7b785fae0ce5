//! Analysis of a text for editors: diagnostics with fixes, names and their uses, types, uniformity
//! and value ranges, and token kinds.
//!
//! Everything comes from the parser, from validation and from the optimizer's range analysis; a
//! text with errors is analysed as far as it can be parsed. Positions are byte offsets.

use super::items;
use super::lexer::{self, Lexeme};
use super::notes::{Note, Notes};
use super::vocabulary::{self, KEYWORDS};
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{Access, Name, Program, Span};
use crate::kernel::KernelBody;
use crate::ops::{AtomicOp, Op, Spelling, SubgroupOp, WorkgroupOp};
use crate::optimize::range::{self, ObservedRanges, Ranged};
use crate::types::{DataType, ValueType};
use crate::validate::{self, LoweringRecord, Noted};
use hashbrown::HashMap;
use std::cell::OnceCell;
use std::sync::Arc;

pub use super::notes::SymbolKind;

/// Contextual keywords: special only in certain positions.
const PLACED_WORDS: [&str; 11] = [
    "const",
    "over",
    "workgroup",
    "len_of",
    "uniform",
    "read",
    "read_write",
    "output",
    "binding",
    "in",
    "step",
];

/// The analysis of a text.
///
/// ```
/// use vyre_foundation::text::analysis::Analysis;
/// let text = "kernel double(x: read_write f32[]) over x {
///   let i = invocation.x
///   x[i] = 2.0 * x[i]
/// }";
/// let analysis = Analysis::of(text);
/// assert!(analysis.diagnostics().is_empty());
/// let use_of_i = text.rfind("i]").unwrap() as u32;
/// let symbol = analysis.symbol_at(use_of_i).unwrap();
/// assert_eq!(analysis.symbols()[symbol].span.start as usize, text.find("i =").unwrap());
/// let value = analysis.value_at(use_of_i).unwrap();
/// assert_eq!((value.ty.name(), value.uniform), ("u32", Some(false)));
/// ```
pub struct Analysis {
    source: Arc<str>,
    program: Program,
    diagnostics: Vec<Diagnostic>,
    symbols: Vec<Symbol>,
    /// Spans of names and the symbols they refer to, in source order, declarations included.
    references: Vec<(Span, usize)>,
    record: LoweringRecord,
    kernel: Option<KernelBody>,
    /// Computed on first use.
    observed: OnceCell<ObservedRanges>,
}

/// A declared name.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// The name.
    pub name: Name,
    /// The kind of declaration.
    pub kind: SymbolKind,
    /// Span of the name in its declaration.
    pub span: Span,
    /// Span of the whole declaration.
    pub whole: Span,
    /// Where the name can be used.
    pub scope: Span,
    /// The type of its value, if it has one.
    pub ty: Option<ValueType>,
}

/// Facts about a value at a position.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueFacts {
    /// Span of the expression.
    pub span: Span,
    /// Its type.
    pub ty: ValueType,
    /// Whether all invocations of a workgroup compute the same value; `None` when unknown.
    pub uniform: Option<bool>,
    /// Smallest and largest possible value, for integers whose range is narrower than their type.
    pub range: Option<(i128, i128)>,
    /// Buffers whose length the value is proved to be below.
    pub below: Vec<Name>,
    /// For an element access: whether its index is proved in range.
    pub in_bounds: Option<bool>,
}

/// Classification of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A keyword.
    Keyword,
    /// A type.
    Type,
    /// A number, or a word that denotes one.
    Number,
    /// A string.
    String,
    /// An operator.
    Operator,
    /// An op of the table, or another predeclared function.
    Op,
    /// `invocation` and the other builtins.
    Builtin,
    /// A declared name.
    Symbol(SymbolKind),
}

/// A suggested completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The word.
    pub label: String,
    /// What it is.
    pub kind: TokenKind,
    /// Operands and spelling, or the declaration.
    pub detail: String,
    /// What it does.
    pub documentation: String,
}

impl Analysis {
    /// Analyses a text.
    pub fn of(source: &str) -> Analysis {
        let source: Arc<str> = source.into();
        let (program, faults, notes) = match items::partial(&source) {
            Ok(read) => read,
            // The text exceeds the size limit.
            Err(refused) => (Program::empty(), refused.iter().cloned().collect(), Notes::default()),
        };
        let program = program.in_regions();
        let (mut symbols, references) = resolve(&notes, source.len() as u32);
        let is_read = faults.is_empty();
        let studied = validate::study(&program, notes.unread);
        let mut diagnostics = faults;
        diagnostics.extend(studied.found.into_iter().filter(|fault| is_read || !is_consequence(fault.code)));
        diagnostics.sort_by_key(|fault| fault.span.map_or(0, |span| span.start));
        for symbol in &mut symbols {
            let declared = matches!(symbol.kind, SymbolKind::Variable | SymbolKind::Counter)
                .then(|| studied.record.declarations.get(&symbol.whole.start))
                .flatten();
            symbol.ty = symbol.ty.or(declared.map(|noted| noted.ty));
        }
        Analysis {
            source,
            program,
            diagnostics,
            symbols,
            references,
            record: studied.record,
            kernel: studied.kernel.filter(|_| is_read),
            observed: OnceCell::new(),
        }
    }

    /// The text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The program, as far as it could be parsed.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// All errors and warnings, in source order.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// All declared symbols, in source order.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// The index of the symbol that the name at a position refers to.
    pub fn symbol_at(&self, position: u32) -> Option<usize> {
        let behind = self.references.partition_point(|(span, _)| span.start <= position);
        let (span, symbol) = *self.references.get(behind.checked_sub(1)?)?;
        (position <= span.end).then_some(symbol)
    }

    /// The span of the name at a position.
    pub fn name_at(&self, position: u32) -> Option<Span> {
        let behind = self.references.partition_point(|(span, _)| span.start <= position);
        let (span, _) = *self.references.get(behind.checked_sub(1)?)?;
        (position <= span.end).then_some(span)
    }

    /// Every occurrence of a symbol's name, its declaration included, in source order.
    pub fn references_of(&self, symbol: usize) -> impl Iterator<Item = Span> {
        self.references.iter().filter(move |(_, named)| *named == symbol).map(|(span, _)| *span)
    }

    /// The symbols in scope at a position.
    pub fn visible_at(&self, position: u32) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(move |symbol| {
            let Span { start, end } = symbol.scope;
            start <= position && position <= end
        })
    }

    /// Facts about the innermost expression that contains a position.
    pub fn value_at(&self, position: u32) -> Option<ValueFacts> {
        let around = |span: &Span| span.start <= position && position <= span.end;
        let inner = self.record.expressions.iter().rev().filter(|(span, _)| around(span));
        let (span, noted) = inner.min_by_key(|(span, _)| span.end - span.start)?;
        Some(self.facts(*span, *noted, None))
    }

    /// Facts about a variable or counter at its declaration.
    pub fn declared_value(&self, symbol: &Symbol) -> Option<ValueFacts> {
        if !matches!(symbol.kind, SymbolKind::Variable | SymbolKind::Counter) {
            return None;
        }
        let noted = *self.record.declarations.get(&symbol.whole.start)?;
        Some(self.facts(symbol.span, noted, Some(symbol.scope)))
    }

    /// Facts about a value at a span; with a `scope`, about a declared value at its first use.
    fn facts(&self, span: Span, noted: Noted, scope: Option<Span>) -> ValueFacts {
        let mut facts =
            ValueFacts { span, ty: noted.ty, uniform: None, range: None, below: Vec::new(), in_bounds: None };
        let (Some(kernel), Some(value)) = (&self.kernel, noted.value) else { return facts };
        facts.uniform = kernel.values.get(value.index()).map(|info| info.uniform);
        let observed = self.observed.get_or_init(|| range::observe(kernel));
        facts.in_bounds = observed.accesses.get(&span).copied();
        let known = observed.values.iter().filter(|((_, of), _)| *of == value);
        let ranged = match scope {
            Some(_) => known.min_by_key(|((at, _), _)| (at.start, at.end)),
            None => known
                .filter(|((at, _), _)| at.start <= span.start && span.end <= at.end)
                .min_by_key(|((at, _), _)| at.end - at.start),
        };
        if let Some((_, Ranged { low, high, below })) = ranged {
            let whole = type_range(noted.ty);
            facts.range = Some((*low, *high)).filter(|range| Some(*range) != whole);
            facts.below = below.iter().map(|&buffer| kernel.buffer(buffer).decl.name.clone()).collect();
        }
        facts
    }

    /// The kind of every word, literal and operator, in source order.
    pub fn tokens(&self) -> Vec<(Span, TokenKind)> {
        let (tokens, _) = lexer::lex(&self.source);
        let named: HashMap<u32, SymbolKind> =
            self.references.iter().map(|(span, symbol)| (span.start, self.symbols[*symbol].kind)).collect();
        let text = |span: Span| &self.source[span.start as usize..span.end as usize];
        let kind = |k: usize| {
            let token = tokens[k];
            if let Some(kind) = named.get(&token.span.start) {
                return Some(TokenKind::Symbol(*kind));
            }
            match token.kind {
                Lexeme::Word => {
                    word_kind(text(token.span), tokens.get(k + 1).map_or("", |next| text(next.span)))
                }
                Lexeme::Number => Some(TokenKind::Number),
                Lexeme::String => Some(TokenKind::String),
                Lexeme::Symbol => is_operator(text(token.span)).then_some(TokenKind::Operator),
                Lexeme::Quoted | Lexeme::Bad | Lexeme::End => None,
            }
        };
        (0..tokens.len()).filter_map(|k| kind(k).map(|kind| (tokens[k].span, kind))).collect()
    }

    /// Completions for a position, best first.
    pub fn completions(&self, position: u32) -> Vec<Suggestion> {
        let before = &self.source[..self.source.floor_char_boundary(position as usize)];
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = before.trim_end_matches(is_part);
        if let Some(whose) = before.strip_suffix('.') {
            let whose = &whose[whose.trim_end_matches(is_part).len()..];
            return vocabulary::builtin(whose).map(|_| axes()).unwrap_or_default();
        }
        let line = before.rsplit('\n').next().unwrap_or_default();
        if line.contains("//") || line.matches('"').count() % 2 == 1 {
            return Vec::new();
        }
        let here = before.len() as u32;
        let in_body = self.symbols.iter().any(|symbol| {
            matches!(symbol.kind, SymbolKind::Kernel | SymbolKind::Function)
                && self.body_of(symbol).is_some_and(|body| body.start < here && here <= body.end)
        });
        if in_body { self.in_body(position, before) } else { in_header(before) }
    }

    /// The body of a kernel or function, starting at its brace.
    fn body_of(&self, symbol: &Symbol) -> Option<Span> {
        let next = |other: &&Symbol| {
            matches!(other.kind, SymbolKind::Kernel | SymbolKind::Function | SymbolKind::Constant)
                && other.whole.start > symbol.whole.start
        };
        let end = self.symbols.iter().filter(next).map(|other| other.whole.start).min();
        let end = end.unwrap_or(self.source.len() as u32);
        let item = self.source.get(symbol.span.end as usize..end as usize)?;
        let open = symbol.span.end + item.find('{')? as u32;
        let close = symbol.span.end + item.rfind('}').unwrap_or(item.len()) as u32;
        Some(Span { start: open, end: close.max(open) })
    }

    fn in_body(&self, position: u32, before: &str) -> Vec<Suggestion> {
        let mut found: Vec<Suggestion> = self
            .visible_at(position)
            .filter(|symbol| symbol.kind != SymbolKind::Kernel)
            .map(|symbol| Suggestion {
                label: symbol.name.to_string(),
                kind: TokenKind::Symbol(symbol.kind),
                detail: self.declaration(symbol),
                documentation: String::new(),
            })
            .collect();
        found.reverse();
        let starts = before.trim_end_matches([' ', '\t']);
        if starts.ends_with(['\n', '{', '}', ';']) || starts.is_empty() {
            found.extend(
                vocabulary::STATEMENT_WORDS.into_iter().chain(["else", "print", "assert"]).map(keyword),
            );
        } else {
            found.extend(["true", "false"].map(keyword));
        }
        found.extend(ops());
        found.extend(crate::ir::Builtin::ALL.iter().map(|builtin| Suggestion {
            label: builtin.name().into(),
            kind: TokenKind::Builtin,
            detail: format!("{}.x: u32", builtin.name()),
            documentation: String::new(),
        }));
        found
    }

    /// The declaration of a symbol on one line, with the type where the source omits it.
    pub fn declaration(&self, symbol: &Symbol) -> String {
        let text =
            self.source.get(symbol.whole.start as usize..symbol.whole.end as usize).unwrap_or_default();
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let ty = symbol.ty.map(|ty| format!(": {ty}")).unwrap_or_default();
        match symbol.kind {
            SymbolKind::Variable => format!("let {}{ty}", symbol.name),
            SymbolKind::Counter => format!("for {}{ty}", symbol.name),
            SymbolKind::Parameter => format!("{}{ty}", symbol.name),
            SymbolKind::Kernel => format!("kernel {}", symbol.name),
            SymbolKind::Function | SymbolKind::Constant | SymbolKind::Buffer | SymbolKind::Array => line,
        }
    }
}

/// Describes a function that needs no declaration in the text: an op, or `len`.
pub fn describe_word(word: &str) -> Option<Suggestion> {
    ops().into_iter().find(|suggestion| suggestion.label == word)
}

/// Whether a name can be written without quotes: letters, digits and underscores only, not a
/// keyword.
pub fn is_plain_name(name: &str) -> bool {
    vocabulary::is_plain_name(name)
}

/// Whether the error can be a consequence of parts that could not be parsed.
fn is_consequence(code: Code) -> bool {
    matches!(
        code,
        Code::LengthSource | Code::SizeFormula | Code::NotRegions | Code::OneInvocation | Code::UnusedBuffer
    )
}

fn type_range(ty: ValueType) -> Option<(i128, i128)> {
    match ty {
        ValueType::U32 => Some((0, u32::MAX.into())),
        ValueType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
        ValueType::U64 => Some((0, u64::MAX.into())),
        ValueType::I64 => Some((i64::MIN.into(), i64::MAX.into())),
        ValueType::Bool | ValueType::F32 | ValueType::F64 => None,
    }
}

/// Builds the symbols and the references to them from the parser's notes.
fn resolve(notes: &Notes, end: u32) -> (Vec<Symbol>, Vec<(Span, usize)>) {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut references = Vec::new();
    // Per open scope, the symbols declared in it.
    let mut scopes: Vec<Vec<usize>> = vec![Vec::new()];
    let mut global: HashMap<Name, usize> = HashMap::new();
    let mut local: HashMap<Name, Vec<usize>> = HashMap::new();
    let mut later: Vec<(Name, Span)> = Vec::new();
    for note in &notes.list {
        match note {
            Note::Opens => scopes.push(Vec::new()),
            Note::Closes(position) => {
                for symbol in scopes.pop().unwrap_or_default() {
                    symbols[symbol].scope.end = (*position).max(symbols[symbol].scope.start);
                    if let Some(same) = local.get_mut(&symbols[symbol].name) {
                        same.retain(|other| *other != symbol);
                    }
                }
            }
            Note::Declares(declared) => {
                let index = symbols.len();
                let is_global =
                    matches!(declared.kind, SymbolKind::Function | SymbolKind::Constant | SymbolKind::Kernel);
                let scope = match declared.kind {
                    SymbolKind::Function | SymbolKind::Kernel => Span { start: 0, end },
                    _ => Span { start: declared.whole.end, end },
                };
                symbols.push(Symbol {
                    name: declared.name.clone(),
                    kind: declared.kind,
                    span: declared.span,
                    whole: declared.whole,
                    scope,
                    ty: declared.ty,
                });
                references.push((declared.span, index));
                if is_global && declared.kind != SymbolKind::Kernel {
                    global.entry(declared.name.clone()).or_insert(index);
                } else if !is_global {
                    // Of two declarations of one name the first wins.
                    local.entry(declared.name.clone()).or_default().push(index);
                    if let Some(scope) = scopes.last_mut() {
                        scope.push(index);
                    }
                }
            }
            Note::Uses(name, span) => match local.get(name).and_then(|same| same.first()) {
                Some(&symbol) => references.push((*span, symbol)),
                // A function can be declared after its use.
                None => later.push((name.clone(), *span)),
            },
        }
    }
    for (name, span) in later {
        if let Some(&symbol) = global.get(&name) {
            references.push((span, symbol));
        }
    }
    references.sort_by_key(|(span, _)| (span.start, span.end));
    references.dedup();
    (symbols, references)
}

fn word_kind(word: &str, next: &str) -> Option<TokenKind> {
    if matches!(word, "inf" | "nan" | "inf_f64" | "nan_f64") {
        return Some(TokenKind::Number);
    }
    if next == "(" && vocabulary::callee(word).is_some() {
        return Some(TokenKind::Op);
    }
    if next == "." && vocabulary::builtin(word).is_some() {
        return Some(TokenKind::Builtin);
    }
    if DataType::from_name(word).is_some() || ValueType::ALL.iter().any(|ty| ty.name() == word) {
        return Some(TokenKind::Type);
    }
    let is_message = vocabulary::MESSAGE_WORDS.contains(&word) && next == "(";
    let is_keyword = KEYWORDS.contains(&word) || PLACED_WORDS.contains(&word) || is_message;
    is_keyword.then_some(TokenKind::Keyword)
}

fn is_operator(symbol: &str) -> bool {
    !matches!(symbol, "(" | ")" | "[" | "]" | "{" | "}" | "," | ":" | ";" | "." | "@")
}

fn keyword(word: &str) -> Suggestion {
    Suggestion {
        label: word.into(),
        kind: TokenKind::Keyword,
        detail: String::new(),
        documentation: String::new(),
    }
}

fn axes() -> Vec<Suggestion> {
    let axis = |axis: &&str| Suggestion {
        label: (*axis).into(),
        kind: TokenKind::Builtin,
        detail: "u32".into(),
        documentation: String::new(),
    };
    vocabulary::AXES.iter().map(axis).collect()
}

/// Completions outside of bodies.
fn in_header(before: &str) -> Vec<Suggestion> {
    let tail = before.trim_end();
    let ty = |name: &'static str| Suggestion { kind: TokenKind::Type, ..keyword(name) };
    if tail.ends_with(':') {
        let accesses = Access::ALL.iter().map(|access| keyword(access.name()));
        return accesses.chain(DataType::ALL.iter().map(|element| ty(element.name()))).collect();
    }
    if Access::ALL.iter().any(|access| tail.ends_with(access.name())) || tail.ends_with("->") {
        return DataType::ALL.iter().map(|element| ty(element.name())).collect();
    }
    if tail.ends_with(')') {
        return ["over", "workgroup"].map(keyword).into();
    }
    if tail.is_empty() || before.ends_with('\n') || tail.ends_with('}') {
        return ["kernel", "fn", "const"].map(keyword).into();
    }
    ["over", "workgroup", "len_of", "uniform"].map(keyword).into()
}

/// Everything that can be called without a declaration, from the op tables.
fn ops() -> Vec<Suggestion> {
    let row = |op: &Op| {
        let row = op.row();
        let spelling = match row.spelling {
            Spelling::Infix(symbol, _) => format!("; written `a {symbol} b`"),
            Spelling::Prefix(symbol) => format!("; written `{symbol}a`"),
            Spelling::Call => String::new(),
        };
        Suggestion {
            label: row.name.into(),
            kind: TokenKind::Op,
            detail: format!("takes {}{spelling}", row.signature.describe()),
            documentation: row.doc.into(),
        }
    };
    let named = |label: String, detail: &str, doc: &str| Suggestion {
        label,
        kind: TokenKind::Op,
        detail: detail.into(),
        documentation: doc.into(),
    };
    let atomic = |op: &AtomicOp| {
        named(vocabulary::atomic_name(*op), "takes a buffer, an index and operands", op.row().doc)
    };
    let workgroup =
        |op: &WorkgroupOp| named(vocabulary::workgroup_name(*op), "within the workgroup", op.row().doc);
    let mut found: Vec<Suggestion> = Op::ALL.iter().map(row).collect();
    found.extend(AtomicOp::ALL.iter().map(atomic));
    found.extend(
        SubgroupOp::all().map(|op| named(vocabulary::subgroup_name(op), "within the subgroup", op.row().doc)),
    );
    found.extend(WorkgroupOp::ALL.iter().map(workgroup));
    found.push(named("len".into(), "len(buffer): u32", "The number of elements of a buffer or array."));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "const N: u32 = 8
fn twice(v: f32) -> f32 {
  if v < 0.0 { return 0.0 }
  let w = v + v
  w
}
kernel k(a: f32 uniform, x: read f32[], y: output f32[N]) over y workgroup 4 {
  let i = invocation.x
  for j in 0..N {
    if i < len(x) { y[i] = twice(a * x[i]) + f32(j) }
  }
}
";

    fn at(text: &str, nth: usize) -> u32 {
        TEXT.match_indices(text).nth(nth).unwrap().0 as u32
    }

    #[test]
    fn names_stand_for_their_declarations() {
        let analysis = Analysis::of(TEXT);
        assert_eq!(analysis.diagnostics(), []);
        let check = |name: &str, nth: usize, declared: &str, kind: SymbolKind| {
            let symbol = analysis.symbol_at(at(name, nth)).map(|index| &analysis.symbols()[index]);
            let symbol = symbol.unwrap_or_else(|| panic!("{name} {nth}"));
            assert_eq!((symbol.span.start, symbol.kind), (at(declared, 0), kind), "{name} {nth}");
        };
        check("N]", 0, "N: u32", SymbolKind::Constant);
        check("N {", 0, "N: u32", SymbolKind::Constant);
        check("v <", 0, "v: f32", SymbolKind::Parameter);
        check("w\n", 0, "w =", SymbolKind::Variable);
        check("twice(a", 0, "twice", SymbolKind::Function);
        check("a *", 0, "a: f32", SymbolKind::Buffer);
        check("x)", 0, "x: read", SymbolKind::Buffer);
        check("y w", 0, "y: output", SymbolKind::Buffer);
        check("j)", 0, "j in", SymbolKind::Counter);
        let visible: Vec<&str> = analysis.visible_at(at("f32(j)", 0)).map(|symbol| &*symbol.name).collect();
        let mut visible = visible;
        visible.sort_unstable();
        assert_eq!(visible, ["N", "a", "i", "j", "k", "twice", "x", "y"]);
    }

    #[test]
    fn values_have_types_uniformity_and_ranges() {
        let analysis = Analysis::of(TEXT);
        let value = |text: &str, nth: usize| analysis.value_at(at(text, nth)).unwrap();
        assert_eq!((value("a *", 0).ty, value("a *", 0).uniform), (ValueType::F32, Some(true)));
        assert_eq!((value("i <", 0).ty, value("i <", 0).uniform), (ValueType::U32, Some(false)));
        // An invocation is below the length of its domain. What the guard adds shows at the access.
        let below = |text: &str| value(text, 0).below.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!((value("i <", 0).range, below("i <")), (Some((0, 0xffff_fffe)), vec!["y".into()]));
        assert_eq!(value("x[i]", 0).in_bounds, Some(true));
        assert_eq!(value("j)", 0).range, Some((0, 7)));
        let counter = analysis.symbols().iter().find(|symbol| &*symbol.name == "j").unwrap();
        assert_eq!(analysis.declared_value(counter).unwrap().range, Some((0, 7)));
        // The values of a function differ from call to call.
        assert_eq!((value("v + v", 0).ty, value("v + v", 0).uniform), (ValueType::F32, None));
    }

    #[test]
    fn what_can_be_read_is_known_despite_faults() {
        let broken = TEXT.replace("let i = invocation.x", "let i = (").replace("w\n}", "w");
        let analysis = Analysis::of(&broken);
        let codes: Vec<Code> = analysis.diagnostics().iter().map(|fault| fault.code).collect();
        assert_eq!(codes, [Code::Unclosed, Code::UnexpectedToken], "{:?}", analysis.diagnostics());
        let names: Vec<&str> = analysis.symbols().iter().map(|symbol| &*symbol.name).collect();
        assert!(names.contains(&"y") && names.contains(&"j") && names.contains(&"i"), "{names:?}");
    }

    /// Applies the fixes to every text with errors in the filetests: each removes its error, and
    /// none makes the analysis fail.
    #[test]
    fn mends_mend() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../filetests/validate");
        let mut mended = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let Ok(source) = std::fs::read_to_string(entry.unwrap().path()) else { continue };
            let before = Analysis::of(&source);
            for fault in before.diagnostics().iter().filter(|fault| !fault.edits.is_empty()) {
                let mut text = source.clone();
                let mut edits = fault.edits.clone();
                edits.sort_by_key(|(span, _)| span.start);
                for (span, by) in edits.iter().rev() {
                    text.replace_range(span.start as usize..span.end as usize, by);
                }
                let after = Analysis::of(&text);
                let same = |analysis: &Analysis| {
                    analysis.diagnostics().iter().filter(|other| other.message == fault.message).count()
                };
                assert!(same(&after) < same(&before), "{}\n{text}", fault.message);
                mended += 1;
            }
        }
        assert!(mended >= 10, "{mended}");
    }

    #[test]
    fn every_word_of_every_prefix_is_something_or_nothing() {
        for end in (0..=TEXT.len()).filter(|end| TEXT.is_char_boundary(*end)) {
            let analysis = Analysis::of(&TEXT[..end]);
            let tokens = analysis.tokens();
            assert!(tokens.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start));
            for position in [0, end as u32 / 2, end as u32] {
                analysis.completions(position);
                analysis.value_at(position);
                analysis.symbol_at(position);
            }
        }
    }
}
