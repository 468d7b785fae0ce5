//! The wire form. (To come.)
use crate::ir::Program;
pub(crate) fn fingerprint(_program: &Program) -> [u8; 32] {
    [0; 32]
}
