//! Check of AVX-512 on this processor.
//!
//! The check runs when the first code that needs it is compiled. Most kernels with floats need it,
//! for stores that turn every NaN into one, so its 150 µs or so are part of the time to a first
//! result. One function with every op that has instructions only in AVX-512 is compiled and run,
//! and its results are compared with those computed lane by lane here. More results are live at
//! once than there are lower registers, so the upper ones and their encodings are checked too, but
//! few enough that none spills: spilling would make up most of the time of register allocation.

use super::avx512;
use crate::effort::Effort;
use crate::host::executable;
use crate::piece::{Builder, Function, I32, I64, IntOrder, Lane, Machine, Value};
use std::sync::OnceLock;

static VERDICT: OnceLock<Result<(), String>> = OnceLock::new();

/// Checks AVX-512, once per process.
pub(crate) fn avx512_works() -> Result<(), String> {
    VERDICT.get_or_init(check).clone()
}

/// Returns why the check failed, if it was made and did.
pub(crate) fn failure() -> Option<&'static str> {
    VERDICT.get().and_then(|verdict| verdict.as_ref().err()).map(String::as_str)
}

/// Compares every new op on two pieces with its definition.
fn check() -> Result<(), String> {
    let machine = avx512().map_err(|feature| format!("this processor lacks {feature}"))?;
    let (function, results) = checked_function(machine);
    #[cfg(test)]
    let results = tests::as_on_this_processor(results);
    let (code, _) = super::unchecked(&function, Effort::Full)?;
    let memory = executable(&code.bytes).map_err(|error| format!("no memory for code: {error}"))?;
    let mut found = vec![[0_u32; 8]; results.len()];
    // SAFETY: the memory holds a function with this signature from its first byte on; it reads two
    // pieces from the first address and writes one piece per result to the second.
    unsafe {
        let run = std::mem::transmute::<*const u8, Checked>(memory.as_ptr());
        run([A, B].as_ptr().cast(), found.as_mut_ptr().cast(), COUNT, 0, 0);
    }
    let wrong = results.iter().zip(found).find(|((_, expected), found)| expected != found);
    match wrong {
        None => Ok(()),
        Some(((name, expected), found)) => {
            Err(format!("the check of AVX-512 failed: {name} is {found:x?}, not {expected:x?}"))
        }
    }
}

type Checked = unsafe extern "C" fn(*const u8, *mut u8, u64, u64, u64) -> i32;

/// The two pieces: small and large numbers, and single-precision floats in and out of range.
const A: [u32; 8] = [0, 1, 0x8000_0000, 0xFFFF_FFFF, 0x4F00_1234, 0x7FFF_FFFF, 0xDEAD_BEEF, 0x4120_0000];
const B: [u32; 8] = [5, 0xFFFF_0000, 0x8000_0001, 2, 0x4F80_0000, 0xFFFF_FFF0, 17, 0x7FC0_0000];

/// A count that the function gets as an argument.
const COUNT: u64 = 9;

/// Name and expected value of a result.
type Expected = (&'static str, [u32; 8]);

fn words(value: impl Fn(u32, u32) -> u32) -> [u32; 8] {
    std::array::from_fn(|lane| value(A[lane], B[lane]))
}

fn longs(value: impl Fn(u64, u64) -> u64) -> [u32; 8] {
    let long = |words: &[u32; 8], lane: usize| u64::from(words[lane & !1]) | u64::from(words[lane | 1]) << 32;
    std::array::from_fn(|lane| (value(long(&A, lane), long(&B, lane)) >> (32 * (lane & 1))) as u32)
}

/// Collects results. Each is stored when [`LIVE`] others follow it.
struct Results {
    builder: Builder,
    /// Address of the results.
    to: Value,
    values: Vec<Value>,
    expected: Vec<Expected>,
}

/// Number of results that are live at once: with the two operands, constants and temporaries, they
/// take nearly all of the 32 vector registers.
const LIVE: usize = 24;

impl Results {
    fn add(&mut self, name: &'static str, expected: [u32; 8], value: impl FnOnce(&mut Builder) -> Value) {
        let value = value(&mut self.builder);
        self.values.push(value);
        self.expected.push((name, expected));
        if let Some(number) = self.values.len().checked_sub(LIVE + 1) {
            self.store(number);
        }
    }

    fn store(&mut self, number: usize) {
        self.builder.store(self.values[number], self.to, 32 * number as i32);
    }
}

/// Builds the function, and computes what it is to store.
fn checked_function(machine: Machine) -> (Function, Vec<Expected>) {
    let builder = Builder::new(machine, &[I64; 5]);
    let &[from, to, count, ..] = builder.entry_params() else { unreachable!("five parameters") };
    let mut results = Results { builder, to, values: Vec::new(), expected: Vec::new() };
    let builder = &mut results.builder;
    let count = builder.reduce(I32, count);
    let word_type = builder.piece(Lane::I32);
    let [a, b] = [0, 32].map(|offset| builder.load(word_type, from, offset));
    add_words(&mut results, a, b, count);
    let long_type = results.builder.piece(Lane::I64);
    let [x, y] = [a, b].map(|words| results.builder.bitcast(long_type, words));
    add_longs(&mut results, x, y, count);
    add_conditions(&mut results, a, b);
    (results.values.len() - LIVE..results.values.len()).for_each(|number| results.store(number));
    let Results { mut builder, values, mut expected, .. } = results;
    let end = 32 * values.len() as i32;
    store_narrow(&mut builder, a, to, end);
    expected.push(("a narrow store", narrow()));
    let done = builder.int(I32, 0);
    builder.give(done);
    (builder.finish(), expected)
}

fn add_words(results: &mut Results, a: Value, b: Value, count: Value) {
    let ty = results.builder.ty(a);
    let floats = results.builder.piece(Lane::F32);
    results.add("a bit count", words(|a, _| a.count_ones()), |builder| builder.count_ones(a));
    results.add("a count of zeros", words(|a, _| a.leading_zeros()), |builder| builder.leading_zeros(a));
    results.add("a rotation", words(|a, _| a.rotate_left(COUNT as u32)), |builder| {
        builder.rotate_left(a, count)
    });
    results.add("a rotation by a number", words(|_, b| b.rotate_left(13)), |builder| {
        let number = builder.int(I32, 13);
        builder.rotate_left(b, number)
    });
    results.add("a rotation to the left", words(|a, b| a.rotate_left(b % 32)), |builder| {
        builder.rotate_each(true, a, b)
    });
    results.add("a rotation to the right", words(|a, b| a.rotate_right(b % 32)), |builder| {
        builder.rotate_each(false, a, b)
    });
    results.add("logic", words(|a, b| a & 0x0F0F_0F0F | !b & !0x0F0F_0F0F), |builder| {
        let mask = builder.constant(ty, 0x0F0F_0F0F);
        let (kept, flipped) = (builder.and(a, mask), builder.not(b));
        let rest = builder.and_not(flipped, mask);
        builder.or(kept, rest)
    });
    let product = |a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    results.add("an upper product", words(product), |builder| builder.mul_high(false, a, b));
    results.add("a float of a word", words(|a, _| (a as f32).to_bits()), |builder| {
        let float = builder.int_to_float(false, floats, a);
        builder.bitcast(ty, float)
    });
    for (name, words, value) in [
        ("a word of a float", words(|a, _| f32::from_bits(a) as u32), a),
        ("another word of a float", words(|_, b| f32::from_bits(b) as u32), b),
    ] {
        results.add(name, words, |builder| {
            let float = builder.bitcast(floats, value);
            builder.float_to_int(false, ty, float)
        });
    }
    results.add("a shuffle", [A[7], B[0], B[3], A[1], A[6], B[6], B[5], A[0]], |builder| {
        let lanes = [(a, 7), (b, 0), (b, 3), (a, 1), (a, 6), (b, 6), (b, 5), (a, 0)];
        builder.gather_lanes(&lanes)
    });
    let up = [A[7], B[0], B[1], B[2], B[3], B[4], B[5], B[6]];
    results.add("a move by a lane", up, |builder| builder.move_up(a, b));
    let halves = [A[0], A[1], A[2], A[3], B[3], B[3], B[3], B[3]];
    results.add("a move by a half", halves, |builder| builder.carry_half(a, b));
}

fn add_longs(results: &mut Results, x: Value, y: Value, count: Value) {
    let ty = results.builder.ty(x);
    let signed = |x: u64| x as i64;
    results.add("a product", longs(u64::wrapping_mul), |builder| builder.mul(x, y));
    results.add("a magnitude", longs(|x, _| signed(x).unsigned_abs()), |builder| builder.abs(x));
    results.add("a minimum", longs(u64::min), |builder| builder.int_min(false, x, y));
    results.add("a maximum", longs(u64::max), |builder| builder.int_max(false, x, y));
    results.add("a signed minimum", longs(|x, y| signed(x).min(signed(y)) as u64), |builder| {
        builder.int_min(true, x, y)
    });
    results.add("a signed maximum", longs(|x, y| signed(x).max(signed(y)) as u64), |builder| {
        builder.int_max(true, x, y)
    });
    results.add("a shift", longs(|x, _| (signed(x) >> COUNT) as u64), |builder| {
        builder.shift_right_signed(x, count)
    });
    results.add("a shift by a number", longs(|_, y| (signed(y) >> 41) as u64), |builder| {
        let number = builder.int(I32, 41);
        builder.shift_right_signed(y, number)
    });
    results.add("a shift per lane", longs(|x, y| (signed(x) >> (y & 63)) as u64), |builder| {
        let most = builder.constant(ty, 63);
        let counts = builder.and(y, most);
        builder.shift_right_signed_each(x, counts)
    });
    results.add("a long rotation", longs(|x, _| x.rotate_left(41)), |builder| {
        let number = builder.int(I32, 41);
        builder.rotate_left(x, number)
    });
    results.add("a long rotation per lane", longs(|x, y| x.rotate_left((y & 63) as u32)), |builder| {
        builder.rotate_each(true, x, y)
    });
    results.add("a long bit count", longs(|x, _| x.count_ones().into()), |builder| builder.count_ones(x));
    results.add("a long count of zeros", longs(|_, y| y.leading_zeros().into()), |builder| {
        builder.leading_zeros(y)
    });
}

/// A comparison, when the lower registers are in use, and the uses of its mask.
fn add_conditions(results: &mut Results, a: Value, b: Value) {
    let ty = results.builder.ty(a);
    let less = |a: u32, b: u32| (a as i32) < b as i32;
    let mask = results.builder.compare(IntOrder::SignedLess, a, b);
    results.add("a comparison", words(|a, b| if less(a, b) { u32::MAX } else { 0 }), |_| mask);
    results
        .add("a choice", words(|a, b| if less(a, b) { a } else { b }), |builder| builder.choose(mask, a, b));
    let bits = (0..8).fold(0, |bits, lane| bits | u32::from(less(A[lane], B[lane])) << lane);
    results.add("the bits of a mask", [bits; 8], |builder| {
        let bits = builder.high_bits(mask);
        builder.splat(ty, bits)
    });
    let spread = |builder: &mut Builder, condition: Value| {
        let word = builder.extend_unsigned(I32, condition);
        builder.splat(ty, word)
    };
    results.add("whether any lane is set", [1; 8], |builder| {
        let any = builder.any_true(mask);
        spread(builder, any)
    });
    results.add("whether all lanes are set", [0; 8], |builder| {
        let all = builder.all_true(mask);
        spread(builder, all)
    });
}

/// Stores the low bytes and the low halves of the lanes of a piece.
fn store_narrow(builder: &mut Builder, piece: Value, to: Value, offset: i32) {
    let ty = builder.ty(piece);
    for (bytes, mask, at) in [(1, 0xFF, 0), (2, 0xFFFF, 8)] {
        let mask = builder.constant(ty, mask);
        let low = builder.and(piece, mask);
        builder.store_narrow(bytes, low, to, offset + at);
    }
}

/// What [`store_narrow`] stores: 8 bytes, 16 bytes, and nothing.
fn narrow() -> [u32; 8] {
    let bytes = A.map(|word| word as u8).into_iter();
    let halves = A.into_iter().flat_map(|word| (word as u16).to_le_bytes());
    let all: Vec<u8> = bytes.chain(halves).chain([0; 8]).collect();
    std::array::from_fn(|lane| (0..4).map(|byte| u32::from(all[4 * lane + byte]) << (8 * byte)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Cpu;
    use crate::piece::verify;
    use crate::pipeline::machine_code;
    use crate::x64::{AVX512, FIRST_AVX512};
    use iced_x86::{Decoder, DecoderOptions, EncodingKind};
    use std::process::Command;
    use vyre_driver::{DispatchConfig, VyreBackend};
    use vyre_foundation::text::parse;

    /// Set in a process whose processor is to fail the check.
    const FAILS: &str = "VYRE_TEST_FAILED_CHECK";

    /// Changes an expected result in a process that must not pass, which stands for a wrong result.
    pub(super) fn as_on_this_processor(mut results: Vec<Expected>) -> Vec<Expected> {
        if std::env::var_os(FAILS).is_some() {
            results[0].1[0] ^= 1;
        }
        results
    }

    #[test]
    fn the_check_passes_and_its_function_uses_upper_registers() -> Result<(), String> {
        for machine in [AVX512, FIRST_AVX512] {
            let (function, results) = checked_function(machine);
            verify(&function)?;
            assert!(results.len() >= 32, "{} results fit the registers", results.len());
        }
        if let Err(feature) = avx512() {
            println!("SKIP: this processor lacks {feature}");
            return Ok(());
        }
        check()
    }

    /// A count of zeros is one instruction with AVX-512, and many without.
    const COUNTS: &str = "kernel counts(x: read u32[], y: output u32[] len_of x) over x {
        y[invocation.x] = clz(x[invocation.x])
    }";

    #[test]
    fn code_is_for_avx2_where_the_check_fails() -> Result<(), Box<dyn std::error::Error>> {
        if avx512().is_err() || std::env::var_os("VYRE_CPU").is_some() {
            println!("SKIP: AVX-512 is not used in this process");
            return Ok(());
        }
        let program = parse(COUNTS)?.in_regions();
        let config = DispatchConfig::default();
        let code = machine_code(&program, &config)?.bytes;
        let has_evex = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE)
            .into_iter()
            .any(|instruction| instruction.code().encoding() == EncodingKind::EVEX);
        let words: Vec<u32> = (0..1000_u32).map(|k| k.wrapping_mul(0x9E37_79B9)).collect();
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let counts: Vec<u8> = words.iter().flat_map(|word| word.leading_zeros().to_le_bytes()).collect();
        assert_eq!(Cpu::new()?.dispatch(&program, &[bytes], &config)?, [counts]);
        let fails = std::env::var_os(FAILS).is_some();
        assert_eq!(has_evex, !fails);
        assert_eq!(failure().is_some_and(|reason| reason.contains("a bit count is")), fails);
        if !fails {
            let mut again = Command::new(std::env::current_exe()?);
            again.args(["--exact", "x64::check::tests::code_is_for_avx2_where_the_check_fails"]);
            let output = again.env(FAILS, "1").output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        Ok(())
    }
}
