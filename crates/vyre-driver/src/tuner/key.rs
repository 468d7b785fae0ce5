//! The scope of a tuning decision: a program at one static shape.

use crate::{CodeKey, DispatchConfig};
use std::fmt;
use vyre_foundation::ir::Program;

/// Domain separator: hashed first, so that no other hash in vyre can equal a key.
const DOMAIN_TAG: &[u8] = b"vyre tuner program key v1\0";

/// The size of a dispatch as far as it is known before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaticProgramShape {
    /// The program's declared workgroup size.
    pub workgroup_size: [u32; 3],
    /// Number of workgroups, if known.
    pub workgroup_count: Option<[u32; 3]>,
    /// Total size of the outputs in bytes.
    pub output_bytes: u64,
}

impl StaticProgramShape {
    /// The shape of `program` at its declared workgroup size.
    pub fn new(
        program: &Program,
        workgroup_count: Option<[u32; 3]>,
        output_bytes: u64,
    ) -> StaticProgramShape {
        StaticProgramShape { workgroup_size: program.workgroup_size(), workgroup_count, output_bytes }
    }
}

/// The key of a tuning decision: any difference in program or shape gives a different key.
///
/// ```
/// use vyre_driver::tuner::{StaticProgramShape, TunerProgramKey};
/// use vyre_foundation::ir::Program;
/// let program = Program::empty();
/// let shape = StaticProgramShape::new(&program, None, 4);
/// let key = TunerProgramKey::from_program(&program, shape);
/// assert!(key.as_str().starts_with("v1-") && key.as_str().len() == 67);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunerProgramKey(String);

impl TunerProgramKey {
    /// The key of this program at this shape.
    pub fn from_program(program: &Program, shape: StaticProgramShape) -> TunerProgramKey {
        TunerProgramKey::from_parts(program.fingerprint(), shape)
    }

    /// The key of this program at this shape, for calls with this configuration. A shape that was
    /// compared under a budget says nothing about strict calls.
    pub(super) fn of_calls(
        program: &Program,
        shape: StaticProgramShape,
        config: &DispatchConfig,
    ) -> TunerProgramKey {
        let digest = CodeKey::digest(program.fingerprint(), &config.result_policy());
        TunerProgramKey::from_parts(digest, shape)
    }

    fn from_parts(fingerprint: [u8; 32], shape: StaticProgramShape) -> TunerProgramKey {
        let StaticProgramShape { workgroup_size, workgroup_count, output_bytes } = shape;
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN_TAG).update(&fingerprint);
        let mut axes = |sizes: [u32; 3]| {
            for size in sizes {
                hasher.update(&size.to_le_bytes());
            }
        };
        axes(workgroup_size);
        axes(workgroup_count.unwrap_or_default());
        // Every part has a fixed width, so the encoding is unambiguous.
        hasher.update(&[u8::from(workgroup_count.is_some())]).update(&output_bytes.to_le_bytes());
        TunerProgramKey(format!("v1-{}", hasher.finalize().to_hex()))
    }

    /// The text form: `v1-` and 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TunerProgramKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TunerProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn any_difference_in_any_part_gives_another_key() {
        let base = StaticProgramShape { workgroup_size: [64, 1, 1], workgroup_count: None, output_bytes: 4 };
        let mut shapes = vec![base, StaticProgramShape { output_bytes: u64::MAX, ..base }];
        for sizes in [[1, 64, 1], [1, 1, 64], [0, 0, 0]] {
            shapes.push(StaticProgramShape { workgroup_size: sizes, ..base });
        }
        for counts in [[0, 0, 0], [1, 2, 3], [3, 2, 1]] {
            shapes.push(StaticProgramShape { workgroup_count: Some(counts), ..base });
        }
        let keys: BTreeSet<TunerProgramKey> = [[0; 32], [1; 32]]
            .into_iter()
            .flat_map(|fingerprint| {
                shapes.iter().map(move |&shape| TunerProgramKey::from_parts(fingerprint, shape))
            })
            .collect();
        assert_eq!(keys.len(), 2 * shapes.len());
    }

    #[test]
    fn the_text_form_is_stable() {
        let shape = StaticProgramShape { workgroup_size: [64, 1, 1], workgroup_count: None, output_bytes: 4 };
        let key = TunerProgramKey::from_parts([7; 32], shape);
        let digits = key.as_str().strip_prefix("v1-").expect("the prefix");
        assert_eq!(digits.len(), 64);
        assert!(digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)));
        assert_eq!(key, TunerProgramKey::from_parts([7; 32], shape));
        assert_eq!((key.as_ref() as &str, key.to_string()), (key.as_str(), key.as_str().to_owned()));
    }
}
