//! Claimed laws, checked bit for bit against the evaluator over all edge values and many random
//! ones.

use super::*;

/// Random operands tried for each law and type.
const RANDOM_ROUNDS: usize = 3000;

/// A small generator with a fixed seed, so that failures reproduce.
struct Random(u64);

impl Random {
    fn value(&mut self, ty: ValueType) -> Value {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Value::from_bits(ty, mixed ^ (mixed >> 27))
    }
}

/// An op on operands of fixed types.
#[derive(Clone, Copy)]
struct Case<'a> {
    op: Op,
    types: &'a [ValueType],
    result: ValueType,
}

impl Case<'_> {
    fn apply(&self, args: &[Value]) -> Option<Value> {
        eval(self.op, args)
    }

    /// Both sides of the law on operands `x`, `y`, `z`; `None` if these types cannot express it. An
    /// operand that a law returns is canonicalized: NaN payloads are not observable.
    fn sides(&self, law: Law, [x, y, z]: [Value; 3]) -> Option<(Value, Value)> {
        let left = self.types[0];
        let right = *self.types.get(1).unwrap_or(&left);
        let f = |a, b| self.apply(&[a, b]);
        let g = |a| self.apply(&[a]);
        match law {
            Law::Commutative => Some((f(x, y)?, f(y, x)?)),
            Law::Associative => Some((f(f(x, y)?, z)?, f(x, f(y, z)?)?)),
            Law::Idempotent => Some((f(x, x)?, x.canonical())),
            Law::Involution => Some((g(g(x)?)?, x.canonical())),
            Law::Projection => Some((g(g(x)?)?, g(x)?)),
            Law::LeftIdentity(e) => Some((f(e.of(left)?, y)?, y.canonical())),
            Law::RightIdentity(e) => Some((f(x, e.of(right)?)?, x.canonical())),
            Law::LeftAbsorbing(e) => Some((f(e.of(left)?, y)?, e.of(left)?)),
            Law::RightAbsorbing(e) => Some((f(x, e.of(right)?)?, e.of(right)?)),
            Law::SelfGives(e) => Some((f(x, x)?, e.of(self.result)?)),
        }
    }

    /// Operands for which the law fails, if any; `Err` if the types cannot express it.
    fn counterexample(&self, law: Law) -> Result<Option<[Value; 3]>, ()> {
        let types = [self.types[0], *self.types.get(1).unwrap_or(&self.types[0])];
        let types = [types[0], types[1], types[1]];
        let mut random = Random(self.op.row().tag.into());
        let random: Vec<_> = (0..RANDOM_ROUNDS).map(|_| types.map(|ty| random.value(ty))).collect();
        let edges = choices(&types.map(edge_values)).into_iter().map(|args| [args[0], args[1], args[2]]);
        for args in edges.chain(random) {
            let (left, right) = self.sides(law, args).ok_or(())?;
            if left != right {
                return Ok(Some(args));
            }
        }
        Ok(None)
    }
}

/// Calls `visit` for every op and every list of types that it takes.
fn each_case(mut visit: impl FnMut(Case<'_>)) {
    for &op in Op::ALL {
        let signature = op.row().signature;
        for types in tuples(&ValueType::ALL, signature.arity()) {
            if let Some(result) = signature.result(&types) {
                visit(Case { op, types: &types, result });
            }
        }
    }
}

#[test]
fn claimed_laws_hold_by_bits() {
    each_case(|case| {
        for &law in case.op.laws(case.types[0]) {
            match case.counterexample(law) {
                Ok(None) => {}
                Ok(Some(args)) => panic!("{:?} on {:?}: {law:?} fails for {args:?}", case.op, case.types),
                Err(()) => panic!("{:?} on {:?} cannot state {law:?}", case.op, case.types),
            }
        }
    });
}
