//! The entry points of the fuzz targets in `fuzz/`. The tests below run them on a fixed set of
//! bytes.
//!
//! Each function panics if a guarantee is violated.

use crate::ir::Program;
use crate::{text, wire};
use arbitrary::{Arbitrary, Unstructured};

/// Decodes any bytes to a program or an error; every program has exactly one encoding.
pub fn decode(bytes: &[u8]) {
    for bytes in [bytes, &wire::framed(bytes)] {
        if let Ok(program) = wire::decode(bytes) {
            assert!(wire::encode(&program) == bytes, "bytes that are not canonical were decoded");
            carried(&program);
        }
    }
}

/// Parses any text to a program or diagnostics; printing a parsed program is stable.
pub fn parse(bytes: &[u8]) {
    match text::parse(&String::from_utf8_lossy(bytes)) {
        Ok(program) => carried(&program),
        Err(faults) => assert!(!faults.to_string().is_empty(), "a text was refused without a word"),
    }
}

/// Checks that any program survives text and wire, and is validated without a panic.
pub fn roundtrip(bytes: &[u8]) {
    if let Ok(program) = Program::arbitrary_take_rest(Unstructured::new(bytes)) {
        carried(&program);
        // Either faults or a kernel.
        let _ = program.validate();
    }
}

/// Checks that the program is unchanged by a round trip through either form.
fn carried(program: &Program) {
    let bytes = wire::encode(program);
    let decoded = wire::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {program:?}"));
    assert_eq!(&decoded, program);
    assert_eq!(decoded.fingerprint(), program.fingerprint());
    let printed = text::print(program);
    let parsed = text::parse(&printed).unwrap_or_else(|faults| panic!("{faults}\n{printed}"));
    assert_eq!(&parsed, program, "{printed}");
    assert_eq!(text::print(&parsed), printed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudorandom bytes, deterministic in the seed.
    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        let mut bytes = vec![0; length];
        hasher.finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn any_program_survives_text_and_wire() {
        for seed in 0..1000 {
            roundtrip(&noise(seed, 32 + seed as usize));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        for seed in 0..2000 {
            decode(&noise(seed, seed as usize % 300));
        }
    }

    /// Program bytes with a few changed, duplicated or removed: closer to programs than noise.
    #[test]
    fn damaged_programs_are_decoded_or_refused() {
        for seed in 0..1500 {
            let bytes = noise(seed, 64 + seed as usize % 400);
            let Ok(program) = Program::arbitrary_take_rest(Unstructured::new(&bytes)) else { continue };
            let mut body = wire::body(&program);
            for change in bytes.chunks_exact(4).take(1 + seed as usize % 5) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % body.len();
                match change[2] % 4 {
                    0 => body[at] = change[3],
                    1 => body[at] = body[at].wrapping_add(1),
                    2 => body.insert(at, change[3]),
                    _ => drop(body.remove(at)),
                }
            }
            decode(&body);
            body.truncate(usize::from(bytes[0]));
            decode(&body);
        }
    }

    #[test]
    fn any_text_is_read_or_refused() {
        for seed in 0..1000 {
            parse(&noise(seed, seed as usize % 200));
        }
    }
}
