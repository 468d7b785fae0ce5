//! Parsing and formatting of quantities: `1000`, `64K`, `1M`, `1e6`, `2^20`, `640x480`.

/// Parses a count. K, M and G are powers of 1024; `x` separates factors.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let fault = || format!("`{text}` is not a count: write 1000, 64K, 1M, 1e6, 2^20 or 640x480");
    let factors = text.trim().split('x').map(factor);
    let product = factors.reduce(|product, factor| product?.checked_mul(factor?));
    product.flatten().ok_or_else(fault)
}

/// Parses a width and height, as in `640x480`.
pub(crate) fn extent(text: &str) -> Result<[u64; 2], String> {
    let sides: Vec<Option<u64>> = text.trim().split('x').map(factor).collect();
    match sides[..] {
        [Some(width), Some(height)] => Ok([width, height]),
        _ => Err(format!("`{text}` is not a width and height: write 640x480")),
    }
}

/// Parses one to three sizes, as in `64`, `8,8` or `8x8x1`; missing axes are 1.
pub(crate) fn axes(text: &str) -> Result<[u32; 3], String> {
    let numbers: Result<Vec<u32>, _> =
        text.split([',', 'x']).map(|part| part.trim().parse::<u32>()).collect();
    match numbers.as_deref() {
        Ok([x]) => Ok([*x, 1, 1]),
        Ok([x, y]) => Ok([*x, *y, 1]),
        Ok([x, y, z]) => Ok([*x, *y, *z]),
        Ok(_) | Err(_) => Err("write one to three numbers, as in 8,8,1".into()),
    }
}

/// Like [`axes`], with every axis at least 1.
pub(crate) fn positive_axes(text: &str) -> Result<[u32; 3], String> {
    axes(text).and_then(|axes| {
        if axes.contains(&0) { Err("every axis must be at least 1".into()) } else { Ok(axes) }
    })
}

/// Parses a positive number of seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && std::time::Duration::try_from_secs_f64(seconds).is_ok() => {
            Ok(seconds)
        }
        Ok(_) | Err(_) => Err("write a number of seconds above 0, as in 2.5".into()),
    }
}

/// Parses a number from 0 to 1.
pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "write a number from 0 to 1, as in 1e-5".into())
}

fn factor(text: &str) -> Option<u64> {
    let plain = text.trim().replace('_', "");
    if let Some((base, exponent)) = plain.split_once('^') {
        return base.parse::<u64>().ok()?.checked_pow(exponent.parse().ok()?);
    }
    if let Some((digits, exponent)) = plain.split_once(['e', 'E']) {
        let scale = 10u64.checked_pow(exponent.parse().ok()?)?;
        return digits.parse::<u64>().ok()?.checked_mul(scale);
    }
    let (digits, shift) = match plain.as_bytes().last()? {
        b'k' | b'K' => (&plain[..plain.len() - 1], 10),
        b'm' | b'M' => (&plain[..plain.len() - 1], 20),
        b'g' | b'G' => (&plain[..plain.len() - 1], 30),
        _ => (plain.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Formats a time in a unit that gives it one to three digits before the point.
pub(crate) fn time(ns: u64) -> String {
    let scaled = |unit: f64, name: &str| format!("{:.3} {name}", ns as f64 / unit);
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => scaled(1e3, "µs"),
        1_000_000..=999_999_999 => scaled(1e6, "ms"),
        1_000_000_000.. => scaled(1e9, "s"),
    }
}

/// Formats a size in bytes, in powers of 1024.
pub(crate) fn bytes(bytes: u64) -> String {
    let scaled = |shift: u32, name: &str| format!("{:.1} {name}", bytes as f64 / (1u64 << shift) as f64);
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=0xF_FFFF => scaled(10, "KiB"),
        0x10_0000..=0x3FFF_FFFF => scaled(20, "MiB"),
        0x4000_0000.. => scaled(30, "GiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(count(text).ok(), expected, "{text}");
        check("0", Some(0));
        check(" 1_000 ", Some(1000));
        check("64K", Some(65536));
        check("1M", Some(1 << 20));
        check("2g", Some(2 << 30));
        check("1e6", Some(1_000_000));
        check("2^20", Some(1 << 20));
        check("640x480", Some(307_200));
        check("1Kx2", Some(2048));
        check("", None);
        check("M", None);
        check("1.5M", None);
        check("-1", None);
        check("1e99", None);
        check("2^64", None);
        check("99999999999G", None);
        check("3x", None);
        check("1M\u{e9}", None);
    }

    #[test]
    fn shapes() {
        assert_eq!(extent("640x480"), Ok([640, 480]));
        assert!(extent("640").is_err() && extent("1x2x3").is_err() && extent("ax2").is_err());
        assert_eq!(axes("8,4"), Ok([8, 4, 1]));
        assert_eq!(axes("8x4x2"), Ok([8, 4, 2]));
        assert!(axes("").is_err() && axes("1,2,3,4").is_err() && axes("-1").is_err());
    }

    #[test]
    fn units() {
        assert_eq!(
            [time(7), time(1_500), time(2_500_000), time(u64::MAX)].join(" "),
            "7 ns 1.500 µs 2.500 ms 18446744073.710 s"
        );
        assert_eq!(
            [bytes(5), bytes(2048), bytes(3 << 20), bytes(5 << 30)].join(" "),
            "5 B 2.0 KiB 3.0 MiB 5.0 GiB"
        );
    }
}
