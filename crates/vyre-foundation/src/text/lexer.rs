//! Splits text into tokens.
//!
//! One pass without backtracking. Whitespace and comments are dropped; each token records whether
//! it is the first on its line, because a line end can end a statement. Malformed text becomes a
//! diagnostic and a [`Lexeme::Bad`] token, which the parser does not report again.

use super::literal;
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::Span;

/// Error limit; lexing and parsing stop here: more errors than a person reads at once.
pub(super) const MAX_FAULTS: usize = 50;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lexeme {
    /// A keyword or a name.
    Word,
    /// A name in backticks.
    Quoted,
    /// A string in double quotes.
    String,
    /// Starts with a digit.
    Number,
    /// Punctuation, matched longest first.
    Symbol,
    /// Already reported.
    Bad,
    /// End of the text; repeats when peeked past.
    End,
}

/// A token and its span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Lexeme,
    /// Whether it is the first token on its line.
    pub(super) starts_line: bool,
    pub(super) span: Span,
}

/// The tokens of a text, ending in [`Lexeme::End`], and the lexical errors. The caller ensures that
/// positions fit `u32`.
pub(super) fn lex(source: &str) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut lexer = Lexer { source, position: 0, starts_line: true, diagnostics: Vec::new() };
    // Even dense programs have two to three bytes per token.
    let mut tokens = Vec::with_capacity(source.len() / 3 + 1);
    loop {
        lexer.skip_blanks();
        let token = lexer.token();
        // The rest is dropped once the error limit is reached.
        let given_up = lexer.diagnostics.len() >= MAX_FAULTS;
        tokens.push(if given_up { Token { kind: Lexeme::End, ..token } } else { token });
        if given_up || token.kind == Lexeme::End {
            return (tokens, lexer.diagnostics);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    position: usize,
    starts_line: bool,
    diagnostics: Vec<Diagnostic>,
}

impl Lexer<'_> {
    fn rest(&self) -> &[u8] {
        &self.source.as_bytes()[self.position..]
    }

    fn span_from(&self, start: usize) -> Span {
        Span { start: start as u32, end: self.position as u32 }
    }

    fn fault(&mut self, code: Code, span: Span, message: String) {
        self.diagnostics.push(Diagnostic::new(code, message).at(Some(span)));
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.rest() {
                [b'\n', ..] => {
                    self.starts_line = true;
                    self.position += 1;
                }
                [b' ' | b'\t' | b'\r', ..] => self.position += 1,
                [b'/', b'/', ..] => {
                    let length = self.rest().iter().position(|&byte| byte == b'\n');
                    self.position += length.unwrap_or(self.rest().len());
                }
                [b'/', b'*', ..] => self.skip_block_comment(),
                _ => return,
            }
        }
    }

    /// Block comments do not nest.
    fn skip_block_comment(&mut self) {
        let start = self.position;
        match self.source[start + 2..].find("*/") {
            Some(length) => {
                self.position = start + 2 + length + 2;
                self.starts_line |= self.source[start..self.position].contains('\n');
            }
            None => {
                self.position = start + 2;
                let span = self.span_from(start);
                self.fault(Code::Unclosed, span, "this comment is never closed".into());
                self.position = self.source.len();
            }
        }
    }

    fn token(&mut self) -> Token {
        let start = self.position;
        let kind = match self.rest().first() {
            None => Lexeme::End,
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                self.skip_word();
                Lexeme::Word
            }
            Some(b'0'..=b'9') => {
                self.skip_number();
                Lexeme::Number
            }
            Some(&quote @ (b'"' | b'`')) => self.quoted(quote),
            Some(b'\'') => self.character(),
            Some(_) => self.symbol(),
        };
        let token = Token { kind, starts_line: self.starts_line, span: self.span_from(start) };
        self.starts_line = false;
        token
    }

    fn skip_word(&mut self) {
        let ends = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_');
        let length = self.rest().iter().position(ends);
        self.position += length.unwrap_or(self.rest().len());
    }

    /// Digits with letters, a fraction and an exponent; validity is checked when the value is read.
    fn skip_number(&mut self) {
        let start = self.position;
        let hexadecimal = matches!(self.rest(), [b'0', b'x' | b'X', ..]);
        self.skip_word();
        if hexadecimal {
            return;
        }
        // A point followed by another point is a range, as in `0..n`.
        if matches!(self.rest(), [b'.', b'0'..=b'9', ..]) {
            self.position += 1;
            self.skip_word();
        }
        let exponent = self.source[start..self.position].ends_with(['e', 'E']);
        if exponent && matches!(self.rest(), [b'+' | b'-', b'0'..=b'9', ..]) {
            self.position += 1;
            self.skip_word();
        }
    }

    fn quoted(&mut self, quote: u8) -> Lexeme {
        let start = self.position;
        let what = if quote == b'"' { "string" } else { "quoted name" };
        self.position += 1;
        loop {
            match self.rest() {
                [] | [b'\n', ..] => {
                    let span = self.span_from(start);
                    self.fault(Code::Unclosed, span, format!("this {what} is not closed on its line"));
                    return Lexeme::Bad;
                }
                // The escaped character can be longer than a byte, but its later bytes end nothing.
                [b'\\', next, ..] if *next != b'\n' => self.position += 2,
                &[byte, ..] => {
                    self.position += 1;
                    if byte == quote {
                        break;
                    }
                }
            }
        }
        if literal::unquote(&self.source[start + 1..self.position - 1]).is_none() {
            let span = self.span_from(start);
            self.fault(Code::BadCharacter, span, format!("this {what} has an unknown escape"));
            return Lexeme::Bad;
        }
        if quote == b'"' { Lexeme::String } else { Lexeme::Quoted }
    }

    /// `'a'`: a number; that it is a single character is checked when the value is read.
    fn character(&mut self) -> Lexeme {
        let start = self.position;
        let line = self.source[start..].split('\n').next().unwrap_or_default();
        let mut escaped = false;
        let end = line.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == '\'' && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        match end {
            Some((length, _)) => {
                self.position = start + length + 1;
                Lexeme::Number
            }
            None => {
                self.position += 1;
                let span = self.span_from(start);
                self.fault(Code::Unclosed, span, "this character is not closed on its line".into());
                self.position = start + line.len();
                Lexeme::Bad
            }
        }
    }

    fn symbol(&mut self) -> Lexeme {
        let length = symbol_length(self.rest());
        if length > 0 {
            self.position += length;
            return Lexeme::Symbol;
        }
        let start = self.position;
        let character = self.source[start..].chars().next().unwrap_or_default();
        // One error for a run of foreign characters: a word in another script is one mistake.
        let ends = |c: char| c.is_ascii() && c != character;
        self.position += self.source[start..].find(ends).unwrap_or(self.source.len() - start);
        let span = self.span_from(start);
        let message = format!("unknown character `{}`", character.escape_debug());
        let diagnostic = Diagnostic::new(Code::BadCharacter, message).at(Some(span));
        self.diagnostics.push(match character {
            '?' => diagnostic.help("`select(condition, a, b)` is one of two values; both are evaluated"),
            '~' => diagnostic.help("`!x` inverts every bit of an integer"),
            _ => diagnostic,
        });
        Lexeme::Bad
    }
}

/// Length of the longest symbol at the start of the bytes; 0 if there is none.
fn symbol_length(rest: &[u8]) -> usize {
    match rest {
        [b'<', b'<', b'=', ..] | [b'>', b'>', b'=', ..] => 3,
        [b'<', b'<', ..] | [b'>', b'>', ..] | [b'&', b'&', ..] | [b'|', b'|', ..] => 2,
        [b'.', b'.', ..] | [b'-', b'>', ..] => 2,
        [b'+' | b'-' | b'*' | b'/' | b'%' | b'&' | b'|' | b'^' | b'=' | b'!' | b'<' | b'>', b'=', ..] => 2,
        [b'+' | b'-' | b'*' | b'/' | b'%' | b'&' | b'|' | b'^' | b'=' | b'!' | b'<' | b'>', ..] => 1,
        [b'(' | b')' | b'[' | b']' | b'{' | b'}' | b',' | b':' | b';' | b'.' | b'@', ..] => 1,
        _ => 0,
    }
}
