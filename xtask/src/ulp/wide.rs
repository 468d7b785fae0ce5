//! Errors of the `f64` functions, at points spread over all exponents and over each function's
//! interesting range.
//!
//! The evaluator runs the op's expansion, and [`super::double`] gives the true value. Points where
//! a function is at a limit (an overflow, a NaN) have no true value to compare with; the tests of
//! the op table cover those.

use super::double::{self, Double};
use super::hard_cases::hard_cases;
use super::sample::Random;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::Value;

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
        hard_cases(op).for_each(|case| tally.add(error_at(op, case.x, 0.0)));
        tally
    }

    fn add(&mut self, found: Option<(f64, [u64; 2])>) {
        let Some((error, at)) = found else { return };
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
    let part = |first: u64| {
        let mut tally = WideTally::default();
        for number in (numbers.start + first..numbers.end).step_by(threads as usize) {
            let [x, y] = point(op, number);
            tally.add(error_at(op, x, y));
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

/// Error at a point and the point's bits; `None` without a true value to compare with.
pub(super) fn error_at(op: Op, x: f64, y: f64) -> Option<(f64, [u64; 2])> {
    if !x.is_finite() || !y.is_finite() || x == 0.0 {
        return None;
    }
    let unary = op.row().signature.arity() == 1;
    let name = op.row().name;
    let exact = if unary { double::unary(name, x) } else { double::binary(name, x, y) }?;
    let args = [Value::F64(x), Value::F64(y)];
    let Some(Value::F64(got)) = eval(op, &args[..op.row().signature.arity()]) else { return None };
    // Near the ends of the range the low part of the true value is itself truncated.
    if !(1e-280..1e300).contains(&exact.high.abs()) {
        return None;
    }
    Some((error_in_ulp(got, exact), [x.to_bits(), if unary { 0 } else { y.to_bits() }]))
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
