//! The regions of a kernel that its code comes from.
//!
//! Registers and stores of the vector form, values of the piece form and machine instructions each
//! have the number of a region, so that listings of machine code can name it.

use vyre_foundation::ir::Name;

/// A region of the kernel: its place in [`RegionNames`], plus one. 0 is the structure around the
/// kernel's statements, such as the loop over vectors of invocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceRegion(u16);

impl SourceRegion {
    pub(crate) fn bits(self) -> u32 {
        self.0.into()
    }

    /// The region with these [`bits`](Self::bits); others are the structure around the statements.
    pub(crate) fn from_bits(bits: u32) -> SourceRegion {
        SourceRegion(bits.try_into().unwrap_or_default())
    }
}

/// Names of a kernel's regions. A region within another has its own name only.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionNames(Vec<Name>);

impl RegionNames {
    /// Adds a region. Those beyond 65,535 count as the last one.
    pub(crate) fn add(&mut self, name: &Name) -> SourceRegion {
        if self.0.len() < usize::from(u16::MAX) {
            self.0.push(name.clone());
        }
        SourceRegion(self.0.len() as u16)
    }

    /// Replaces the regions by their names.
    pub(crate) fn named(&self, regions: &[(u32, SourceRegion)]) -> Vec<(usize, Option<Name>)> {
        let name = |region: SourceRegion| self.0.get(usize::from(region.0).checked_sub(1)?).cloned();
        let mut named: Vec<_> = regions.iter().map(|&(at, region)| (at as usize, name(region))).collect();
        // Neighbouring regions can have one name.
        named.dedup_by(|next, last| next.1 == last.1);
        named
    }
}

/// Where the code of each region begins.
#[derive(Default)]
pub(crate) struct RegionStarts(Vec<(u32, SourceRegion)>);

impl RegionStarts {
    /// Notes that the code from this offset on, which is no smaller than those before, belongs to
    /// the region.
    pub(crate) fn note(&mut self, offset: usize, region: SourceRegion) {
        if self.0.last().is_some_and(|&(at, _)| at as usize == offset) {
            self.0.pop();
        }
        if self.0.last().map_or(SourceRegion::default(), |&(_, last)| last) != region {
            self.0.push((offset as u32, region));
        }
    }

    pub(crate) fn with(self, bytes: Vec<u8>) -> Assembled {
        Assembled { bytes, regions: self.0 }
    }
}

/// Machine code of a function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assembled {
    pub(crate) bytes: Vec<u8>,
    /// Where the code of each region begins, in order of offsets; it ends where the next one's
    /// begins.
    pub(crate) regions: Vec<(u32, SourceRegion)>,
}

/// The machine code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCode {
    /// The instructions, and the constants after them.
    pub bytes: Vec<u8>,
    /// Offsets in the bytes, in order, and the region of the kernel that the code from there on
    /// belongs to. `None` is the structure around the kernel's statements, as is the code before
    /// the first offset.
    pub regions: Vec<(usize, Option<Name>)>,
}
