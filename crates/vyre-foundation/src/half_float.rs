//! Conversions between 16-bit and 32-bit floats.
//!
//! Widening is exact, and narrowing rounds to nearest even. Callers handle NaNs.

/// 65520: the smallest number that rounds to infinity.
const F16_OVERFLOWS: u32 = 0x477F_F000;
/// 2⁻¹⁴, the smallest normal number.
const F16_NORMAL: u32 = 0x3880_0000;
const F32_INFINITY: u32 = 0x7F80_0000;

/// The number with these `f16` bits.
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let (exponent, fraction) = (u32::from(bits >> 10) & 0x1F, u32::from(bits) & 0x3FF);
    let magnitude = match exponent {
        // A multiple of 2⁻²⁴.
        0 => (fraction as f32 * 2f32.powi(-24)).to_bits(),
        31 => F32_INFINITY | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(u32::from(bits >> 15) << 31 | magnitude)
}

/// The bits of the nearest `f16`.
pub(crate) fn f16_from_f32(number: f32) -> u16 {
    let magnitude = number.to_bits() & 0x7FFF_FFFF;
    let rounded = match magnitude {
        F16_OVERFLOWS.. => 0x7C00,
        // The bits of a normal number, truncated; overflow of the fraction carries into the
        // exponent.
        F16_NORMAL.. => (round_to_even(magnitude, 13) >> 13) - (112 << 10),
        _ => (f32::from_bits(magnitude) * 2f32.powi(24)).round_ties_even() as u32,
    };
    sign_of(number) | rounded as u16
}

/// The number with these `bf16` bits.
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bits of the nearest `bf16`.
pub(crate) fn bf16_from_f32(number: f32) -> u16 {
    let magnitude = number.to_bits() & 0x7FFF_FFFF;
    sign_of(number) | (round_to_even(magnitude, 16) >> 16) as u16
}

fn sign_of(number: f32) -> u16 {
    u16::from(number.is_sign_negative()) << 15
}

/// Rounds to even for truncation of the lowest `cut` bits: carries if they are above a half, or a
/// half and the result would be odd.
fn round_to_even(bits: u32, cut: u32) -> u32 {
    let odd = bits >> cut & 1;
    bits + (1 << (cut - 1)) - 1 + odd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the midpoint of any two neighbours rounds to the even one, and numbers next to
    /// it to the nearer one.
    fn check(infinity: u16, widen: fn(u16) -> f32, narrow: fn(f32) -> u16) {
        for bits in 0..infinity {
            for sign in [0, 0x8000] {
                let (low, high) = (bits | sign, (bits + 1) | sign);
                assert_eq!(narrow(widen(low)), low);
                let above = if bits + 1 == infinity {
                    // Infinity represents the next number in sequence.
                    2.0 * f64::from(widen(low)) - f64::from(widen(low - 1))
                } else {
                    f64::from(widen(high))
                };
                let middle = ((f64::from(widen(low)) + above) / 2.0) as f32;
                assert_eq!(narrow(middle), if bits % 2 == 0 { low } else { high }, "{middle}");
                let away = f32::from_bits(middle.to_bits() + 1);
                let toward = f32::from_bits(middle.to_bits() - 1);
                assert_eq!((narrow(toward), narrow(away)), (low, high), "{middle}");
            }
        }
    }

    #[test]
    fn every_f16_is_the_nearest_to_what_is_around_it() {
        check(0x7C00, f16_to_f32, f16_from_f32);
        assert_eq!((f16_to_f32(0x3C00), f16_to_f32(0x0001), f16_to_f32(0xC000)), (1.0, 2f32.powi(-24), -2.0));
        assert_eq!(f16_to_f32(0xFC00), f32::NEG_INFINITY);
        assert!(f16_to_f32(0x7C01).is_nan());
        for large in [f32::MAX, f32::INFINITY, 65520.0] {
            assert_eq!((f16_from_f32(large), f16_from_f32(-large)), (0x7C00, 0xFC00));
        }
    }

    #[test]
    fn every_bf16_is_the_nearest_to_what_is_around_it() {
        check(0x7F80, bf16_to_f32, bf16_from_f32);
        assert_eq!((bf16_to_f32(0x3F80), bf16_from_f32(f32::INFINITY)), (1.0, 0x7F80));
    }
}
