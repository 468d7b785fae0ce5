//! Open document: its text, its analysis, and conversion of the client's positions.

use lsp_types as lsp;
use std::cell::OnceCell;
use vyre_foundation::ir::Span;
use vyre_foundation::text::analysis::Analysis;

/// Unit in which the client counts columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16,
}

impl Encoding {
    /// UTF-8 if the client supports it, else UTF-16, which every client supports.
    pub(super) fn of(parameters: &lsp::InitializeParams) -> Encoding {
        let general = parameters.capabilities.general.as_ref();
        let known = general.and_then(|general| general.position_encodings.as_deref()).unwrap_or_default();
        if known.contains(&lsp::PositionEncodingKind::UTF8) { Encoding::Utf8 } else { Encoding::Utf16 }
    }

    pub(super) fn name(self) -> lsp::PositionEncodingKind {
        match self {
            Encoding::Utf8 => lsp::PositionEncodingKind::UTF8,
            Encoding::Utf16 => lsp::PositionEncodingKind::UTF16,
        }
    }
}

pub(super) struct Document {
    text: String,
    pub(super) version: i32,
    encoding: Encoding,
    /// Byte offset of each line's start.
    lines: Vec<usize>,
    /// Computed on first use.
    analysis: OnceCell<Analysis>,
}

impl Document {
    pub(super) fn new(text: String, version: i32, encoding: Encoding) -> Document {
        let lines = line_starts(&text);
        Document { text, version, encoding, lines, analysis: OnceCell::new() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn analysis(&self) -> &Analysis {
        self.analysis.get_or_init(|| Analysis::of(&self.text))
    }

    /// Applies changes in order; each refers to the text left by the one before.
    pub(super) fn change(&mut self, changes: Vec<lsp::TextDocumentContentChangeEvent>, version: i32) {
        for change in changes {
            match change.range {
                Some(range) => {
                    let [start, end] = [range.start, range.end].map(|position| self.offset(position));
                    self.text.replace_range(start.min(end)..end.max(start), &change.text);
                }
                None => self.text = change.text,
            }
            self.lines = line_starts(&self.text);
        }
        self.version = version;
        self.analysis = OnceCell::new();
    }

    /// Byte offset of a position. Positions past the end of a line or of the text are clamped to
    /// that end.
    pub(super) fn offset(&self, position: lsp::Position) -> usize {
        let Some(&start) = self.lines.get(position.line as usize) else { return self.text.len() };
        let end = self.lines.get(position.line as usize + 1).map_or(self.text.len(), |next| next - 1);
        let line = &self.text[start..end];
        let line = line.strip_suffix('\r').unwrap_or(line);
        let wanted = position.character as usize;
        match self.encoding {
            Encoding::Utf8 => start + line.floor_char_boundary(wanted),
            Encoding::Utf16 => {
                let mut counted = 0;
                for (at, character) in line.char_indices() {
                    if counted >= wanted {
                        return start + at;
                    }
                    counted += character.len_utf16();
                }
                start + line.len()
            }
        }
    }

    pub(super) fn position(&self, offset: usize) -> lsp::Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.lines.partition_point(|start| *start <= offset).saturating_sub(1);
        let before = &self.text[self.lines[line]..offset];
        let character = match self.encoding {
            Encoding::Utf8 => before.len(),
            Encoding::Utf16 => before.chars().map(char::len_utf16).sum(),
        };
        lsp::Position { line: line as u32, character: character as u32 }
    }

    pub(super) fn range(&self, span: Span) -> lsp::Range {
        lsp::Range { start: self.position(span.start as usize), end: self.position(span.end as usize) }
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_the_way_there_and_back() {
        let text = "a\nüb𝄞c\r\n\n";
        for encoding in [Encoding::Utf8, Encoding::Utf16] {
            let document = Document::new(text.into(), 0, encoding);
            for (offset, _) in text.char_indices().filter(|(_, c)| *c != '\r') {
                if text[offset..].starts_with('\n') && text[..offset].ends_with('\r') {
                    continue;
                }
                assert_eq!(document.offset(document.position(offset)), offset, "{encoding:?}");
            }
            assert_eq!(document.offset(lsp::Position { line: 9, character: 9 }), text.len());
        }
        let document = Document::new(text.into(), 0, Encoding::Utf16);
        let c = text.find('c').unwrap_or_default();
        assert_eq!(document.position(c), lsp::Position { line: 1, character: 4 });
    }
}
