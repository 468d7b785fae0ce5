//! Divergence of control flow per statement: the kernel's tree with marks for the lowering.
//!
//! The kernel records which values are uniform; this pass determines for each statement whether the
//! workgroup runs it together, and which exits leave it. The rules are those of the kernel's
//! uniformity analysis.

use crate::source_region::{RegionNames, SourceRegion};
use vyre_foundation::kernel::{Def, KernelBody, LocalId, Stmt, StmtKind, ValueId};

/// A statement with the facts that the lowering needs.
pub(crate) struct Item<'k> {
    pub(crate) stmt: &'k Stmt,
    /// The statement's blocks: two for `if`, one for loops and regions.
    pub(crate) blocks: Vec<Vec<Item<'k>>>,
    pub(crate) marks: Marks,
    /// The innermost region that it is in.
    pub(crate) region: SourceRegion,
}

/// Properties of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Not all invocations of the workgroup run it together.
    pub(crate) divergent: bool,
    /// It contains a barrier.
    pub(crate) barrier: bool,
    /// An exit in uniform control flow leaves it.
    pub(crate) uniform_exit: bool,
    /// Some lanes can leave it by an exit that others do not take.
    pub(crate) kills: bool,
    /// For a loop: lanes leave it at different times.
    pub(crate) divergent_loop: bool,
    /// For a divergent loop: some lanes can skip the rest of an iteration.
    pub(crate) skips: bool,
}

/// Annotates the whole body; also returns the names of its regions.
pub(crate) fn annotate(kernel: &KernelBody) -> (Vec<Item<'_>>, RegionNames) {
    let mut walk = Walk { kernel, names: RegionNames::default(), region: SourceRegion::default() };
    let (items, _) = walk.block(&kernel.body, false);
    (items.into_iter().flat_map(without_group_regions).collect(), walk.names)
}

impl Item<'_> {
    /// Whether the workgroup runs the statement once, together.
    pub(crate) fn is_group_level(&self) -> bool {
        self.marks.barrier || (self.marks.uniform_exit && !self.marks.divergent)
    }
}

/// Returns the statement, or its contents if it is a region that the workgroup runs together: a
/// named region is no boundary.
fn without_group_regions(mut item: Item<'_>) -> Vec<Item<'_>> {
    let blocks = std::mem::take(&mut item.blocks).into_iter();
    item.blocks = blocks.map(|block| block.into_iter().flat_map(without_group_regions).collect()).collect();
    if item.is_group_level() && matches!(item.stmt.kind, StmtKind::Region { .. }) {
        return item.blocks.into_iter().flatten().collect();
    }
    vec![item]
}

/// Exits that leave a statement: taken by all together, or by some.
#[derive(Clone, Copy, Default)]
struct Exits {
    returned: Exit,
    broke: Exit,
    continued: Exit,
}

#[derive(Clone, Copy, Default)]
struct Exit {
    together: bool,
    alone: bool,
}

impl Exit {
    fn new(divergent: bool) -> Exit {
        Exit { together: !divergent, alone: divergent }
    }

    fn merge(&mut self, other: Exit) {
        self.together |= other.together;
        self.alone |= other.alone;
    }
}

impl Exits {
    fn merge(&mut self, other: Exits) {
        self.returned.merge(other.returned);
        self.broke.merge(other.broke);
        self.continued.merge(other.continued);
    }

    fn alone(self) -> bool {
        self.returned.alone || self.broke.alone || self.continued.alone
    }

    fn together(self) -> bool {
        self.returned.together || self.broke.together || self.continued.together
    }
}

struct Walk<'k> {
    kernel: &'k KernelBody,
    names: RegionNames,
    /// The innermost region of the statement.
    region: SourceRegion,
}

impl<'k> Walk<'k> {
    fn uniform(&self, value: ValueId) -> bool {
        self.kernel.values[value.index()].uniform
    }

    fn block(&mut self, block: &'k [Stmt], divergent: bool) -> (Vec<Item<'k>>, Exits) {
        let mut exits = Exits::default();
        let mut items = Vec::with_capacity(block.len());
        for stmt in block {
            let (item, left) = self.stmt(stmt, divergent || exits.alone());
            exits.merge(left);
            items.push(item);
        }
        (items, exits)
    }

    fn stmt(&mut self, stmt: &'k Stmt, divergent: bool) -> (Item<'k>, Exits) {
        let mut marks = Marks { divergent, ..Marks::default() };
        let mut exits = Exits::default();
        let mut blocks = Vec::new();
        match &stmt.kind {
            StmtKind::If { condition, then, otherwise } => {
                let divergent = divergent || !self.uniform(*condition);
                for block in [then, otherwise] {
                    let (items, left) = self.block(block, divergent);
                    exits.merge(left);
                    blocks.push(items);
                }
            }
            StmtKind::For { from, to, step, body, .. } => {
                let varying = [from, to, step].into_iter().any(|&bound| !self.uniform(bound));
                exits = self.looped(body, divergent || varying, &mut marks, &mut blocks);
                marks.divergent_loop |= varying;
            }
            StmtKind::Loop(body) => exits = self.looped(body, divergent, &mut marks, &mut blocks),
            StmtKind::Region { generator, body } => {
                let outer = std::mem::replace(&mut self.region, self.names.add(generator));
                let (items, left) = self.block(body, divergent);
                self.region = outer;
                exits = left;
                blocks.push(items);
            }
            StmtKind::Break => exits.broke = Exit::new(divergent),
            StmtKind::Continue => exits.continued = Exit::new(divergent),
            StmtKind::Return => exits.returned = Exit::new(divergent),
            StmtKind::Barrier => marks.barrier = true,
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Trap(_) => {}
        }
        marks.barrier |= blocks.iter().flatten().any(|item| item.marks.barrier);
        marks.uniform_exit = exits.together();
        marks.kills = exits.alone();
        (Item { stmt, blocks, marks, region: self.region }, exits)
    }

    fn looped(
        &mut self,
        body: &'k [Stmt],
        divergent: bool,
        marks: &mut Marks,
        blocks: &mut Vec<Vec<Item<'k>>>,
    ) -> Exits {
        let (mut items, mut exits) = self.block(body, divergent);
        let leaves = |exits: Exits| exits.broke.alone || exits.returned.alone;
        if !divergent && leaves(exits) {
            (items, exits) = self.block(body, true);
        }
        marks.divergent_loop = leaves(exits);
        marks.skips = exits.continued.alone;
        blocks.push(items);
        Exits { returned: exits.returned, ..Exits::default() }
    }
}

/// Facts about locals that need the whole tree. Loops are numbered from 1 in the order in which
/// they start; 0 is the whole body.
pub(crate) struct LocalFacts {
    /// Whether every write is uniform, in uniform control flow.
    pub(crate) uniform: Vec<bool>,
    uses: Vec<LocalUse>,
}

#[derive(Clone, Default)]
struct LocalUse {
    /// Loops around the first write, innermost last.
    declared: Option<Vec<usize>>,
    /// Common prefix of the loops around every read.
    reads: Option<Vec<usize>>,
}

impl LocalFacts {
    /// Whether lanes that have left the loop (or the body, for 0) never read the local before it is
    /// set again, so that a write in the loop can clobber it for them.
    pub(crate) fn lost_outside(&self, local: LocalId, loop_number: usize) -> bool {
        let found = &self.uses[local.index()];
        let (Some(declared), Some(reads)) = (&found.declared, &found.reads) else { return true };
        if loop_number == 0 {
            return true;
        }
        // All reads are in the loop, and each entry to the loop follows a new declaration.
        reads.iter().position(|&number| number == loop_number).is_some_and(|depth| declared.len() >= depth)
    }
}

/// Collects facts from every read and write of the locals.
pub(crate) fn local_facts(kernel: &KernelBody, items: &[Item<'_>]) -> LocalFacts {
    let mut facts = LocalWalk {
        kernel,
        uniform: vec![true; kernel.locals.len()],
        uses: vec![LocalUse::default(); kernel.locals.len()],
        loops: Vec::new(),
        started: 0,
    };
    facts.block(items);
    LocalFacts { uniform: facts.uniform, uses: facts.uses }
}

struct LocalWalk<'k> {
    kernel: &'k KernelBody,
    uniform: Vec<bool>,
    uses: Vec<LocalUse>,
    loops: Vec<usize>,
    started: usize,
}

impl LocalWalk<'_> {
    fn block(&mut self, items: &[Item<'_>]) {
        for item in items {
            match &item.stmt.kind {
                StmtKind::Def(_, Def::Get(local)) => {
                    let loops = self.loops.clone();
                    let reads = &mut self.uses[local.index()].reads;
                    match reads {
                        None => *reads = Some(loops),
                        Some(known) => {
                            let agree = known.iter().zip(&loops).take_while(|(a, b)| a == b).count();
                            known.truncate(agree);
                        }
                    }
                }
                StmtKind::Set(local, value) => {
                    let same = self.kernel.values[value.index()].uniform && !item.marks.divergent;
                    self.uniform[local.index()] &= same;
                    let found = &mut self.uses[local.index()];
                    if found.declared.is_none() {
                        found.declared = Some(self.loops.clone());
                    }
                }
                StmtKind::For { .. } | StmtKind::Loop(_) => {
                    self.started += 1;
                    self.loops.push(self.started);
                    self.block(&item.blocks[0]);
                    self.loops.pop();
                }
                StmtKind::If { .. } | StmtKind::Region { .. } => {
                    for block in &item.blocks {
                        self.block(block);
                    }
                }
                StmtKind::Def(..)
                | StmtKind::Clear(_)
                | StmtKind::Store { .. }
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return
                | StmtKind::Barrier
                | StmtKind::Trap(_) => {}
            }
        }
    }
}

/// Per value: whether some statement reads it.
pub(crate) fn values_read(kernel: &KernelBody) -> Vec<bool> {
    let mut read = vec![false; kernel.values.len()];
    mark_read(&kernel.body, &mut read);
    read
}

fn mark_read(block: &[Stmt], read: &mut [bool]) {
    for stmt in block {
        let mut mark = |value: ValueId| read[value.index()] = true;
        match &stmt.kind {
            StmtKind::Def(_, def) => def.operands().for_each(mark),
            StmtKind::Set(_, value) => mark(*value),
            StmtKind::Store { index, value, .. } => [*index, *value].into_iter().for_each(mark),
            StmtKind::If { condition, then, otherwise } => {
                mark(*condition);
                mark_read(then, read);
                mark_read(otherwise, read);
            }
            StmtKind::For { from, to, step, body, .. } => {
                [*from, *to, *step].into_iter().for_each(mark);
                mark_read(body, read);
            }
            StmtKind::Loop(body) | StmtKind::Region { body, .. } => mark_read(body, read),
            StmtKind::Clear(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => {}
        }
    }
}
