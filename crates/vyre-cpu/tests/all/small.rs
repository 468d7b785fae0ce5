//! Values that are known to be small: half-width lanes, shorter conversions and comparisons,
//! compared with the interpreter bit for bit.

use vyre_conform::samples::assert_agrees;
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, DispatchConfig, Schedule};

/// Checks a body that reads `a` and `b` at index `i` and writes `y`.
fn check(element: &str, body: &str) -> Result<(), BackendError> {
    let source = format!(
        "kernel small(a: read {element}[], b: read {element}[], y: output {element}[] len_of a) over a workgroup 64 {{
           region \"r\" {{ let i = invocation.x
             {body} }} }}"
    );
    let cpu = Cpu::new()?;
    for schedule in [Schedule::Off, Schedule::Expensive] {
        let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
        for length in [1, 7, 16, 33, 300] {
            assert_agrees(&cpu, &source, length, &config)?;
        }
    }
    Ok(())
}

#[test]
fn arithmetic_on_bytes_and_halves() -> Result<(), BackendError> {
    let unsigned = [
        "y[i] = 255 - a[i]",
        "y[i] = (a[i] + b[i] + 1) / 2",
        "y[i] = (a[i] + b[i] + 1) >> 1",
        "y[i] = (a[i] * 77 + b[i] * 150 + 128) >> 8",
        "y[i] = min(a[i] + b[i], 255)",
        "y[i] = max(a[i], b[i]) - min(a[i], b[i])",
        "y[i] = abs_diff(a[i], b[i])",
        "y[i] = sat_sub(a[i], b[i])",
        "y[i] = select(a[i] > b[i], a[i], 0)",
        "y[i] = select(a[i] > 128 && !(b[i] <= 3), 255, a[i] ^ b[i])",
        "y[i] = u32(a[i] >= b[i]) + u32(a[i] == 7)",
        "y[i] = a[i] * b[i]",
        "y[i] = a[i] * b[i] + a[i] * 3",
        "y[i] = (a[i] << 4) | (b[i] & 15)",
        "y[i] = u32(clamp(i32(a[i]) * 2 - i32(b[i]), 0, 255))",
        "y[i] = u32(clamp(i32(a[i]) - i32(b[i]), -128, 127) + 128)",
        "y[i] = u32(f32(a[i]) * 0.5 + f32(b[i]) * 0.25)",
        "y[i] = u32(clamp(f32(a[i]) * 1.7 - 12.5, 0.0, 255.0))",
        "y[i] = u32(min(max(f32(a[i]) / f32(b[i]), 3.0), 900.0))",
        "if a[i] > b[i] { y[i] = a[i] - b[i] } else { y[i] = b[i] + 1 }",
        "let s = 0\n for k in 0..5 { s += a[i + k] }\n y[i] = s / 5",
        "y[i] = a[i] >> (b[i] & 7)",
        "y[i] = (a[i] * b[i]) >> (a[i] >> 3)",
        "y[i] = u32(i32(a[i]) - 500) >> 3",
        "y[i] = a[i] % 10 + b[i] / 3",
        "y[i] = a[len(a) - 1 - i] + b[i]",
        // Only the low bits of these differences matter.
        "let c = a[i]\n if c >= 97 && c <= 122 { c -= 32 }\n y[i] = c",
        "y[i] = (a[i] - b[i]) & 255",
        "y[i] = ((a[i] - 3 * b[i]) ^ 4294967290) * 5 - (b[i] << 7)",
        "y[i] = select(a[i] > b[i], a[i] - 700, 3 - b[i])",
        "y[i] = max(a[i] - b[i], 5)",
        // Variables that are set on several paths.
        "let s = a[i]\n if i > 2 && i + 2 < len(a) { s = (a[i - 1] + 2 * a[i] + a[i + 1]) / 4 }\n y[i] = s",
        "let s = 1\n if a[i] > 9 { s = a[i] * 2 } else if b[i] > 9 { s = b[i] - 7 }\n y[i] = s + b[i]",
        "let s = 0\n for k in 0..3 { s = (s + a[i + k]) / 2 }\n y[i] = s",
        // Products with constants that divide.
        "y[i] = (a[i] + b[i]) / 9",
        "y[i] = (a[i] * 5 + b[i]) / 7 + a[i] % 11",
        "y[i] = a[i] / 255 + (a[i] + b[i]) / 3",
        // Neighbours at a small stride.
        "y[i] = (a[2 * i] + a[2 * i + 1] + b[3 * i + 1]) / 3",
        "y[i] = (77 * a[3 * i] + 150 * a[3 * i + 1] + 29 * a[3 * i + 2]) >> 8",
        "y[i] = max(a[4 * i + 3], b[len(b) - 1 - 2 * i])",
    ];
    for body in unsigned {
        for element in ["u8", "u16"] {
            check(element, body).unwrap_or_else(|error| panic!("{body}: {error}"));
        }
    }
    let signed = [
        "y[i] = a[i] - b[i]",
        "y[i] = (a[i] + b[i]) >> 1",
        "y[i] = max(a[i], -b[i])",
        "y[i] = clamp(a[i] * 3, -100, 100)",
        "y[i] = select(a[i] < b[i], abs(a[i]), sign(b[i]))",
        "y[i] = i32(abs_diff(a[i], b[i]))",
        "y[i] = i32(clamp(f32(a[i]) * 1.5, -128.0, 127.0))",
        "y[i] = i32(u32(a[i]) & 127) - 64",
        "y[i] = a[i] / 4 + b[i] % 7",
        "y[i] = (a[i] ^ b[i]) << 2",
        "y[i] = a[i] >> u32(b[i] & 7)",
        "y[i] = abs(a[i]) - abs(b[i])",
        "y[i] = abs(a[i] - b[i]) >> 1",
        "y[i] = a[2 * i] - b[2 * i + 1]",
        "y[i] = min(a[3 * i + 1], b[i])",
    ];
    for body in signed {
        for element in ["i8", "i16"] {
            check(element, body).unwrap_or_else(|error| panic!("{body}: {error}"));
        }
    }
    Ok(())
}

#[test]
fn fields_of_bytes() -> Result<(), BackendError> {
    for fields in [2, 3, 4] {
        let stores: Vec<String> =
            (0..fields).map(|k| format!("y[{fields} * i + {k}] = (a[i] * {k} + b[i] - 3) >> {k}")).collect();
        let source = format!(
            "kernel fields(a: read u8[], b: read u8[], y: output u8[len(a) * {fields}]) over a {{
               region \"r\" {{ let i = invocation.x
                 {} }} }}",
            stores.join("\n")
        );
        let config = DispatchConfig { schedule: Some(Schedule::Expensive), ..DispatchConfig::default() };
        for length in [1, 16, 33, 300] {
            assert_agrees(&Cpu::new()?, &source, length, &config)?;
        }
    }
    Ok(())
}

#[test]
fn words_shifted_each_by_its_own_count() -> Result<(), BackendError> {
    for element in ["u32", "i32", "u64", "i64"] {
        for body in [
            "y[i] = a[i] << u32(b[i])",
            "y[i] = a[i] >> u32(b[i])",
            "y[i] = rotate_left(a[i], u32(b[i])) ^ rotate_right(a[i], u32(b[i]) * 7)",
            "y[i] = a[i] >> (i % 70)",
        ] {
            check(element, body).unwrap_or_else(|error| panic!("{element} {body}: {error}"));
        }
    }
    Ok(())
}

#[test]
fn extremes_and_saturation_of_words() -> Result<(), BackendError> {
    for element in ["u32", "i32"] {
        for body in [
            "y[i] = min(a[i], b[i])",
            "y[i] = max(a[i], b[i])",
            "y[i] = sat_add(a[i], b[i])",
            "y[i] = sat_sub(a[i], b[i])",
            "y[i] = clamp(a[i], min(a[i], b[i]), b[i])",
        ] {
            check(element, body).unwrap_or_else(|error| panic!("{element} {body}: {error}"));
        }
    }
    Ok(())
}

/// Range facts about floats hold for NaN, infinities and zeros.
#[test]
fn floats_become_integers_the_same() -> Result<(), BackendError> {
    let cpu = Cpu::new()?;
    let special =
        "select(i % 7 == 0, 0.0 / 0.0, select(i % 7 == 1, 1.0 / 0.0, select(i % 7 == 2, -1.0 / 0.0, x[i])))";
    for body in [
        "u32(clamp(v, 0.0, 255.0))",
        "u32(max(min(v, 3000000000.0), 0.0))",
        "u32(max(v, -0.5))",
        "u32(i32(clamp(v, -2147483648.0, 2147483520.0)))",
        "u32(min(v, 7.0)) + u32(max(v, 7.0))",
        "u32(clamp(v, 5.0, 2.0)) + u32(clamp(v, -3.0, -1.0))",
        "u32(round(clamp(v * 1000.0, -0.4, 1e9)))",
    ] {
        let source = format!(
            "kernel floats(x: read f32[], y: output u32[] len_of x) over x workgroup 64 {{
               region \"r\" {{ let i = invocation.x
                 let v = {special}
                 y[i] = {body} }} }}"
        );
        for length in [9, 64, 515] {
            assert_agrees(&cpu, &source, length, &DispatchConfig::default())?;
        }
    }
    Ok(())
}
