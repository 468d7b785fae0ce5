//! Text that knows which tokens it stands for, so that what is said of the text can be said of the tokens.

use crate::extent::Extent;

#[derive(Clone, Default)]
pub(crate) struct Piece {
    pub(crate) text: String,
    marks: Vec<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    start: usize,
    end: usize,
    span: Extent,
}

impl Piece {
    pub(crate) fn new(text: impl Into<String>) -> Piece {
        Piece { text: text.into(), marks: Vec::new() }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(crate) fn append(&mut self, other: Piece) {
        let shift = self.text.len();
        self.text.push_str(&other.text);
        let shifted = |mark: Mark| Mark { start: mark.start + shift, end: mark.end + shift, span: mark.span };
        self.marks.extend(other.marks.into_iter().map(shifted));
    }

    /// The same, all of it standing for these tokens.
    pub(crate) fn at(mut self, span: impl Into<Extent>) -> Piece {
        self.mark_from(0, span.into());
        self
    }

    /// Lets what was written from a position on stand for these tokens.
    pub(crate) fn mark_from(&mut self, start: usize, span: Extent) {
        self.marks.push(Mark { start, end: self.text.len(), span });
    }

    /// The tokens that the smallest part around a stretch of the text stands for.
    pub(crate) fn span(&self, start: usize, end: usize) -> Option<Extent> {
        let around = self.marks.iter().filter(|mark| mark.start <= start && end <= mark.end);
        let smallest = around.min_by_key(|mark| mark.end - mark.start);
        smallest.map(|mark| mark.span)
    }
}

/// A piece of `{}` and pieces that take their places.
macro_rules! piece {
    ($format:literal $(, $part:expr)* $(,)?) => {{
        let mut piece = $crate::piece::Piece::default();
        let mut texts = $format.split("{}");
        if let Some(text) = texts.next() {
            piece.push(text);
        }
        $(
            piece.append($part.clone());
            if let Some(text) = texts.next() {
                piece.push(text);
            }
        )*
        piece
    }};
}
pub(crate) use piece;
