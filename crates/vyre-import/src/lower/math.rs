//! Built-in functions of shaders.

use super::scalar_type::ScalarType;
use super::{Lower, matrices};
use crate::fault::{Fault, Result};
use naga::{Expression, Handle, MathFunction as Math, TypeInner};
use vyre_foundation::ir::{Expr, Op};

/// Operands of a function, scalar by scalar.
pub(super) struct Operands {
    pub(super) kind: ScalarType,
    pub(super) lists: [Vec<Expr>; 4],
}

impl Operands {
    /// Applies an op to each scalar of the first operand.
    fn unary(&self, op: Op) -> Vec<Expr> {
        self.each(1, |args| Expr::op(op, [args[0].clone()]))
    }

    fn binary(&self, op: Op) -> Vec<Expr> {
        self.each(2, |args| Expr::op(op, [args[0].clone(), args[1].clone()]))
    }

    fn ternary(&self, op: Op) -> Vec<Expr> {
        self.each(3, |args| Expr::op(op, [args[0].clone(), args[1].clone(), args[2].clone()]))
    }

    /// Applies a function to each component of the first `count` operands; an operand with a single
    /// scalar is broadcast.
    pub(super) fn each(&self, count: usize, apply: impl Fn(&[Expr]) -> Expr) -> Vec<Expr> {
        let longest = self.lists[..count].iter().map(Vec::len).max().unwrap_or(0);
        let args = |leaf: usize| self.lists[..count].iter().map(move |list| list[leaf % list.len()].clone());
        (0..longest).map(|leaf| self.kind.rounded(apply(&args(leaf).collect::<Vec<_>>()))).collect()
    }

    fn pairs(&self, a: usize, b: usize) -> impl Iterator<Item = (Expr, Expr)> {
        self.lists[a].iter().cloned().zip(self.lists[b].iter().cloned())
    }
}

impl<'m> Lower<'m> {
    pub(super) fn math(
        &mut self,
        handle: Handle<Expression>,
        function: Math,
        arguments: [Option<Handle<Expression>>; 4],
    ) -> Result<Vec<Expr>> {
        let [Some(first), ..] = arguments else {
            return Err(Fault::unsupported("a function without operands"));
        };
        let kind = self.kind_of(first)?;
        let mut lists = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for (list, argument) in lists.iter_mut().zip(arguments) {
            if let Some(argument) = argument {
                // Most functions use their operands several times.
                *list = self.shared_leaves(argument)?;
            }
        }
        let operands = Operands { kind, lists };
        if let Some(leaves) = simple(function, &operands) {
            return Ok(leaves);
        }
        if let Some(leaves) = super::bit_functions::bit_function(function, &operands) {
            return Ok(leaves);
        }
        match function {
            Math::Transpose | Math::Determinant | Math::Inverse | Math::Outer => {
                let inner = self.type_of(first).clone();
                self.matrix_function(function, &operands, &inner)
            }
            Math::Modf | Math::Frexp => Ok(parts(function, &operands)),
            Math::Abs | Math::Min => Err(Fault::unsupported("this use of a function")),
            _ => self.geometric(function, &operands, handle),
        }
    }

    fn geometric(&mut self, function: Math, operands: &Operands, _: Handle<Expression>) -> Result<Vec<Expr>> {
        let kind = operands.kind;
        let [x, y, z, _] = &operands.lists;
        let round = |value: Expr| kind.rounded(value);
        let dot =
            |pairs: Vec<(Expr, Expr)>| matrices::dot(kind, pairs.into_iter()).unwrap_or_else(|| kind.zero());
        let square = |list: &[Expr]| dot(list.iter().cloned().zip(list.iter().cloned()).collect());
        Ok(match function {
            Math::Dot => vec![dot(operands.pairs(0, 1).collect())],
            Math::Cross => {
                let [x0, x1, x2] = &x[..] else { return Err(Fault::unsupported("this cross product")) };
                let [y0, y1, y2] = &y[..] else { return Err(Fault::unsupported("this cross product")) };
                let part = |a: &Expr, b: &Expr, c: &Expr, d: &Expr| {
                    round(round(a.clone() * b) - round(c.clone() * d))
                };
                vec![part(x1, y2, x2, y1), part(x2, y0, x0, y2), part(x0, y1, x1, y0)]
            }
            Math::Length if x.len() == 1 => vec![x[0].clone().abs()],
            Math::Length => vec![round(square(x).sqrt())],
            Math::Distance => {
                let between = self.shared_all(operands.each(2, |args| args[0].clone() - &args[1]))?;
                match &between[..] {
                    [one] => vec![one.clone().abs()],
                    several => vec![round(square(several).sqrt())],
                }
            }
            Math::Normalize => {
                let length = self.name_it("length", round(square(x).sqrt()))?;
                x.iter().map(|leaf| round(leaf.clone() / &length)).collect()
            }
            Math::Reflect => {
                let twice = round(kind.literal(2.0) * dot(operands.pairs(1, 0).collect()));
                let twice = self.name_it("t", twice)?;
                operands.pairs(0, 1).map(|(x, y)| round(x - round(twice.clone() * y))).collect()
            }
            Math::FaceForward => {
                let towards = dot(z.iter().cloned().zip(y.iter().cloned()).collect());
                let towards = self.name_it("t", towards.lt(kind.zero()))?;
                x.iter().map(|leaf| Expr::select(&towards, leaf, -leaf.clone())).collect()
            }
            Math::Refract => self.refract(operands)?,
            other => return Err(Fault::unsupported(format!("the function `{other:?}`"))),
        })
    }

    fn refract(&mut self, operands: &Operands) -> Result<Vec<Expr>> {
        let kind = operands.kind;
        let round = |value: Expr| kind.rounded(value);
        let Some(eta) = operands.lists[2].first().cloned() else {
            return Err(Fault::unsupported("this use of `refract`"));
        };
        let one = kind.literal(1.0);
        let along = matrices::dot(kind, operands.pairs(1, 0)).unwrap_or_else(|| kind.zero());
        let along = self.name_it("t", along)?;
        let squared = round(eta.clone() * &eta);
        let rest = round(one.clone() - round(along.clone() * &along));
        let k = self.name_it("t", round(one - round(squared * rest)))?;
        let factor = round(round(eta.clone() * along) + round(k.clone().sqrt()));
        let factor = self.name_it("t", factor)?;
        let bent = |(x, y): (Expr, Expr)| {
            let bent = round(round(eta.clone() * x) - round(factor.clone() * y));
            Expr::select(k.clone().lt(kind.zero()), kind.zero(), bent)
        };
        Ok(operands.pairs(0, 1).map(bent).collect())
    }

    fn matrix_function(
        &mut self,
        function: Math,
        operands: &Operands,
        inner: &TypeInner,
    ) -> Result<Vec<Expr>> {
        let m = &operands.lists[0];
        if function == Math::Outer {
            let columns = operands.lists[1].iter();
            let product =
                |y: &Expr| m.iter().map(|x| operands.kind.rounded(x.clone() * y)).collect::<Vec<_>>();
            return Ok(columns.flat_map(product).collect());
        }
        let TypeInner::Matrix { columns, rows, .. } = *inner else {
            return Err(Fault::unsupported("this function of a value that is not a matrix"));
        };
        let (columns, rows) = (columns as usize, rows as usize);
        if function == Math::Transpose {
            let transposed = (0..rows).flat_map(|row| (0..columns).map(move |column| column * rows + row));
            return Ok(transposed.map(|leaf| m[leaf].clone()).collect());
        }
        if columns != rows {
            return Err(Fault::unsupported("the determinant of a matrix that is not square"));
        }
        let determinant = matrices::determinant(operands.kind, m, rows);
        if function == Math::Determinant {
            return Ok(vec![determinant]);
        }
        let determinant = self.name_it("t", determinant)?;
        let adjugate = matrices::adjugate(operands.kind, m, rows);
        Ok(adjugate.into_iter().map(|leaf| operands.kind.rounded(leaf / &determinant)).collect())
    }
}

/// Functions that work component by component.
fn simple(function: Math, operands: &Operands) -> Option<Vec<Expr>> {
    let kind = operands.kind;
    let number = |value: f64| kind.literal(value);
    let unary = |op| Some(operands.unary(op));
    match function {
        Math::Abs if kind == ScalarType::U32 || kind == ScalarType::U64 => Some(operands.lists[0].clone()),
        Math::Abs => unary(Op::Abs),
        Math::Min => Some(operands.binary(Op::Min)),
        Math::Max => Some(operands.binary(Op::Max)),
        Math::Clamp => Some(operands.ternary(Op::Clamp)),
        Math::Saturate => Some(operands.each(1, |args| args[0].clone().clamp(number(0.0), number(1.0)))),
        Math::Cos => unary(Op::Cos),
        Math::Cosh => unary(Op::Cosh),
        Math::Sin => unary(Op::Sin),
        Math::Sinh => unary(Op::Sinh),
        Math::Tan => unary(Op::Tan),
        Math::Tanh => unary(Op::Tanh),
        Math::Acos => unary(Op::Acos),
        Math::Asin => unary(Op::Asin),
        Math::Atan => unary(Op::Atan),
        Math::Asinh => unary(Op::Asinh),
        Math::Acosh => unary(Op::Acosh),
        Math::Atanh => unary(Op::Atanh),
        Math::Atan2 => Some(operands.binary(Op::Atan2)),
        Math::Radians => {
            Some(operands.each(1, |args| args[0].clone() * number(std::f64::consts::PI / 180.0)))
        }
        Math::Degrees => {
            Some(operands.each(1, |args| args[0].clone() * number(180.0 / std::f64::consts::PI)))
        }
        Math::Ceil => unary(Op::Ceil),
        Math::Floor => unary(Op::Floor),
        Math::Round => unary(Op::Round),
        Math::Trunc => unary(Op::Trunc),
        Math::Fract => Some(operands.each(1, |args| args[0].clone() - args[0].clone().floor())),
        Math::Exp => unary(Op::Exp),
        Math::Exp2 => unary(Op::Exp2),
        Math::Log => unary(Op::Log),
        Math::Log2 => unary(Op::Log2),
        Math::Pow => Some(operands.binary(Op::Pow)),
        Math::Sqrt => unary(Op::Sqrt),
        Math::InverseSqrt => unary(Op::Rsqrt),
        Math::Sign => unary(Op::Sign),
        Math::Fma => Some(operands.ternary(Op::Fma)),
        Math::Ldexp => Some(operands.binary(Op::Ldexp)),
        Math::QuantizeToF16 => Some(operands.each(1, |args| ScalarType::F16.rounded(args[0].clone()))),
        Math::Mix => Some(operands.each(3, |args| {
            let [x, y, a] = args else { unreachable!("three were asked for") };
            let rest = kind.rounded(number(1.0) - a);
            kind.rounded(x.clone() * rest) + kind.rounded(y.clone() * a)
        })),
        Math::Step => Some(
            operands.each(2, |args| Expr::select(args[0].clone().le(&args[1]), number(1.0), number(0.0))),
        ),
        Math::SmoothStep => Some(operands.each(3, |args| {
            let [low, high, x] = args else { unreachable!("three were asked for") };
            let part = kind.rounded(kind.rounded(x.clone() - low) / kind.rounded(high.clone() - low));
            let t = part.clamp(number(0.0), number(1.0));
            let slope = kind.rounded(number(3.0) - kind.rounded(number(2.0) * &t));
            kind.rounded(t.clone() * t) * slope
        })),
        _ => None,
    }
}

/// Functions that return a struct: the fractions, then the integral parts or exponents.
fn parts(function: Math, operands: &Operands) -> Vec<Expr> {
    let [x, ..] = &operands.lists;
    let each = |apply: fn(Expr) -> Expr| x.iter().map(move |leaf| apply(leaf.clone()));
    if function == Math::Modf {
        each(Expr::modf).chain(each(Expr::trunc)).collect()
    } else {
        each(Expr::frexp).chain(each(Expr::frexp_exponent)).collect()
    }
}
