//! Rows appended to a large table's file, so that it is not rewritten for each of them.
//!
//! ```text
//! # vyre routes, schema 2, sum 0123456789abcdef   the table, and the checksum of its rows
//! …
//! <record separator> 321 0123456789abcdef         added rows: their bytes and checksum
//! …
//! ```
//! The separator is a control character, which TOML never contains unescaped. A part shorter than
//! its stated length was cut off when its writer was killed, before the save was reported as
//! complete: readers skip it. Any other change makes the file corrupt.

use super::InvalidTable;

/// ASCII's record separator.
const MARK: u8 = 0x1e;

/// A table below this size is always rewritten, so that small files are plain TOML. Saving a row
/// takes 7 ms in a routing table of 0.9 MB and 76 ms in one of 32 MB, so about 1 ms in one of this
/// size.
const LARGE: usize = 128 << 10;

/// The parts of a file.
pub(super) struct FileParts<'a> {
    /// The table itself.
    pub(super) own: &'a [u8],
    /// The appended tables, in order.
    pub(super) added: Vec<&'a [u8]>,
}

/// Splits a file into its parts; a fault if one of them was changed.
pub(super) fn split(bytes: &[u8]) -> Result<FileParts<'_>, InvalidTable> {
    let mut pieces = bytes.split(|&byte| byte == MARK);
    let own = pieces.next().unwrap_or_default();
    let mut added = Vec::new();
    for piece in pieces {
        let Some(end) = piece.iter().position(|&byte| byte == b'\n') else { continue };
        let (head, body) = (&piece[..end], &piece[end + 1..]);
        let fault = || InvalidTable::whole("rows that were added to it have changed");
        let head = std::str::from_utf8(head).map_err(|_| fault())?;
        let (count, sum) = head.trim_start().split_once(' ').ok_or_else(fault)?;
        let count: usize = count.parse().map_err(|_| fault())?;
        if body.len() < count {
            continue;
        }
        if body.len() != count || sum != checksum(body) {
            return Err(fault());
        }
        added.push(body);
    }
    Ok(FileParts { own, added })
}

/// The rows as an appended part.
pub(super) fn part(body: &str) -> Vec<u8> {
    let mut part = vec![MARK];
    part.extend_from_slice(format!(" {} {}\n{body}", body.len(), checksum(body.as_bytes())).as_bytes());
    part
}

/// The checksum of the rows, as it appears in the first line.
pub(super) fn sum_of(body: &str) -> String {
    format!(", sum {}", checksum(body.as_bytes()))
}

/// Whether appending rows to this file is better than merging them: it is large, its main part is
/// unchanged, and little has been appended so far.
pub(super) fn is_worth_it(bytes: &[u8]) -> bool {
    let Ok(FileParts { own, .. }) = split(bytes) else { return false };
    if own.len() < LARGE || bytes.len() - own.len() > own.len() / 4 {
        return false;
    }
    let Some(end) = own.iter().position(|&byte| byte == b'\n') else { return false };
    let sum = format!(", sum {}", checksum(&own[end + 1..]));
    own[..end].ends_with(sum.as_bytes())
}

fn checksum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}
