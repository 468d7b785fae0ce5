//! Exact sums compared with big integers: the true sum in units of 2⁻¹⁰⁷⁴, and the float nearest to
//! it.

use num_bigint::{BigInt, Sign};
use vyre::{ExactFloat, ExactSum, NotASum, Runtime};
use vyre_conform::choices::next_random;

/// A finite number in units of 2⁻¹⁰⁷⁴; an infinity counts as 2¹⁰²⁴, as in rounding.
fn units(x: f64) -> BigInt {
    let bits = x.to_bits();
    let (field, fraction) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    let size = match field {
        0 => BigInt::from(fraction),
        _ => BigInt::from(fraction | 1 << 52) << (field - 1),
    };
    if x.is_sign_negative() { -size } else { size }
}

/// Checks that neither neighbour is nearer to `exact` than `found`, which is even in a tie.
fn check_nearest(exact: &BigInt, [below, found, above]: [BigInt; 3], is_even: bool, what: &str) {
    let distance = |to: &BigInt| BigInt::from_biguint(Sign::Plus, (exact - to).magnitude().clone());
    let own = distance(&found);
    for other in [below, above].map(|neighbour| distance(&neighbour)) {
        assert!(own < other || own == other && is_even, "{what} is not nearest to its exact sum");
    }
}

/// Checks that a finite result, or an infinity, is the exact sum rounded once.
fn check(numbers: &[f64], what: &str) {
    let exact: BigInt = numbers.iter().map(|x| units(*x)).sum();
    let sum = ExactSum::of(numbers);
    let found = sum.to_f64();
    check_nearest(
        &exact,
        [found.next_down(), found, found.next_up()].map(beyond),
        found.to_bits() & 1 == 0,
        what,
    );
    let single = sum.to_f32();
    let neighbours = [single.next_down(), single, single.next_up()];
    check_nearest(&exact, neighbours.map(beyond_f32), single.to_bits() & 1 == 0, what);
}

fn beyond(x: f64) -> BigInt {
    let limit = BigInt::from(1) << (1024 + 1074);
    if x == f64::INFINITY {
        limit
    } else if x == f64::NEG_INFINITY {
        -limit
    } else {
        units(x)
    }
}

fn beyond_f32(x: f32) -> BigInt {
    let limit = BigInt::from(1) << (128 + 1074);
    if x == f32::INFINITY {
        limit
    } else if x == f32::NEG_INFINITY {
        -limit
    } else {
        units(x.into())
    }
}

/// Numbers with exponents in this range, and a few zeros.
fn numbers(seed: u64, count: usize, exponents: std::ops::Range<i64>) -> Vec<f64> {
    let mut state = seed;
    let number = |_| {
        let word = next_random(&mut state);
        let width = (exponents.end - exponents.start) as u64;
        let field = (exponents.start + (next_random(&mut state) % width) as i64 + 1023).clamp(0, 2046) as u64;
        if word.is_multiple_of(31) {
            0.0
        } else {
            f64::from_bits(word >> 63 << 63 | field << 52 | word >> 12)
        }
    };
    (0..count).map(number).collect()
}

#[test]
fn sums_of_f64_are_exact() {
    // All within a block's range, just beyond it, far beyond it, and at both ends of the exponent
    // range.
    let ranges = [
        0..1,
        0..30,
        0..39,
        0..45,
        -40..40,
        -300..300,
        -1023..-1000,
        -1023..-900,
        -1023..1023,
        990..1024,
        1015..1016,
    ];
    for (k, range) in ranges.into_iter().enumerate() {
        for (j, count) in [1, 2, 7, 255, 256, 257, 1000, 5000].into_iter().enumerate() {
            for seed in 0..3 {
                let seed = (seed * 100 + k * 10 + j) as u64;
                let mut all = numbers(seed, count, range.clone());
                check(&all, &format!("{count} in {range:?}, seed {seed}"));
                // Adding all numbers but the first again with the opposite sign leaves the first.
                let back: Vec<f64> = all.iter().skip(1).map(|x| -x).collect();
                all.extend(back);
                assert_eq!(ExactSum::of(&all).to_f64(), all[0], "{count} in {range:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn sums_of_f32_are_exact() {
    for (k, range) in [0..1, 0..20, 0..22, 0..60, -126..127, -149..-140, 120..128].into_iter().enumerate() {
        for seed in 0..20 {
            let seed = (seed * 16 + k) as u64;
            let count = 1 + seed as usize * 37 % 1500;
            let narrow: Vec<f32> =
                numbers(seed, count, range.clone()).into_iter().map(|x| x as f32).collect();
            let narrow: Vec<f32> =
                narrow.into_iter().map(|x| if x.is_infinite() { f32::MAX } else { x }).collect();
            let wide: Vec<f64> = narrow.iter().map(|x| f64::from(*x)).collect();
            check(&wide, &format!("{count} in {range:?}, seed {seed}"));
            assert_eq!(ExactSum::of(&narrow), ExactSum::of(&wide), "{count} in {range:?}, seed {seed}");
        }
    }
}

#[test]
fn rounding_is_to_nearest_even_at_every_step() {
    let check =
        |numbers: &[f64], expected: f64| assert_eq!(ExactSum::of(numbers).to_f64(), expected, "{numbers:?}");
    let tiny = f64::from_bits(1);
    check(&[1.0, f64::EPSILON / 2.0], 1.0);
    check(&[1.0, f64::EPSILON / 2.0, tiny], 1.0 + f64::EPSILON);
    check(&[1.0 + f64::EPSILON, f64::EPSILON / 2.0], 1.0 + 2.0 * f64::EPSILON);
    check(&[1.0 + f64::EPSILON, f64::EPSILON / 2.0, -tiny], 1.0 + f64::EPSILON);
    check(&[tiny, tiny], 2.0 * tiny);
    check(&[f64::MIN_POSITIVE, -tiny], f64::from_bits(f64::MIN_POSITIVE.to_bits() - 1));
    // Half a unit beyond the largest number rounds to infinity, less does not, and sums that
    // overflow on the way come back.
    let half = 2.0_f64.powi(970);
    check(&[f64::MAX, half], f64::INFINITY);
    check(&[f64::MAX, half, -tiny], f64::MAX);
    check(&[-f64::MAX, -half], f64::NEG_INFINITY);
    check(&[f64::MAX, f64::MAX, f64::MAX, -f64::MAX, -f64::MAX], f64::MAX);
    let single = |numbers: &[f64]| ExactSum::of(numbers).to_f32();
    assert_eq!(single(&[f32::MAX.into(), 2.0_f64.powi(103)]), f32::INFINITY);
    assert_eq!(single(&[f32::MAX.into(), 2.0_f64.powi(103), -tiny]), f32::MAX);
    assert_eq!(single(&[2.0_f64.powi(-150)]), 0.0);
    assert_eq!(single(&[2.0_f64.powi(-150), tiny]), f32::from_bits(1));
}

#[test]
fn special_numbers_follow_their_rules() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let cases: [(&[f32], u32); 12] = [
        (&[], 0),
        (&[0.0], 0),
        (&[-0.0], 0x8000_0000),
        (&[-0.0; 300], 0x8000_0000),
        (&[-0.0, 0.0], 0),
        (&[1.0, -1.0], 0),
        (&[-1.0, -0.0, 1.0], 0),
        (&[inf, 1.0], 0x7f80_0000),
        (&[-inf, f32::MAX], 0xff80_0000),
        (&[inf, -inf], 0x7fc0_0000),
        (&[-nan, 1.0], 0x7fc0_0000),
        (&[inf, nan], 0x7fc0_0000),
    ];
    for (numbers, expected) in cases {
        assert_eq!(ExactSum::of(numbers).to_f32().to_bits(), expected, "{numbers:?}");
        let wide: Vec<f64> = numbers.iter().map(|x| f64::from(*x)).collect();
        assert_eq!(ExactSum::of(&wide), ExactSum::of(numbers), "{numbers:?}");
        assert_eq!(
            ExactSum::of(&wide).to_f64().is_nan(),
            numbers.iter().sum::<f32>().is_nan(),
            "{numbers:?}"
        );
    }
    // Far enough into a block that the first elements do not reveal it.
    for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut numbers = vec![1.0; 700];
        numbers[650] = special;
        assert_eq!(
            ExactSum::of(&numbers).to_f64().to_bits(),
            (special + 0.0).to_bits() & 0xfff8_0000_0000_0000,
            "{special}"
        );
    }
}

/// Sums of the pieces that these numbers are cut into, combined in random order.
fn in_parts<T: ExactFloat>(numbers: &[T], workers: usize, seed: u64) -> ExactSum {
    let mut state = seed;
    let mut cuts: Vec<usize> =
        (1..workers).map(|_| next_random(&mut state) as usize % (numbers.len() + 1)).collect();
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([numbers.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let mut parts: Vec<ExactSum> =
        starts.zip(ends).map(|(from, to)| ExactSum::of(&numbers[from..to])).collect();
    while parts.len() > 1 {
        let one = parts.swap_remove(next_random(&mut state) as usize % parts.len());
        let other = next_random(&mut state) as usize % parts.len();
        // Serialised, as it would arrive from elsewhere.
        let one = ExactSum::from_bytes(&one.to_bytes()).expect("its own bytes");
        parts[other].combine(&one);
    }
    parts.remove(0)
}

#[test]
fn any_cut_and_any_order_give_the_same_bytes() {
    for (k, range) in [0..10, -100..100, -1023..1023].into_iter().enumerate() {
        let mut all = numbers(k as u64, 4001, range);
        if k == 1 {
            all[77] = f64::INFINITY;
        }
        let whole = ExactSum::of(&all);
        let narrow: Vec<f32> = all.iter().map(|x| *x as f32).collect();
        let whole_narrow = ExactSum::of(&narrow);
        for workers in [1, 2, 7, 64] {
            for seed in 0..4 {
                assert_eq!(in_parts(&all, workers, seed).to_bytes(), whole.to_bytes());
                assert_eq!(in_parts(&narrow, workers, seed).to_bytes(), whole_narrow.to_bytes());
            }
        }
        let mut state = 9;
        for _ in 0..3 {
            let (a, b) =
                (next_random(&mut state) as usize % all.len(), next_random(&mut state) as usize % all.len());
            all.swap(a, b);
            all.rotate_left(a);
            assert_eq!(ExactSum::of(&all).to_bytes(), whole.to_bytes());
        }
    }
}

#[test]
fn threads_change_nothing() {
    let all: Vec<f32> = numbers(3, 2_200_000, -20..20).into_iter().map(|x| x as f32).collect();
    assert_eq!(ExactSum::of_shared(&all, 2), ExactSum::of(&all));
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("a runtime");
    assert_eq!(runtime.exact_sum(&all).to_bits(), ExactSum::of(&all).to_f32().to_bits());
}

#[test]
fn bytes_that_are_no_sum_are_refused() {
    let bytes = ExactSum::of(&[1.0, -2.5]).to_bytes();
    assert_eq!(ExactSum::from_bytes(&bytes).map(|sum| sum.to_f64()), Ok(-1.5));
    for length in [0, 1, 2, bytes.len() - 1] {
        assert_eq!(ExactSum::from_bytes(&bytes[..length]), Err(NotASum), "{length}");
    }
    let with = |at: usize, byte: u8| {
        let mut other = bytes;
        other[at] = byte;
        ExactSum::from_bytes(&other)
    };
    assert_eq!(with(0, 2), Err(NotASum));
    assert_eq!(with(1, 32), Err(NotASum));
    assert_eq!(ExactSum::from_bytes(&[&bytes[..], &[0]].concat()), Err(NotASum));
    // Arbitrary digits are a valid sum, and adding them never fails.
    let mut most = [0xff; ExactSum::BYTES];
    (most[0], most[1], most[ExactSum::BYTES - 1]) = (1, 3, 0x7f);
    let mut sum = ExactSum::from_bytes(&most).expect("a sum");
    (0..100).for_each(|_| sum.combine(&sum.clone()));
    std::hint::black_box((sum.to_f32(), sum.to_f64(), sum.to_bytes()));
}
