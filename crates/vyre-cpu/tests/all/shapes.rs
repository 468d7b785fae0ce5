//! Kernels that are compiled to special forms: lanes along rows, borders, columns, rows of any
//! length, stores by some of the invocations. Run on guarded memory, with parameters that fit and
//! that do not, and compared with the interpreter bit for bit.

use crate::bounds::{Against, run_guarded};
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, DispatchConfig, Schedule, VyreBackend};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;

/// Values that tend to break index arithmetic.
pub(crate) const HOSTILE: [u32; 10] = [0, 1, 2, 5, 64, 1000, 1 << 31, (1 << 31) - 1, u32::MAX - 1, u32::MAX];

pub(crate) fn numbers(count: usize) -> Vec<u32> {
    (0..count as u32).map(|k| k.wrapping_mul(0x9E37_79B9) >> 7).collect()
}

pub(crate) fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs a kernel on each list of inputs, with the quick and the thorough compiler.
pub(crate) fn check(source: &str, cases: &[Vec<Vec<u8>>]) -> Result<(), BackendError> {
    let cpu = Cpu::new()?;
    let program = parse(source)?.in_regions();
    let kernel = program.validate()?;
    for schedule in [Schedule::Off, Schedule::Cheap, Schedule::Expensive] {
        let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
        let Some(pipeline) = cpu.compile_native(&program, &config)? else {
            unreachable!("the backend compiles")
        };
        for (number, inputs) in cases.iter().enumerate() {
            let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let expected = CpuRef.dispatch_borrowed(&program, &borrowed, &DispatchConfig::default())?;
            for against in [Against::Start, Against::End] {
                let given = run_guarded(&*pipeline, &kernel, inputs, against)?;
                assert_eq!(given, expected, "case {number}, {schedule:?}\n{source}");
            }
        }
    }
    Ok(())
}

#[test]
fn lanes_that_are_rows() -> Result<(), BackendError> {
    let source = "kernel rows(n: u32 uniform, m: u32 uniform, x: read u32[], b: read u8[], y: output u32[] len_of x) over x {
        let row = invocation.x
        let start = row * n
        let sum = 0
        for k in 0..5 { sum = sum * 3 + x[start + k] + b[start + k] }
        for k in start..start + m { sum = sum * 5 + x[k] }
        for k in 7 * row + m..7 * row + 9 { sum = sum * 7 + x[k] }
        y[row] = sum + x[start - m] + x[m - start] + x[(row + 1) * (n + m)] + x[u32(i32(row) * i32(n) - 3)]
    }";
    let mut cases = Vec::new();
    for length in [0, 1, 7, 40, 133] {
        for n in HOSTILE {
            for m in [0, 1, 6] {
                let x = bytes(&numbers(length));
                let b = x.iter().copied().take(length).collect();
                cases.push(vec![bytes(&[n]), bytes(&[m]), x, b]);
            }
        }
    }
    check(source, &cases)
}

#[test]
fn rows_that_are_written() -> Result<(), BackendError> {
    let source =
        "kernel prefix(words: u32 uniform, x: read u32[], y: output u32[] len_of x, z: output u8[] len_of x)
        over [len(x) / max(words, 1)] {
        let start = invocation.x * words
        let seen = 0
        for k in start..start + words { seen ^= x[k]; y[k] = seen }
        for k in 0..words { if y[start + k] > 9 { z[start + k] = k } }
    }";
    let case = |length: usize, words: u32| vec![bytes(&[words]), bytes(&numbers(length))];
    let cases: Vec<Vec<Vec<u8>>> = [0, 1, 3, 8, 17]
        .into_iter()
        .flat_map(|words| [1, 7, 64, 300].map(|length| case(length, words)))
        .collect();
    check(source, &cases)
}

/// Rows copied a few elements at a time, for every element size, read and written.
#[test]
fn rows_that_are_walked_along() -> Result<(), BackendError> {
    let source = "kernel walk(
        n: u32 uniform, m: u32 uniform, x: read u32[], b: read u8[], h: read i16[], d: read f64[],
        y: output u32[] len_of x, z: output u8[] len_of x, w: output f64[] len_of x
    ) over [len(x) / max(n, 1)] {
        let start = invocation.x * n
        let seen = 1
        let sum = 0.0f64
        for k in 0..m {
            seen = seen * 3 + x[start + k] + b[start + k] + u32(h[k + start])
            sum += d[start + k]
            y[start + k] = seen
            z[start + k] = seen >> 3
            w[start + k] = sum
        }
        for k in start..start + m { seen = seen * 5 + x[k + 1] + x[k] }
        if m > 2 { y[start] = seen }
    }";
    let mut cases = Vec::new();
    for (n, m) in
        [(1, 1), (5, 5), (8, 8), (9, 9), (20, 17), (31, 31), (40, 0), (300, 299), (0, 3), (u32::MAX, 9)]
    {
        for length in [0, 40, 333, 640] {
            let x = bytes(&numbers(length));
            let b: Vec<u8> = x.iter().copied().take(length).collect();
            let h: Vec<u8> = x.iter().copied().rev().take(2 * length).collect();
            let d: Vec<u8> = (0..length).flat_map(|k| (k as f64).to_le_bytes()).collect();
            if n > 0 || length == 0 {
                cases.push(vec![bytes(&[n]), bytes(&[m]), x, b, h, d]);
            }
        }
    }
    check(source, &cases)
}

/// Integer reductions of rows, in which iterations are lanes.
#[test]
fn rows_that_are_reduced() -> Result<(), BackendError> {
    let source = "kernel reduce(
        n: u32 uniform, m: u32 uniform, x: read u32[], b: read u8[], s: read i32[],
        y: output u32[] len_of x, z: output i32[] len_of x
    ) over [len(x) / max(n, 1)] {
        let row = invocation.x
        let start = row * n
        let count = row
        let bits = 0
        let least = 7i32
        for k in 0..m {
            let v = b[start + k]
            if v == 32 { count += 3 } else { bits ^= x[start + k] + k }
            least = min(least, s[start + k])
            count -= select(v > 100, v, 1)
        }
        let most = -5i32
        for k in m..n { most = max(most, s[start + k] * 3 + s[k] * least) }
        y[row] = count * 31 + bits
        z[row] = most - least
    }";
    let mut cases = Vec::new();
    for (n, m) in [(1, 1), (16, 16), (17, 15), (40, 33), (70, 0), (300, 299), (0, 3), (5, 77), (9, u32::MAX)]
    {
        for length in [0, 40, 333, 640] {
            let x = bytes(&numbers(length));
            let b: Vec<u8> = x.iter().copied().take(length).map(|byte| byte % 120).collect();
            if length == 0 || n > 0 && m < 1 << 20 {
                cases.push(vec![bytes(&[n]), bytes(&[m]), x.clone(), b, x]);
            }
        }
    }
    check(source, &cases)
}

/// Private arrays indexed by data, in range and out of it.
#[test]
fn counters_of_rows() -> Result<(), BackendError> {
    let source = "kernel counters(n: u32 uniform, x: read u8[], y: output u32[len(x) / max(n, 1) * 8]) over [len(x) / max(n, 1)] {
        let row = invocation.x
        array counts: u32[8]
        array seen: bool[8]
        for k in 0..n {
            let v = x[row * n + k]
            counts[v >> 5] += 1
            counts[v & 15] += v
            seen[v % 9] = v > 50
        }
        for k in 0..8 { y[row * 8 + k] = counts[k] * 2 + u32(seen[k]) }
    }";
    let mut cases = Vec::new();
    for n in [1, 5, 40] {
        for length in [0, 40, 333] {
            let x = numbers(length).iter().map(|number| *number as u8).collect();
            cases.push(vec![bytes(&[n]), x]);
        }
    }
    check(source, &cases)
}

#[test]
fn borders() -> Result<(), BackendError> {
    let source = "kernel borders(w: u32 uniform, low: i32 uniform, high: i32 uniform, x: read u32[], y: output u32[] len_of x)
        over x {
        let i = invocation.x
        let s = x[u32(clamp(i32(i) - 1, low, high))] + 3 * x[min(i + 3, w)] + 5 * x[max(i, w)]
        s += 7 * x[(i + w - 1) % w] + 11 * x[(i + 2) % max(w, 1)] + 13 * x[min(max(2 * i, 4), w)]
        if i > 0 && i + 1 < w { s += 17 * x[i - 1] + x[i + 1] } else { s ^= 99 }
        if w <= i { s += 1000 }
        if i == 40 { return }
        y[i] = s
    }";
    let mut cases = Vec::new();
    for length in [1, 8, 61, 200] {
        for w in HOSTILE {
            for (low, high) in [(0, w.wrapping_sub(1)), (5, 3), (1 << 31, (1 << 31) - 1), (u32::MAX, 50)] {
                cases.push(vec![bytes(&[w]), bytes(&[low]), bytes(&[high]), bytes(&numbers(length))]);
            }
        }
    }
    check(source, &cases)
}

/// Guards inside loops, relative to both lanes and rounds.
#[test]
fn borders_in_loops() -> Result<(), BackendError> {
    let source = "kernel filter(m: u32 uniform, low: i32 uniform, taps: read u32[], x: read u32[], y: output u32[] len_of x)
        over x {
        let i = invocation.x
        let sum = 0
        for k in 0..m {
            if i + k < len(x) { sum = sum * 3 + taps[k] * x[i + k] }
            if i + k - 3 < len(x) && k < i { sum += x[i + k - 3] }
            let column = clamp(i32(i) + i32(k) - 4, 0, i32(len(x)) - 1)
            sum += 5 * x[u32(column)] + 7 * x[(i + k) % len(x)]
        }
        for d in low..low + 12 {
            let at = i32(i) + d
            if at >= 0 && i32(len(x)) > at { sum = sum * 9 + x[u32(at)] }
        }
        y[i] = sum
    }";
    let mut cases = Vec::new();
    for length in [1, 9, 64, 150] {
        for m in [0, 1, 5, 40] {
            for low in [0, (-6i32) as u32, u32::MAX >> 1, 1 << 31] {
                cases.push(vec![bytes(&[m]), bytes(&[low]), bytes(&numbers(33)), bytes(&numbers(length))]);
            }
        }
    }
    check(source, &cases)
}

#[test]
fn borders_of_pictures() -> Result<(), BackendError> {
    let source =
        "kernel picture(w: u32 uniform, h: u32 uniform, x: read u8[], y: output u8[] len_of x) over [w, h] {
        let sum = 0
        for dy in 0..3 {
            for dx in 0..3 {
                let column = (invocation.x + dx + w - 1) % w
                let row = u32(clamp(i32(invocation.y) + i32(dy) - 1, 0, i32(h) - 1))
                sum = sum * 3 + x[row * w + column]
            }
        }
        if invocation.x < w && invocation.y < h { y[invocation.y * w + invocation.x] = sum }
    }";
    let case = |w: u32, h: u32, length: usize| {
        let picture: Vec<u8> = numbers(length).into_iter().map(|number| number as u8).collect();
        vec![bytes(&[w]), bytes(&[h]), picture]
    };
    let sizes = [(1, 1), (2, 9), (8, 3), (9, 9), (31, 4), (64, 5), (100, 7)];
    let mut cases: Vec<Vec<Vec<u8>>> = sizes.map(|(w, h)| case(w, h, (w * h) as usize)).into();
    // Too little memory, and more than the work needs.
    cases.extend([case(40, 10, 399), case(40, 10, 7), case(40, 10, 1000), case(0, 5, 10), case(5, 0, 10)]);
    check(source, &cases)
}

#[test]
fn columns() -> Result<(), BackendError> {
    let source = "kernel columns(w: u32 uniform, h: u32 uniform, x: read f32[], y: output f32[w * h * 3]) over [w, h, 3] {
        let plane = invocation.z * w * h
        if invocation.x == 3 && invocation.y == 2 { return }
        y[plane + invocation.x * h + invocation.y] = x[plane + invocation.y * w + invocation.x] + 1.0
    }";
    let case = |w: u32, h: u32, length: usize| vec![bytes(&[w]), bytes(&[h]), bytes(&numbers(length))];
    let sizes = [(1, 1), (5, 3), (16, 16), (33, 17), (8, 40), (100, 1), (1, 100), (64, 70)];
    let mut cases: Vec<Vec<Vec<u8>>> = sizes.map(|(w, h)| case(w, h, (3 * w * h) as usize)).into();
    cases.extend([case(40, 10, 399), case(0, 10, 5), case(20, 20, 5000)]);
    check(source, &cases)
}

/// Squares that are transposed in registers: loads and stores down columns, for both sizes of
/// elements.
#[test]
fn columns_in_squares() -> Result<(), BackendError> {
    let source = "kernel squares(
        w: u32 uniform, h: u32 uniform, x: read u32[], d: read f64[],
        y: output u32[w * h * 2], z: output f64[w * h * 2], v: output u32[w * h * 2]
    ) over [w, h, 2] {
        let plane = invocation.z * w * h
        let across = plane + invocation.y * w + invocation.x
        let down = plane + invocation.x * h + invocation.y
        y[down] = x[across] * 3
        z[down] = d[across]
        v[across] = x[down] + invocation.y
    }";
    let case = |w: u32, h: u32, length: usize| {
        let d = (0..length).flat_map(|k| (k as f64).to_le_bytes()).collect();
        vec![bytes(&[w]), bytes(&[h]), bytes(&numbers(length)), d]
    };
    let sizes = [(1, 1), (5, 3), (16, 16), (33, 17), (8, 40), (100, 1), (1, 100), (64, 70), (9, 8)];
    let mut cases: Vec<Vec<Vec<u8>>> = sizes.map(|(w, h)| case(w, h, (2 * w * h) as usize)).into();
    cases.extend([case(40, 10, 399), case(0, 10, 5), case(20, 20, 5000)]);
    check(source, &cases)?;
    let one =
        "kernel turned(w: u32 uniform, h: u32 uniform, x: read f32[], y: output f32[w * h]) over [w, h] {
        y[invocation.x * h + invocation.y] = x[invocation.y * w + invocation.x]
    }";
    let case = |w: u32, h: u32, length: usize| vec![bytes(&[w]), bytes(&[h]), bytes(&numbers(length))];
    let mut cases: Vec<Vec<Vec<u8>>> = sizes.map(|(w, h)| case(w, h, (w * h) as usize)).into();
    cases.extend([case(40, 10, 399), case(0, 10, 5), case(20, 20, 5000)]);
    check(one, &cases)
}

#[test]
fn rows_of_any_length() -> Result<(), BackendError> {
    let source = "kernel ragged(starts: read u32[], columns: read u32[], values: read f32[], x: read f32[], y: output f32[])
        over y {
        let row = invocation.x
        let sum = 0.0
        for k in starts[row]..min(starts[row + 1], starts[row] + 9) { sum += values[k] * x[columns[k]] }
        y[row] = sum
    }";
    let case = |starts: Vec<u32>, length: usize| {
        let small: Vec<u32> = numbers(length).iter().map(|number| number % 50).collect();
        vec![bytes(&starts), bytes(&small), bytes(&small), bytes(&numbers(40))]
    };
    let rising = (0..30).map(|k| k * k / 9).collect();
    let cases = [
        case(rising, 100),
        case(vec![0, 5, 3, u32::MAX - 2, 4, 9, 1 << 31, 2, 2], 10),
        case(vec![7], 3),
        case(numbers(77), 77),
    ];
    check(source, &cases)
}

#[test]
fn tables() -> Result<(), BackendError> {
    let source = "kernel tables(b: read u8[], h: read u16[], i: read u32[], t: read u8[256], f: read f32[], d: read f64[], w: read u32[],
        y: output u8[] len_of b, z: output f32[] len_of b, v: output f64[] len_of b) over b {
        let k = invocation.x
        y[k] = t[b[k]] + w[h[k]] + t[t[b[k]]]
        z[k] = f[i[k]] + f[b[k]]
        v[k] = d[h[k]] + d[i[k] & 15]
    }";
    let case = |count: usize, room: usize| {
        let words: Vec<u32> = numbers(count).iter().map(|number| number % 70).collect();
        let narrow =
            |bytes: usize| words.iter().flat_map(|word| word.to_le_bytes()[..bytes].to_vec()).collect();
        let doubles = (0..room).flat_map(|k| (k as f64).to_le_bytes()).collect();
        let table = numbers(256).iter().map(|number| *number as u8).collect();
        vec![narrow(1), narrow(2), narrow(4), table, bytes(&numbers(room)), doubles, bytes(&numbers(room))]
    };
    let cases = [case(1, 70), case(16, 70), case(100, 70), case(100, 20), case(77, 0), case(64, 300)];
    check(source, &cases)
}

#[test]
fn stores_that_some_make() -> Result<(), BackendError> {
    for element in ["u8", "i16", "u32", "f32", "f64", "u64", "bool", "f16"] {
        let value = match element {
            "bool" => "a > 7",
            "f32" | "f16" => "f32(a)",
            "f64" => "f64(a)",
            "u64" => "u64(a)",
            "i16" => "i32(a)",
            _ => "a",
        };
        let source = format!(
            "kernel some(level: u32 uniform, x: read u32[], y: read_write {element}[], z: output u32[] len_of x) over x {{
                let i = invocation.x
                let a = x[i] & 255
                if a > level {{ y[i] = {value} }}
                if a > 99 {{ z[i] = 255 }} else {{ z[i] = a + 1 }}
                if a % 3 == 0 {{ y[i] = {value} }}
            }}"
        );
        let size = parse(&source)?.in_regions().validate()?.buffers[2].decl.element.size();
        let case = |level: u32, length: usize, room: usize| {
            vec![bytes(&[level]), bytes(&numbers(length)), vec![0; room * size]]
        };
        let cases: Vec<Vec<Vec<u8>>> = [0, 100, 300]
            .into_iter()
            .flat_map(|level| {
                [(1, 1), (33, 33), (200, 200), (64, 50), (20, 90)].map(|(n, m)| case(level, n, m))
            })
            .collect();
        check(&source, &cases)?;
    }
    Ok(())
}

#[test]
fn rows_whose_stores_past_the_caches_are_aligned_by_overlap() -> Result<(), BackendError> {
    let source =
        "kernel step(w: u32 uniform, x: read f32[], y: output f32[] len_of x, z: output f64[] len_of x)
    over [len(x), 3] {
        let i = invocation.y * w + invocation.x + 1
        if invocation.x < w {
            y[i] = 0.25 * (x[i - 1] + x[i + 1] + x[i - w] + x[i + w])
            if x[i] > 9.0 { z[i + 2] = f64(x[i]) }
        }
    }";
    let mut cases = Vec::new();
    for length in [0, 1, 5, 40, 47, 133, 700] {
        for w in [0, 3, 36, 41, 64, 133, 230, u32::MAX] {
            let x = numbers(length).iter().flat_map(|&k| (k as f32 / 1e7).to_le_bytes()).collect();
            cases.push(vec![bytes(&[w]), x]);
        }
    }
    check(source, &cases)
}
