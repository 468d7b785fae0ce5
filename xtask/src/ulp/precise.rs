//! The functions of [`super::double`] in numbers of hundreds of bits, to check them against.
//!
//! Functions that the library has are used directly; the others are composed of them without
//! cancellation.

use super::double::{self, Double};
use super::wide;
use astro_float_num::{BigFloat, Consts, RoundingMode};
use vyre_foundation::ops::Op;

/// Precision of all numbers in bits: far more than is compared, so that rounding does not matter.
const BITS: usize = 256;
/// The last bit is not rounded correctly: for the sine of a tiny number that takes thousands of
/// bits.
const ROUNDING: RoundingMode = RoundingMode::None;

/// Largest relative error allowed in the reference, as a power of two: measured errors are then
/// right to 2^-37 ULP.
const LARGEST_ERROR: i32 = -90;

/// Compares both at `points` points of each function; an error beyond [`LARGEST_ERROR`] is a fault.
pub(super) fn check_reference(
    ops: impl Iterator<Item = Op>,
    points: u64,
    threads: usize,
) -> Result<(), String> {
    let mut faults = Vec::new();
    for op in ops {
        let threads = threads.max(1) as u64;
        let part = |first: u64| {
            let mut precise = Precise::new()?;
            let numbers = (first..points).step_by(threads as usize);
            Ok(numbers.filter_map(|number| precise.compare(op, number)).fold(Worst::default(), Worst::join))
        };
        let found = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || part(first))).collect();
            let ended = |part: std::thread::ScopedJoinHandle<'_, Result<Worst, String>>| {
                part.join().unwrap_or_else(|_| Err("a thread ended early".into()))
            };
            running.into_iter().map(ended).collect::<Result<Vec<Worst>, String>>()
        })?;
        let worst = found.into_iter().fold(Worst::default(), Worst::join);
        let Worst { count, error, at: [x, y] } = worst;
        println!(
            "{} f64: below 2^{error} of the value at {count} points, the worst at {x:e}, {y:e}",
            op.row().name
        );
        if error > LARGEST_ERROR {
            faults.push(format!("{} is off by 2^{error} of the value at {x:e}, {y:e}", op.row().name));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Largest relative error so far, as the next higher power of two.
#[derive(Clone, Copy, Debug)]
struct Worst {
    count: u64,
    error: i32,
    at: [f64; 2],
}

impl Default for Worst {
    fn default() -> Worst {
        Worst { count: 0, error: i32::MIN, at: [0.0; 2] }
    }
}

impl Worst {
    fn join(self, other: Worst) -> Worst {
        let worse = if other.error > self.error { other } else { self };
        Worst { count: self.count + other.count, ..worse }
    }
}

struct Precise {
    constants: Consts,
}

impl Precise {
    fn new() -> Result<Precise, String> {
        let constants = Consts::new().map_err(|error| format!("{error:?}"))?;
        Ok(Precise { constants })
    }

    /// Error of the reference at a point; `None` where it has no value used in measurements.
    fn compare(&mut self, op: Op, number: u64) -> Option<Worst> {
        let at @ [x, y] = wide::point(op, number);
        wide::exact_at(op, x, y)?;
        let name = op.row().name;
        let (found, exact) = match op.row().signature.arity() {
            1 => (double::unary(name, x)?, self.unary(name, &big(x))?),
            _ => (double::binary(name, x, y)?, self.binary(name, &big(x), &big(y))?),
        };
        let Double { high, low } = found;
        let difference = exact.sub(&big(high), BITS, ROUNDING).sub(&big(low), BITS, ROUNDING);
        let error = match (difference.is_zero(), difference.exponent(), exact.exponent()) {
            (true, _, _) => i32::MIN,
            (false, Some(difference), Some(exact)) => difference - exact + 1,
            (false, _, _) => i32::MAX,
        };
        Some(Worst { count: 1, error, at })
    }

    fn unary(&mut self, name: &str, x: &BigFloat) -> Option<BigFloat> {
        let c = &mut self.constants;
        Some(match name {
            "exp" => x.exp(BITS, ROUNDING, c),
            "exp2" => x.mul(&c.ln_2(BITS, ROUNDING), BITS, ROUNDING).exp(BITS, ROUNDING, c),
            // 2 sinh(x/2) e^(x/2)
            "exp_m1" => {
                let half = x.div(&whole(2), BITS, ROUNDING);
                let sine = half.sinh(BITS, ROUNDING, c).mul(&whole(2), BITS, ROUNDING);
                sine.mul(&half.exp(BITS, ROUNDING, c), BITS, ROUNDING)
            }
            "log" => x.ln(BITS, ROUNDING, c),
            "log2" => x.log2(BITS, ROUNDING, c),
            "log10" => x.log10(BITS, ROUNDING, c),
            "log_1p" if x.is_positive() && x.exponent() > Some(0) => {
                whole(1).add_full_prec(x).ln(BITS, ROUNDING, c)
            }
            // 2 artanh(x / (2 + x))
            "log_1p" => {
                let quotient = x.div(&whole(2).add_full_prec(x), BITS, ROUNDING);
                quotient.atanh(BITS, ROUNDING, c).mul(&whole(2), BITS, ROUNDING)
            }
            "sin" => x.sin(BITS, ROUNDING, c),
            "cos" => x.cos(BITS, ROUNDING, c),
            "tan" => x.tan(BITS, ROUNDING, c),
            "asin" => x.asin(BITS, ROUNDING, c),
            "acos" => x.acos(BITS, ROUNDING, c),
            "atan" => x.atan(BITS, ROUNDING, c),
            "sinh" => x.sinh(BITS, ROUNDING, c),
            "cosh" => x.cosh(BITS, ROUNDING, c),
            "tanh" => x.tanh(BITS, ROUNDING, c),
            "asinh" => x.asinh(BITS, ROUNDING, c),
            "acosh" => x.acosh(BITS, ROUNDING, c),
            "atanh" => x.atanh(BITS, ROUNDING, c),
            "cbrt" => x.cbrt(BITS, ROUNDING),
            "erf" => self.erf(x),
            _ => return None,
        })
    }

    fn binary(&mut self, name: &str, x: &BigFloat, y: &BigFloat) -> Option<BigFloat> {
        let c = &mut self.constants;
        Some(match name {
            "pow" => x.pow(y, BITS, ROUNDING, c),
            "atan2" => x.div(y, BITS, ROUNDING).atan(BITS, ROUNDING, c),
            "hypot" => x.mul_full_prec(x).add(&y.mul_full_prec(y), BITS, ROUNDING).sqrt(BITS, ROUNDING),
            _ => return None,
        })
    }

    /// 2/sqrt(pi) * e^(-x²) * (x + 2/3 x³ + 4/15 x⁵ + …), until a term is negligible. From 16 on it
    /// is 1 to 370 bits.
    fn erf(&mut self, x: &BigFloat) -> BigFloat {
        if x.exponent() > Some(4) {
            return x.signum();
        }
        let square = x.mul_full_prec(x);
        let twice = square.mul(&whole(2), BITS, ROUNDING);
        let (mut term, mut total) = (x.clone(), x.clone());
        let shows = |term: &BigFloat, total: &BigFloat| match (term.exponent(), total.exponent()) {
            (Some(term), Some(total)) => term > total - BITS as i32,
            (_, _) => false,
        };
        let mut k = 1;
        while shows(&term, &total) {
            term = term.mul(&twice, BITS, ROUNDING).div(&whole(2 * k + 1), BITS, ROUNDING);
            total = total.add(&term, BITS, ROUNDING);
            k += 1;
        }
        let c = &mut self.constants;
        let root = c.pi(BITS, ROUNDING).sqrt(BITS, ROUNDING);
        let decay = square.neg().exp(BITS, ROUNDING, c);
        total.mul(&decay, BITS, ROUNDING).mul(&whole(2), BITS, ROUNDING).div(&root, BITS, ROUNDING)
    }
}

/// Converts a number. Subnormal numbers are scaled up first, since the library misreads their
/// exponents.
fn big(x: f64) -> BigFloat {
    let large = BigFloat::from_f64(x * 2.0_f64.powi(if x.is_subnormal() { 200 } else { 0 }), 64);
    if x.is_subnormal() { large.div(&whole(2).powi(200, 64, ROUNDING), 64, ROUNDING) } else { large }
}

fn whole(n: u64) -> BigFloat {
    BigFloat::from_word(n, 64)
}
