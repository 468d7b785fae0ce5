//! Rows at the end of a large table's file, so that it is not written anew for each of them.
//!
//! ```text
//! # vyre routes, schema 2, sum 0123456789abcdef      the table, and the checksum of its rows
//! …
//! <record separator> 321 0123456789abcdef            rows that were added: how many bytes, and their checksum
//! …
//! ```
//! The separator is a control character, which TOML never holds as it is. What is shorter than it says was cut off when its
//! writer was killed, and nobody was told that it is kept: readers skip it. What was changed otherwise makes the file a corrupt one.

use super::Fault;

/// ASCII's record separator.
const MARK: u8 = 0x1e;

/// A table below this size is always written anew.
const LARGE: usize = 128 << 10;

/// A file taken apart.
pub(super) struct Parts<'a> {
    /// The table itself.
    pub(super) own: &'a [u8],
    /// The tables that were added, in order.
    pub(super) added: Vec<&'a [u8]>,
}

/// The parts of a file; a fault if one of them was changed.
pub(super) fn split(bytes: &[u8]) -> Result<Parts<'_>, Fault> {
    let mut pieces = bytes.split(|&byte| byte == MARK);
    let own = pieces.next().unwrap_or_default();
    let mut added = Vec::new();
    for piece in pieces {
        let Some(end) = piece.iter().position(|&byte| byte == b'\n') else { continue };
        let (head, body) = (&piece[..end], &piece[end + 1..]);
        let fault = || Fault::whole("rows that were added to it have changed");
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
    Ok(Parts { own, added })
}

/// These rows as they are added to a file.
pub(super) fn part(body: &str) -> Vec<u8> {
    let mut part = vec![MARK];
    part.extend_from_slice(format!(" {} {}\n{body}", body.len(), checksum(body.as_bytes())).as_bytes());
    part
}

/// What the first line says about the rows behind it.
pub(super) fn sum_of(body: &str) -> String {
    format!(", sum {}", checksum(body.as_bytes()))
}

/// Whether rows are better added to this file than merged into it: it is large, as it was written, and few were added before.
pub(super) fn is_worth_it(bytes: &[u8]) -> bool {
    let Ok(Parts { own, .. }) = split(bytes) else { return false };
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
