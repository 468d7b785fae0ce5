//! `--out name=file`: destinations of outputs, in the format given by the file's extension.

use crate::output::Ending;
use crate::picture::{ColourMap, Raster, is_picture};
use crate::{files, npy, quantity};
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use vyre_foundation::ir::BufferDecl;

/// Help text on output syntax.
pub(crate) const OUTPUTS_HELP: &str = "\
Outputs:
  --out y=y.npy      a NumPy array
  --out y=y.png      a picture; its size is the kernel's domain (over [640, 480]) or --shape 640x480
  --out y=y.bin      raw little-endian elements; `-` is standard output
If the kernel has one output, its name can be omitted: --out picture.png";

/// Destinations of outputs.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArguments {
    /// File for an output: .npy, .png, or raw elements
    #[arg(long = "out", value_name = "[NAME=]FILE", value_parser = OsStringValueParser::new().try_map(parse))]
    outputs: Vec<Sink>,
    /// Width and height of outputs written to files
    #[arg(long, value_name = "WxH", value_parser = quantity::extent)]
    shape: Option<[u64; 2]>,
    /// Colour map of pictures
    #[arg(long, value_enum, default_value_t, value_name = "MAP")]
    colours: ColourMap,
}

#[derive(Clone, Debug)]
struct Sink {
    name: Option<String>,
    file: PathBuf,
}

fn parse(argument: OsString) -> Result<Sink, String> {
    let (name, file) = match files::split_name(&argument) {
        Some((name, file)) => (Some(name), file),
        None => (None, argument),
    };
    if file.is_empty() { Err("write name=file".into()) } else { Ok(Sink { name, file: file.into() }) }
}

/// Pairs of an output's index and its file.
#[derive(Debug, Default)]
pub(crate) struct Destinations(Vec<(usize, PathBuf)>);

impl OutputArguments {
    /// Resolves which output goes to which file; called before anything runs.
    pub(crate) fn destinations(&self, outputs: &[&BufferDecl]) -> Result<Destinations, Ending> {
        let find = |sink: &Sink| {
            let at = match &sink.name {
                Some(name) => outputs.iter().position(|decl| *decl.name == **name),
                None => (outputs.len() == 1).then_some(0),
            };
            at.map(|at| (at, sink.file.clone())).ok_or_else(|| Ending::Usage(unknown_output(sink, outputs)))
        };
        self.outputs.iter().map(find).collect::<Result<_, _>>().map(Destinations)
    }

    /// One item for each output that goes to standard output.
    pub(crate) fn to_standard_output(&self) -> impl Iterator<Item = ()> {
        self.outputs.iter().filter(|sink| files::is_standard(&sink.file)).map(|_| ())
    }

    /// Writes an output to its files.
    pub(crate) fn write(
        &self,
        destinations: &Destinations,
        at: usize,
        output: (Option<[u32; 3]>, &BufferDecl, &[u8]),
    ) -> Result<(), Ending> {
        destinations.of(at).try_for_each(|file| files::write(file, &self.encode(file, output)?))
    }

    fn encode(
        &self,
        file: &Path,
        (domain, decl, bytes): (Option<[u32; 3]>, &BufferDecl, &[u8]),
    ) -> Result<Vec<u8>, Ending> {
        let elements = (bytes.len() / decl.element.size()) as u64;
        let shape = self.shape.or_else(|| domain_shape(domain, elements));
        if is_picture(file) {
            let [width, height] = shape.ok_or_else(|| {
                Ending::Usage(format!(
                    "`{}` has {elements} elements without a shape; give one with --shape WIDTHxHEIGHT",
                    decl.name
                ))
            })?;
            let raster = Raster { element: decl.element, bytes, width, height };
            return raster
                .to_png(self.colours)
                .map_err(|fault| Ending::Usage(format!("`{}`: {fault}", decl.name)));
        }
        if file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy")) {
            return Ok(npy::write(decl.element, &array_shape(shape, elements), bytes));
        }
        Ok(bytes.to_vec())
    }
}

impl Destinations {
    /// Files of the output with this index.
    pub(crate) fn of(&self, at: usize) -> impl Iterator<Item = &Path> {
        self.0.iter().filter(move |(output, _)| *output == at).map(|(_, file)| file.as_path())
    }
}

fn unknown_output(sink: &Sink, outputs: &[&BufferDecl]) -> String {
    let names: Vec<&str> = outputs.iter().map(|decl| &*decl.name).collect();
    let names = names.join(", ");
    match &sink.name {
        Some(name) => format!("`{name}` is not an output of the program; the outputs are: {names}"),
        None => {
            format!("--out {}: name the output, as in y={0}; the outputs are: {names}", sink.file.display())
        }
    }
}

/// Width and height of a two-dimensional domain with one, three or four elements per pixel.
fn domain_shape(domain: Option<[u32; 3]>, elements: u64) -> Option<[u64; 2]> {
    let Some([width, height, 1]) = domain else { return None };
    let (width, height) = (u64::from(width), u64::from(height));
    let pixels = width.checked_mul(height).filter(|pixels| *pixels > 0 && height > 1)?;
    (elements.is_multiple_of(pixels) && matches!(elements / pixels, 1 | 3 | 4)).then_some([width, height])
}

/// Array shape: rows, columns and, if there are several, elements per pixel; flat if the size does
/// not fit.
fn array_shape(shape: Option<[u64; 2]>, elements: u64) -> Vec<u64> {
    let places = shape.and_then(|[width, height]| width.checked_mul(height)).filter(|places| *places > 0);
    match (shape, places) {
        (Some([width, height]), Some(places)) if elements == places => vec![height, width],
        (Some([width, height]), Some(places)) if elements.is_multiple_of(places) => {
            vec![height, width, elements / places]
        }
        _ => vec![elements],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_take_the_shape_that_fits() {
        assert_eq!(array_shape(None, 6), [6]);
        assert_eq!(array_shape(Some([3, 2]), 6), [2, 3]);
        assert_eq!(array_shape(Some([3, 2]), 18), [2, 3, 3]);
        assert_eq!(array_shape(Some([4, 2]), 6), [6]);
        assert_eq!(array_shape(Some([0, 0]), 6), [6]);
        assert_eq!(array_shape(Some([u64::MAX, 3]), 6), [6]);
    }

    #[test]
    fn arguments() {
        assert!(parse("y=".into()).is_err() && parse("".into()).is_err());
        assert_eq!(parse("a.png".into()).map(|sink| sink.name), Ok(None));
        assert_eq!(parse("y=a=b.npy".into()).map(|sink| sink.file), Ok("a=b.npy".into()));
    }
}
