//! Text form of a function: a line per instruction, blocks in the order of [`Function::order`].

use super::{Edge, End, Function, Lane, Type, Value};
use std::fmt;

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lane = match self.lane {
            Lane::I8 => "i8",
            Lane::I16 => "i16",
            Lane::I32 => "i32",
            Lane::I64 => "i64",
            Lane::F32 => "f32",
            Lane::F64 => "f64",
        };
        if self.is_piece() { write!(f, "{lane}x{}", self.lane_count()) } else { f.write_str(lane) }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &zero in &self.zeros {
            writeln!(f, "  {zero}: {} = zero", self.ty(zero))?;
        }
        for block in self.order() {
            let data = self.block(block);
            let typed = data.params.iter().map(|&param| format!("{param}: {}", self.ty(param)));
            let cold = if data.cold { " cold" } else { "" };
            writeln!(f, "b{}({}){cold}:", block.0, typed.collect::<Vec<_>>().join(", "))?;
            for value in self.body(block) {
                let inst = self.inst(value);
                write!(f, "  {value}: {} = {:?}", inst.ty, inst.op)?;
                self.operands(value).iter().try_for_each(|operand| write!(f, " {operand}"))?;
                writeln!(f)?;
            }
            match self.ending(block) {
                End::Jump(edge) => writeln!(f, "  jump {edge}")?,
                End::Branch(condition, [yes, no]) => writeln!(f, "  branch {condition} {yes} else {no}")?,
                End::Return(value) => writeln!(f, "  return {value}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(Value::to_string).collect();
        write!(f, "b{}({})", self.to.0, arguments.join(", "))
    }
}
