//! Turns SPIR-V specialisation constants into plain constants.
//!
//! naga supports only a few uses of specialisation constants. Here each is replaced by its default
//! or by the caller's value before naga reads the words. `OpSpecConstantOp` on integers is
//! evaluated.

use crate::fault::{Fault, Result};
use std::collections::HashMap;

const OP_CONSTANT_TRUE: u32 = 41;
const OP_CONSTANT_FALSE: u32 = 42;
const OP_CONSTANT: u32 = 43;
const OP_CONSTANT_COMPOSITE: u32 = 44;
const OP_SPEC_CONSTANT_TRUE: u32 = 48;
const OP_SPEC_CONSTANT_FALSE: u32 = 49;
const OP_SPEC_CONSTANT: u32 = 50;
const OP_SPEC_CONSTANT_COMPOSITE: u32 = 51;
const OP_SPEC_CONSTANT_OP: u32 = 52;
const OP_TYPE_FLOAT: u32 = 22;
const OP_NAME: u32 = 5;
const OP_DECORATE: u32 = 71;
const DECORATION_SPEC_ID: u32 = 1;

/// The module without specialisation constants.
pub(crate) fn frozen(words: &[u32], set: &[(String, f64)]) -> Result<Vec<u32>> {
    let mut pass = Pass { set, ..Pass::default() };
    let mut out: Vec<u32> = words.iter().take(5).copied().collect();
    let mut at = 5;
    while at < words.len() {
        let length = (words[at] >> 16) as usize;
        let Some(instruction) = words.get(at..at + length).filter(|words| !words.is_empty()) else {
            return Err(Fault::unreadable(format!("the instruction at word {at} is cut off")));
        };
        pass.instruction(instruction, &mut out)?;
        at += length;
    }
    for (key, _) in set {
        if !pass.ids.values().any(|id| id.to_string() == *key) && !pass.names.values().any(|name| name == key)
        {
            return Err(Fault::constant(format!("the shader has no specialisation constant `{key}`")));
        }
    }
    Ok(out)
}

#[derive(Default)]
struct Pass<'a> {
    set: &'a [(String, f64)],
    /// Specialisation numbers, by id.
    ids: HashMap<u32, u32>,
    names: HashMap<u32, String>,
    floats: Vec<u32>,
    /// Values of 32-bit constants and bools, by id.
    values: HashMap<u32, u32>,
}

impl Pass<'_> {
    fn instruction(&mut self, words: &[u32], out: &mut Vec<u32>) -> Result<()> {
        let opcode = words[0] & 0xffff;
        match (opcode, words) {
            (OP_NAME, [_, id, text @ ..]) => {
                self.names.insert(*id, string(text));
            }
            (OP_DECORATE, [_, id, DECORATION_SPEC_ID, number, ..]) => {
                self.ids.insert(*id, *number);
                return Ok(());
            }
            (OP_TYPE_FLOAT, [_, id, ..]) => self.floats.push(*id),
            (OP_CONSTANT, [_, _, id, value]) => {
                self.values.insert(*id, *value);
            }
            (OP_CONSTANT_TRUE | OP_CONSTANT_FALSE, [_, _, id]) => {
                self.values.insert(*id, u32::from(opcode == OP_CONSTANT_TRUE));
            }
            (OP_SPEC_CONSTANT_TRUE | OP_SPEC_CONSTANT_FALSE, [_, ty, id]) => {
                let default = f64::from(u8::from(opcode == OP_SPEC_CONSTANT_TRUE));
                let holds = self.given(*id).unwrap_or(default) != 0.0;
                self.values.insert(*id, u32::from(holds));
                let opcode = if holds { OP_CONSTANT_TRUE } else { OP_CONSTANT_FALSE };
                out.extend([3 << 16 | opcode, *ty, *id]);
                return Ok(());
            }
            (OP_SPEC_CONSTANT, [_, ty, id, value]) => {
                let value = match self.given(*id) {
                    None => *value,
                    Some(given) if self.floats.contains(ty) => (given as f32).to_bits(),
                    Some(given) if given < 0.0 => given as i32 as u32,
                    Some(given) => given as u32,
                };
                self.values.insert(*id, value);
                out.extend([4 << 16 | OP_CONSTANT, *ty, *id, value]);
                return Ok(());
            }
            (OP_SPEC_CONSTANT, _) => {
                out.push(words[0] & 0xffff_0000 | OP_CONSTANT);
                out.extend(&words[1..]);
                return Ok(());
            }
            (OP_SPEC_CONSTANT_COMPOSITE, _) => {
                out.push(words[0] & 0xffff_0000 | OP_CONSTANT_COMPOSITE);
                out.extend(&words[1..]);
                return Ok(());
            }
            (OP_SPEC_CONSTANT_OP, [_, ty, id, op, operands @ ..]) => {
                let values: Option<Vec<u32>> =
                    operands.iter().map(|id| self.values.get(id).copied()).collect();
                let value = values.and_then(|values| operation(*op, &values)).ok_or_else(|| {
                    Fault::unsupported(format!("the specialisation constant %{id}, made by operation {op},"))
                })?;
                self.values.insert(*id, value.bits);
                if value.is_bool {
                    let opcode = if value.bits != 0 { OP_CONSTANT_TRUE } else { OP_CONSTANT_FALSE };
                    out.extend([3 << 16 | opcode, *ty, *id]);
                } else {
                    out.extend([4 << 16 | OP_CONSTANT, *ty, *id, value.bits]);
                }
                return Ok(());
            }
            _ => {}
        }
        out.extend(words);
        Ok(())
    }

    fn given(&self, id: u32) -> Option<f64> {
        let number = self.ids.get(&id).map(u32::to_string);
        let name = self.names.get(&id);
        let is_this = |key: &String| Some(key) == number.as_ref() || Some(key) == name;
        self.set.iter().find(|(key, _)| is_this(key)).map(|(_, value)| *value)
    }
}

struct Computed {
    bits: u32,
    is_bool: bool,
}

/// Evaluates an operation on 32-bit constants, by its SPIR-V opcode.
fn operation(op: u32, values: &[u32]) -> Option<Computed> {
    let number = |bits: u32| Some(Computed { bits, is_bool: false });
    let truth = |holds: bool| Some(Computed { bits: u32::from(holds), is_bool: true });
    let signed = |value: u32| value as i32;
    match (op, values) {
        (124, [x]) => number(*x),
        (126, [x]) => number(x.wrapping_neg()),
        (128, [x, y]) => number(x.wrapping_add(*y)),
        (130, [x, y]) => number(x.wrapping_sub(*y)),
        (132, [x, y]) => number(x.wrapping_mul(*y)),
        (134, [x, y]) => number(x.checked_div(*y)?),
        (135, [x, y]) => number(signed(*x).checked_div(signed(*y))? as u32),
        (137, [x, y]) => number(x.checked_rem(*y)?),
        (138, [x, y]) => number(signed(*x).checked_rem(signed(*y))? as u32),
        (139, [x, y]) => number(signed(*x).checked_rem_euclid(signed(*y))? as u32),
        (164 | 170, [x, y]) => truth(x == y),
        (165 | 171, [x, y]) => truth(x != y),
        (166, [x, y]) => truth(*x != 0 || *y != 0),
        (167, [x, y]) => truth(*x != 0 && *y != 0),
        (168, [x]) => truth(*x == 0),
        (169, [c, x, y]) => number(if *c != 0 { *x } else { *y }),
        (172, [x, y]) => truth(x > y),
        (173, [x, y]) => truth(signed(*x) > signed(*y)),
        (174, [x, y]) => truth(x >= y),
        (175, [x, y]) => truth(signed(*x) >= signed(*y)),
        (176, [x, y]) => truth(x < y),
        (177, [x, y]) => truth(signed(*x) < signed(*y)),
        (178, [x, y]) => truth(x <= y),
        (179, [x, y]) => truth(signed(*x) <= signed(*y)),
        (194, [x, y]) => number(x.wrapping_shr(*y)),
        (195, [x, y]) => number(signed(*x).wrapping_shr(*y) as u32),
        (196, [x, y]) => number(x.wrapping_shl(*y)),
        (197, [x, y]) => number(x | y),
        (198, [x, y]) => number(x ^ y),
        (199, [x, y]) => number(x & y),
        (200, [x]) => number(!x),
        _ => None,
    }
}

/// Decodes a zero-terminated string.
fn string(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
