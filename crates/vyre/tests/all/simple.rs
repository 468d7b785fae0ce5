//! Ready-made ops through the one-call interface, on slices and on resident buffers.

use vyre::prelude::*;
use vyre::{Matrix, MatrixMut};

fn runtime() -> Runtime {
    Runtime::builder().backends(["cpu"]).without_tables().build().expect("the backend opens")
}

fn numbers(count: u32) -> Vec<u32> {
    (0..count).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect()
}

#[test]
fn sorting() -> Result<(), BackendError> {
    let runtime = runtime();
    for count in [0, 1, 5, 3000] {
        let keys = numbers(count);
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        let (mut vector, mut resident) = (keys.clone(), runtime.resident(&keys));
        runtime.sort(&mut vector)?;
        runtime.sort(&mut resident)?;
        assert!(vector == sorted && resident.read()? == sorted, "{count}");

        let (mut keys, mut places) = (keys, (0..count).collect::<Vec<u32>>());
        let expected = keys.clone();
        runtime.sort_pairs(&mut keys, &mut places)?;
        assert!(keys == sorted && places.iter().map(|&place| expected[place as usize]).eq(sorted));
    }
    let mut floats = [0.5, -0.0, f32::NEG_INFINITY, 0.0];
    runtime.sort(&mut floats)?;
    assert_eq!(floats.map(f32::to_bits), [f32::NEG_INFINITY, -0.0, 0.0, 0.5].map(f32::to_bits));
    runtime.sort(&mut [3_i32, -3][..])?;
    Ok(())
}

#[test]
fn reductions() -> Result<(), BackendError> {
    let runtime = runtime();
    let x: Vec<i64> = numbers(5000).iter().map(|&x| i64::from(x) - 8_000_000).collect();
    let resident = runtime.resident(&x);
    assert_eq!((runtime.sum(&x)?, runtime.sum(&resident)?), (x.iter().sum(), x.iter().sum()));
    assert_eq!((runtime.min(&x)?, runtime.max(&x)?), (x.iter().min().copied(), x.iter().max().copied()));
    assert_eq!(runtime.dot(&x, &resident)?, x.iter().map(|x| x * x).sum::<i64>());
    let greatest = x.iter().enumerate().max_by_key(|(i, x)| (**x, std::cmp::Reverse(*i))).map(|(i, _)| i);
    assert_eq!(runtime.argmax(&resident)?, greatest);
    let none: [f32; 0] = [];
    assert_eq!((runtime.sum(&none)?, runtime.min(&none)?, runtime.argmax(&none)?), (0.0, None, None));
    assert_eq!(runtime.argmax(&[f32::NAN])?, None);
    assert_eq!((runtime.sum(&[1.5, 2.0])?, runtime.max(&[0.5_f64])?), (3.5, Some(0.5)));
    Ok(())
}

#[test]
fn moving_elements() -> Result<(), BackendError> {
    let runtime = runtime();
    let x = numbers(1000);
    let (mut y, mut counts) = (vec![0; 1000], [0; 16]);
    runtime.scan(&x, &mut y)?;
    assert!(
        x.iter()
            .scan(0_u32, |sum, x| {
                *sum = sum.wrapping_add(*x);
                Some(*sum)
            })
            .eq(y.iter().copied())
    );
    runtime.scan_exclusive(&x, &mut y)?;
    assert_eq!((y[0], y[2]), (0, x[0].wrapping_add(x[1])));
    let keep: Vec<u32> = x.iter().map(|x| x % 2).collect();
    let odd: Vec<u32> = x.iter().copied().filter(|x| x % 2 == 1).collect();
    assert_eq!(runtime.compact(&x, &keep, &mut y)?, odd.len());
    assert_eq!(y[..odd.len()], odd);
    let bytes: Vec<u8> = x.iter().map(|x| (x % 20) as u8).collect();
    runtime.histogram(&bytes, &mut counts)?;
    assert_eq!(counts[3], bytes.iter().filter(|&&byte| byte == 3).count() as u32);
    let places: Vec<u32> = (0..1000).rev().collect();
    let mut moved = vec![0; 1000];
    runtime.gather(&x, &places, &mut moved)?;
    runtime.scatter(&moved, &places, &mut y)?;
    assert!(moved.iter().rev().eq(&x) && y == x);
    Ok(())
}

#[test]
fn matrices() -> Result<(), BackendError> {
    let runtime = runtime();
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let mut y = vec![0.0; 12];
    runtime.transpose(Matrix { elements: &x, rows: 3, columns: 4 }, &mut y)?;
    assert_eq!(y[..4], [0.0, 4.0, 8.0, 1.0]);
    let mut product = [0.0; 9];
    let [a, b] = [Matrix { elements: &x, rows: 3, columns: 4 }, Matrix { elements: &y, rows: 4, columns: 3 }];
    runtime.matmul(a, b, MatrixMut { elements: &mut product, rows: 3, columns: 3 })?;
    assert_eq!(product[0], 14.0);
    runtime.softmax_rows(Matrix { elements: &x, rows: 3, columns: 4 }, &mut y)?;
    assert!((y[..4].iter().sum::<f32>() - 1.0).abs() < 1e-6);
    runtime.map(vyre::map!(|x: f32| -x), &x, &mut y)?;
    assert_eq!(y[3], -3.0);
    Ok(())
}

#[test]
fn mismatches_are_reported() {
    let runtime = runtime();
    let check = |result: Result<(), BackendError>, expected: &str| {
        let message = result.expect_err("it does not fit").to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(runtime.dot(&[1.0, 2.0], &[1.0]).map(|_| ()), "x has 2 elements, and y 1");
    check(runtime.scan(&[1, 2], &mut [0; 3]).map(|_| ()), "the lengths must be equal");
    let bad = Matrix { elements: &[0.0; 5], rows: 2, columns: 3 };
    check(runtime.transpose(bad, &mut [0.0; 5]).map(|_| ()), "x is 2 by 3, and has 5 elements");
    let a = || Matrix { elements: &[0.0; 4], rows: 2, columns: 2 };
    let c = MatrixMut { elements: &mut [0.0; 2], rows: 2, columns: 1 };
    check(runtime.matmul(a(), a(), c).map(|_| ()), "which do not fit a product");
    check(runtime.histogram(&[1_u8], &mut vec![0; 5000]).map(|_| ()), "1024");
}
