//! Integer vectors are divided in floating point: every quotient and remainder equals the integer
//! result.

use std::sync::Arc;
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, Binding, DispatchConfig, pipeline};
use vyre_foundation::text::parse;

/// Dividends for which a quotient is likely to be off by one: around powers of two, around
/// multiples of the divisor, and random.
fn numbers(divisor: u32, random: &mut u64) -> Vec<u32> {
    let mut next = || {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 32) as u32
    };
    let mut numbers = around_powers();
    for _ in 0..500 {
        let any = next() >> (next() % 32);
        let multiple = divisor.wrapping_mul(any);
        numbers.extend([any, multiple, multiple.wrapping_sub(1), multiple.wrapping_add(1)]);
        let highest = (u32::MAX - any / 2) / divisor.max(1) * divisor.max(1);
        numbers.extend([highest, highest.wrapping_sub(1)]);
    }
    numbers
}

fn around_powers() -> Vec<u32> {
    let powers = (0..32).flat_map(|k| [(1_u32 << k).wrapping_sub(1), 1 << k, (1 << k) + 1]);
    powers.flat_map(|n| [n, n.wrapping_neg()]).collect()
}

fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Expected quotient and remainder, as bits.
type Expected = fn(u32, u32) -> [u32; 2];

fn unsigned(x: u32, y: u32) -> [u32; 2] {
    [x.checked_div(y).unwrap_or(x), x.checked_rem(y).unwrap_or(0)]
}

fn signed(x: u32, y: u32) -> [u32; 2] {
    let (x, y) = (x.cast_signed(), y.cast_signed());
    if y == 0 {
        [x, 0].map(i32::cast_unsigned)
    } else {
        [x.wrapping_div(y), x.wrapping_rem(y)].map(i32::cast_unsigned)
    }
}

fn check(ty: &str, divisor: &str, expected: Expected) -> Result<(), BackendError> {
    let (declared, y) =
        if divisor == "one" { (format!("{ty} uniform"), "d") } else { (format!("read {ty}[]"), "d[i]") };
    let source = format!(
        "kernel divide(d: {declared}, x: read {ty}[], q: output {ty}[], r: output {ty}[]) {{
           region \"divide\" {{ let i = invocation.x; q[i] = x[i] / {y}; r[i] = x[i] % {y} }} }}"
    );
    let config = DispatchConfig::default();
    let compiled = pipeline::compile(Arc::new(Cpu::new()?), &parse(&source)?, &config)?;
    let mut random = 7;
    let mut divisors = around_powers();
    divisors.extend(numbers(10, &mut random).into_iter().take(400));
    for d in divisors {
        let x = numbers(d, &mut random);
        let ds = if divisor == "one" { vec![d] } else { vec![d; x.len()] };
        let (mut q, mut r) = (vec![0; 4 * x.len()], vec![0; 4 * x.len()]);
        let (d_bytes, x_bytes) = (bytes(&ds), bytes(&x));
        let mut bindings = [
            Binding::Read(&d_bytes),
            Binding::Read(&x_bytes),
            Binding::Write(&mut q),
            Binding::Write(&mut r),
        ];
        compiled.dispatch_bound(&mut bindings, &config)?;
        let [quotients, rests]: [Vec<u32>; 2] =
            [0, 1].map(|k| x.iter().map(|&x| expected(x, d)[k]).collect());
        assert!(q == bytes(&quotients), "{ty} / {d}, {divisor}");
        assert!(r == bytes(&rests), "{ty} % {d}, {divisor}");
    }
    Ok(())
}

#[test]
fn quotients_and_remainders_are_those_of_integers() -> Result<(), BackendError> {
    for divisor in ["one", "each"] {
        check("u32", divisor, unsigned)?;
        check("i32", divisor, signed)?;
    }
    Ok(())
}
