//! The parser's cursor: peeking at tokens, consuming them, reporting errors and recovering.
//!
//! An error is recorded where it is found and propagates as [`Missing`] to the nearest recovery
//! point: the next statement, the block after a broken header, the next function or kernel. One run
//! therefore reports many errors, and everything parsed after the first serves only to find more.

use super::expressions::StackEntry;
use super::lexer::{self, Lexeme, MAX_FAULTS, Token};
use super::notes::{DeclaredName, Note, Notes, SymbolKind};
use super::{Constants, literal, vocabulary};
use crate::diagnostics::{Code, Diagnostic, Diagnostics, closest, line_column};
use crate::ir::{Name, Span};
use crate::types::{Value, ValueType};
use hashbrown::HashMap;
use std::sync::Arc;

pub(super) use super::literal::excerpt;

/// Longer texts are rejected without being lexed. The longest text in the repository has 28,624
/// bytes (`math/expansions_f64.vyre`); a kernel of 142,000 statements and 2.8 MB, close to the
/// limit on values, parses in 0.7 s within 200 MB.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 20;

/// An error was recorded, and the construct being parsed is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing;

pub(super) type Parsed<T> = Result<T, Missing>;

pub(super) struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    position: usize,
    names: HashMap<&'s str, Name>,
    diagnostics: Vec<Diagnostic>,
    /// The spans of statements and expressions, in post-order.
    pub(super) tree: Vec<Span>,
    /// The single-value uniforms, which a bare name loads; empty inside functions.
    pub(super) scalars: HashMap<Name, ValueType>,
    /// The constants parsed so far; a bare name is replaced by its value.
    pub(super) constants: HashMap<Name, Value>,
    /// Values that the caller sets for constants.
    pub(super) settings: Constants,
    /// Number of open parentheses and brackets; inside them line ends are insignificant.
    pub(super) brackets: usize,
    /// Early returns so far, when in a function.
    pub(super) returns: Option<usize>,
    /// Operators and lists that wait for the operand being parsed.
    pub(super) pending: Vec<StackEntry>,
    /// Current block nesting.
    pub(super) blocks: usize,
    /// Recorded names; only for editors.
    pub(super) notes: Option<Box<Notes>>,
    told_unclosed: bool,
}

impl<'s> Parser<'s> {
    pub(super) fn new(source: &'s str) -> Result<Parser<'s>, Diagnostics> {
        if source.len() > MAX_TEXT_BYTES {
            let message = format!("the text has {} bytes", source.len());
            return Err(Diagnostics::new(vec![Diagnostic::new(Code::TextTooLarge, message)], None));
        }
        let (tokens, diagnostics) = lexer::lex(source);
        Ok(Parser {
            source,
            tokens,
            position: 0,
            names: HashMap::new(),
            diagnostics,
            tree: Vec::new(),
            scalars: HashMap::new(),
            constants: HashMap::new(),
            settings: Constants::default(),
            brackets: 0,
            returns: None,
            pending: Vec::new(),
            blocks: 0,
            notes: None,
            told_unclosed: false,
        })
    }

    /// The parsed value if there were no errors, else the errors in source order.
    pub(super) fn finish<T>(mut self, read: T) -> Result<T, Diagnostics> {
        if self.diagnostics.is_empty() {
            return Ok(read);
        }
        self.diagnostics.sort_by_key(|item| item.span.map(|span| span.start));
        self.diagnostics.truncate(MAX_FAULTS);
        Err(Diagnostics::new(self.diagnostics, Some(Arc::from(self.source))))
    }

    /// The errors in source order, and the recorded names.
    pub(super) fn into_notes(mut self) -> (Vec<Diagnostic>, Notes) {
        self.diagnostics.sort_by_key(|item| item.span.map(|span| span.start));
        self.diagnostics.truncate(MAX_FAULTS);
        (self.diagnostics, self.notes.map(|notes| *notes).unwrap_or_default())
    }

    /// Whether a block was never closed.
    pub(super) fn is_unclosed(&self) -> bool {
        self.told_unclosed
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.diagnostics.is_empty()
    }

    pub(super) fn source(&self) -> &'s str {
        self.source
    }

    // Peeking.

    pub(super) fn peek(&self) -> Token {
        self.peek_ahead(0)
    }

    pub(super) fn peek_ahead(&self, distance: usize) -> Token {
        // The last token is `End`, which repeats at any distance.
        self.tokens[(self.position + distance).min(self.tokens.len() - 1)]
    }

    pub(super) fn text(&self, token: Token) -> &'s str {
        &self.source[token.span.start as usize..token.span.end as usize]
    }

    pub(super) fn at_symbol(&self, symbol: &str) -> bool {
        let token = self.peek();
        token.kind == Lexeme::Symbol && self.text(token) == symbol
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        let token = self.peek();
        token.kind == Lexeme::Word && self.text(token) == word
    }

    pub(super) fn at_end(&self) -> bool {
        self.peek().kind == Lexeme::End
    }

    /// Whether the token continues the current line or bracket, rather than starting a new line.
    pub(super) fn continues(&self, token: Token) -> bool {
        self.brackets > 0 || !token.starts_line
    }

    /// Whether a function or kernel starts here: its keyword at the start of a line.
    pub(super) fn at_item(&self) -> bool {
        self.peek().starts_line && (self.at_word("fn") || self.at_word("kernel"))
    }

    // Consuming.

    pub(super) fn bump(&mut self) -> Token {
        let token = self.peek();
        self.position += usize::from(token.kind != Lexeme::End);
        token
    }

    pub(super) fn eat_symbol(&mut self, symbol: &str) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    /// The span from `start` to the end of the last token consumed.
    pub(super) fn span_from(&self, start: u32) -> Span {
        Span { start, end: self.previous().span.end.max(start) }
    }

    /// The last token consumed; the first token if there is none.
    pub(super) fn previous(&self) -> Token {
        self.tokens[self.position.saturating_sub(1)]
    }

    /// A name, plain or in backticks; `what` describes it in error messages.
    pub(super) fn name(&mut self, what: &str) -> Parsed<Name> {
        let token = self.peek();
        match token.kind {
            Lexeme::Quoted => {
                self.bump();
                Ok(self.quoted_name(token))
            }
            Lexeme::Word if vocabulary::is_keyword(self.text(token)) => {
                let help = "this is a keyword; to use it as a name, write it in backticks";
                Err(self.unexpected_with(what, Some(help.into())))
            }
            Lexeme::Word => {
                self.bump();
                Ok(self.plain_name(token))
            }
            Lexeme::String | Lexeme::Number | Lexeme::Symbol | Lexeme::Bad | Lexeme::End => {
                Err(self.unexpected(what))
            }
        }
    }

    /// The name that a word spells; equal names share their storage.
    pub(super) fn plain_name(&mut self, token: Token) -> Name {
        let text = self.text(token);
        self.names.entry(text).or_insert_with(|| text.into()).clone()
    }

    /// The contents of a string or quoted name.
    pub(super) fn quoted_name(&mut self, token: Token) -> Name {
        let text = self.text(token);
        let inside = &text[1..text.len() - 1];
        // The lexer passes on only quoted text that decodes.
        let unquoted = || literal::unquote(inside).unwrap_or_default().into();
        self.names.entry(text).or_insert_with(unquoted).clone()
    }

    /// A plain integer that fits `u32`.
    pub(super) fn integer(&mut self, what: &str) -> Parsed<u32> {
        let token = self.peek();
        if token.kind != Lexeme::Number {
            return Err(self.unexpected(what));
        }
        self.bump();
        let value =
            literal::read_number(self.text(token), literal::Sign::Plus).ok().and_then(|value| value.as_u32());
        value.ok_or_else(|| {
            let text = self.text(token);
            let message = format!("`{}` is not {what}", excerpt(text));
            let axes: Vec<&str> = text.split('x').collect();
            let is_product = axes.len() > 1 && axes.iter().all(|axis| axis.parse::<u32>().is_ok());
            let help = match is_product && !text.starts_with("0x") {
                true => format!("write `[{}]`", axes.join(", ")),
                false => "write a whole number below 2^32".into(),
            };
            self.fault(Diagnostic::new(Code::BadLiteral, message).help(help), token.span)
        })
    }

    /// Comma-separated items up to the closing symbol; the opening one has been consumed.
    pub(super) fn list<T>(
        &mut self,
        close: &'static str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let open = self.previous().span;
        self.brackets += 1;
        let mut items = Vec::new();
        while !self.at_symbol(close) {
            items.push(item(self)?);
            if !self.eat_symbol(",") {
                break;
            }
        }
        self.close(close, open)?;
        Ok(items)
    }

    /// Consumes the symbol that closes what was opened at `open`.
    pub(super) fn close(&mut self, close: &'static str, open: Span) -> Parsed<()> {
        self.brackets = self.brackets.saturating_sub(1);
        if self.eat_symbol(close) {
            return Ok(());
        }
        let (line, column) = line_column(self.source, open.start);
        let opened = &self.source[open.start as usize..open.end as usize];
        let help = format!("close the `{opened}` of line {line}, column {column}");
        let behind = self.previous().span.end;
        let failed = self.unexpected_with(&format!("`{close}`"), Some(help));
        self.mend(Span { start: behind, end: behind }, close);
        Err(failed)
    }

    // Reporting.

    pub(super) fn fault(&mut self, diagnostic: Diagnostic, span: Span) -> Missing {
        self.diagnostics.push(diagnostic.at(Some(span)));
        Missing
    }

    /// Attaches a fix to the last error: replaces a span by a text.
    pub(super) fn mend(&mut self, span: Span, by: &str) {
        if let Some(last) = self.diagnostics.last_mut() {
            last.edits = vec![(span, by.to_string())];
        }
    }

    /// Whether the error limit is reached and parsing stops.
    pub(super) fn gave_up(&self) -> bool {
        self.diagnostics.len() >= MAX_FAULTS
    }

    pub(super) fn unexpected(&mut self, expected: &str) -> Missing {
        self.unexpected_with(expected, None)
    }

    /// Reports that the next token is not what the grammar expects. A token that the lexer already
    /// reported is not reported again.
    pub(super) fn unexpected_with(&mut self, expected: &str, help: Option<String>) -> Missing {
        let token = self.peek();
        let found = match token.kind {
            Lexeme::Bad => return Missing,
            Lexeme::End => "the end of the text".to_string(),
            Lexeme::String => "a string".to_string(),
            Lexeme::Quoted => excerpt(self.text(token)).into_owned(),
            Lexeme::Word | Lexeme::Number | Lexeme::Symbol => format!("`{}`", excerpt(self.text(token))),
        };
        let mut diagnostic =
            Diagnostic::new(Code::UnexpectedToken, format!("expected {expected}, found {found}"));
        diagnostic.help = help;
        self.fault(diagnostic, token.span)
    }

    /// Reports a word that is none of the expected ones.
    pub(super) fn unknown_word(&mut self, code: Code, expected: &str, known: &[&'static str]) -> Missing {
        let token = self.peek();
        if token.kind != Lexeme::Word {
            return self.unexpected(expected);
        }
        let word = self.text(token);
        let fault = Diagnostic::new(code, format!("expected {expected}, found `{word}`"));
        let fault = match closest(word, known.iter().copied()) {
            Some(meant) => fault.help(format!("did you mean `{meant}`?")).edit([(token.span, meant.into())]),
            None => fault.help(format!("write one of {}", known.join(", "))),
        };
        self.fault(fault, token.span)
    }

    /// Reports a block that is never closed. Reported once: the enclosing blocks are open for the
    /// same reason.
    pub(super) fn unclosed(&mut self, open: Span) -> Missing {
        if !std::mem::replace(&mut self.told_unclosed, true) {
            let help = "add the `}` that ends it";
            let behind = self.previous().span.end;
            let end = (Span { start: behind, end: behind }, "\n}".to_string());
            let fault = Diagnostic::new(Code::Unclosed, "this `{` is never closed");
            self.fault(fault.help(help).edit([end]), open);
        }
        Missing
    }

    pub(super) fn too_deep(&mut self, span: Span) -> Missing {
        let help = "name intermediate results with `let`, or use a loop";
        self.fault(Diagnostic::new(Code::TooDeep, "this nests too deep").help(help), span)
    }

    // Recovery.

    /// Skips to the end of a malformed statement: the end of its line, its `;`, or before the
    /// enclosing `}`.
    pub(super) fn skip_statement(&mut self, start: usize) {
        self.brackets = 0;
        let mut braces = 0usize;
        while !self.at_end() && !self.at_item() {
            // An `else` continues the `if` before it, on whatever line.
            let fresh_line = self.peek().starts_line && self.position > start && !self.at_word("else");
            if braces == 0 && (fresh_line || self.at_symbol("}")) {
                break;
            }
            let token = self.bump();
            match self.text(token) {
                "{" => braces += 1,
                "}" => braces -= 1,
                ";" if braces == 0 => break,
                _ => {}
            }
        }
    }

    /// Skips to the block after a malformed header, if it starts on the same line.
    pub(super) fn skip_to_block(&mut self) -> Parsed<()> {
        self.brackets = 0;
        while !self.at_symbol("{") {
            let token = self.peek();
            if token.starts_line || token.kind == Lexeme::End || self.at_symbol("}") || self.at_symbol(";") {
                return Err(Missing);
            }
            self.bump();
        }
        Ok(())
    }

    /// Skips a whole block with everything nested in it.
    pub(super) fn skip_block(&mut self) {
        let mut braces = 0usize;
        while !self.at_end() {
            let token = self.bump();
            match self.text(token) {
                "{" => braces += 1,
                "}" => braces = braces.saturating_sub(1),
                _ => {}
            }
            if braces == 0 {
                return;
            }
        }
    }

    /// Skips to the body after the malformed header of a function or kernel.
    pub(super) fn skip_to_body(&mut self) -> Parsed<()> {
        self.brackets = 0;
        while !self.at_symbol("{") {
            if self.at_end() || self.at_item() {
                return Err(Missing);
            }
            self.bump();
        }
        Ok(())
    }

    /// Within a list, skips to the comma after a malformed item, or to the end of the list.
    pub(super) fn skip_to_comma(&mut self, close: &'static str) -> Parsed<()> {
        while !self.at_symbol(",") && !self.at_symbol(close) {
            if self.at_end() || self.at_symbol("{") || self.at_symbol("}") {
                return Err(Missing);
            }
            self.bump();
        }
        Ok(())
    }

    /// Skips to the next function, kernel or constant after `start`.
    pub(super) fn skip_to_item(&mut self, start: usize) {
        self.brackets = 0;
        self.blocks = 0;
        let at_constant = |parser: &Self| parser.peek().starts_line && parser.at_word("const");
        while !self.at_end() && (self.position == start || !(self.at_item() || at_constant(self))) {
            self.bump();
        }
    }

    /// The current position, in tokens.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn token_at(&self, position: usize) -> Token {
        self.tokens[position]
    }
}

// Recording names for editors.
impl Parser<'_> {
    fn note(&mut self, note: Note) {
        if let Some(notes) = &mut self.notes {
            notes.list.push(note);
        }
    }

    pub(super) fn open_scope(&mut self) {
        self.note(Note::Opens);
    }

    pub(super) fn close_scope(&mut self) {
        let end = if self.at_end() { self.source().len() as u32 } else { self.previous().span.end };
        self.note(Note::Closes(end));
    }

    /// A declaration whose name has just been consumed.
    pub(super) fn declared(&self, kind: SymbolKind, name: &Name, start: u32) -> DeclaredName {
        let span = self.previous().span;
        DeclaredName { kind, name: name.clone(), span, whole: Span { start, end: span.end }, ty: None }
    }

    /// Records a declaration that ends with the last token consumed.
    pub(super) fn note_declared(&mut self, mut declared: DeclaredName) {
        declared.whole.end = self.previous().span.end.max(declared.whole.end);
        self.note(Note::Declares(declared));
    }

    pub(super) fn note_used(&mut self, name: &Name, span: Span) {
        if self.notes.is_some() {
            self.note(Note::Uses(name.clone(), span));
        }
    }

    /// A name that refers to something declared elsewhere.
    pub(super) fn used_name(&mut self, what: &str) -> Parsed<Name> {
        let name = self.name(what)?;
        let span = self.previous().span;
        self.note_used(&name, span);
        Ok(name)
    }

    /// Records that the tokens since `start` could not be parsed.
    pub(super) fn note_unread(&mut self, start: usize) {
        if self.notes.is_none() {
            return;
        }
        for position in start..self.position() {
            let token = self.token_at(position);
            let name = match token.kind {
                Lexeme::Quoted => self.quoted_name(token),
                Lexeme::Word => self.plain_name(token),
                Lexeme::String | Lexeme::Number | Lexeme::Symbol | Lexeme::Bad | Lexeme::End => continue,
            };
            if let Some(notes) = &mut self.notes {
                notes.unread.insert(name);
            }
        }
    }
}
