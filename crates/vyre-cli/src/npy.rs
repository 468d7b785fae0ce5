//! NumPy's `.npy` files, versions 1 to 3.
//!
//! The header is a Python dictionary with three known entries, scanned as text; nothing is
//! evaluated. Elements are little-endian in memory; big-endian files are byte-swapped on reading.

use vyre_foundation::ir::DataType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Array read from a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NpyArray {
    /// Element type; `None` for untyped two-byte elements, the form in which bfloat16 arrays are
    /// stored.
    pub(crate) element: Option<DataType>,
    /// Elements along each axis, the last varying fastest.
    pub(crate) shape: Vec<u64>,
    /// Elements, little-endian.
    pub(crate) bytes: Vec<u8>,
}

/// NumPy's type code without the byte order.
fn code(element: DataType) -> &'static str {
    match element {
        DataType::Bool => "b1",
        DataType::U8 => "u1",
        DataType::I8 => "i1",
        DataType::U16 => "u2",
        DataType::I16 => "i2",
        DataType::U32 => "u4",
        DataType::I32 => "i4",
        DataType::U64 => "u8",
        DataType::I64 => "i8",
        DataType::F16 => "f2",
        DataType::Bf16 => "V2",
        DataType::F32 => "f4",
        DataType::F64 => "f8",
    }
}

/// Whether the bytes start like an `.npy` file.
pub(crate) fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Parses the bytes of a file.
pub(crate) fn read(file: &[u8]) -> Result<NpyArray, String> {
    let rest = file.strip_prefix(MAGIC).ok_or("it does not start as an .npy file does")?;
    let (header, data) = match rest {
        [1, _, low, high, rest @ ..] => (usize::from(u16::from_le_bytes([*low, *high])), rest),
        [2 | 3, _, a, b, c, d, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest),
        [] | [1..=3, ..] => return Err("it ends within its header".into()),
        [version, ..] => return Err(format!("it has version {version}; versions 1 to 3 are supported")),
    };
    let (header, data) = data.split_at_checked(header).ok_or("it ends within its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let (element, swapped) = element_type(entry(header, "descr")?)?;
    let shape = shape(entry(header, "shape")?)?;
    if entry(header, "fortran_order")?.starts_with("True") && shape.len() > 1 {
        return Err("it is stored column by column; save numpy.ascontiguousarray(array)".into());
    }
    let size = element.map_or(2, DataType::size) as u64;
    let bytes = shape.iter().try_fold(size, |bytes, axis| bytes.checked_mul(*axis));
    if bytes != Some(data.len() as u64) {
        return Err(format!("its shape {shape:?} does not fit the {} bytes of its data", data.len()));
    }
    let mut bytes = data.to_vec();
    if swapped {
        bytes.chunks_exact_mut(size as usize).for_each(<[u8]>::reverse);
    }
    Ok(NpyArray { element, shape, bytes })
}

/// Text after `'name':` in the header dictionary.
fn entry<'h>(header: &'h str, name: &str) -> Result<&'h str, String> {
    let missing = || format!("its header has no {name}");
    let (_, rest) = header.split_once(&format!("'{name}'")).ok_or_else(missing)?;
    rest.trim_start().strip_prefix(':').map(str::trim_start).ok_or_else(missing)
}

/// Element type of a type description, and whether its bytes are big-endian.
fn element_type(description: &str) -> Result<(Option<DataType>, bool), String> {
    let quoted = description.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let Some((name, _)) = quoted else { return Err("its elements are not plain numbers".into()) };
    let (order, name) = match name.as_bytes().first() {
        Some(b'<' | b'>' | b'|' | b'=') => name.split_at(1),
        Some(_) | None => ("", name),
    };
    let element = DataType::ALL.into_iter().find(|element| code(*element) == name);
    match element {
        Some(DataType::Bf16) => Ok((None, order == ">")),
        Some(element) => Ok((Some(element), order == ">")),
        None => Err(format!("its elements of type {name} have no type in vyre")),
    }
}

fn shape(text: &str) -> Result<Vec<u64>, String> {
    let list = text.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (list, _) = list.ok_or("its shape cannot be read")?;
    let axes = list.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    axes.map(|axis| axis.trim_end_matches('L').parse::<u64>())
        .collect::<Result<_, _>>()
        .map_err(|_| "its shape cannot be read".into())
}

/// Encodes the elements as an `.npy` file.
pub(crate) fn write(element: DataType, shape: &[u64], bytes: &[u8]) -> Vec<u8> {
    let order = if element.size() == 1 { '|' } else { '<' };
    let axes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if axes.len() == 1 { "," } else { "" };
    let mut header = format!(
        "{{'descr': '{order}{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        code(element),
        axes.join(", ")
    );
    // Data starts at a multiple of 64: magic, version and length take ten bytes, and a newline ends
    // the header.
    let padding = 63 - (10 + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let length = header.len() as u16;
    [MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for element in DataType::ALL {
            for shape in [vec![0], vec![6], vec![2, 3], vec![1, 2, 3]] {
                let count: u64 = shape.iter().product();
                let bytes: Vec<u8> = (0..count as usize * element.size()).map(|k| k as u8).collect();
                let file = write(element, &shape, &bytes);
                assert_eq!((file.len() - bytes.len()) % 64, 0, "{element} {shape:?}");
                let expected = Some(element).filter(|element| *element != DataType::Bf16);
                assert_eq!(read(&file), Ok(NpyArray { element: expected, shape, bytes }));
            }
        }
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    #[test]
    fn files_of_others() {
        let big = file("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }\n", &1.5f32.to_be_bytes());
        assert_eq!(read(&big).expect("big-endian").bytes, 1.5f32.to_le_bytes());
        let column = file("{'descr': '<u2', 'fortran_order': True, 'shape': (2,), }", &[1, 0, 2, 0]);
        assert_eq!(read(&column).expect("one axis").shape, [2]);
        let scalar = file("{'descr':'|u1','fortran_order':False,'shape':()}", &[7]);
        assert!(read(&scalar).expect("no axis").shape.is_empty());
    }

    #[test]
    fn faults() {
        let check = |file: &[u8], expected: &str| {
            let fault = read(file).expect_err("a fault");
            assert!(fault.contains(expected), "{fault}");
        };
        check(b"", "does not start");
        check(MAGIC, "ends within its header");
        check(&[MAGIC, &[9, 0]].concat(), "version 9");
        check(&[MAGIC, &[1, 0, 200, 0, b'{']].concat(), "ends within its header");
        check(&file("{}", &[]), "has no descr");
        check(&file("{'descr': [('a', '<f4')], 'shape': ()}", &[]), "not plain numbers");
        check(&file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", &[0; 8]), "c8");
        check(
            &file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", &[0; 16]),
            "ascontiguousarray",
        );
        check(&file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", &[0; 7]), "does not fit");
        check(&file("{'descr': '<f4', 'fortran_order': False, 'shape': (x,)}", &[]), "cannot be read");
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999, 9999999999)}";
        check(&file(huge, &[]), "does not fit");
    }
}
