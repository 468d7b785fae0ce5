//! Two-dimensional outputs as pictures.
//!
//! One element per pixel is mapped to colours, from the smallest finite value to the largest; three
//! or four `u8` per pixel are RGB or RGBA colours.

use std::path::Path;
use vyre_foundation::ir::{DataType, Value};

/// Maximum number of pixels in a picture: 16,384 by 16,384, 1 GiB at four bytes each.
const MAX_PIXELS: u64 = 1 << 28;

/// Mapping of values to colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColourMap {
    /// Black, purple, orange, pale yellow
    #[default]
    Magma,
    /// Purple, green, yellow
    Viridis,
    /// Black to white
    Grey,
}

impl ColourMap {
    /// Colours at equal distances along the map.
    fn stops(self) -> &'static [[u8; 3]] {
        match self {
            ColourMap::Magma => &[
                [0, 0, 4],
                [28, 16, 68],
                [79, 18, 123],
                [129, 37, 129],
                [181, 54, 122],
                [229, 80, 100],
                [251, 135, 97],
                [254, 194, 135],
                [252, 253, 191],
            ],
            ColourMap::Viridis => &[
                [68, 1, 84],
                [71, 44, 122],
                [59, 81, 139],
                [44, 113, 142],
                [33, 144, 141],
                [39, 173, 129],
                [92, 200, 99],
                [170, 220, 50],
                [253, 231, 37],
            ],
            ColourMap::Grey => &[[0, 0, 0], [255, 255, 255]],
        }
    }

    /// Colour at a position from 0 to 1.
    fn colour(self, at: f64) -> [u8; 3] {
        let stops = self.stops();
        let last = stops.len() - 1;
        let scaled = at.clamp(0.0, 1.0) * last as f64;
        let from = (scaled as usize).min(last);
        let (a, b) = (stops[from], stops[(from + 1).min(last)]);
        let between = scaled - from as f64;
        std::array::from_fn(|k| {
            (f64::from(a[k]) + (f64::from(b[k]) - f64::from(a[k])) * between).round() as u8
        })
    }
}

/// Elements of an output with its width and height.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raster<'a> {
    pub(crate) element: DataType,
    pub(crate) bytes: &'a [u8],
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Raster<'_> {
    /// Encodes the elements as a PNG file.
    pub(crate) fn to_png(self, map: ColourMap) -> Result<Vec<u8>, String> {
        let Raster { element, bytes, width, height } = self;
        let pixels = width.checked_mul(height).filter(|pixels| (1..=MAX_PIXELS).contains(pixels));
        let pixels = pixels.ok_or_else(|| format!("a picture cannot have {width} by {height} pixels"))?;
        let elements = (bytes.len() / element.size()) as u64;
        let (colour, data) = match elements.checked_div(pixels).filter(|n| n * pixels == elements) {
            Some(1) => (png::ColorType::Rgb, mapped(element, bytes, map)),
            Some(3) if element == DataType::U8 => (png::ColorType::Rgb, bytes.to_vec()),
            Some(4) if element == DataType::U8 => (png::ColorType::Rgba, bytes.to_vec()),
            Some(_) | None => {
                return Err(format!(
                    "{elements} elements of {element} do not make a picture of {width} by {height}; one element per \
                     pixel does, or three or four u8"
                ));
            }
        };
        encode([width as u32, height as u32], colour, &data).map_err(|error| error.to_string())
    }
}

fn mapped(element: DataType, bytes: &[u8], map: ColourMap) -> Vec<u8> {
    let values: Vec<f64> = bytes.chunks_exact(element.size()).map(|bytes| number(element, bytes)).collect();
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let place = |value: f64| if high > low { (value - low) / (high - low) } else { 0.0 };
    values
        .into_iter()
        .flat_map(|value| if value.is_nan() { [0; 3] } else { map.colour(place(value)) })
        .collect()
}

/// Converts an element to a number; an unreadable element becomes NaN.
pub(crate) fn number(element: DataType, bytes: &[u8]) -> f64 {
    match element.load(bytes) {
        Some(Value::Bool(x)) => f64::from(u8::from(x)),
        Some(Value::U32(x)) => f64::from(x),
        Some(Value::I32(x)) => f64::from(x),
        Some(Value::U64(x)) => x as f64,
        Some(Value::I64(x)) => x as f64,
        Some(Value::F32(x)) => f64::from(x),
        Some(Value::F64(x)) => x,
        None => f64::NAN,
    }
}

fn encode(
    [width, height]: [u32; 2],
    colour: png::ColorType,
    data: &[u8],
) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(colour);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(data)?;
    writer.finish()?;
    Ok(file)
}

/// Whether a path names a picture.
pub(crate) fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(file: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG file");
        let mut pixels = vec![0; reader.output_buffer_size().expect("fits memory")];
        let info = reader.next_frame(&mut pixels).expect("a picture");
        (info.width, info.height, pixels)
    }

    #[test]
    fn values_go_through_the_map() {
        let values = [1.0f32, f32::NAN, 3.0, f32::INFINITY, 2.0, f32::NEG_INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let raster = Raster { element: DataType::F32, bytes: &bytes, width: 3, height: 2 };
        let (width, height, pixels) = decode(&raster.to_png(ColourMap::Grey).expect("a picture"));
        assert_eq!((width, height), (3, 2));
        let shades: Vec<u8> = pixels.chunks(3).map(|pixel| pixel[0]).collect();
        assert_eq!(shades, [0, 0, 255, 255, 128, 0]);
    }

    #[test]
    fn colours_are_taken_as_they_are() {
        let bytes = [1, 2, 3, 4, 5, 6];
        let raster = Raster { element: DataType::U8, bytes: &bytes, width: 1, height: 2 };
        assert_eq!(decode(&raster.to_png(ColourMap::Magma).expect("a picture")).2, bytes);
    }

    #[test]
    fn equal_values_and_empty_pictures() {
        let raster = Raster { element: DataType::I8, bytes: &[7, 7], width: 2, height: 1 };
        assert!(raster.to_png(ColourMap::Viridis).is_ok());
        let check = |width: u64, height: u64| {
            Raster { element: DataType::U8, bytes: &[0; 5], width, height }.to_png(ColourMap::Grey).is_err()
        };
        assert!(check(0, 5) && check(2, 2) && check(u64::MAX, 2) && check(5, 0));
    }
}
