//! Kernels that read what they also write, records at wide strides, and stores by some of the
//! lanes: run on guarded memory, with parameters that fit and that do not, and compared with the
//! interpreter bit for bit.

use crate::shapes::{HOSTILE, bytes, check, numbers};
use vyre_driver::BackendError;

/// Inputs of some lengths: `count` buffers of words each.
fn buffers(lengths: &[usize], count: usize) -> Vec<Vec<Vec<u8>>> {
    lengths.iter().map(|&length| (0..count).map(|k| bytes(&numbers(length + 3 * k))).collect()).collect()
}

/// The same with uniforms before them.
fn with_uniforms(uniforms: &[&[u32]], lengths: &[usize], count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut cases = Vec::new();
    for values in uniforms {
        for case in buffers(lengths, count) {
            cases.push(values.iter().map(|&value| bytes(&[value])).chain(case).collect());
        }
    }
    cases
}

const LENGTHS: [usize; 8] = [0, 1, 15, 16, 17, 128, 271, 1100];

#[test]
fn records_of_words() -> Result<(), BackendError> {
    for (element, stride, loaded) in
        [("u32", 16, 16), ("u32", 9, 8), ("u32", 12, 11), ("i32", 40, 20), ("f32", 8, 8), ("u64", 8, 5)]
    {
        let zero = if element == "f32" { "0.0".into() } else { format!("0{element}") };
        let source = format!(
            "kernel records(x: read {element}[], y: output {element}[] len_of x) over [len(x) / {stride}] {{
                let first = {stride} * invocation.x
                let sum = {zero}
                for k in 0..{loaded} {{ sum = sum * x[first + {loaded} - 1 - k] + x[first + k] }}
                for k in 0..{loaded} {{ y[first + k] = x[first + (k * 5) % {loaded}] - sum }}
            }}"
        );
        let lengths = LENGTHS.map(|length| if element == "u64" { 2 * length } else { length });
        check(&source, &buffers(&lengths, 1))?;
    }
    Ok(())
}

#[test]
fn records_of_bytes() -> Result<(), BackendError> {
    for (element, stride, loaded) in [
        ("u8", 16, 16),
        ("u8", 8, 8),
        ("i8", 16, 16),
        ("i8", 12, 7),
        ("u8", 24, 19),
        ("u8", 33, 20),
        ("u16", 8, 8),
        ("i16", 10, 10),
        ("u16", 6, 5),
        ("u8", 28, 5),
    ] {
        let source = format!(
            "kernel records(x: read {element}[], y: read {element}[], z: output u32[len(x) / {stride}], w: output u8[] len_of z) over z {{
                let first = {stride} * invocation.x
                let sum = 0
                let hash = 7
                for k in 0..{loaded} {{
                    sum += abs_diff(u32(x[first + k]) & 255, u32(y[first + k]) & 255)
                    hash = hash * 31 + u32(x[first + k])
                }}
                z[invocation.x] = sum ^ hash
                w[invocation.x] = sum
            }}"
        );
        check(&source, &buffers(&[0, 1, 5, 16, 67, 160], 2))?;
    }
    Ok(())
}

#[test]
fn records_in_place() -> Result<(), BackendError> {
    let source = "kernel turn(x: read_write u32[]) over [len(x) / 16] {
        let first = 16 * invocation.x
        for i in 0..4 { for j in 0..i {
            let other = x[first + 4 * j + i]
            x[first + 4 * j + i] = x[first + 4 * i + j]
            x[first + 4 * i + j] = other
        } }
        let sum = 0
        for k in 0..16 { sum = sum * 3 + x[first + k] }
        x[first + 5] = sum
        x[first + 6] = x[first + 5] + x[first + 7]
    }";
    check(source, &buffers(&LENGTHS, 1))?;
    let source = "kernel pairs(x: read_write u32[]) over [len(x) / 2] {
        let i = 2 * invocation.x
        let a = x[i]
        x[i] = a + x[i + 1]
        x[i + 1] = a - x[i + 1] * x[i]
    }";
    check(source, &buffers(&LENGTHS, 1))
}

#[test]
fn halves_and_rows_in_place() -> Result<(), BackendError> {
    let source = "kernel swap(n: u32 uniform, x: read_write u32[]) over [len(x) / 2] {
        let i = invocation.x
        let j = i + len(x) / 2
        let k = len(x) - 1 - i
        let t = x[i]
        x[i] = x[j] * n
        x[j] = t
        x[i] += x[j]
        if i + n > k { x[i] ^= n }
    }";
    let uniforms: Vec<[u32; 1]> = HOSTILE.iter().map(|&n| [n]).collect();
    let uniforms: Vec<&[u32]> = uniforms.iter().map(|values| &values[..]).collect();
    check(source, &with_uniforms(&uniforms, &LENGTHS, 1))?;
    let source =
        "kernel prefix(n: u32 uniform, x: read_write u32[], f: read_write f32[]) over [len(x) / max(n, 1)] {
        let start = invocation.x * n
        let sum = 0
        let all = 0.0
        for k in 0..n { sum += x[start + k]; x[start + k] = sum }
        for k in 0..n { let old = f[start + k]; all = all * 0.5 + old; f[start + k] = old - all }
        for k in 0..n { f[start + k] *= 0.25 }
    }";
    check(source, &with_uniforms(&uniforms, &[0, 1, 40, 333], 2))
}

#[test]
fn blocks_and_rows_that_share_a_number() -> Result<(), BackendError> {
    let source = "kernel butterfly(half: u32 uniform, x: read_write u32[], w: read u32[]) over [len(x) / 2] {
        let k = invocation.x % half
        let i = invocation.x / half * (2 * half) + k
        let j = i + half
        let t = x[j] * w[k]
        x[j] = x[i] - t
        x[i] = x[i] + t
    }";
    // With 0 or 2^32 - 1, invocations would race.
    let uniforms: Vec<[u32; 1]> = [1, 3, 16, 17, 64, 100, 128, 1 << 31].map(|n| [n]).into();
    let uniforms: Vec<&[u32]> = uniforms.iter().map(|values| &values[..]).collect();
    check(source, &with_uniforms(&uniforms, &LENGTHS, 2))?;
    let source =
        "kernel step(n: u32 uniform, p: u32 uniform, x: read_write u32[], y: read u32[]) over [n % 64, 9] {
        let j = invocation.x
        let i = invocation.y
        if i > p && j > p { x[i * n + j] -= x[i * n + p] * y[p] + x[p * n + j] }
    }";
    let mut uniforms: Vec<[u32; 2]> = Vec::new();
    for n in [0, 1, 9, 33, 50, 64] {
        uniforms.extend([0, 2, 8, 40, u32::MAX].map(|p| [n, p]));
    }
    let uniforms: Vec<&[u32]> = uniforms.iter().map(|values| &values[..]).collect();
    check(source, &with_uniforms(&uniforms, &[0, 5, 300, 900], 2))
}

#[test]
fn stores_by_some_lanes() -> Result<(), BackendError> {
    for element in ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "f32", "f64", "bool"] {
        let value = match element {
            "u8" | "u16" => "u32(v)".to_string(),
            "i8" | "i16" => "i32(v)".to_string(),
            "bool" => "v > 1000".to_string(),
            other => format!("{other}(v)"),
        };
        let source = format!(
            "kernel some(n: u32 uniform, x: read u32[], y: output {element}[] len_of x, z: output {element}[] len_of x) over [n % 128, 5] {{
                let v = x[invocation.x]
                if v % 3 != 1 && invocation.y == 0 {{ y[invocation.x] = {value} }}
                if v % 5 < 3 && invocation.x > 2 && invocation.x + 3 < n {{ z[invocation.y * n + invocation.x - 1] = {value} }}
            }}"
        );
        let uniforms: Vec<[u32; 1]> = [0, 1, 17, 64, 100, 127, 300].map(|n| [n]).into();
        let uniforms: Vec<&[u32]> = uniforms.iter().map(|values| &values[..]).collect();
        check(&source, &with_uniforms(&uniforms, &[0, 3, 90, 700], 1))?;
    }
    Ok(())
}

#[test]
fn sums_of_small_numbers_along_rows() -> Result<(), BackendError> {
    for element in ["u8", "i8", "u16", "i16"] {
        let source = format!(
            "kernel counts(n: u32 uniform, x: read {element}[], y: output u32[len(x) / max(n, 1)], z: output i32[] len_of y) over y {{
                let start = invocation.x * n
                let count = 5
                let sum = 0i32
                for k in 0..n {{
                    let v = i32(x[start + k])
                    if (v & 3) != 2 {{ count += 1 }}
                    sum += v
                    sum -= abs(v) >> 1
                }}
                y[invocation.x] = count
                z[invocation.x] = sum
            }}"
        );
        let uniforms: Vec<[u32; 1]> = [0, 1, 15, 16, 127, 128, 129, 300, u32::MAX].map(|n| [n]).into();
        let uniforms: Vec<&[u32]> = uniforms.iter().map(|values| &values[..]).collect();
        check(&source, &with_uniforms(&uniforms, &[0, 10, 64, 400], 1))?;
    }
    Ok(())
}

#[test]
fn chains_side_by_side() -> Result<(), BackendError> {
    let source = "kernel columns(n: u32 uniform, a: read f32[], x: read f32[], c: read f32[9], y: output f32[] len_of x, z: output f32[] len_of x) over x {
        let j = invocation.x
        let sum = 0.0
        for k in 0..n { sum += a[k * n + j] * x[k] }
        y[j] = sum
        let t = x[j]
        let all = 0.0
        for k in 0..9 { all = all * t + c[8 - k] }
        z[j] = all
    }";
    let uniforms: Vec<[u32; 1]> = [0, 1, 2, 17].map(|n| [n]).into();
    let mut cases = Vec::new();
    for [n] in uniforms {
        for length in [0, 1, 8, 31, 32, 33, 64, 100] {
            let words = |count: usize| {
                bytes(&numbers(count).iter().map(|n| (*n as f32).to_bits()).collect::<Vec<u32>>())
            };
            cases.push(vec![bytes(&[n]), words(4 * length), words(length), words(9)]);
        }
    }
    check(source, &cases)?;
    let source = "kernel polynomial(c: read f32[12], x: read f32[], y: output f32[] len_of x) over x {
        let t = x[invocation.x]
        let all = 0.0
        for k in 0..12 { all = all * t + c[11 - k] }
        y[invocation.x] = all
    }";
    let words = |count: usize| {
        bytes(&numbers(count).iter().map(|n| (*n as f32 * 1e-7).to_bits()).collect::<Vec<u32>>())
    };
    let cases: Vec<Vec<Vec<u8>>> =
        [0, 1, 31, 32, 33, 64, 95, 200].into_iter().map(|length| vec![words(12), words(length)]).collect();
    check(source, &cases)
}
