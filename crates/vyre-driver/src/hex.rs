//! Hexadecimal encoding of bytes.

/// The bytes as lower-case digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes that these digits encode; `None` if they are malformed.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| Some(char::from(byte).to_digit(16)? as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn round_trips_and_refuses() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(super::encode(&[0x0f, 0xa0]), "0fa0");
        assert_eq!(super::decode(&super::encode(&bytes)), Some(bytes));
        assert_eq!(super::decode(""), Some(Vec::new()));
        for bad in ["0", "0g", "é", "00 1"] {
            assert_eq!(super::decode(bad), None, "{bad}");
        }
    }
}
