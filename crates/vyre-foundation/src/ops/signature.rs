//! Operand and result types of ops.

use crate::types::ValueType;
use std::ops::Range;

/// A set of value types that an op accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `u32 i32 u64 i64`.
    Integer,
    /// `f32 f64`.
    Float,
    /// `f32` alone.
    F32,
    /// `u32` alone.
    U32,
    /// Integers and floats.
    Number,
    /// Integers and `bool`.
    Bits,
    /// Every value type.
    Any,
}

impl Class {
    /// Whether the class contains `ty`.
    pub fn contains(self, ty: ValueType) -> bool {
        match self {
            Class::Integer => ty.is_integer(),
            Class::Float => ty.is_float(),
            Class::F32 => ty == ValueType::F32,
            Class::U32 => ty == ValueType::U32,
            Class::Number => ty.is_integer() || ty.is_float(),
            Class::Bits => ty.is_integer() || ty == ValueType::Bool,
            Class::Any => true,
        }
    }

    /// The class in words, for messages and documentation.
    pub fn describe(self) -> &'static str {
        match self {
            Class::Integer => "an integer",
            Class::Float => "a float",
            Class::F32 => "f32",
            Class::U32 => "u32",
            Class::Number => "a number",
            Class::Bits => "an integer or bool",
            Class::Any => "any type",
        }
    }
}

/// The type rule of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// This many operands of one type in the class; the result has that type.
    Same(u8, Class),
    /// Two operands of one type in the class; the result is `bool`.
    Compare(Class),
    /// One operand in the class; the result is `bool`.
    Test(Class),
    /// One operand in the class; the result is `u32`.
    Count(Class),
    /// One operand in the class; the result has the named type.
    Gives(Class, ValueType),
    /// Two integers of one type; the result is the unsigned type of their width.
    Distance,
    /// An integer and a `u32` count; the result has the integer's type.
    Shift,
    /// A float and an `i32` exponent; the result has the float's type.
    Scale,
    /// This many integers of one type, then a `u32` offset and a `u32` bit count; the result has
    /// the type of the integers.
    Field(u8),
    /// A `bool` and two operands of one type; the result has that type.
    Select,
    /// One operand of any type; the result has the named type.
    Cast(ValueType),
    /// One operand as wide as the named type, neither being `bool`; the result has the named type.
    Bitcast(ValueType),
}

impl Signature {
    /// Number of operands.
    pub fn arity(self) -> usize {
        match self {
            Signature::Same(arity, _) => arity.into(),
            Signature::Compare(_) | Signature::Distance | Signature::Shift | Signature::Scale => 2,
            Signature::Test(_) | Signature::Count(_) | Signature::Gives(..) => 1,
            Signature::Cast(_) | Signature::Bitcast(_) => 1,
            Signature::Field(integers) => usize::from(integers) + 2,
            Signature::Select => 3,
        }
    }

    /// The operands that must share one type; empty if no operand is constrained by another.
    pub(crate) fn alike(self) -> Range<usize> {
        match self {
            Signature::Same(arity, _) => 0..arity.into(),
            Signature::Compare(_) | Signature::Distance => 0..2,
            Signature::Shift | Signature::Scale => 0..1,
            Signature::Field(integers) => 0..integers.into(),
            Signature::Select => 1..3,
            Signature::Test(_) | Signature::Count(_) | Signature::Gives(..) => 0..0,
            Signature::Cast(_) | Signature::Bitcast(_) => 0..0,
        }
    }

    /// Whether the result has the type that the operands of `alike` share.
    pub(crate) fn gives_alike(self) -> bool {
        match self {
            Signature::Same(..) | Signature::Shift | Signature::Scale => true,
            Signature::Field(_) | Signature::Select => true,
            Signature::Compare(_) | Signature::Distance | Signature::Test(_) => false,
            Signature::Count(_) | Signature::Gives(..) => false,
            Signature::Cast(_) | Signature::Bitcast(_) => false,
        }
    }

    /// The only type that this operand can have, unless it is one of the operands that share a
    /// type.
    pub(crate) fn fixed(self, operand: usize) -> Option<ValueType> {
        match self {
            _ if self.alike().contains(&operand) => None,
            Signature::Shift | Signature::Field(_) => Some(ValueType::U32),
            Signature::Scale => Some(ValueType::I32),
            Signature::Select => Some(ValueType::Bool),
            Signature::Same(..) | Signature::Compare(_) | Signature::Distance | Signature::Test(_) => None,
            Signature::Count(_) | Signature::Gives(..) => None,
            Signature::Cast(_) | Signature::Bitcast(_) => None,
        }
    }

    /// The result type for these operand types, or `None` if the op does not take them.
    pub fn result(self, args: &[ValueType]) -> Option<ValueType> {
        let same = |args: &[ValueType], class: Class| args.iter().all(|&a| a == args[0] && class.contains(a));
        if args.len() != self.arity() {
            return None;
        }
        match self {
            Signature::Same(_, class) => same(args, class).then(|| args[0]),
            Signature::Compare(class) | Signature::Test(class) => {
                same(args, class).then_some(ValueType::Bool)
            }
            Signature::Count(class) => same(args, class).then_some(ValueType::U32),
            Signature::Gives(class, to) => same(args, class).then_some(to),
            Signature::Distance => same(args, Class::Integer).then(|| unsigned(args[0])),
            Signature::Scale => (args[0].is_float() && args[1] == ValueType::I32).then_some(args[0]),
            Signature::Field(integers) => {
                let (integers, place) = args.split_at(integers.into());
                let fits = same(integers, Class::Integer) && same(place, Class::U32);
                fits.then(|| args[0])
            }
            Signature::Shift => (args[0].is_integer() && args[1] == ValueType::U32).then_some(args[0]),
            Signature::Select => (args[0] == ValueType::Bool && args[1] == args[2]).then_some(args[1]),
            Signature::Cast(to) => Some(to),
            Signature::Bitcast(to) => {
                (args[0].bits() == to.bits() && args[0] != ValueType::Bool).then_some(to)
            }
        }
    }

    /// The rule in words, for messages and documentation.
    pub fn describe(self) -> String {
        match self {
            Signature::Same(1, class) => format!("{}; gives the same type", class.describe()),
            Signature::Same(arity, class) => {
                let count = if arity == 2 { "two" } else { "three" };
                format!("{count} operands of one type, {}; gives that type", class.describe())
            }
            Signature::Compare(class) => {
                format!("two operands of one type, {}; gives bool", class.describe())
            }
            Signature::Test(class) => format!("{}; gives bool", class.describe()),
            Signature::Count(class) => format!("{}; gives u32", class.describe()),
            Signature::Gives(class, to) => format!("{}; gives {to}", class.describe()),
            Signature::Scale => "a float and an i32 exponent; gives the float's type".into(),
            Signature::Field(1) => {
                "an integer, a u32 offset and a u32 count of bits; gives the integer's type".into()
            }
            Signature::Field(_) => {
                "two integers of one type, a u32 offset and a u32 count of bits; gives the integers' type"
                    .into()
            }
            Signature::Distance => "two integers of one type; gives the unsigned type of that width".into(),
            Signature::Shift => "an integer and a u32 count; gives the integer's type".into(),
            Signature::Select => "a bool and two operands of one type; gives that type".into(),
            Signature::Cast(to) => format!("any type; gives {to}"),
            Signature::Bitcast(to) => format!("a {}-bit number; gives {to}", to.bits()),
        }
    }
}

fn unsigned(ty: ValueType) -> ValueType {
    match ty {
        ValueType::I32 => ValueType::U32,
        ValueType::I64 => ValueType::U64,
        ValueType::Bool | ValueType::U32 | ValueType::U64 | ValueType::F32 | ValueType::F64 => ty,
    }
}
