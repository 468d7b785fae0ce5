//! Text that records the tokens it came from, so that faults in the text can be reported at the
//! tokens.

use crate::token_span::TokenSpan;

#[derive(Clone, Default)]
pub(crate) struct SpannedText {
    pub(crate) text: String,
    marks: Vec<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    start: usize,
    end: usize,
    span: TokenSpan,
}

impl SpannedText {
    pub(crate) fn new(text: impl Into<String>) -> SpannedText {
        SpannedText { text: text.into(), marks: Vec::new() }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn append(&mut self, other: SpannedText) {
        let shift = self.text.len();
        self.text.push_str(&other.text);
        let shifted = |mark: Mark| Mark { start: mark.start + shift, end: mark.end + shift, span: mark.span };
        self.marks.extend(other.marks.into_iter().map(shifted));
    }

    /// Attributes the whole text to these tokens.
    pub(crate) fn at(mut self, span: impl Into<TokenSpan>) -> SpannedText {
        self.mark_from(0, span.into());
        self
    }

    /// Attributes the text from a position on to these tokens.
    pub(crate) fn mark_from(&mut self, start: usize, span: TokenSpan) {
        self.marks.push(Mark { start, end: self.text.len(), span });
    }

    /// Tokens of the smallest marked part that contains a range of the text.
    pub(crate) fn span(&self, start: usize, end: usize) -> Option<TokenSpan> {
        let around = self.marks.iter().filter(|mark| mark.start <= start && end <= mark.end);
        let smallest = around.min_by_key(|mark| mark.end - mark.start);
        smallest.map(|mark| mark.span)
    }
}

/// Builds a text from a format in which each `{}` is replaced by a text.
macro_rules! spanned {
    ($format:literal $(, $part:expr)* $(,)?) => {{
        let mut spanned = $crate::spanned_text::SpannedText::default();
        let mut texts = $format.split("{}");
        if let Some(text) = texts.next() {
            spanned.push(text);
        }
        $(
            spanned.append($part.clone());
            if let Some(text) = texts.next() {
                spanned.push(text);
            }
        )*
        spanned
    }};
}
pub(crate) use spanned;
