//! Errors of the `f64` functions, at points spread over all exponents and over each function's
//! interesting range.
//!
//! A [`Block`] runs the op's expansion, and [`super::double`] gives the true value. Points where
//! a function is at a limit (an overflow, a NaN) have no true value to compare with; the tests of
//! the op table cover those.

use super::block::{Block, LANES};
use super::double::{self, Double};
use super::hard_cases::hard_cases;
use super::sample::Random;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use vyre_foundation::math;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::{Value, ValueType};

/// Result over a set of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WideTally {
    pub(super) inputs: u64,
    pub(super) nearest: u64,
    pub(super) error: f64,
    pub(super) at: [u64; 2],
}

impl WideTally {
    /// Result at the function's known hard cases.
    pub(super) fn of_hard_cases(op: Op) -> WideTally {
        let mut tally = WideTally::default();
        for case in hard_cases(op) {
            let Some(error) = error_at(op, case.x, 0.0) else { continue };
            tally.add(error, [case.x.to_bits(), 0]);
        }
        tally
    }

    fn add(&mut self, error: f64, at: [u64; 2]) {
        self.join(WideTally { inputs: 1, nearest: u64::from(error <= 0.5), error, at });
    }

    pub(super) fn join(&mut self, other: WideTally) {
        self.inputs += other.inputs;
        self.nearest += other.nearest;
        if other.error > self.error || (other.error == self.error && other.at < self.at) {
            (self.error, self.at) = (other.error, other.at);
        }
    }
}

/// Measures the points of a function with these numbers, which are the same in every run.
pub(super) fn measure(op: Op, numbers: Range<u64>, threads: usize) -> WideTally {
    let threads = threads.max(1) as u64;
    let Some(expansion) = math::expansion(op, ValueType::F64) else {
        unreachable!("{op:?} has no expansion")
    };
    let unary = op.row().signature.arity() == 1;
    let part = |first: u64| {
        let mut tally = WideTally::default();
        let mut block = Block::<u64>::new(expansion);
        let starts = (numbers.start..numbers.end).step_by(LANES);
        for start in starts.skip(first as usize).step_by(threads as usize) {
            let points: [[f64; 2]; LANES] = std::array::from_fn(|lane| point(op, start + lane as u64));
            *block.input(0) = points.map(|[x, _]| x.to_bits());
            if !unary {
                *block.input(1) = points.map(|[_, y]| y.to_bits());
            }
            let results = block.run();
            let count = LANES.min((numbers.end - start) as usize);
            for (&[x, y], result) in points[..count].iter().zip(results) {
                let Some(exact) = exact_at(op, x, y) else { continue };
                let error = error_in_ulp(f64::from_bits(result), exact);
                tally.add(error, [x.to_bits(), if unary { 0 } else { y.to_bits() }]);
            }
        }
        tally
    };
    let mut all = WideTally::default();
    std::thread::scope(|scope| {
        let part = &part;
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || part(first))).collect();
        running.into_iter().for_each(|part| all.join(part.join().unwrap_or_default()));
    });
    all
}

/// Error at a point by the evaluator; `None` without a true value to compare with.
fn error_at(op: Op, x: f64, y: f64) -> Option<f64> {
    let exact = exact_at(op, x, y)?;
    let args = [Value::F64(x), Value::F64(y)];
    let Some(Value::F64(got)) = eval(op, &args[..op.row().signature.arity()]) else { return None };
    Some(error_in_ulp(got, exact))
}

/// True value at a point, if there is one to compare with.
pub(super) fn exact_at(op: Op, x: f64, y: f64) -> Option<Double> {
    if !x.is_finite() || !y.is_finite() || x == 0.0 {
        return None;
    }
    let name = op.row().name;
    let unary = op.row().signature.arity() == 1;
    let exact = if unary { double::unary(name, x) } else { double::binary(name, x, y) }?;
    // Near the ends of the range the low part of the true value is itself truncated.
    (1e-280..1e300).contains(&exact.high.abs()).then_some(exact)
}

/// Error in units in the last place at `exact`, a normal number.
fn error_in_ulp(got: f64, exact: Double) -> f64 {
    if !got.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (exact.high.to_bits() >> 52) & 0x7FF;
    let unit = f64::from_bits((exponent - 52) << 52);
    ((got - exact.high) / unit - exact.low / unit).abs()
}

/// Operands of the point with this number.
pub(super) fn point(op: Op, number: u64) -> [f64; 2] {
    let mut random = Random::numbered(number);
    let near = |random: &mut Random, low: f64, high: f64| low + (high - low) * random.unit();
    let any = |random: &mut Random| f64::from_bits(random.next());
    if op.row().signature.arity() == 2 {
        return match (op, number % 4) {
            (Op::Pow, 0 | 1) => {
                let x = any(&mut random).abs();
                [x, near(&mut random, -1000.0, 1000.0) / x.log2()]
            }
            (Op::Pow, 2) => {
                let x = 1.0 + near(&mut random, -1.0, 1.0) * f64::powi(2.0, -((random.next() % 50) as i32));
                [x, near(&mut random, -690.0, 690.0) / x.ln()]
            }
            (Op::Pow, _) => [near(&mut random, 0.0, 16.0), near(&mut random, -60.0, 60.0)],
            (_, 0) => [any(&mut random), any(&mut random)],
            (_, 1) => {
                let x = any(&mut random);
                [x, x * near(&mut random, -2.0, 2.0)]
            }
            (_, _) => [near(&mut random, -4.0, 4.0), near(&mut random, -4.0, 4.0)],
        };
    }
    let (low, high) = range(op);
    let x = match number % 4 {
        0 => any(&mut random),
        1 | 2 => near(&mut random, low, high),
        _ => {
            let around = if number % 8 == 3 { 0.0 } else { 1.0 };
            around + near(&mut random, -1.5, 1.5) * f64::powi(2.0, -((random.next() % 24) as i32))
        }
    };
    [x, 0.0]
}

/// Range in which a unary function is neither nearly linear nor nearly constant.
fn range(op: Op) -> (f64, f64) {
    match op.row().name {
        "exp" => (-700.0, 700.0),
        "exp2" => (-1000.0, 1000.0),
        "exp_m1" => (-40.0, 60.0),
        "log" | "log2" | "log10" => (0.0, 4.0),
        "log_1p" => (-1.0, 4.0),
        "sin" | "cos" | "tan" => (-1000.0, 1000.0),
        "asin" | "acos" | "atanh" => (-1.0, 1.0),
        "acosh" => (1.0, 6.0),
        "tanh" => (-3.0, 3.0),
        "sinh" | "cosh" => (-24.0, 24.0),
        "erf" => (-6.5, 6.5),
        _ => (-8.0, 8.0),
    }
}
