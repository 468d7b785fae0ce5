//! Makes untrusted text safe to display.

use std::borrow::Cow;

/// Replaces each character that would control a terminal or change the reading direction with a
/// visible one; newlines and tabs are kept. Every character maps to exactly one, so columns do not
/// shift.
///
/// ```
/// use vyre_foundation::visible;
/// assert_eq!(visible("red \x1b[31m\r\n"), "red ␛[31m␍\n");
/// assert_eq!(visible("C1 \u{9b}31m, bidi \u{202e}"), "C1 \u{fffd}31m, bidi \u{fffd}");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(|character| shown(character) == character) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(shown).collect())
}

/// The visible form of a character.
fn shown(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        // The symbols for control characters are in the same order.
        '\0'..='\x1f' => char::from_u32(0x2400 + character as u32).unwrap_or('\u{fffd}'),
        '\x7f' => '␡',
        '\u{80}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            '\u{fffd}'
        }
        _ => character,
    }
}
