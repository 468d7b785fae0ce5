//! Types of a kernel's values, and their inference.
//!
//! The rules are Rust's own for numbers: there are no implicit conversions, a literal without a
//! suffix takes the type required by its context and defaults to `i32` or `f64`. The type of
//! anything declared outside the macro's view (the result of a function, a constant) is inferred
//! from its uses only; rustc checks it in the copy that is kept.

/// A Rust number type, or `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    Usize,
    F32,
    F64,
}

impl Scalar {
    pub(crate) const ALL: [Scalar; 12] = [
        Scalar::Bool,
        Scalar::U8,
        Scalar::I8,
        Scalar::U16,
        Scalar::I16,
        Scalar::U32,
        Scalar::I32,
        Scalar::U64,
        Scalar::I64,
        Scalar::Usize,
        Scalar::F32,
        Scalar::F64,
    ];

    /// Name in Rust.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::U8 => "u8",
            Scalar::I8 => "i8",
            Scalar::U16 => "u16",
            Scalar::I16 => "i16",
            Scalar::U32 => "u32",
            Scalar::I32 => "i32",
            Scalar::U64 => "u64",
            Scalar::I64 => "i64",
            Scalar::Usize => "usize",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Scalar> {
        Scalar::ALL.into_iter().find(|scalar| scalar.name() == name)
    }

    /// Name of the element type that stores it.
    pub(crate) fn element(self) -> &'static str {
        if self == Scalar::Usize { "u32" } else { self.name() }
    }

    /// Name of the type that a kernel computes with.
    pub(crate) fn value(self) -> &'static str {
        match self {
            Scalar::U8 | Scalar::U16 | Scalar::Usize => "u32",
            Scalar::I8 | Scalar::I16 => "i32",
            Scalar::Bool
            | Scalar::U32
            | Scalar::I32
            | Scalar::U64
            | Scalar::I64
            | Scalar::F32
            | Scalar::F64 => self.name(),
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Scalar::F32 | Scalar::F64)
    }

    pub(crate) fn is_integer(self) -> bool {
        !self.is_float() && self != Scalar::Bool
    }

    /// Whether memory holds it in fewer bits than a kernel computes with.
    pub(crate) fn is_narrow(self) -> bool {
        matches!(self, Scalar::U8 | Scalar::I8 | Scalar::U16 | Scalar::I16)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64)
    }

    /// Least and greatest value of an integer type, as in a kernel.
    pub(crate) fn limits(self) -> (i128, i128) {
        let bits = match self {
            Scalar::U8 | Scalar::I8 => 8,
            Scalar::U16 | Scalar::I16 => 16,
            Scalar::Bool => 1,
            Scalar::U32 | Scalar::I32 | Scalar::Usize | Scalar::F32 => 32,
            Scalar::U64 | Scalar::I64 | Scalar::F64 => 64,
        };
        if self.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    }

    /// Zero as text.
    pub(crate) fn zero(self) -> &'static str {
        match self.value() {
            "bool" => "false",
            "i32" => "0i32",
            "u64" => "0u64",
            "i64" => "0i64",
            "f32" => "0.0",
            "f64" => "0.0f64",
            _ => "0",
        }
    }
}

/// A type, or one that is not yet inferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Known(Scalar),
    Open(usize),
}

/// What an open type can still become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Any,
    Integer,
    Float,
}

#[derive(Clone, Copy)]
struct Open {
    kind: Kind,
    /// Whether it is determined by code that the macro does not see, so that there is no default.
    outside: bool,
    is: Option<Type>,
}

/// Why two types do not unify.
pub(crate) enum TypeMismatch {
    Types(Scalar, Scalar),
    /// A literal, or a value computed from literals, and a type that it cannot have.
    Literal(Scalar),
    Kinds,
}

impl TypeMismatch {
    pub(crate) fn message(&self) -> String {
        match self {
            TypeMismatch::Types(a, b) => format!(
                "the operands are `{}` and `{}`, and there are no implicit conversions; write the cast, as in `x as {}`",
                a.name(),
                b.name(),
                a.name()
            ),
            TypeMismatch::Literal(ty) if ty.is_float() => {
                format!(
                    "found an integer where `{}` is expected; write `1.0` or `i as {}`",
                    ty.name(),
                    ty.name()
                )
            }
            TypeMismatch::Literal(ty) if ty.is_integer() => {
                format!("found a float where `{}` is expected; write the cast", ty.name())
            }
            TypeMismatch::Literal(ty) => {
                format!("found a number where `{}` is expected; write a comparison", ty.name())
            }
            TypeMismatch::Kinds => {
                "the operands are an integer and a float; write the cast, as in `i as f32`".into()
            }
        }
    }
}

/// Open types of one function.
#[derive(Default)]
pub(crate) struct Inference {
    open: Vec<Open>,
}

impl Inference {
    fn add(&mut self, kind: Kind, outside: bool) -> Type {
        self.open.push(Open { kind, outside, is: None });
        Type::Open(self.open.len() - 1)
    }

    /// Type of a literal, or of a variable that is assigned later.
    pub(crate) fn open(&mut self, kind: Kind) -> Type {
        self.add(kind, false)
    }

    /// Type of something declared elsewhere.
    pub(crate) fn outside(&mut self) -> Type {
        self.add(Kind::Any, true)
    }

    /// Resolves a type as far as it is known.
    pub(crate) fn find(&self, ty: Type) -> Type {
        match ty {
            Type::Known(_) => ty,
            Type::Open(at) => self.open[at].is.map_or(ty, |is| self.find(is)),
        }
    }

    pub(crate) fn known(&self, ty: Type) -> Option<Scalar> {
        match self.find(ty) {
            Type::Known(scalar) => Some(scalar),
            Type::Open(_) => None,
        }
    }

    /// Unifies two types.
    pub(crate) fn same(&mut self, a: Type, b: Type) -> Result<(), TypeMismatch> {
        match (self.find(a), self.find(b)) {
            (Type::Known(a), Type::Known(b)) if a == b => Ok(()),
            (Type::Known(a), Type::Known(b)) => Err(TypeMismatch::Types(a, b)),
            (Type::Open(a), Type::Open(b)) if a == b => Ok(()),
            (Type::Open(a), Type::Open(b)) => {
                let kind = match (self.open[a].kind, self.open[b].kind) {
                    (Kind::Any, kind) | (kind, Kind::Any) => kind,
                    (a, b) if a == b => a,
                    _ => return Err(TypeMismatch::Kinds),
                };
                let outside = self.open[a].outside || self.open[b].outside;
                self.open[a].is = Some(Type::Open(b));
                self.open[b] = Open { kind, outside, is: None };
                Ok(())
            }
            (Type::Open(open), Type::Known(scalar)) | (Type::Known(scalar), Type::Open(open)) => {
                let fits = match self.open[open].kind {
                    Kind::Any => true,
                    Kind::Integer => scalar.is_integer(),
                    Kind::Float => scalar.is_float(),
                };
                if !fits {
                    return Err(TypeMismatch::Literal(scalar));
                }
                self.open[open].is = Some(Type::Known(scalar));
                Ok(())
            }
        }
    }

    /// Final type: the inferred one, otherwise Rust's default; `None` if only code outside the
    /// macro's view determines it.
    pub(crate) fn settle(&self, ty: Type) -> Option<Scalar> {
        match self.find(ty) {
            Type::Known(scalar) => Some(scalar),
            Type::Open(at) => match self.open[at] {
                Open { outside: true, .. } | Open { kind: Kind::Any, .. } => None,
                Open { kind: Kind::Integer, .. } => Some(Scalar::I32),
                Open { kind: Kind::Float, .. } => Some(Scalar::F64),
            },
        }
    }

    /// Final type of a literal that is determined elsewhere: the widest of its kind.
    pub(crate) fn settle_literal(&self, ty: Type) -> Scalar {
        match self.find(ty) {
            Type::Known(scalar) => scalar,
            Type::Open(at) => match self.open[at].kind {
                Kind::Float => Scalar::F64,
                Kind::Integer => Scalar::I64,
                Kind::Any => Scalar::U32,
            },
        }
    }
}
