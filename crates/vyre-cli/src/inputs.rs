//! `--in name=data`: contents of input buffers from the command line.

use crate::output::Ending;
use crate::source::LoadedProgram;
use crate::{files, npy, quantity};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use vyre_conform::choices::next_random;
use vyre_conform::outcome::given_buffers;
use vyre_conform::{data, filetest};
use vyre_foundation::ir::{BufferDecl, DataType, Value, ValueType};

/// Upper limit on elements; a larger count is taken for a typing error: a buffer of f32 with this
/// many takes 4 GiB.
const MAX_ELEMENTS: u64 = 1 << 30;

/// Help text on input syntax, for the commands that take inputs.
pub(crate) const INPUTS_HELP: &str = "\
Inputs:
  x=1,2,3  x=0..16  x=repeat(1.5, 64)   elements, ranges, repetitions
  x=data.npy  x=@data.bin               a NumPy array; raw little-endian elements
  x=rand:f32:1M  x=rand:1M:7            random floats from -1 to 1, or integers; then a seed
  x=zeros:1M  x=ones:1M                 all zeros, all ones
  x=iota:1M  x=iota:1M:16               0 1 2 …; 0 16 32 …
Counts are 1000, 64K (65536), 1M, 1e6, 2^20 or 640x480. A buffer of fixed length needs none. A buffer \
without --in takes its contents from the `// input` line of the file, if there is one.";

/// Inputs of a dispatch.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InputArguments {
    /// Contents of an input buffer; once per buffer
    #[arg(long = "in", value_name = "NAME=DATA", value_parser = OsStringValueParser::new().try_map(parse))]
    inputs: Vec<Input>,
    /// Seed for random inputs
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// One `--in` argument.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    name: String,
    /// Source file, if the argument names one.
    file: Option<PathBuf>,
    data: String,
}

/// Parses `name=data`.
fn parse(argument: OsString) -> Result<Input, String> {
    let (name, data) = files::split_name(&argument).ok_or("write name=data, as in x=1,2,3")?;
    let text = data.to_string_lossy().trim().to_owned();
    let file = match data.to_str() {
        Some(data) => {
            data.trim().strip_prefix('@').or(Some(data.trim()).filter(|data| data.ends_with(".npy")))
        }
        // A value that is not UTF-8 is a file name, with or without the `@`.
        None => return Ok(Input { name, file: Some(files::without_mark(&data)), data: text }),
    };
    let file = file.map(PathBuf::from);
    Ok(Input { name, file, data: text })
}

impl InputArguments {
    /// Whether there are no `--in` arguments.
    pub(crate) fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Collects the bytes of every input: from the command line, else from the file's `// input`
    /// lines.
    pub(crate) fn gather(&self, loaded: &LoadedProgram) -> Result<Vec<Vec<u8>>, Ending> {
        self.gather_sized(loaded, None)
    }

    /// Like [`gather`](Self::gather), with `elements` random elements for each buffer that is sized
    /// at dispatch and has no `--in`.
    pub(crate) fn gather_sized(
        &self,
        loaded: &LoadedProgram,
        elements: Option<u64>,
    ) -> Result<Vec<Vec<u8>>, Ending> {
        let own = filetest::inputs(&loaded.source).map_err(Ending::Usage)?;
        let given = given_buffers(&loaded.program);
        let unknown = |input: &&Input| !given.iter().any(|decl| *decl.name == *input.name);
        if let Some(input) = self.inputs.iter().find(unknown) {
            let names: Vec<&str> = given.iter().map(|decl| &*decl.name).collect();
            let (name, names) = (&input.name, names.join(", "));
            return Err(Ending::Usage(format!(
                "`{name}` is not an input of the program; the inputs are: {names}"
            )));
        }
        let twice =
            |(at, input): &(usize, &Input)| self.inputs[..*at].iter().any(|other| other.name == input.name);
        if let Some((_, input)) = self.inputs.iter().enumerate().find(twice) {
            return Err(Ending::Usage(format!("--in {} is repeated", input.name)));
        }
        let bytes = |decl: &&BufferDecl| {
            let named = self.inputs.iter().find(|input| *input.name == *decl.name);
            let in_file =
                own.iter().find(|(name, element, _)| **name == *decl.name && *element == decl.element);
            match (named, elements.filter(|_| decl.count == 0), in_file) {
                (Some(input), _, _) => input.bytes(decl, self.seed).map_err(Ending::Usage),
                (None, Some(count), _) => {
                    Generator::Random.fill(decl, count, self.seed).map_err(Ending::Usage)
                }
                (None, None, Some((_, _, bytes))) => Ok(bytes.clone()),
                (None, None, None) => Err(Ending::Usage(nothing_given(decl))),
            }
        };
        given.iter().map(bytes).collect()
    }
}

fn nothing_given(decl: &BufferDecl) -> String {
    let (name, element) = (&decl.name, decl.element);
    match decl.count {
        1 => format!("`{name}` has no input; add --in {name}=1"),
        0 => format!(
            "`{name}` has no input; add --in {name}=rand:{element}:1K, or a file: --in {name}=data.npy"
        ),
        _ => format!("`{name}` has no input; add --in {name}=rand, or a file: --in {name}=data.npy"),
    }
}

impl Input {
    /// Bytes for a buffer; `seed` seeds `rand`.
    fn bytes(&self, decl: &BufferDecl, seed: u64) -> Result<Vec<u8>, String> {
        let fault = |message: String| format!("--in {}: {message}", self.name);
        let mut words = self.data.split(':');
        let generator = words.next().and_then(Generator::from_name);
        match (&self.file, generator) {
            (Some(path), _) => from_file(path, decl),
            (None, Some(generator)) => generator.elements(decl, &words.collect::<Vec<_>>(), seed),
            (None, None) => data::parse(decl.element, &self.data),
        }
        .map_err(fault)
    }
}

/// Maximum size of a buffer's file. Pipes and devices have a lower limit, since they can be
/// endless.
fn most_bytes(path: &Path, decl: &BufferDecl) -> u64 {
    let size = decl.element.size() as u64;
    let elements = if decl.count > 0 { u64::from(decl.count) } else { MAX_ELEMENTS };
    let most = elements * size + MOST_HEADER_BYTES;
    if std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
        most
    } else {
        most.min(MOST_STREAM_BYTES)
    }
}

/// Maximum size of a NumPy header: twice what version 1.0 of the format can state (64 KiB).
const MOST_HEADER_BYTES: u64 = 1 << 17;
/// Maximum number of bytes read from a pipe or device, which does not tell its size in advance and
/// may be endless: 2^26 elements of f32.
const MOST_STREAM_BYTES: u64 = 256 << 20;

fn from_file(path: &Path, decl: &BufferDecl) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let most = most_bytes(path, decl);
    let bytes = std::fs::File::open(path).and_then(|file| files::read_within(file, most));
    let bytes = bytes.map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    if !named && !npy::is_npy(&bytes) {
        return Ok(bytes);
    }
    let array = npy::read(&bytes).map_err(|message| format!("cannot read `{shown}`: {message}"))?;
    match array.element {
        Some(element) if element != decl.element => Err(format!(
            "`{shown}` holds {element}, the buffer {}; save array.astype(\"{}\")",
            decl.element,
            numpy_name(decl.element)
        )),
        None if decl.element != DataType::Bf16 => {
            Err(format!("`{shown}` holds raw pairs of bytes, the buffer {}", decl.element))
        }
        Some(_) | None => Ok(array.bytes),
    }
}

/// NumPy's name of a type.
fn numpy_name(element: DataType) -> &'static str {
    match element {
        DataType::Bool => "bool",
        DataType::U8 => "uint8",
        DataType::I8 => "int8",
        DataType::U16 => "uint16",
        DataType::I16 => "int16",
        DataType::U32 => "uint32",
        DataType::I32 => "int32",
        DataType::U64 => "uint64",
        DataType::I64 => "int64",
        DataType::F16 => "float16",
        DataType::Bf16 => "bfloat16",
        DataType::F32 => "float32",
        DataType::F64 => "float64",
    }
}

/// Generator of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generator {
    Random,
    Zeros,
    Ones,
    Iota,
}

impl Generator {
    fn from_name(name: &str) -> Option<Generator> {
        match name {
            "rand" => Some(Generator::Random),
            "zeros" => Some(Generator::Zeros),
            "ones" => Some(Generator::Ones),
            "iota" => Some(Generator::Iota),
            _ => None,
        }
    }

    /// Generates the elements. `words` are an optional type, an optional count and an optional
    /// number: the seed of `rand` or the step of `iota`.
    fn elements(self, decl: &BufferDecl, mut words: &[&str], seed: u64) -> Result<Vec<u8>, String> {
        let element = decl.element;
        if let [name, rest @ ..] = words
            && let Some(named) = DataType::from_name(name)
        {
            if named != element {
                return Err(format!("the buffer has elements of {element}, not {named}"));
            }
            words = rest;
        }
        let takes_number = matches!(self, Generator::Random | Generator::Iota);
        let own_number =
            |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a whole number"));
        let usual = if self == Generator::Iota { 1 } else { seed };
        let (count, number) = match words {
            [] if decl.count > 0 => (u64::from(decl.count), usual),
            [] => return Err(format!("give the number of elements, as in {element}:1000")),
            [count] => (quantity::count(count)?, usual),
            [count, number] if takes_number => (quantity::count(count)?, own_number(number)?),
            [_, more, ..] => return Err(format!("`{more}` is unexpected; write {element}:1000")),
        };
        self.fill(decl, count, number)
    }

    /// Generates `count` elements; `number` is the seed of `rand` or the step of `iota`.
    fn fill(self, decl: &BufferDecl, count: u64, number: u64) -> Result<Vec<u8>, String> {
        let (element, ty) = (decl.element, decl.element.value_type());
        if count > MAX_ELEMENTS {
            return Err(format!("{count} elements are more than {MAX_ELEMENTS}"));
        }
        let mut bytes = Vec::new();
        let size = count as usize * element.size();
        bytes.try_reserve_exact(size).map_err(|_| format!("there is no memory for {size} bytes"))?;
        // Different buffers of a run get different random numbers.
        let mut state = decl.name.bytes().fold(number, |state, byte| state.rotate_left(8) ^ u64::from(byte));
        for k in 0..count {
            let value = match self {
                Generator::Random => random_value(&mut state, ty),
                Generator::Zeros => whole(ty, 0),
                Generator::Ones => whole(ty, 1),
                Generator::Iota => whole(ty, k.wrapping_mul(number)),
            };
            bytes.extend_from_slice(&element.narrow(value).to_le_bytes()[..element.size()]);
        }
        Ok(bytes)
    }
}

/// Converts a whole number; integer types keep its low bits.
fn whole(ty: ValueType, number: u64) -> Value {
    match ty {
        ValueType::Bool => Value::Bool(number != 0),
        ValueType::F32 => Value::F32(number as f32),
        ValueType::F64 => Value::F64(number as f64),
        ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => Value::from_bits(ty, number),
    }
}

/// Random bits for integers, numbers from -1 up to 1 for floats.
fn random_value(state: &mut u64, ty: ValueType) -> Value {
    let bits = next_random(state);
    let number = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match ty {
        ValueType::F32 => Value::F32(number as f32),
        ValueType::F64 => Value::F64(number),
        ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => {
            Value::from_bits(ty, bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(decl: &BufferDecl, data: &str) -> Result<Vec<u8>, String> {
        parse(format!("x={data}").into())?.bytes(decl, 0)
    }

    #[test]
    fn generators() {
        let open = BufferDecl::read("x", 0, DataType::U16);
        let fixed = BufferDecl::read("x", 0, DataType::F32).with_count(3);
        assert_eq!(bytes(&open, "iota:3"), Ok(vec![0, 0, 1, 0, 2, 0]));
        assert_eq!(bytes(&open, "iota:3:200"), Ok(vec![0, 0, 200, 0, 144, 1]));
        assert_eq!(bytes(&open, "ones:u16:2"), Ok(vec![1, 0, 1, 0]));
        assert_eq!(bytes(&fixed, "zeros"), Ok(vec![0; 12]));
        assert_eq!(bytes(&open, "rand:1K").map(|bytes| bytes.len()), Ok(2048));
        assert_eq!(bytes(&open, "rand:8:5"), bytes(&open, "rand:u16:8:5"));
        assert_ne!(bytes(&open, "rand:8:5"), bytes(&open, "rand:8:6"));
        let floats = bytes(&fixed, "rand:f32:1K").expect("random numbers");
        let within = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).abs() <= 1.0;
        assert!(floats.chunks(4).all(within));
    }

    #[test]
    fn faults() {
        let open = BufferDecl::read("x", 0, DataType::U16);
        let check = |data: &str, expected: &str| {
            let fault = bytes(&open, data).expect_err(data);
            assert!(fault.starts_with("--in x: ") && fault.contains(expected), "{fault}");
        };
        check("rand", "give the number of elements");
        check("rand:f32:4", "elements of u16, not f32");
        check("zeros:u16:4:4", "`4` is unexpected");
        check("rand:4:x", "`x` is not a whole number");
        check("rand:2000G", "more than 1073741824");
        check("iota:-1", "not a count");
        check("@no/such/file", "cannot read `no/such/file`");
        check("no-such.npy", "cannot read `no-such.npy`");
        check("random", "not a value of u16");
    }
}
