//! Reads a function's tokens into the [tree](crate::tree): resolves names, infers types, and
//! rejects anything outside the kernel language at its position. All faults are collected; each
//! costs one statement.

mod calls;
pub(crate) mod expressions;
pub(crate) mod sizes;
mod statements;

use crate::token_span::TokenSpan;
use crate::tree::{Buffer, Constant, Function, Slice, SliceOf, Value, Variable, VariableId};
use crate::types::{Inference, Scalar, Type};
use std::collections::HashMap;
use std::fmt::Display;
use syn::{Error, Ident};

pub(crate) type Read<T> = Result<T, Error>;

pub(crate) fn fault<T>(at: impl Into<TokenSpan>, message: impl Display) -> Read<T> {
    Err(at.into().error(message))
}

/// Message of a fault that results from one already reported; it is not reported itself.
const TOLD: &str = "";

/// Faults to report.
pub(crate) fn untold(faults: Vec<Error>) -> Vec<Error> {
    faults.into_iter().filter(|fault| fault.to_string() != TOLD).collect()
}

/// What a name refers to.
#[derive(Clone)]
enum Meaning {
    Variable(VariableId),
    Array(VariableId),
    Uniform(Type),
    Buffer(usize),
    /// Something with a faulty declaration.
    Faulty,
}

/// State of the reader.
pub(crate) struct Reader {
    pub(crate) types: Inference,
    pub(crate) variables: Vec<Variable>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) functions: Vec<Function>,
    pub(crate) faults: Vec<Error>,
    /// Type parameters, and the type of each in this instance.
    pub(crate) generics: HashMap<String, Scalar>,
    /// Sample values of constants for checking the kernel.
    pub(crate) samples: HashMap<String, String>,
    /// Result type of a function; `None` in a kernel.
    pub(crate) result: Option<Type>,
    /// Name of the function itself.
    pub(crate) name: Ident,
    /// Slices of a kernel, by position.
    pub(crate) buffers: Vec<BufferType>,
    /// Whether invocations wait for one another or exchange data.
    pub(crate) exchanges: bool,
    /// Whether the kernel can observe how invocations are grouped.
    pub(crate) shaped: bool,
    scopes: Vec<HashMap<String, Meaning>>,
    /// Number of variables of the text per name.
    given: HashMap<String, usize>,
}

/// Properties of a slice parameter that the body depends on.
pub(crate) struct BufferType {
    pub(crate) element: Scalar,
    pub(crate) writable: bool,
}

impl Reader {
    pub(crate) fn new(name: Ident, result: Option<Type>) -> Reader {
        Reader {
            types: Inference::default(),
            variables: Vec::new(),
            constants: Vec::new(),
            functions: Vec::new(),
            faults: Vec::new(),
            generics: HashMap::new(),
            samples: HashMap::new(),
            result,
            name,
            buffers: Vec::new(),
            exchanges: false,
            shaped: false,
            scopes: vec![HashMap::new()],
            given: HashMap::new(),
        }
    }

    /// Declares a scalar parameter of a kernel.
    pub(crate) fn add_uniform(&mut self, ident: &Ident, ty: Scalar) {
        self.given.insert(ident.to_string(), 1);
        self.declare(ident, Meaning::Uniform(Type::Known(ty)));
    }

    /// Declares a slice parameter of a kernel.
    pub(crate) fn add_buffer(&mut self, buffer: &Buffer) {
        self.given.insert(buffer.ident.to_string(), 1);
        let writable = matches!(
            buffer.access,
            crate::tree::Access::ReadWrite | crate::tree::Access::Output(_) | crate::tree::Access::Workgroup
        );
        self.buffers.push(BufferType { element: buffer.element, writable });
        self.declare(&buffer.ident, Meaning::Buffer(self.buffers.len() - 1));
    }

    /// Declares a parameter of a function.
    pub(crate) fn add_parameter(&mut self, ident: &Ident, ty: Scalar, mutable: bool) -> VariableId {
        let id = self.new_variable(ident, Type::Known(ty), mutable);
        self.declare(ident, Meaning::Variable(id));
        id
    }

    /// Declares a name whose declaration is faulty, so that its uses are not reported too.
    pub(crate) fn add_faulty(&mut self, ident: &Ident) {
        self.declare(ident, Meaning::Faulty);
    }

    /// A variable with a unique name in the text; not yet visible.
    fn new_variable(&mut self, ident: &Ident, ty: Type, mutable: bool) -> VariableId {
        let plain = plain(ident);
        let given = self.given.entry(plain.clone()).or_default();
        *given += 1;
        let name = if *given == 1 { plain } else { format!("{plain}'{given}") };
        self.variables.push(Variable { ident: ident.clone(), name, ty, mutable, length: None });
        VariableId(self.variables.len() - 1)
    }

    fn declare(&mut self, ident: &Ident, meaning: Meaning) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(plain(ident), meaning);
        }
    }

    fn meaning(&self, name: &str) -> Option<&Meaning> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    fn in_scope<T>(&mut self, read: impl FnOnce(&mut Reader) -> T) -> T {
        self.scopes.push(HashMap::new());
        let result = read(self);
        self.scopes.pop();
        result
    }

    /// Unifies two types, or reports where they met.
    fn same(&mut self, a: Type, b: Type, at: TokenSpan) -> Read<()> {
        self.types.same(a, b).map_err(|mismatch| at.error(mismatch.message()))
    }

    fn is(&mut self, value: &Value, scalar: Scalar) -> Read<()> {
        self.same(Type::Known(scalar), value.ty, value.span)
    }

    /// The number type that a type names.
    pub(crate) fn scalar(&self, ty: &syn::Type) -> Read<Scalar> {
        let syn::Type::Path(path) = ty else {
            return fault(span_of(ty), "only numbers and bools are possible here");
        };
        let name = path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if let Some(scalar) = self.generics.get(&name).copied().or_else(|| Scalar::from_name(&name)) {
            return Ok(scalar);
        }
        let help = match name.as_str() {
            "isize" => "; write `i32`",
            "u128" | "i128" => "; write `u64` or `i64`",
            "f16" | "bf16" => "; take the bits as `u16`, and `vyre::bits_f16(x as u32)`",
            "char" => "; write `u32`",
            _ => "",
        };
        fault(span_of(ty), format!("kernels have no type `{name}`{help}"))
    }

    /// Element type of a slice or array.
    fn element(&self, slice: &Slice) -> Type {
        match slice.of {
            SliceOf::Buffer(at) => Type::Known(self.buffers[at].element),
            SliceOf::Array(id) => self.variables[id.0].ty,
        }
    }
}

/// A name without `r#`.
pub(crate) fn plain(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

pub(crate) fn span_of(tokens: &impl quote::ToTokens) -> TokenSpan {
    TokenSpan::of(tokens)
}
