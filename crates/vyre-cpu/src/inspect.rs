//! Reports on the code of a kernel: memory access patterns and checks.

use crate::emit::loads_of_records;
use crate::host::host;
use crate::pipeline::vector_code;
use crate::vector::{Calc, Frame, Index, Inst, Reg, RowStarts, TileStep, VectorCode};
use hashbrown::HashSet;
use vyre_driver::{BackendError, DispatchConfig};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{KernelBody, Place};

/// Elements that the lanes of a vector access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All lanes access the same element.
    One,
    /// Consecutive elements: one access for all lanes.
    Neighbours,
    /// A constant distance: wide accesses and shuffles.
    Strided,
    /// A separate row per lane, a few elements of it at a time.
    Rows,
    /// Arbitrary elements: one lane after another.
    LaneByLane,
}

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An atomic read-modify-write.
    Atomic,
}

/// A memory access in the code for vectors all of whose lanes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Name of the buffer or array.
    pub place: String,
    /// Kind of access.
    pub touch: AccessKind,
    /// Elements accessed across the lanes.
    pub reach: Reach,
    /// Whether the index is compared with the length each time.
    pub checked: bool,
    /// Whether some lanes can be inactive.
    pub masked: bool,
    /// Number of the kernel's loops around it.
    pub loops: usize,
}

/// Report on the code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeReport {
    /// Lanes of a vector.
    pub lanes: u32,
    /// Every access, in code order.
    pub accesses: Vec<MemoryAccess>,
    /// Branches that are taken if any lane needs them.
    pub divergent_branches: usize,
    /// Number of accesses and guards that a dispatch must prove to run this code; others run code
    /// with more checks.
    pub requirements: usize,
}

impl CodeReport {
    /// Whether no index is compared with a length.
    pub fn is_unchecked(&self) -> bool {
        self.accesses.iter().all(|access| !access.checked)
    }
}

/// Reports on the code of a program at its declared workgroup size.
pub fn code_report(program: &Program, config: &DispatchConfig) -> Result<CodeReport, BackendError> {
    let (kernel, code) = vector_code(program, config)?;
    let mut walk = Walk {
        kernel: &kernel,
        code: &code,
        loops: 0,
        accesses: Vec::new(),
        branches: 0,
        full: code.inner.into_iter().collect(),
        in_records: loads_of_records(&code, host().map_or(16, |host| host.compiler.machine().piece_bytes)),
    };
    match &code.frame {
        Frame::Rows { head, full, tail } => {
            walk.block(head);
            // An index is compared once per row there.
            walk.accesses.iter_mut().for_each(|access| access.checked = false);
            walk.block(if full.is_empty() { tail } else { full });
        }
        Frame::Groups(body) => walk.block(body),
    }
    Ok(CodeReport {
        lanes: code.lanes,
        accesses: walk.accesses,
        divergent_branches: walk.branches,
        requirements: kernel.proof.len(),
    })
}

struct Walk<'a> {
    kernel: &'a KernelBody,
    code: &'a VectorCode,
    loops: usize,
    accesses: Vec<MemoryAccess>,
    branches: usize,
    /// Conditions that hold where all lanes of a mask run.
    full: Vec<Reg>,
    /// Loads of whole records.
    in_records: HashSet<Reg>,
}

impl Walk<'_> {
    fn block(&mut self, block: &[Inst]) {
        for inst in block {
            match inst {
                Inst::Def(reg, calc) => {
                    if matches!(calc, Calc::All(_)) {
                        self.full.push(*reg);
                    }
                    self.calc(calc);
                    if let (true, Some(access)) = (self.in_records.contains(reg), self.accesses.last_mut()) {
                        access.reach = Reach::Rows;
                    }
                }
                Inst::Store(store) => {
                    self.access(
                        store.place,
                        AccessKind::Store,
                        store.index,
                        store.checked,
                        store.mask.is_some(),
                    );
                    if let (Index::Spaced(..), Some(access), false) =
                        (store.index, self.accesses.last_mut(), store.more.is_empty())
                    {
                        access.reach = Reach::Rows;
                    }
                }
                // The other side is for vectors at a border.
                Inst::If { condition, then, .. } if self.full.contains(condition) => self.block(then),
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                // A loop that completes another one repeats the same accesses.
                Inst::Loop { rest: true, .. } => {}
                Inst::Loop { body, next, rest: false } => {
                    self.loops += 1;
                    self.block(body);
                    self.block(next);
                    self.loops -= 1;
                }
                Inst::Lanes { full, tail } => self.block(if full.is_empty() { tail } else { full }),
                Inst::Tile(TileStep::Fill(_, span)) => self.row(*span, AccessKind::Load),
                Inst::Tile(TileStep::Flush(_, span)) => self.row(*span, AccessKind::Store),
                Inst::Tile(TileStep::Put { .. }) => {}
                Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Clear { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {}
            }
        }
    }

    fn calc(&mut self, calc: &Calc) {
        match calc {
            Calc::Load { place, index, checked, .. } => {
                self.access(*place, AccessKind::Load, *index, *checked, false);
            }
            Calc::Atomic { buffer, index, mask, checked, .. } => {
                let index = match self.code.reg_type(*index).vector {
                    true => Index::Each(*index),
                    false => Index::Same(*index),
                };
                self.access(Place::Buffer(*buffer), AccessKind::Atomic, index, *checked, mask.is_some());
            }
            Calc::Any(_) => self.branches += 1,
            Calc::Const(_)
            | Calc::LaneNumbers
            | Calc::Source(_)
            | Calc::Get(_)
            | Calc::Recall(_)
            | Calc::Op(..)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Len(_)
            | Calc::Tile(..)
            | Calc::Subgroup { .. } => {}
        }
    }

    /// Records a row access of each lane.
    fn row(&mut self, span: RowStarts, touch: AccessKind) {
        let place = self.kernel.buffer(span.buffer).decl.name.to_string();
        let (reach, loops) = (Reach::Rows, self.loops);
        self.accesses.push(MemoryAccess { place, touch, reach, checked: false, masked: false, loops });
    }

    fn access(&mut self, place: Place, touch: AccessKind, index: Index, checked: bool, masked: bool) {
        let reach = match index {
            Index::Same(_) => Reach::One,
            Index::Consecutive(_) | Index::Mostly { .. } => Reach::Neighbours,
            Index::Strided(..) => Reach::Strided,
            Index::Spaced(..) | Index::Each(_) => Reach::LaneByLane,
        };
        let place = match place {
            Place::Buffer(buffer) => self.kernel.buffer(buffer).decl.name.to_string(),
            Place::Array(array) => format!("private array {}", array.0),
        };
        self.accesses.push(MemoryAccess { place, touch, reach, checked, masked, loops: self.loops });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vyre_foundation::text::parse;

    fn report(text: &str) -> CodeReport {
        let program = parse(text).unwrap_or_else(|faults| panic!("{faults}")).in_regions();
        code_report(&program, &DispatchConfig::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn neighbours_gathers_and_checks_are_distinguished() {
        let doubled = report(
            "kernel k(x: read f32[], y: output f32[] len_of x) over x { y[invocation.x] = 2.0 * x[invocation.x] }",
        );
        assert!(doubled.is_unchecked());
        assert!(doubled.accesses.iter().all(|access| access.reach == Reach::Neighbours && access.loops == 0));
        let gathered = report(
            "kernel k(i: read u32[], x: read f32[], y: output f32[] len_of i) over i { y[invocation.x] = x[i[invocation.x]] }",
        );
        let from_x: Vec<&MemoryAccess> =
            gathered.accesses.iter().filter(|access| access.place == "x").collect();
        assert!(matches!(from_x[..], [MemoryAccess { reach: Reach::LaneByLane, checked: true, .. }]));
        assert!(!gathered.is_unchecked());
    }
}
