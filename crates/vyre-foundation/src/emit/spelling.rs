//! C expressions for ops.
//!
//! Operands are names and literals, so they need no parentheses. Signed integer arithmetic uses
//! unsigned types, because signed overflow is undefined in C.

use super::dialect::Called;
use super::functions::unsigned;
use super::writer::Writer;
use crate::kernel::ValueId;
use crate::ops::{Op, Spelling};
use crate::types::{Value, ValueType};

impl Writer<'_> {
    /// The expression for an op.
    pub(super) fn op(&mut self, op: Op, operands: &[ValueId]) -> String {
        let ty = self.kernel.ty(operands[0]);
        let mut args: Vec<String> = operands.iter().map(|&operand| self.operand(operand)).collect();
        if matches!(op.row().spelling, Spelling::Infix("<<" | ">>", _)) {
            args[1] = self.count(ty, operands[1]);
        }
        self.spelled(op, ty, &args)
    }

    /// The expression for an op on operands of a type.
    pub(super) fn spelled(&mut self, op: Op, ty: ValueType, args: &[String]) -> String {
        let x = args[0].as_str();
        match op {
            Op::Add | Op::Sub | Op::Mul if ty.is_signed_integer() => {
                let (t, u) = (ty.name(), unsigned(ty).name());
                format!("({t})(({u}){x} {} ({u}){})", infix(op), args[1])
            }
            Op::Div if !ty.is_float() => self.call("div", ty, args),
            Op::Rem => self.call("rem", ty, args),
            Op::Add | Op::Sub | Op::Mul | Op::Div => format!("{x} {} {}", infix(op), args[1]),
            Op::Neg if ty.is_float() => format!("-{x}"),
            Op::Neg => format!("({})(0 - ({}){x})", ty.name(), unsigned(ty).name()),
            Op::Abs if ty.is_integer() && !ty.is_signed_integer() => x.to_string(),
            Op::Abs => self.call("abs", ty, args),
            Op::Sign => self.call("sign", ty, args),
            Op::Min | Op::Max if ty.is_float() => self.call(op.row().name, ty, args),
            Op::Min => format!("{x} < {y} ? {x} : {y}", y = args[1]),
            Op::Max => format!("{x} > {y} ? {x} : {y}", y = args[1]),
            Op::Copysign => self.call("copysign", ty, args),
            Op::IsNan => format!("{x} != {x}"),
            Op::And | Op::Or | Op::Xor => format!("{x} {} {}", infix(op), args[1]),
            Op::Not if ty == ValueType::Bool => format!("!{x}"),
            Op::Not => format!("~{x}"),
            Op::Shl if ty.is_signed_integer() => {
                let (t, u) = (ty.name(), unsigned(ty).name());
                format!("({t})(({u}){x} << {})", args[1])
            }
            // A right shift of a signed integer is arithmetic in every compiler of the family.
            Op::Shl | Op::Shr => format!("{x} {} {}", infix(op), args[1]),
            Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => format!("{x} {} {}", infix(op), args[1]),
            Op::Select => format!("{x} ? {} : {}", args[1], args[2]),
            Op::ToBool if ty == ValueType::Bool => x.to_string(),
            Op::ToBool => format!("{x} != 0"),
            Op::ToU32 if ty.is_float() => self.call("to_u32", ty, args),
            Op::ToI32 if ty.is_float() => self.call("to_i32", ty, args),
            Op::ToU64 if ty.is_float() => self.call("to_u64", ty, args),
            Op::ToI64 if ty.is_float() => self.call("to_i64", ty, args),
            Op::ToU32 | Op::ToI32 | Op::ToU64 | Op::ToI64 | Op::ToF32 | Op::ToF64 => {
                format!("({}){x}", op.row().name)
            }
            Op::BitsU32 | Op::BitsI32 | Op::BitsU64 | Op::BitsI64 => {
                let to = op.row().name.trim_start_matches("bitcast_");
                match (ty.is_float(), to == unsigned(ty).name()) {
                    (true, true) => self.call("bits", ty, args),
                    (true, false) => format!("({to}){}", self.call("bits", ty, args)),
                    (false, _) => format!("({to}){x}"),
                }
            }
            Op::BitsF32 | Op::BitsF64 if ty.is_float() => x.to_string(),
            Op::BitsF32 | Op::BitsF64 => {
                let [_, float] = self.dialect.reinterpret[usize::from(ty.bits() == 64)];
                format!("{float}(({}){x})", unsigned(ty).name())
            }
            Op::Floor | Op::Ceil | Op::Trunc | Op::Round => self.call(op.row().name, ty, args),
            Op::Popcount | Op::Clz => format!("(u32){}", self.function_of(op, ty, args)),
            Op::Fma | Op::Sqrt => self.function_of(op, ty, args),
            Op::Clamp
            | Op::SatAdd
            | Op::SatSub
            | Op::AbsDiff
            | Op::MulHi
            | Op::Rsqrt
            | Op::IsInf
            | Op::IsFinite
            | Op::RotateLeft
            | Op::RotateRight
            | Op::Ctz
            | Op::ReverseBits => unreachable!("decomposed before: {}", op.row().name),
            crate::expanded_op!() => unreachable!("expanded before: {}", op.row().name),
        }
    }

    /// A call to the dialect's function for an op.
    fn function_of(&mut self, op: Op, ty: ValueType, args: &[String]) -> String {
        let Some((_, called)) = self.dialect.calls.iter().find(|(other, _)| *other == op) else {
            unreachable!("{} has no {}, so it is decomposed before", self.dialect.name, op.row().name)
        };
        self.called(*called, ty, args)
    }

    /// A call to a function of the dialect.
    pub(super) fn called(&mut self, called: Called, ty: ValueType, args: &[String]) -> String {
        match called {
            Called::Language(names) => {
                format!("{}({})", names[usize::from(ty.bits() == 64)], args.join(", "))
            }
            Called::Own(stem) => self.call(stem, ty, args),
        }
    }

    /// A shift count, taken modulo the width.
    fn count(&self, ty: ValueType, count: ValueId) -> String {
        let most = ty.bits() - 1;
        match self.constant(count) {
            Some(Value::U32(count)) => format!("{}u", count & most),
            _ => format!("({} & {most}u)", self.operand(count)),
        }
    }
}

/// The op table's infix operator, which is also that of C.
fn infix(op: Op) -> &'static str {
    match op.row().spelling {
        Spelling::Infix(text, _) => text,
        Spelling::Prefix(_) | Spelling::Call => unreachable!("{} stands between operands", op.row().name),
    }
}
