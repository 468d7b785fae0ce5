//! Published arguments at which `f64` functions are hard to round: data in `hard_cases.txt`.

use vyre_foundation::ops::Op;

/// Argument, and the number nearest to the function's true value there.
#[derive(Clone, Copy, Debug)]
pub(super) struct HardCase {
    pub(super) x: f64,
    #[cfg_attr(not(test), expect(dead_code, reason = "measuring compares with the true value itself"))]
    pub(super) nearest: f64,
}

/// Hard cases of a unary function.
pub(super) fn hard_cases(op: Op) -> impl Iterator<Item = HardCase> {
    let name = op.row().name;
    include_str!("hard_cases.txt").lines().filter_map(move |line| {
        let mut words = line.split(' ').filter(|_| !line.starts_with("//"));
        words.next().filter(|word| *word == name)?;
        let mut number = || {
            let digits = words.next()?.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok().map(f64::from_bits)
        };
        Some(HardCase { x: number()?, nearest: number()? })
    })
}
