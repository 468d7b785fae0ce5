//! The formatter: rewrites a text in the standard layout.
//!
//! Only whitespace, line ends and `;` change; comments stay. The text is cut into pieces (tokens
//! and comments), and each piece is assigned the gap before it: none, a space, a line end or an
//! empty line. The author's line ends are kept, with these exceptions: every statement gets its own
//! line; a block is on one line only if the author wrote it so and it holds one short statement and
//! no other block; `else` follows its `}`. Indentation is two spaces for each line with an open
//! bracket, and two more for a continued expression.

use super::lexer::{self, Lexeme, Token};
use super::vocabulary::KEYWORDS;
use crate::diagnostics::Diagnostics;

/// Longer blocks are broken into lines.
const ONE_LINE_BLOCK: usize = 60;

/// Formats a text, or returns the errors that keep it from parsing. Formatting is idempotent.
///
/// ```
/// let text = "kernel k(y:output u32[4]){region \"r\"{let i=invocation.x;y[i]=i*2 // twice\n}}";
/// let expected = "\
/// kernel k(y: output u32[4]) {
///   region \"r\" {
///     let i = invocation.x
///     y[i] = i * 2 // twice
///   }
/// }
/// ";
/// assert_eq!(vyre_foundation::text::format(text).unwrap(), expected);
/// ```
pub fn format(source: &str) -> Result<String, Diagnostics> {
    super::parse(source)?;
    let (tokens, _) = lexer::lex(source);
    let mut pieces = pieces(source, &tokens);
    match_brackets(&mut pieces);
    place(&mut pieces);
    pieces.retain(|piece| piece.text != ";");
    Ok(render(&pieces))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    Word,
    /// A number, a string or a name in backticks.
    Atom,
    Symbol,
    LineComment,
    BlockComment,
}

/// The gap before a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    /// The same line, with or without a space.
    Same,
    Line,
    EmptyLine,
}

#[derive(Debug)]
struct LayoutPiece<'s> {
    kind: PieceKind,
    text: &'s str,
    start: usize,
    gap: Gap,
    /// Spaces before it in the source, for trailing comments.
    blanks: usize,
    /// Index of the matching bracket.
    partner: Option<usize>,
    /// Whether it is a prefix operator, which has no space before its operand.
    prefix: bool,
}

impl LayoutPiece<'_> {
    fn is_comment(&self) -> bool {
        matches!(self.kind, PieceKind::LineComment | PieceKind::BlockComment)
    }

    fn opens(&self) -> bool {
        self.kind == PieceKind::Symbol && matches!(self.text, "(" | "[" | "{")
    }

    fn closes(&self) -> bool {
        self.kind == PieceKind::Symbol && matches!(self.text, ")" | "]" | "}")
    }

    fn is_keyword(&self) -> bool {
        self.kind == PieceKind::Word && KEYWORDS.contains(&self.text)
    }

    /// Whether an operand can end here, so that a minus after it is an infix operator.
    fn ends_operand(&self) -> bool {
        match self.kind {
            PieceKind::Atom => true,
            PieceKind::Word => !matches!(
                self.text,
                "if" | "while" | "in" | "step" | "return" | "else" | "barrier" | "break" | "continue"
            ),
            PieceKind::Symbol => matches!(self.text, ")" | "]" | "}"),
            PieceKind::LineComment | PieceKind::BlockComment => false,
        }
    }
}

fn pieces<'s>(source: &'s str, tokens: &[Token]) -> Vec<LayoutPiece<'s>> {
    let mut pieces = Vec::with_capacity(tokens.len());
    let mut position = 0;
    for token in tokens {
        let (start, end) = (token.span.start as usize, token.span.end as usize);
        let gap = comments(source, position..start, &mut pieces);
        let kind = match token.kind {
            Lexeme::Word => PieceKind::Word,
            Lexeme::Number | Lexeme::String | Lexeme::Quoted => PieceKind::Atom,
            Lexeme::Symbol => PieceKind::Symbol,
            Lexeme::End | Lexeme::Bad => break,
        };
        pieces.push(LayoutPiece { kind, text: &source[start..end], start, ..gap });
        position = end;
    }
    pieces
}

/// Pushes the comments in this part of the source, and returns a piece with the gap after the last
/// of them.
fn comments<'s>(
    source: &'s str,
    range: std::ops::Range<usize>,
    pieces: &mut Vec<LayoutPiece<'s>>,
) -> LayoutPiece<'s> {
    let mut position = range.start;
    loop {
        let rest = &source[position..range.end];
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        let lines = rest[..blanks].matches('\n').count();
        let gap = match lines {
            0 => Gap::Same,
            1 => Gap::Line,
            _ => Gap::EmptyLine,
        };
        let start = position + blanks;
        let rest = &source[start..range.end];
        let (kind, length) = if rest.starts_with("//") {
            (PieceKind::LineComment, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (PieceKind::BlockComment, rest.find("*/").map_or(rest.len(), |at| at + 2))
        } else {
            return LayoutPiece {
                kind: PieceKind::Symbol,
                text: "",
                start,
                gap,
                blanks,
                partner: None,
                prefix: false,
            };
        };
        let text = rest[..length].trim_end();
        pieces.push(LayoutPiece { kind, text, start, gap, blanks, partner: None, prefix: false });
        position = start + length;
    }
}

fn match_brackets(pieces: &mut [LayoutPiece<'_>]) {
    let mut open = Vec::new();
    for at in 0..pieces.len() {
        if pieces[at].opens() {
            open.push(at);
        } else if pieces[at].closes()
            && let Some(partner) = open.pop()
        {
            pieces[at].partner = Some(partner);
            pieces[partner].partner = Some(at);
        }
    }
}

/// Decides which pieces start a line and which are prefix operators.
fn place(pieces: &mut [LayoutPiece<'_>]) {
    let mut parentheses = 0usize;
    let mut header = false;
    for at in 0..pieces.len() {
        let gap = if at == 0 { Gap::Same } else { placed(pieces, at, header && parentheses == 0) };
        let piece = &pieces[at];
        let starts_statement = gap > Gap::Same && parentheses == 0;
        let operand_before = at > 0 && pieces[at - 1].ends_operand() && !starts_statement;
        let prefix = piece.kind == PieceKind::Symbol && matches!(piece.text, "-" | "!") && !operand_before;
        match piece.text {
            "(" | "[" if piece.opens() => parentheses += 1,
            ")" | "]" if piece.closes() => parentheses = parentheses.saturating_sub(1),
            "kernel" if piece.kind == PieceKind::Word => header = true,
            "{" if piece.opens() => header = false,
            _ => {}
        }
        (pieces[at].gap, pieces[at].prefix) = (gap, prefix);
    }
}

/// The gap before the piece at `at`, which is not the first. `header`: between `kernel` and its
/// block, outside brackets.
fn placed(pieces: &[LayoutPiece<'_>], at: usize, header: bool) -> Gap {
    let (before, piece) = (&pieces[at - 1], &pieces[at]);
    // A line comment ends with its line.
    let least = if before.kind == PieceKind::LineComment { Gap::Line } else { Gap::Same };
    if piece.is_comment() {
        // No empty line at the start of a block.
        return if before.opens() { piece.gap.min(Gap::Line) } else { piece.gap }.max(least);
    }
    let joined = (piece.text == "else" && before.text == "}") || (header && !before.is_comment());
    if joined || piece.text == ";" {
        return least;
    }
    if piece.closes() || before.opens() {
        let open = if piece.closes() { piece.partner } else { Some(at - 1) };
        let own = piece.gap.min(Gap::Line);
        let block = pieces[open.unwrap_or(at)].text == "{";
        let wanted = match open {
            Some(open) if block && !is_one_line(pieces, open) => Gap::Line,
            Some(_) if block => Gap::Same,
            Some(_) | None => own,
        };
        return wanted.max(least);
    }
    if before.text == "}" && before.closes() {
        let item = matches!(piece.text, "fn" | "kernel") && piece.kind == PieceKind::Word;
        return piece.gap.max(if item { Gap::EmptyLine } else { Gap::Line });
    }
    if before.text == ";" {
        return piece.gap.max(pieces[at - 1].gap).max(Gap::Line);
    }
    piece.gap.max(least)
}

/// Whether the block that opens at `open` stays on one line.
fn is_one_line(pieces: &[LayoutPiece<'_>], open: usize) -> bool {
    let Some(close) = pieces[open].partner else { return false };
    let inside = &pieces[open + 1..close];
    let short = pieces[close].start - pieces[open].start <= ONE_LINE_BLOCK;
    let broken = |piece: &LayoutPiece<'_>| {
        piece.gap != Gap::Same || piece.opens() && piece.text == "{" || piece.kind == PieceKind::LineComment
    };
    let statements = |at: usize| inside[at].text == ";" && at + 1 < inside.len();
    inside.is_empty()
        || short
            && pieces[close].gap == Gap::Same
            && !inside.iter().any(broken)
            && !(0..inside.len()).any(statements)
}

fn render(pieces: &[LayoutPiece<'_>]) -> String {
    let mut out = String::new();
    let mut open: Vec<Open> = Vec::new();
    let mut line = 0usize;
    let mut header = false;
    for (at, piece) in pieces.iter().enumerate() {
        if piece.closes() {
            open.pop();
        }
        if at > 0 && piece.gap > Gap::Same {
            out.push_str(if piece.gap == Gap::EmptyLine { "\n\n" } else { "\n" });
            line += 1;
            let depth = open.chunk_by(|a, b| a.line == b.line).count();
            let between_statements = open.last().is_none_or(|open| open.block);
            let indent = depth + usize::from(between_statements && goes_on(&pieces[..at], piece));
            out.extend(std::iter::repeat_n("  ", indent));
        } else if at > 0 {
            let blanks = if piece.is_comment() {
                piece.blanks.max(1)
            } else {
                usize::from(is_spaced(&pieces[..at], piece, header && open.is_empty()))
            };
            out.extend(std::iter::repeat_n(' ', blanks));
        }
        out.push_str(piece.text);
        match piece.text {
            "kernel" if piece.kind == PieceKind::Word => header = true,
            "{" if piece.opens() => header = false,
            _ => {}
        }
        if piece.opens() {
            open.push(Open { line, block: piece.text == "{" });
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// An open bracket.
struct Open {
    /// The line it is on: brackets that open on one line indent once, together.
    line: usize,
    /// Whether it holds statements.
    block: bool,
}

/// Whether the piece continues an expression from the line before.
fn goes_on(before: &[LayoutPiece<'_>], piece: &LayoutPiece<'_>) -> bool {
    let last = before.iter().rev().find(|piece| !piece.is_comment());
    let operator = |last: &LayoutPiece<'_>| last.kind == PieceKind::Symbol && !last.opens() && !last.closes();
    !piece.is_comment() && !piece.closes() && last.is_some_and(operator)
}

/// Whether a space separates the last piece from the next one on the same line.
fn is_spaced(before: &[LayoutPiece<'_>], piece: &LayoutPiece<'_>, counts: bool) -> bool {
    let Some(last) = before.last() else { return false };
    let symbol =
        |piece: &LayoutPiece<'_>, any: &[&str]| piece.kind == PieceKind::Symbol && any.contains(&piece.text);
    if last.prefix
        || symbol(last, &["(", "[", ".", "@", ".."])
        || symbol(piece, &[")", "]", ",", ":", ".", ".."])
    {
        return false;
    }
    if symbol(piece, &["}"]) && symbol(last, &["{"]) {
        return false;
    }
    if symbol(piece, &["(", "["]) {
        let callable = match last.kind {
            PieceKind::Word => !last.is_keyword() && !matches!(last.text, "in" | "step"),
            PieceKind::Atom => true,
            PieceKind::Symbol => symbol(last, &[")", "]"]),
            PieceKind::LineComment | PieceKind::BlockComment => false,
        };
        // `over [16, 6]` and `workgroup [8, 8]` are not element accesses.
        let sizes = counts && matches!(last.text, "over" | "workgroup");
        return !callable || sizes;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn check(source: &str, expected: &str) {
        let formatted = format(source).expect("a program");
        assert_eq!(formatted, expected);
        assert_eq!(format(&formatted).as_deref(), Ok(expected), "twice");
        assert_eq!(text::parse(&formatted), text::parse(source));
    }

    #[test]
    fn everything_in_its_place() {
        check(
            "// head\n\n\n\nfn  f(a:f32,b :f32)->f32{a+ b}\nkernel k (x:read f32[],\n\ny : output f32[ ]len_of x)\n   over  [16,6]workgroup[8,8]\n{\n\n  region \"r\"  {\n\n let i=invocation . x;let j = -1i32 ; y[i]=f( x [i],-x[i])*- ( 1.0 )\n if i>3{y[i]=1.0} else if !(i==2) {\n  return }\n else{ barrier;}\n   for k in 0 .. 4 step 2{ y[k]+=1.0 }\n\n\n  // last\n  }\n\n}\n",
            "\
// head

fn f(a: f32, b: f32) -> f32 { a + b }

kernel k(x: read f32[],

  y: output f32[] len_of x) over [16, 6] workgroup [8, 8] {
  region \"r\" {
    let i = invocation.x
    let j = -1i32
    y[i] = f(x[i], -x[i]) * -(1.0)
    if i > 3 { y[i] = 1.0 } else if !(i == 2) {
      return
    } else { barrier }
    for k in 0..4 step 2 { y[k] += 1.0 }

    // last
  }
}
",
        );
    }

    #[test]
    fn comments_stay_where_they_are() {
        check(
            "/* a\n   b */ kernel k(y: output u32[2] /* two */, // out\n  // none\n) {\n  region \"r\" { // opens\n    y[0] = 1 +    // goes on\n      2\n    y[1] = 3;     // aligned\n    { let inner = 1; y[0] = inner }\n  } // closes\n}\n// input y\n",
            "\
/* a
   b */ kernel k(y: output u32[2] /* two */, // out
  // none
) {
  region \"r\" { // opens
    y[0] = 1 +    // goes on
      2
    y[1] = 3     // aligned
    {
      let inner = 1
      y[0] = inner
    }
  } // closes
}
// input y
",
        );
    }

    #[test]
    fn faults_are_reported() {
        assert!(format("kernel k( {").is_err());
        assert!(format("").is_err());
    }
}
