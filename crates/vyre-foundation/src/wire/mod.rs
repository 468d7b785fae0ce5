//! The wire form: a program as canonical, versioned, checksummed bytes.
//!
//! Equal programs give equal bytes, and only bytes that [`encode`] would write are decoded, so
//! bytes and programs correspond one to one. `docs/wire-format.md` specifies the layout: magic,
//! version, the program in declaration order, a checksum. Numbers are minimal LEB128; names are
//! written once and referred to afterwards.
//!
//! Decoding is total: any byte string gives a program or a [`WireError`]. A list states its length,
//! which is checked before any allocation against the bytes that are left *and not yet promised to
//! an enclosing list*. Memory use is thus at most one tree node per input byte; nesting is cut at
//! the limits of [`crate::ir`].

#[cfg(feature = "compiler")]
mod decode;
mod encode;

use crate::ir::Program;
use std::fmt;

/// The first bytes of every encoded program.
pub const MAGIC: [u8; 4] = *b"VYRE";
/// The newest version of the layout. A program is written in the oldest version that can express
/// it, so its bytes and its fingerprint stay the same when the format grows.
const VERSION: u8 = 3;
/// The version that adds domains and lengths computed at dispatch; the next one adds messages.
const SIZES_VERSION: u8 = 2;
/// The version in which domains and lengths are numbers or the lengths of other buffers.
const PLAIN_VERSION: u8 = 1;
/// Length of the trailing checksum: a prefix of the BLAKE3 hash of everything before it.
const CHECKSUM_BYTES: usize = 8;
/// Marks operands or statements dropped for nesting too deep, in place of a list's length plus one.
const TOO_DEEP: u64 = 0;

/// The first byte of a domain.
mod domain_tag {
    pub(super) const DEFAULT: u8 = 0;
    pub(super) const COUNTS: u8 = 1;
    pub(super) const LEN_OF: u8 = 2;
    pub(super) const AXES: u8 = 3;
}

/// The first byte of an expression; never reused.
mod expr_tag {
    pub(super) const LITERAL: u8 = 1;
    pub(super) const VAR: u8 = 2;
    pub(super) const BUILTIN: u8 = 3;
    pub(super) const BUF_LEN: u8 = 4;
    pub(super) const LOAD: u8 = 5;
    pub(super) const OP: u8 = 6;
    pub(super) const ATOMIC: u8 = 7;
    pub(super) const SUBGROUP: u8 = 8;
    pub(super) const CALL: u8 = 9;
    pub(super) const WORKGROUP: u8 = 10;
}

/// The first byte of a statement; never reused.
mod node_tag {
    pub(super) const LET: u8 = 1;
    pub(super) const ARRAY: u8 = 2;
    pub(super) const ASSIGN: u8 = 3;
    pub(super) const STORE: u8 = 4;
    pub(super) const EVAL: u8 = 5;
    pub(super) const IF: u8 = 6;
    pub(super) const FOR: u8 = 7;
    pub(super) const WHILE: u8 = 8;
    pub(super) const BREAK: u8 = 9;
    pub(super) const CONTINUE: u8 = 10;
    pub(super) const RETURN: u8 = 11;
    pub(super) const BARRIER: u8 = 12;
    pub(super) const BLOCK: u8 = 13;
    pub(super) const REGION: u8 = 14;
    pub(super) const TRAP: u8 = 15;
    pub(super) const PRINT: u8 = 16;
    pub(super) const ASSERT: u8 = 17;
}

/// Why bytes are not an encoded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes do not start with the magic.
    NotAProgram,
    /// The bytes use an unsupported version of the format.
    Version {
        /// The version in the bytes.
        found: u8,
    },
    /// The checksum does not match the bytes before it: they are damaged or truncated.
    Checksum,
    /// The bytes end early, or a stated length exceeds what is left.
    Truncated {
        /// Where more bytes were expected.
        at: usize,
    },
    /// The bytes contain something that [`encode`] never writes.
    Malformed {
        /// Where it starts.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::NotAProgram => {
                write!(f, "not an encoded vyre program: it does not start with `VYRE`")
            }
            WireError::Version { found } => {
                write!(
                    f,
                    "encoded in version {found} of the wire format, and this build reads versions {PLAIN_VERSION} to {VERSION}: encode the program again with this build"
                )
            }
            WireError::Checksum => {
                write!(f, "the checksum of the encoded program does not fit: the bytes were damaged or cut")
            }
            WireError::Truncated { at } => write!(f, "the encoded program ends too early, at byte {at}"),
            WireError::Malformed { at, what } => write!(f, "malformed encoded program: {what} at byte {at}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Encodes a program to its canonical bytes, which are equal exactly for equal programs.
///
/// ```
/// use vyre_foundation::ir::Program;
/// use vyre_foundation::wire;
/// let bytes = wire::encode(&Program::empty());
/// assert_eq!(wire::decode(&bytes), Ok(Program::empty()));
/// ```
pub fn encode(program: &Program) -> Vec<u8> {
    let mut bytes = encode::unsealed(program);
    seal(&mut bytes);
    bytes
}

/// Decodes a program from its canonical bytes.
///
/// Takes time linear in the input, and memory for at most one tree node per byte of it.
///
/// # Errors
/// Bytes that [`encode`] does not write are rejected, with the position of the error.
///
/// ```
/// use vyre_foundation::wire::{self, WireError};
/// assert_eq!(wire::decode(b"GIF89a"), Err(WireError::NotAProgram));
/// ```
#[cfg(feature = "compiler")]
pub fn decode(bytes: &[u8]) -> Result<Program, WireError> {
    let after_magic = bytes.strip_prefix(&MAGIC).ok_or(WireError::NotAProgram)?;
    match after_magic.first() {
        Some(PLAIN_VERSION..=VERSION) => {}
        Some(&found) => return Err(WireError::Version { found }),
        None => return Err(WireError::Truncated { at: bytes.len() }),
    }
    let (content, checksum) =
        bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(WireError::Truncated { at: bytes.len() })?;
    if *checksum != checksum_of(content) {
        return Err(WireError::Checksum);
    }
    decode::program(content, after_magic[0], MAGIC.len() + 1)
}

impl Program {
    /// BLAKE3 over the canonical wire bytes without their checksum, with a dedicated key-derivation
    /// context. Computed once.
    pub fn fingerprint(&self) -> [u8; 32] {
        *self.0.fingerprint.get_or_init(|| {
            let mut hasher = blake3::Hasher::new_derive_key("vyre program fingerprint");
            hasher.update(&encode::unsealed(self));
            hasher.finalize().into()
        })
    }
}

/// Wraps bytes in magic and checksum, so that fuzzing gets past both.
#[cfg(any(test, feature = "arbitrary"))]
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    framed_in(PLAIN_VERSION, body)
}

/// `framed` for any version.
#[cfg(any(test, feature = "arbitrary"))]
pub(crate) fn framed_in(version: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &[version], body].concat();
    seal(&mut bytes);
    bytes
}

/// The program's canonical bytes between magic and checksum.
#[cfg(test)]
pub(crate) fn body(program: &Program) -> Vec<u8> {
    encode::unsealed(program).split_off(MAGIC.len() + 1)
}

/// Appends the checksum.
fn seal(bytes: &mut Vec<u8>) {
    let checksum = checksum_of(bytes);
    bytes.extend_from_slice(&checksum);
}

fn checksum_of(content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut checksum = [0; CHECKSUM_BYTES];
    checksum.copy_from_slice(&blake3::hash(content).as_bytes()[..CHECKSUM_BYTES]);
    checksum
}

#[cfg(test)]
mod tests;
