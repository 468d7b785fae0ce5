//! Writes the tree as a kernel in `.vyre` text.
//!
//! Rust's `if`, `&&` and blocks with values evaluate one side only and can contain statements;
//! those of the text are operands that are all evaluated. A value that has an effect or needs
//! statements is therefore computed into a variable before the current statement, and so is every
//! operand before it, in order, if it could otherwise come out differently. All names are in
//! backticks, so that none collides with a keyword, op or uniform of the text.

mod statements;
mod values;

use crate::read::Reader;
use crate::read::sizes::spelling;
use crate::spanned_text::{SpannedText, spanned};
use crate::token_span::TokenSpan;
use crate::tree::{
    Access, Block, Buffer, Constant, Domain, Length, Parameter, Size, Slice, SliceOf, Value, VariableId,
};
use crate::types::{Scalar, Type};
use syn::{Error, Ident};

/// Everything around the body of a kernel.
pub(crate) struct Header<'t> {
    pub(crate) name: &'t str,
    pub(crate) parameters: &'t [Parameter],
    pub(crate) domain: &'t Domain,
    pub(crate) workgroup: &'t [Size],
}

pub(crate) struct Writer<'t> {
    reader: &'t Reader,
    out: SpannedText,
    depth: usize,
    temporaries: usize,
    pub(crate) faults: Vec<Error>,
    /// Open types that have already been reported.
    reported: Vec<Type>,
}

impl<'t> Writer<'t> {
    pub(crate) fn new(reader: &'t Reader) -> Writer<'t> {
        Writer {
            reader,
            out: SpannedText::default(),
            depth: 0,
            temporaries: 0,
            faults: Vec::new(),
            reported: Vec::new(),
        }
    }

    /// Writes the whole kernel, without the functions that it calls.
    pub(crate) fn kernel(&mut self, header: &Header<'_>, body: &Block) -> SpannedText {
        let mut parameters = SpannedText::default();
        for parameter in header.parameters {
            let part = self.parameter(parameter);
            parameters = spanned!("{}\n  {},", parameters, part);
        }
        let over = self.domain(header.domain);
        let workgroup: Vec<&str> = header.workgroup.iter().map(|size| &*size.text).collect();
        self.depth = 2;
        let body = self.nested(body);
        let constants = self.constants();
        let name = quoted(header.name);
        spanned!(
            "{}kernel {}({}\n){} workgroup [{}] {\n  region {} {\n{}  }\n}\n",
            constants,
            SpannedText::new(&name),
            parameters,
            over,
            SpannedText::new(workgroup.join(", ")),
            SpannedText::new(&name),
            body
        )
    }

    /// Writes a function and an empty kernel, since a text must have one.
    pub(crate) fn function(
        &mut self,
        name: &str,
        parameters: &[VariableId],
        result: Scalar,
        body: &Block,
    ) -> SpannedText {
        let list: Vec<String> = parameters
            .iter()
            .map(|id| format!("{}: {}", self.name(*id), self.variable_type(*id).value()))
            .collect();
        self.depth = 1;
        let mut inner = self.nested(body);
        if let Some(value) = &body.value {
            let written = self.apart(|writer| writer.value(value));
            inner = spanned!("{}{}  {}\n", inner, written.0, written.1);
        }
        let constants = self.constants();
        let head = format!("fn {}({}) -> {} {{\n", ticked(name), list.join(", "), result.value());
        spanned!(
            "{}{}{}}\nkernel () over 1 { region \"none\" { } }\n",
            constants,
            SpannedText::new(head),
            inner
        )
    }

    /// Stand-ins for functions declared elsewhere, with the same types and results that depend on
    /// all operands.
    pub(crate) fn stand_ins(&mut self) -> String {
        let mut text = String::new();
        for function in &self.reader.functions {
            let span = crate::read::span_of(&function.path);
            let result = self.settle(function.result, span);
            let types: Vec<Scalar> = function.parameters.iter().map(|ty| self.argument_type(*ty)).collect();
            let list: Vec<String> =
                types.iter().enumerate().map(|(at, ty)| format!("p{at}: {}", ty.value())).collect();
            let mut value = result.zero().to_string();
            for (at, ty) in types.iter().enumerate() {
                value = format!("select(p{at} == {}, {value}, {})", ty.zero(), result.zero());
            }
            let name = ticked(&spelling(&function.path));
            text += &format!("fn {name}({}) -> {} {{ {value} }}\n", list.join(", "), result.value());
        }
        text
    }

    /// Declarations of constants; their values serve only to check the text.
    fn constants(&mut self) -> SpannedText {
        let mut out = SpannedText::default();
        let reader = self.reader;
        for constant in &reader.constants {
            let ty = self.constant_type(constant);
            let usual = if ty == Scalar::Bool { "true" } else { "16" };
            let sample = reader.samples.get(&spelling(&constant.path)).map_or(usual, |sample| sample);
            let line = format!("const {}: {} = {sample}\n", constant.name, ty.value());
            out.append(SpannedText::new(line).at(crate::read::span_of(&constant.path)));
        }
        out
    }

    pub(crate) fn constant_type(&mut self, constant: &Constant) -> Scalar {
        self.settle(constant.ty, crate::read::span_of(&constant.path))
    }

    fn parameter(&mut self, parameter: &Parameter) -> SpannedText {
        match parameter {
            Parameter::Scalar(ident, ty) => {
                SpannedText::new(format!("{}: {} uniform", ident_text(ident), ty.element())).at(ident.span())
            }
            Parameter::Buffer(buffer) => self.buffer(buffer).at(buffer.ident.span()),
        }
    }

    fn buffer(&mut self, buffer: &Buffer) -> SpannedText {
        let count = buffer.count.as_ref().map(|size| size.text.clone()).unwrap_or_default();
        let (access, count, behind) = match &buffer.access {
            Access::Read => ("read", SpannedText::new(count), String::new()),
            Access::ReadWrite => ("read_write", SpannedText::new(count), String::new()),
            Access::Uniform => ("uniform", SpannedText::new(count), String::new()),
            Access::Workgroup => ("workgroup", SpannedText::new(count), String::new()),
            Access::Output(Length::AsGiven) => ("output", SpannedText::new(count), String::new()),
            Access::Output(Length::Of(other)) => {
                ("output", SpannedText::new(count), format!(" len_of {}", ident_text(other)))
            }
            Access::Output(Length::Worked(value)) => {
                let worked = self.worked(value);
                ("output", worked, String::new())
            }
        };
        let head = format!("{}: {access} {}[", ident_text(&buffer.ident), buffer.element.element());
        spanned!("{}{}]{}", SpannedText::new(head), count, SpannedText::new(behind))
    }

    fn domain(&mut self, domain: &Domain) -> SpannedText {
        match domain {
            Domain::Default => SpannedText::default(),
            Domain::LenOf(ident) => SpannedText::new(format!(" over {}", ident_text(ident))).at(ident.span()),
            Domain::Axes(axes) => {
                let mut list = SpannedText::default();
                for axis in axes {
                    let axis = self.worked(axis);
                    list = spanned!("{}{}, ", list, axis);
                }
                spanned!(" over [{}]", list)
            }
        }
    }

    /// A size that is computed at each dispatch.
    fn worked(&mut self, value: &Value) -> SpannedText {
        let (statements, spanned) = self.apart(|writer| writer.value(value));
        if !statements.text.is_empty() {
            self.fault(value.span, "a size is a single expression of literals, uniforms and lengths");
        }
        spanned
    }

    /// Captures the output of `write` separately, and returns it with the result.
    fn apart<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> (SpannedText, T) {
        let before = std::mem::take(&mut self.out);
        let result = write(self);
        (std::mem::replace(&mut self.out, before), result)
    }

    /// Statements of a block, each on separate lines.
    fn nested(&mut self, block: &Block) -> SpannedText {
        self.depth += 1;
        let (statements, ()) =
            self.apart(|writer| block.statements.iter().for_each(|one| writer.statement(one)));
        self.depth -= 1;
        statements
    }

    fn line(&mut self, spanned: SpannedText) {
        self.out.push(&"  ".repeat(self.depth));
        self.out.append(spanned);
        self.out.push("\n");
    }

    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("`vyre'{}`", self.temporaries)
    }

    /// Name of a variable in the text.
    fn name(&self, id: VariableId) -> String {
        ticked(&self.reader.variables[id.0].name)
    }

    fn variable_type(&mut self, id: VariableId) -> Scalar {
        let variable = &self.reader.variables[id.0];
        let name = variable.ident.to_string();
        self.settle_named(variable.ty, variable.ident.span().into(), &name)
    }

    fn slice_name(&self, slice: &Slice) -> String {
        match slice.of {
            SliceOf::Buffer(_) => ident_text(&slice.ident),
            SliceOf::Array(id) => self.name(id),
        }
    }

    fn fault(&mut self, at: impl Into<TokenSpan>, message: impl std::fmt::Display) {
        self.faults.push(at.into().error(message));
    }

    /// Final type; if it is unknown, reports a fault and returns any type.
    pub(crate) fn settle(&mut self, ty: Type, span: TokenSpan) -> Scalar {
        self.settle_named(ty, span, "x")
    }

    fn settle_named(&mut self, ty: Type, span: TokenSpan, name: &str) -> Scalar {
        if let Some(scalar) = self.reader.types.settle(ty) {
            return scalar;
        }
        let open = self.reader.types.find(ty);
        if !self.reported.contains(&open) {
            self.reported.push(open);
            let like = self.reader.types.settle_literal(ty);
            let like = if like.is_float() { "f32" } else { "u32" };
            self.fault(
                span,
                format!("the type of this is not known to the kernel; write it: `let {name}: {like} = …;`"),
            );
        }
        Scalar::U32
    }

    /// Type of a function argument: for a literal, the widest of its kind, since it takes the
    /// function's type once that is known.
    fn argument_type(&mut self, ty: Type) -> Scalar {
        self.reader.types.settle_literal(ty)
    }
}

/// Quotes a name in backticks, so that it is not a keyword, op or builtin.
pub(crate) fn ticked(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

fn ident_text(ident: &Ident) -> String {
    ticked(&crate::read::plain(ident))
}

/// Quotes a string for the text.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            c if c.is_control() => out += &format!("\\u{{{:x}}}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}
