//! Prints a checked kernel for reading, as optimizer tests compare it and `vyre opt` shows it. The
//! output does not parse.

use super::literal::{write_quoted, write_value};
use super::printer::{Counts, Quoted};
use super::vocabulary::{AXES, atomic_name, subgroup_name};
use crate::kernel::known::Named;
use crate::kernel::{
    ArrayId, BufferId, Def, Kernel, KernelBody, KernelDomain, LocalId, Place, Stmt, StmtKind, ValueId,
};
use std::fmt;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut listing = Listing { out: f, kernel: self, indent: 1 };
        listing.header()?;
        listing.block(&self.body)?;
        listing.out.write_str("}\n")
    }
}

struct Listing<'a, 'f> {
    out: &'a mut fmt::Formatter<'f>,
    kernel: &'a KernelBody,
    indent: usize,
}

impl<'a> Listing<'a, '_> {
    fn header(&mut self) -> fmt::Result {
        let kernel = self.kernel;
        self.out.write_str("kernel")?;
        if let Some(name) = &kernel.name {
            write!(self.out, " {}", Quoted(name))?;
        }
        match &kernel.domain {
            KernelDomain::Counts(counts) => write!(self.out, " over {}", Counts(*counts))?,
            KernelDomain::LenOf(buffer) => write!(self.out, " over {}", self.buffer(*buffer))?,
            KernelDomain::Axes([x, y, z]) => {
                let [x, y, z] = [x, y, z].map(|axis| Named(kernel, axis));
                write!(self.out, " over [{x}, {y}, {z}]")?;
            }
            KernelDomain::Given => self.out.write_str(" over the domain of each dispatch")?,
        }
        write!(self.out, " workgroup {}", Counts(kernel.workgroup_size))?;
        if kernel.coarsening > 1 {
            write!(self.out, " [{} elements per invocation]", kernel.coarsening)?;
        }
        self.out.write_str(if kernel.shape_free { " [shape free] {\n" } else { " {\n" })?;
        for buffer in &kernel.buffers {
            let decl = &buffer.decl;
            write!(self.out, "  buffer {}: {} {}[", Quoted(&decl.name), decl.access, decl.element)?;
            if decl.count > 0 {
                write!(self.out, "{}", decl.count)?;
            }
            self.out.write_str("]")?;
            if let Some(length) = &buffer.length {
                write!(self.out, " of {}", Named(kernel, length))?;
            }
            if let Some(other) = buffer.len_of {
                write!(self.out, " len_of {}", self.buffer(other))?;
            }
            self.out.write_str("\n")?;
        }
        write!(self.out, "{}", Named(kernel, &kernel.proof))?;
        for (k, array) in kernel.arrays.iter().enumerate() {
            writeln!(
                self.out,
                "  array {}: {}[{}]",
                self.array(ArrayId(k as u32)),
                array.element,
                array.count
            )?;
        }
        for (k, local) in kernel.locals.iter().enumerate() {
            writeln!(self.out, "  local {}: {}", self.local(LocalId(k as u32)), local.ty)?;
        }
        Ok(())
    }

    fn buffer(&self, id: BufferId) -> Quoted<'a> {
        Quoted(&self.kernel.buffers[id.index()].decl.name)
    }

    /// Numbers distinguish locals and arrays of the same name, which inlining and nested blocks can
    /// produce.
    fn local(&self, id: LocalId) -> String {
        format!("{}.{}", Quoted(&self.kernel.locals[id.index()].name), id.0)
    }

    fn array(&self, id: ArrayId) -> String {
        format!("{}.{}", Quoted(&self.kernel.arrays[id.index()].name), id.0)
    }

    fn place(&self, place: Place) -> String {
        match place {
            Place::Buffer(id) => self.buffer(id).to_string(),
            Place::Array(id) => self.array(id),
        }
    }

    fn block(&mut self, stmts: &[Stmt]) -> fmt::Result {
        stmts.iter().try_for_each(|stmt| {
            self.line_start()?;
            self.stmt(&stmt.kind)?;
            self.out.write_str("\n")
        })
    }

    fn line_start(&mut self) -> fmt::Result {
        (0..self.indent).try_for_each(|_| self.out.write_str("  "))
    }

    fn braces(&mut self, stmts: &[Stmt]) -> fmt::Result {
        if stmts.is_empty() {
            return self.out.write_str("{}");
        }
        self.out.write_str("{\n")?;
        self.indent += 1;
        self.block(stmts)?;
        self.indent -= 1;
        self.line_start()?;
        self.out.write_str("}")
    }

    fn stmt(&mut self, kind: &StmtKind) -> fmt::Result {
        match kind {
            StmtKind::Def(value, def) => {
                let info = self.kernel.values[value.index()];
                let uniform = if info.uniform { " uniform" } else { "" };
                write!(self.out, "v{}: {}{uniform} = ", value.0, info.ty)?;
                self.def(def)
            }
            StmtKind::Set(local, value) => write!(self.out, "set {} = v{}", self.local(*local), value.0),
            StmtKind::Clear(array) => write!(self.out, "clear {}", self.array(*array)),
            StmtKind::Store { place, index, value, in_bounds } => {
                write!(self.out, "store {}[v{}] = v{}", self.place(*place), index.0, value.0)?;
                self.bounds(*in_bounds)
            }
            StmtKind::If { condition, then, otherwise } => {
                write!(self.out, "if v{} ", condition.0)?;
                self.braces(then)?;
                if otherwise.is_empty() {
                    return Ok(());
                }
                self.out.write_str(" else ")?;
                self.braces(otherwise)
            }
            StmtKind::For { counter, from, to, step, body } => {
                let info = self.kernel.values[counter.index()];
                let uniform = if info.uniform { " uniform" } else { "" };
                write!(self.out, "for v{}: {}{uniform} in v{}..v{}", counter.0, info.ty, from.0, to.0)?;
                write!(self.out, " step v{} ", step.0)?;
                self.braces(body)
            }
            StmtKind::Loop(body) => {
                self.out.write_str("loop ")?;
                self.braces(body)
            }
            StmtKind::Break => self.out.write_str("break"),
            StmtKind::Continue => self.out.write_str("continue"),
            StmtKind::Return => self.out.write_str("return"),
            StmtKind::Barrier => self.out.write_str("barrier"),
            StmtKind::Region { generator, body } => {
                self.out.write_str("region ")?;
                write_quoted(self.out, generator, '"')?;
                self.out.write_str(" ")?;
                self.braces(body)
            }
            StmtKind::Trap(code) => write!(self.out, "trap {code}"),
        }
    }

    fn def(&mut self, def: &Def) -> fmt::Result {
        match def {
            Def::Const(value) => write_value(self.out, *value),
            Def::Get(local) => write!(self.out, "get {}", self.local(*local)),
            Def::Op(op, operands) => {
                self.out.write_str(op.row().name)?;
                self.operands(operands)
            }
            Def::Load { place, index, in_bounds } => {
                write!(self.out, "load {}[v{}]", self.place(*place), index.0)?;
                self.bounds(*in_bounds)
            }
            Def::Len(buffer) => write!(self.out, "len {}", self.buffer(*buffer)),
            Def::Builtin(builtin, axis) => {
                write!(self.out, "{}.{}", builtin.name(), AXES[usize::from(*axis)])
            }
            Def::Atomic { op, buffer, index, operands, in_bounds } => {
                write!(self.out, "{} {}[v{}],", atomic_name(*op), self.buffer(*buffer), index.0)?;
                self.operands(operands)?;
                self.bounds(*in_bounds)
            }
            Def::Subgroup(op, operands) => {
                self.out.write_str(&subgroup_name(*op))?;
                self.operands(operands)
            }
        }
    }

    fn operands(&mut self, operands: &[ValueId]) -> fmt::Result {
        operands
            .iter()
            .enumerate()
            .try_for_each(|(k, value)| write!(self.out, "{} v{}", if k == 0 { "" } else { "," }, value.0))
    }

    fn bounds(&mut self, in_bounds: bool) -> fmt::Result {
        self.out.write_str(if in_bounds { " [in bounds]" } else { "" })
    }
}
