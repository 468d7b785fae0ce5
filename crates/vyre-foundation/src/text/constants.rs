//! Named constants of a text, and the values that a caller overrides them with.
//!
//! Constants exist only while parsing: the program holds their values, so two settings give two
//! programs.

use super::cursor::{Parsed, Parser, excerpt};
use super::lexer::Lexeme;
use super::literal::{self, Sign};
use super::notes::SymbolKind;
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{Name, Span, constant};
use crate::types::{Value, ValueType};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Overrides for the constants of a text.
///
/// ```
/// use vyre_foundation::text::{Constants, parse_with};
/// let text = "const N: u32 = 4
///             kernel fill(y: output u32[N]) over N { y[invocation.x] = 2 * N }";
/// let program = parse_with(text, &Constants::new().set("N", 16)).unwrap();
/// assert_eq!(program.buffers()[0].count, 16);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constants(BTreeMap<String, String>);

impl Constants {
    /// No overrides.
    pub fn new() -> Constants {
        Constants::default()
    }

    /// Sets the constant of that name to a number or bool, or the text of one.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Display) -> Constants {
        self.0.insert(name.into(), value.to_string());
        self
    }

    /// Whether there are no overrides.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Parses a value of a type, with or without the type as its suffix.
fn value_of(text: &str, ty: ValueType) -> Option<Value> {
    let text = text.trim();
    if ty == ValueType::Bool {
        return text.parse().ok().map(Value::Bool);
    }
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits.trim_start(), Sign::Minus),
        None => (text, Sign::Plus),
    };
    let word = match ty {
        ValueType::F64 => format!("{}_f64", digits.to_ascii_lowercase()),
        ValueType::Bool
        | ValueType::U32
        | ValueType::I32
        | ValueType::U64
        | ValueType::I64
        | ValueType::F32 => digits.to_ascii_lowercase(),
    };
    let named = literal::read_word(&word, sign).or_else(|| literal::read_word(digits, sign));
    let read = |text: &str| literal::read_number(text, sign).ok().filter(|value| value.ty() == ty);
    let number = || digits.starts_with(|c: char| c.is_ascii_digit() || c == '\'');
    named.filter(|value| value.ty() == ty).or_else(|| {
        let suffixed = format!("{digits}{ty}");
        number().then(|| read(digits).or_else(|| read(&suffixed))).flatten()
    })
}

impl<'s> Parser<'s> {
    /// `const N: u32 = 16`: the name is replaced by the value from here on.
    pub(super) fn constant_item(&mut self) -> Parsed<()> {
        let start = self.bump().span.start;
        let at = self.peek().span;
        let name = self.new_name("the constant's name")?;
        let declared = self.declared(SymbolKind::Constant, &name, start);
        let value = self.constant_behind(&name, at);
        self.note_declared(declared);
        self.constants.insert(name, value?);
        Ok(())
    }

    /// The type and value of a constant, after its name.
    fn constant_behind(&mut self, name: &Name, at: Span) -> Parsed<Value> {
        self.expect_symbol(":")?;
        let ty = self.value_type()?;
        self.expect_symbol("=")?;
        let own = self.constant_value(name, ty)?;
        let next = self.peek();
        if !self.eat_symbol(";") && !next.starts_line && next.kind != Lexeme::End {
            return Err(self.unexpected("the end of the line or `;`"));
        }
        match self.settings.0.get(&**name) {
            None => Ok(own),
            Some(text) => {
                let text = text.clone();
                value_of(&text, ty).ok_or_else(|| {
                    let message = format!(
                        "`{}` is not a value of {ty}, the type of the constant `{name}`",
                        excerpt(&text)
                    );
                    self.fault(Diagnostic::new(Code::Constant, message), at)
                })
            }
        }
    }

    /// The value in the text.
    fn constant_value(&mut self, name: &Name, ty: ValueType) -> Parsed<Value> {
        let start = self.peek().span.start;
        let minus = usize::from(self.at_symbol("-"));
        let (number, behind) = (self.peek_ahead(minus), self.peek_ahead(minus + 1));
        let alone = number.kind == Lexeme::Number
            && (behind.kind == Lexeme::End || behind.starts_line || self.text(behind) == ";");
        if alone {
            // A lone number takes the declared type.
            let text = &self.source()[start as usize..number.span.end as usize];
            if let Some(value) = value_of(text, ty) {
                for _ in 0..=minus {
                    self.bump();
                }
                return Ok(value);
            }
        }
        let expr = self.size_expression(ty)?;
        let span = self.span_from(start);
        match constant(&expr) {
            Some(value) if value.ty() == ty => Ok(value),
            Some(value) => {
                let message = format!("the constant `{name}` has type {ty}, but its value is {}", value.ty());
                let help = format!("convert it: `{ty}(…)`");
                Err(self.fault(Diagnostic::new(Code::Constant, message).help(help), span))
            }
            None => {
                let message = format!("the value of the constant `{name}` is not constant");
                let help = "use literals, constants before it and table ops";
                Err(self.fault(Diagnostic::new(Code::Constant, message).help(help), span))
            }
        }
    }

    /// Reports overrides for constants that the text does not have.
    pub(super) fn check_settings(&mut self) {
        let known = |name: &&String| self.constants.contains_key(name.as_str());
        let unknown: Vec<String> = self.settings.0.keys().filter(|name| !known(name)).cloned().collect();
        let mut names: Vec<&str> = self.constants.keys().map(|name| &**name).collect();
        names.sort_unstable();
        let help = match names.is_empty() {
            true => "it has none; declare it: `const N: u32 = 16`".to_string(),
            false => format!("it has: {}", names.join(", ")),
        };
        for name in unknown {
            let message = format!("the text has no constant `{}`", excerpt(&name));
            self.fault(Diagnostic::new(Code::Constant, message).help(help.clone()), Span::default());
        }
    }

    /// A size known at parse time: an integer, or an expression of constants.
    pub(super) fn count(&mut self, what: &str) -> Parsed<u32> {
        let token = self.peek();
        let behind = self.peek_ahead(1);
        let joined = behind.kind == Lexeme::Symbol
            && self.continues(behind)
            && super::vocabulary::infix(self.text(behind)).is_some();
        let named = token.kind == Lexeme::Word && self.constants.contains_key(self.text(token));
        let opened = token.kind == Lexeme::Symbol && self.text(token) == "(";
        let is_expression = named || opened || (token.kind == Lexeme::Number && joined);
        if token.kind == Lexeme::Word && !named {
            let help = format!(
                "a size is a number or made of constants: `const {}: u32 = 64` before the kernel, which `--set` overrides",
                excerpt(self.text(token))
            );
            return Err(self.unexpected_with(what, Some(help)));
        }
        if !is_expression {
            return self.integer(what);
        }
        let expr = self.size_expression(ValueType::U32)?;
        let span = self.span_from(token.span.start);
        match constant(&expr) {
            Some(Value::U32(count)) => Ok(count),
            Some(_) | None => {
                let message = format!("this is not {what} that is known when the text is read");
                let help = "use u32 literals, constants and table ops";
                Err(self.fault(Diagnostic::new(Code::Constant, message).help(help), span))
            }
        }
    }

    /// A name being declared, plain or in backticks; it must not be that of a constant.
    pub(super) fn new_name(&mut self, what: &str) -> Parsed<Name> {
        let token = self.peek();
        let name = self.name(what)?;
        if token.kind == Lexeme::Word && self.constants.contains_key(&name) {
            let message = format!("`{name}` is already a constant");
            let diagnostic = Diagnostic::new(Code::DuplicateName, message).help("choose another name");
            return Err(self.fault(diagnostic, token.span));
        }
        Ok(name)
    }
}
