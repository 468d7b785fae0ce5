//! Intermediate form of a kernel between Rust and text: names are resolved, and types stay open
//! until everything has been read.
//!
//! [`read`](crate::read) builds it from the function's tokens; [`text`](crate::text) writes it as a
//! kernel and [`host`](crate::host) as the Rust function that rustc checks and `on_host` runs.
//! Every part records its tokens.

use crate::table::{Intrinsic, Method};
use crate::token_span::TokenSpan;
use crate::types::{Scalar, Type};
use syn::{Ident, Path};

pub(crate) struct Value {
    pub(crate) kind: ValueKind,
    pub(crate) ty: Type,
    pub(crate) span: TokenSpan,
}

pub(crate) enum ValueKind {
    Integer {
        digits: u128,
        negative: bool,
    },
    Float {
        digits: String,
        negative: bool,
    },
    Bool(bool),
    /// A constant of a number type, such as `f32::MAX`, and its text.
    Named(Path, String),
    Variable(VariableId, Ident),
    /// A scalar parameter of a kernel.
    Uniform(Ident),
    Constant(ConstantId),
    Length(Slice),
    Load(Box<Element>),
    Negate(Box<Value>),
    Not(Box<Value>),
    Binary(Binary, Box<[Value; 2]>),
    /// `&&` or `||`.
    Lazy(Binary, Box<[Value; 2]>),
    /// A cast to the value's own type.
    Cast(Box<Value>),
    FromBits(Path, Box<Value>),
    Method(&'static Method, Ident, Vec<Value>),
    Intrinsic(&'static Intrinsic, Path, Vec<Value>),
    Atomic(String, Path, Box<Element>, Vec<Value>),
    Call(FunctionId, Path, Vec<Value>),
    If(Box<If>),
    Block(Block),
}

pub(crate) struct If {
    pub(crate) condition: Value,
    pub(crate) then: Block,
    pub(crate) otherwise: Block,
}

/// An element of a slice or array.
pub(crate) struct Element {
    pub(crate) slice: Slice,
    pub(crate) index: Value,
}

/// Something with elements.
#[derive(Clone)]
pub(crate) struct Slice {
    pub(crate) ident: Ident,
    pub(crate) of: SliceOf,
}

#[derive(Clone, Copy)]
pub(crate) enum SliceOf {
    /// A slice parameter of the kernel, by position.
    Buffer(usize),
    /// A private array of the invocation.
    Array(VariableId),
}

/// Statements and an optional trailing value, which is also absent if control never reaches the
/// end.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) statements: Vec<Statement>,
    pub(crate) value: Option<Box<Value>>,
}

pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) span: TokenSpan,
}

pub(crate) enum StatementKind {
    Let {
        variable: VariableId,
        value: Option<Value>,
    },
    /// Assigns to each variable the value at the same position.
    LetTuple {
        variables: Vec<VariableId>,
        values: Vec<Value>,
    },
    Array {
        variable: VariableId,
        elements: Elements,
    },
    Assign(AssignmentTarget, Value),
    AssignTuple {
        targets: Vec<AssignmentTarget>,
        values: Vec<Value>,
    },
    Update(Binary, AssignmentTarget, Value),
    Evaluate(Value),
    If {
        condition: Value,
        then: Block,
        otherwise: Option<Block>,
    },
    For {
        counter: VariableId,
        range: Range,
        body: Block,
    },
    While {
        condition: Value,
        body: Block,
    },
    Loop(Block),
    Block(Block),
    Break,
    Continue,
    Return(Option<Value>),
    Barrier(Path),
    Print(Message),
    Assert {
        condition: Value,
        message: Option<Message>,
    },
}

/// Initial elements of an array.
pub(crate) enum Elements {
    Repeat(Value),
    List(Vec<Value>),
}

pub(crate) struct Range {
    pub(crate) from: Value,
    pub(crate) to: Value,
    pub(crate) step: Option<Value>,
    pub(crate) reversed: bool,
    /// Whether `to` is included, as in `a..=b`.
    pub(crate) inclusive: bool,
}

pub(crate) struct Message {
    pub(crate) format: syn::LitStr,
    pub(crate) operands: Vec<Value>,
}

/// Target of an assignment.
pub(crate) enum AssignmentTarget {
    Variable(VariableId, Ident),
    Element(Element),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Binary {
    /// The operator's symbol, the same in Rust and in text.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::Rem => "%",
            Binary::And => "&",
            Binary::Or => "|",
            Binary::Xor => "^",
            Binary::Shl => "<<",
            Binary::Shr => ">>",
            Binary::Eq => "==",
            Binary::Ne => "!=",
            Binary::Lt => "<",
            Binary::Le => "<=",
            Binary::Gt => ">",
            Binary::Ge => ">=",
        }
    }

    pub(crate) fn compares(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }

    pub(crate) fn shifts(self) -> bool {
        matches!(self, Binary::Shl | Binary::Shr)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariableId(pub(crate) usize);

pub(crate) struct Variable {
    pub(crate) ident: Ident,
    /// Name in the text, unique per variable.
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) mutable: bool,
    /// Number of elements of an array.
    pub(crate) length: Option<Size>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConstantId(pub(crate) usize);

/// A value known to rustc but not to the macro: a const generic, or a constant declared elsewhere.
pub(crate) struct Constant {
    pub(crate) path: Path,
    /// Type that rustc casts it to.
    pub(crate) cast: Option<Scalar>,
    /// Name in the text.
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// Whether it is a const parameter of the function.
    pub(crate) generic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FunctionId(pub(crate) usize);

/// A function declared elsewhere.
pub(crate) struct Function {
    pub(crate) path: Path,
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
}

/// A size made of literals and constants.
#[derive(Clone)]
pub(crate) struct Size {
    pub(crate) expr: syn::Expr,
    pub(crate) text: String,
}

/// A kernel parameter that has elements.
pub(crate) struct Buffer {
    pub(crate) ident: Ident,
    pub(crate) element: Scalar,
    pub(crate) access: Access,
    /// Number of elements, if the type specifies it.
    pub(crate) count: Option<Size>,
}

pub(crate) enum Access {
    Read,
    ReadWrite,
    Output(Length),
    Uniform,
    Workgroup,
}

/// Length of an output.
pub(crate) enum Length {
    AsGiven,
    Of(Ident),
    Worked(Value),
}

/// A kernel parameter.
// There are only a few of them.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Parameter {
    Scalar(Ident, Scalar),
    Buffer(Buffer),
}

/// The domain of a kernel.
pub(crate) enum Domain {
    Default,
    LenOf(Ident),
    Axes(Vec<Value>),
}

/// Cost above which a value is computed only on the side of an `if` that needs it.
const CHEAP: usize = 16;

impl Value {
    /// Direct operands of the value, except those inside blocks.
    fn operands(&self) -> Vec<&Value> {
        match &self.kind {
            ValueKind::Integer { .. }
            | ValueKind::Float { .. }
            | ValueKind::Bool(_)
            | ValueKind::Named(..)
            | ValueKind::Variable(..)
            | ValueKind::Uniform(_)
            | ValueKind::Constant(_)
            | ValueKind::Length(_) => Vec::new(),
            ValueKind::Load(place) => vec![&place.index],
            ValueKind::Negate(inner)
            | ValueKind::Not(inner)
            | ValueKind::Cast(inner)
            | ValueKind::FromBits(_, inner) => vec![inner],
            ValueKind::Binary(_, sides) | ValueKind::Lazy(_, sides) => sides.iter().collect(),
            ValueKind::Method(_, _, operands)
            | ValueKind::Intrinsic(_, _, operands)
            | ValueKind::Call(_, _, operands) => operands.iter().collect(),
            ValueKind::Atomic(_, _, place, operands) => {
                std::iter::once(&place.index).chain(operands).collect()
            }
            ValueKind::If(branch) => {
                let values =
                    [&branch.then, &branch.otherwise].into_iter().filter_map(|block| block.value.as_deref());
                std::iter::once(&branch.condition).chain(values).collect()
            }
            ValueKind::Block(block) => block.value.as_deref().into_iter().collect(),
        }
    }

    /// Whether it contains statements.
    fn holds_statements(&self) -> bool {
        match &self.kind {
            ValueKind::If(branch) => !branch.then.is_value() || !branch.otherwise.is_value(),
            ValueKind::Block(block) => !block.is_value(),
            _ => false,
        }
    }

    /// Whether evaluating it can have an effect or wait for other invocations.
    pub(crate) fn acts(&self) -> bool {
        let itself = match &self.kind {
            ValueKind::Atomic(..) => true,
            ValueKind::Intrinsic(intrinsic, ..) => intrinsic.exchanges,
            _ => self.holds_statements(),
        };
        itself || self.operands().into_iter().any(Value::acts)
    }

    /// Whether its text needs statements before the expression.
    pub(crate) fn needs_statements(&self) -> bool {
        let itself = match &self.kind {
            ValueKind::Lazy(_, sides) => sides[1].acts(),
            ValueKind::If(branch) => {
                let values =
                    [&branch.then, &branch.otherwise].into_iter().filter_map(|block| block.value.as_deref());
                self.holds_statements() || values.into_iter().any(|value| !value.is_cheap())
            }
            _ => self.holds_statements(),
        };
        itself || self.operands().into_iter().any(Value::needs_statements)
    }

    /// Whether evaluating it speculatively costs almost nothing and has no effect.
    pub(crate) fn is_cheap(&self) -> bool {
        self.cost() <= CHEAP
    }

    fn cost(&self) -> usize {
        let itself = match &self.kind {
            ValueKind::Call(..) | ValueKind::Atomic(..) => CHEAP + 1,
            ValueKind::Intrinsic(intrinsic, ..) if intrinsic.exchanges => CHEAP + 1,
            ValueKind::Method(method, ..) if method.is_long() => CHEAP + 1,
            _ if self.holds_statements() => CHEAP + 1,
            _ => 1,
        };
        itself + self.operands().into_iter().map(Value::cost).sum::<usize>()
    }

    /// Whether it has the same value whenever it is evaluated.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(
            self.kind,
            ValueKind::Integer { .. }
                | ValueKind::Float { .. }
                | ValueKind::Bool(_)
                | ValueKind::Named(..)
                | ValueKind::Uniform(_)
                | ValueKind::Constant(_)
                | ValueKind::Length(_)
        )
    }

    pub(crate) fn is_literal(&self) -> bool {
        matches!(self.kind, ValueKind::Integer { .. } | ValueKind::Float { .. })
    }

    /// Whether it is a literal whose bits are all zero.
    pub(crate) fn is_zero(&self) -> bool {
        match &self.kind {
            ValueKind::Integer { digits, .. } => *digits == 0,
            ValueKind::Float { digits, negative } => !negative && digits.parse() == Ok(0.0),
            ValueKind::Bool(truth) => !truth,
            _ => false,
        }
    }
}

impl Block {
    /// Whether it is a value without statements.
    fn is_value(&self) -> bool {
        self.statements.is_empty() && self.value.is_some()
    }
}
