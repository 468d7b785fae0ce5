//! Makes naga's SPIR-V strict: adds decorations and modes that keep drivers from rewriting float
//! arithmetic.
//!
//! Naga marks no operation `NoContraction`, so drivers rewrite: `(x + c) - c` becomes x,
//! `inf - inf` becomes 0. This pass adds the decoration to every float operation and comparison,
//! and requests that signed zeros, infinities and NaNs be preserved (`SignedZeroInfNanPreserve` of
//! `SPV_KHR_float_controls`) for every float width that the module uses.
//!
//! Expects a well-formed module. Sections come in a fixed order, so additions are inserted before
//! the first instruction of a later section.

/// Makes float arithmetic strict; `None` if the words are not a SPIR-V module.
pub(crate) fn strict(words: &[u32], controls: FloatControls) -> Option<Vec<u32>> {
    let (header, rest) = words.split_at_checked(HEADER)?;
    let module = Module::read(rest)?;
    let widths: &[u32] = if controls == FloatControls::Requested { &module.float_widths } else { &[] };
    let mut out = header.to_vec();
    let mut section = 0;
    for instruction in &module.instructions {
        let behind = section_of(instruction.opcode);
        while section < behind {
            module.additions(section, widths, &mut out);
            section += 1;
        }
        out.extend_from_slice(instruction.words);
    }
    Some(out)
}

/// Whether to use the modes of `SPV_KHR_float_controls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatControls {
    /// The modes are requested.
    Requested,
    /// The modes are omitted: the device might not support them.
    Absent,
}

const HEADER: usize = 5;

const OP_EXTENSION: u32 = 10;
const OP_EXT_INST_IMPORT: u32 = 11;
const OP_EXT_INST: u32 = 12;
const OP_MEMORY_MODEL: u32 = 14;
const OP_ENTRY_POINT: u32 = 15;
const OP_EXECUTION_MODE: u32 = 16;
const OP_CAPABILITY: u32 = 17;
const OP_TYPE_FLOAT: u32 = 22;
const OP_DECORATE: u32 = 71;
const OP_F_NEGATE: u32 = 127;
/// Float negation, addition, subtraction, multiplication, division and remainder; the integer
/// opcodes are interleaved.
const FLOAT_ARITHMETIC: [u32; 6] = [OP_F_NEGATE, 129, 131, 133, 136, 140];
/// All float comparisons.
const FLOAT_COMPARISONS: std::ops::RangeInclusive<u32> = 180..=191;

const NO_CONTRACTION: u32 = 42;
const CAPABILITY_SIGNED_ZERO_INF_NAN_PRESERVE: u32 = 4466;
const MODE_SIGNED_ZERO_INF_NAN_PRESERVE: u32 = 4461;
const FLOAT_CONTROLS: &[u8] = b"SPV_KHR_float_controls\0\0";

/// Sections that receive additions at their end, in order.
const CAPABILITIES: u32 = 0;
const EXTENSIONS: u32 = 1;
const MODES: u32 = 2;
const ANNOTATIONS: u32 = 3;
const DECLARATIONS: u32 = 4;

fn section_of(opcode: u32) -> u32 {
    match opcode {
        OP_CAPABILITY => CAPABILITIES,
        OP_EXTENSION => EXTENSIONS,
        OP_EXT_INST_IMPORT | OP_MEMORY_MODEL | OP_ENTRY_POINT | OP_EXECUTION_MODE => MODES,
        // Names and sources, then decorations.
        2..=8 | OP_DECORATE..=75 | 332 | 5632 | 5633 => ANNOTATIONS,
        _ => DECLARATIONS,
    }
}

struct Instruction<'a> {
    opcode: u32,
    words: &'a [u32],
}

struct Module<'a> {
    instructions: Vec<Instruction<'a>>,
    entry: u32,
    float_widths: Vec<u32>,
    /// Results to decorate.
    exact: Vec<u32>,
}

impl<'a> Module<'a> {
    fn read(mut words: &'a [u32]) -> Option<Module<'a>> {
        let mut module =
            Module { instructions: Vec::new(), entry: 0, float_widths: Vec::new(), exact: Vec::new() };
        let mut float_types = Vec::new();
        while let Some(&first) = words.first() {
            let (opcode, length) = (first & 0xFFFF, (first >> 16) as usize);
            let (instruction, rest) = words.split_at_checked(length).filter(|_| length > 0)?;
            words = rest;
            let operand = |k: usize| instruction.get(k).copied();
            match opcode {
                OP_ENTRY_POINT => module.entry = operand(2)?,
                OP_TYPE_FLOAT => {
                    float_types.push(operand(1)?);
                    module.float_widths.push(operand(2)?);
                }
                OP_EXT_INST if float_types.contains(&operand(1)?) => module.exact.push(operand(2)?),
                _ if FLOAT_ARITHMETIC.contains(&opcode) || FLOAT_COMPARISONS.contains(&opcode) => {
                    module.exact.push(operand(2)?);
                }
                _ => {}
            }
            module.instructions.push(Instruction { opcode, words: instruction });
        }
        Some(module)
    }

    /// Appends the additions for the end of a section.
    fn additions(&self, section: u32, widths: &[u32], out: &mut Vec<u32>) {
        match section {
            CAPABILITIES if !widths.is_empty() => {
                instruction(out, OP_CAPABILITY, &[CAPABILITY_SIGNED_ZERO_INF_NAN_PRESERVE]);
            }
            EXTENSIONS if !widths.is_empty() => {
                let name: Vec<u32> = FLOAT_CONTROLS
                    .chunks_exact(4)
                    .map(|bytes| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
                    .collect();
                instruction(out, OP_EXTENSION, &name);
            }
            MODES => {
                for &width in widths {
                    instruction(
                        out,
                        OP_EXECUTION_MODE,
                        &[self.entry, MODE_SIGNED_ZERO_INF_NAN_PRESERVE, width],
                    );
                }
            }
            ANNOTATIONS => {
                for &id in &self.exact {
                    instruction(out, OP_DECORATE, &[id, NO_CONTRACTION]);
                }
            }
            _ => {}
        }
    }
}

fn instruction(out: &mut Vec<u32>, opcode: u32, operands: &[u32]) {
    out.push((operands.len() as u32 + 1) << 16 | opcode);
    out.extend_from_slice(operands);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_stand_at_the_end_of_their_sections() {
        let module = [
            &[0x0723_0203, 0x0001_0300, 0, 20, 0][..],
            &[2 << 16 | OP_CAPABILITY, 1],
            &[3 << 16 | OP_MEMORY_MODEL, 0, 1],
            &[5 << 16 | OP_ENTRY_POINT, 5, 9, 0x6E69_616D, 0],
            &[6 << 16 | OP_EXECUTION_MODE, 9, 17, 64, 1, 1],
            &[3 << 16 | OP_TYPE_FLOAT, 3, 32],
            &[5 << 16 | 129, 3, 12, 10, 11],
        ]
        .concat();
        let strict = strict(&module, FloatControls::Requested).expect("a module");
        let opcodes = |words: &[u32]| -> Vec<u32> {
            let found = Module::read(&words[HEADER..]).expect("a module");
            found.instructions.iter().map(|instruction| instruction.opcode).collect()
        };
        let (capability, extension, mode) = (OP_CAPABILITY, OP_EXTENSION, OP_EXECUTION_MODE);
        let expected = [
            capability,
            capability,
            extension,
            OP_MEMORY_MODEL,
            OP_ENTRY_POINT,
            mode,
            mode,
            OP_DECORATE,
            OP_TYPE_FLOAT,
            129,
        ];
        assert_eq!(opcodes(&strict), expected);
        assert!(strict.windows(3).any(|words| words == [3 << 16 | OP_DECORATE, 12, NO_CONTRACTION]));
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(strict(&[], FloatControls::Requested), None);
        assert_eq!(strict(&[0, 0, 0, 0, 0, 0], FloatControls::Requested), None);
        assert_eq!(strict(&[0, 0, 0, 0, 0, 9 << 16 | 129], FloatControls::Requested), None);
    }
}
