//! Instruction scheduling within a block.
//!
//! A core executes ready instructions from a limited window; a long chain of dependent ops fills
//! the window, and the next chain waits. This pass interleaves independent chains by list
//! scheduling: of the ready instructions, the one with the longest remaining path comes next while
//! the live values fit in registers; beyond that, the one that frees most registers. Accesses to
//! the same memory or variable keep their order.

use crate::elements::{Bases, Elements};
use crate::piece::Machine;
use crate::vector::{Calc, Frame, Inst, Reg, Var, VectorCode, VectorSlot};
use hashbrown::HashMap;
use smallvec::SmallVec;
use vyre_foundation::ir;
use vyre_foundation::kernel::{KernelBody, Place};

/// Vector registers that intermediate results take, as in `register_pressure`: with 0 or 4, the
/// code of `black_scholes` or `options_f64` is longer.
const TAKEN: usize = 2;

/// Shorter runs fit in a core's window: 24 instructions of two to four pieces each are up to 96 of
/// the 200 and more that a core keeps in flight. With 12, 20 of 108 codes differ, and
/// they are longer in total.
const SHORT: usize = 24;

/// Longer runs are scheduled in parts, since each choice scans all ready instructions. The longest
/// run of the benchmarks (`options_f64`) has 257 to 512.
const LONG: usize = 512;

/// Time unit: thirds of a cycle, since a core starts three vector ops per cycle.
const CYCLE: usize = 3;

/// Reorders every block.
pub(crate) fn interleave(code: &mut VectorCode, kernel: &KernelBody, machine: Machine) {
    let bases = Bases::of_code(code);
    let mut frame = std::mem::replace(&mut code.frame, Frame::Groups(Vec::new()));
    let blocks = frame.blocks_mut();
    let mut uses = vec![0; code.regs.len()];
    blocks.iter().for_each(|block| count_uses(block, &mut uses));
    let mut scheduler = Scheduler { code, kernel, machine, uses, bases };
    blocks.into_iter().for_each(|block| scheduler.block(block));
    code.frame = frame;
}

fn count_uses(insts: &[Inst], uses: &mut [usize]) {
    for inst in insts {
        operands(inst, &mut |reg| uses[reg.0 as usize] += 1);
        nested(inst).into_iter().for_each(|block| count_uses(block, uses));
    }
}

/// Returns the nested blocks of an instruction.
pub(crate) fn nested(inst: &Inst) -> Vec<&Vec<Inst>> {
    match inst {
        Inst::If { then, otherwise, .. } => vec![then, otherwise],
        Inst::Loop { body, next, .. } => vec![body, next],
        Inst::Lanes { full, tail } => vec![full, tail],
        Inst::Def(..)
        | Inst::Set(..)
        | Inst::Keep(..)
        | Inst::Store(_)
        | Inst::Tile(_)
        | Inst::Clear { .. }
        | Inst::Break
        | Inst::Continue
        | Inst::EndLanes
        | Inst::EndGroup
        | Inst::Trap(_) => Vec::new(),
    }
}

/// Visits the registers that an instruction itself reads.
pub(crate) fn operands(inst: &Inst, each: &mut impl FnMut(Reg)) {
    match inst {
        Inst::Def(_, calc) => match calc {
            Calc::Op(_, args) => args.iter().for_each(|&arg| each(arg)),
            Calc::Any(reg) | Calc::All(reg) | Calc::First(reg) => each(*reg),
            Calc::Load { index, .. } => index.registers().for_each(each),
            Calc::Atomic { index, operands, mask, .. } => {
                [index].into_iter().chain(operands).chain(mask).for_each(|&reg| each(reg));
            }
            Calc::Subgroup { operands, mask, .. } => {
                operands.iter().chain(mask).for_each(|&reg| each(reg));
            }
            Calc::Const(_)
            | Calc::LaneNumbers
            | Calc::Source(_)
            | Calc::Get(_)
            | Calc::Recall(_)
            | Calc::Len(_) => {}
            Calc::Tile(_, number) => each(*number),
        },
        Inst::Set(_, reg) | Inst::Keep(_, reg) => each(*reg),
        Inst::Store(store) => {
            store.index.registers().for_each(&mut *each);
            each(store.value);
            store.more.iter().for_each(|&reg| each(reg));
            store.mask.into_iter().for_each(each);
        }
        Inst::Tile(step) => step.registers().into_iter().for_each(each),
        Inst::Clear { mask, .. } => mask.iter().for_each(|&mask| each(mask)),
        Inst::If { condition, .. } => each(*condition),
        Inst::Loop { .. }
        | Inst::Lanes { .. }
        | Inst::Break
        | Inst::Continue
        | Inst::EndLanes
        | Inst::EndGroup
        | Inst::Trap(_) => {}
    }
}

/// A resource that orders instructions beyond their registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Cell {
    Var(Var),
    VectorSlot(VectorSlot),
}

/// A load or store.
struct Access {
    /// Position in the run.
    number: usize,
    touch: Effect,
    /// Its elements, if they are evenly spaced; of a store of several fields, those of the first.
    elements: Option<Elements>,
    fields: u32,
}

impl Access {
    /// Whether it must stay after an earlier access.
    fn depends_on(&self, earlier: &Access) -> bool {
        let (Some(own), Some(other)) = (self.elements, earlier.elements) else { return self.writes(earlier) };
        let is_apart = |k: u32| (0..earlier.fields).all(|field| own.plus(k).are_apart(other.plus(field)));
        self.writes(earlier) && !(0..self.fields).all(is_apart)
    }

    /// Whether it or an earlier access is a store.
    fn writes(&self, earlier: &Access) -> bool {
        matches!(self.touch, Effect::Writes) || matches!(earlier.touch, Effect::Writes)
    }
}

struct Scheduler<'a> {
    code: &'a VectorCode,
    kernel: &'a KernelBody,
    /// Bytes of a machine register.
    machine: Machine,
    /// Per register: number of instructions that read it; for the run being scheduled, those not
    /// yet placed.
    uses: Vec<usize>,
    /// Where accesses are relative to one another, if lanes are invocations.
    bases: Option<Bases>,
}

/// An instruction in a run.
#[derive(Default)]
struct Node {
    /// Instructions that depend on it.
    before: Vec<usize>,
    latency: usize,
    /// Time from its start to the end of everything that depends on it.
    height: usize,
    /// Number of instructions it still depends on.
    waiting: usize,
    /// Time at which its operands are ready.
    ready_at: usize,
}

impl Scheduler<'_> {
    fn block(&mut self, insts: &mut Vec<Inst>) {
        let mut done = Vec::with_capacity(insts.len());
        let mut run = Vec::new();
        for mut inst in std::mem::take(insts) {
            if is_movable(&inst) {
                run.push(inst);
                continue;
            }
            match &mut inst {
                Inst::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|b| self.block(b)),
                Inst::Loop { body, next, .. } => [body, next].into_iter().for_each(|b| self.block(b)),
                Inst::Lanes { full, tail } => [full, tail].into_iter().for_each(|b| self.block(b)),
                Inst::Def(..)
                | Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Store(_)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {}
            }
            done.extend(self.run(std::mem::take(&mut run)));
            done.push(inst);
        }
        done.extend(self.run(run));
        *insts = done;
    }

    /// Reorders instructions that contain no jumps.
    fn run(&mut self, run: Vec<Inst>) -> Vec<Inst> {
        let vectors = run.iter().filter(|inst| matches!(inst, Inst::Def(reg, _) if self.pieces(*reg) > 0));
        if vectors.count() < SHORT {
            return run;
        }
        let mut taken = 0;
        let order: Vec<usize> = (0..run.len())
            .step_by(LONG)
            .flat_map(|from| {
                let part = &run[from..run.len().min(from + LONG)];
                self.part(part, &mut taken).into_iter().map(move |number| from + number)
            })
            .collect();
        for inst in &run {
            operands(inst, &mut |reg| self.uses[reg.0 as usize] += 1);
        }
        let mut run: Vec<Option<Inst>> = run.into_iter().map(Some).collect();
        order.into_iter().filter_map(|number| run[number].take()).collect()
    }

    /// Schedules a part of a run; `taken` machine registers are in use before it.
    fn part(&mut self, run: &[Inst], taken: &mut isize) -> Vec<usize> {
        let mut nodes = self.graph(run);
        let mut order = Vec::with_capacity(run.len());
        let mut now = Moment { time: 0, taken: *taken };
        // Constants take no time here: they are materialised at their uses.
        let constant = |&n: &usize| matches!(run[n], Inst::Def(_, Calc::Const(_)));
        let (constants, mut ready): (Vec<usize>, Vec<usize>) =
            (0..run.len()).filter(|&n| nodes[n].waiting == 0).partition(constant);
        for number in constants {
            order.push(number);
            self.place(number, &mut nodes, &mut ready, 0);
        }
        while let Some(at) = self.choose(run, &nodes, &ready, &now) {
            let number = ready.swap_remove(at);
            now.taken += self.change(&run[number]);
            operands(&run[number], &mut |reg| self.uses[reg.0 as usize] -= 1);
            now.time = now.time.max(nodes[number].ready_at) + self.width(&run[number]);
            order.push(number);
            self.place(number, &mut nodes, &mut ready, now.time);
        }
        *taken = now.taken;
        order
    }

    /// Updates the dependents of an instruction that starts at `time`.
    fn place(&self, number: usize, nodes: &mut [Node], ready: &mut Vec<usize>, time: usize) {
        let end = time + nodes[number].latency;
        for next in std::mem::take(&mut nodes[number].before) {
            nodes[next].ready_at = nodes[next].ready_at.max(end);
            nodes[next].waiting -= 1;
            if nodes[next].waiting == 0 {
                ready.push(next);
            }
        }
    }

    /// Returns the position in `ready` of the next instruction.
    fn choose(&self, run: &[Inst], nodes: &[Node], ready: &[usize], now: &Moment) -> Option<usize> {
        let key = |&number: &usize| {
            let (node, change) = (&nodes[number], self.change(&run[number]));
            let fits = change <= 0 || now.taken + change <= (self.machine.registers - TAKEN) as isize;
            let wait = node.ready_at.saturating_sub(now.time);
            if fits {
                // Prefer what can start now, then the longest remaining path, then the original
                // order.
                (0, wait as isize, -(node.height as isize), number)
            } else {
                (1, change, number as isize, number)
            }
        };
        (0..ready.len()).min_by_key(|&at| key(&ready[at]))
    }

    /// Machine registers that an instruction takes, minus those it frees.
    fn change(&self, inst: &Inst) -> isize {
        let uses = &self.uses;
        let mut change = match inst {
            Inst::Def(_, Calc::Get(_) | Calc::Const(_)) => 0,
            Inst::Def(reg, _) if uses[reg.0 as usize] > 0 => self.pieces(*reg) as isize,
            _ => 0,
        };
        let mut read: SmallVec<[Reg; 8]> = SmallVec::new();
        operands(inst, &mut |reg| read.push(reg));
        for (k, &reg) in read.iter().enumerate() {
            let here = read.iter().filter(|&&other| other == reg).count();
            if !read[..k].contains(&reg) && uses[reg.0 as usize] == here {
                change -= self.pieces(reg) as isize;
            }
        }
        change
    }

    fn pieces(&self, reg: Reg) -> usize {
        let reg_type = self.code.reg_type(reg);
        let bytes = if reg_type.ty.bits() == 64 { 8 } else { 4 };
        if reg_type.vector {
            (self.code.lanes as usize * bytes).div_ceil(self.machine.piece_bytes as usize)
        } else {
            0
        }
    }

    /// Issue time of an instruction.
    fn width(&self, inst: &Inst) -> usize {
        match inst {
            Inst::Def(_, Calc::Get(_) | Calc::Const(_)) | Inst::Set(..) => 0,
            Inst::Def(reg, _) => self.pieces(*reg).max(1),
            _ => 1,
        }
    }

    fn latency(&self, inst: &Inst) -> usize {
        // Cycles of a load from the first-level cache and of the shortest float op on x86-64 cores.
        const LOADED: usize = 5;
        const FLOATS: usize = 3;
        match inst {
            Inst::Def(reg, Calc::Op(op, _)) => {
                let least = if self.code.reg_type(*reg).ty.is_float() { FLOATS } else { 1 };
                CYCLE * least.max(usize::from(op.row().cost))
            }
            Inst::Def(_, Calc::Load { .. } | Calc::Tile(..) | Calc::Recall(_)) => CYCLE * LOADED,
            Inst::Def(_, Calc::Get(_) | Calc::Const(_)) => 0,
            _ => CYCLE,
        }
    }

    /// Builds the dependence graph.
    fn graph(&self, run: &[Inst]) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::with_capacity(run.len());
        let mut defined: HashMap<Reg, usize> = HashMap::new();
        let mut written: HashMap<Cell, usize> = HashMap::new();
        let mut read: HashMap<Cell, Vec<usize>> = HashMap::new();
        let mut accesses: HashMap<Place, Vec<Access>> = HashMap::new();
        for (number, inst) in run.iter().enumerate() {
            let mut after = Vec::new();
            operands(inst, &mut |reg| after.extend(defined.get(&reg)));
            if let Some((place, access)) = self.access(number, inst) {
                let earlier = accesses.entry(place).or_default();
                after.extend(
                    earlier.iter().filter(|other| access.depends_on(other)).map(|other| other.number),
                );
                // What follows depends on such a store, and so on everything before it.
                if access.elements.is_none() && matches!(access.touch, Effect::Writes) {
                    earlier.clear();
                }
                earlier.push(access);
            }
            match self.cell(inst) {
                Some((cell, Effect::Reads)) => {
                    after.extend(written.get(&cell));
                    read.entry(cell).or_default().push(number);
                }
                Some((cell, Effect::Writes)) => {
                    after.extend(written.insert(cell, number));
                    after.extend(read.remove(&cell).unwrap_or_default());
                }
                None => {}
            }
            if let Inst::Def(reg, _) = inst {
                defined.insert(*reg, number);
            }
            after.sort_unstable();
            after.dedup();
            after.iter().for_each(|&earlier| nodes[earlier].before.push(number));
            nodes.push(Node { waiting: after.len(), latency: self.latency(inst), ..Node::default() });
        }
        for number in (0..nodes.len()).rev() {
            let longest = nodes[number].before.iter().map(|&next| nodes[next].height).max();
            nodes[number].height = nodes[number].latency + longest.unwrap_or(0);
        }
        nodes
    }

    /// Returns the memory that an instruction accesses.
    fn access(&self, number: usize, inst: &Inst) -> Option<(Place, Access)> {
        let (place, index, touch, fields) = match inst {
            Inst::Def(_, Calc::Load { place, index, .. }) => (*place, *index, Effect::Reads, 1),
            Inst::Store(store) => (store.place, store.index, Effect::Writes, store.more.len() as u32 + 1),
            _ => return None,
        };
        // Nothing writes to a read-only buffer while the kernel runs.
        if let Place::Buffer(id) = place
            && matches!(self.kernel.buffer(id).decl.access, ir::Access::Read | ir::Access::Uniform)
        {
            return None;
        }
        let elements = self.bases.as_ref().and_then(|bases| bases.elements(index));
        Some((place, Access { number, touch, elements, fields }))
    }

    /// Returns the variable or slot that an instruction accesses.
    fn cell(&self, inst: &Inst) -> Option<(Cell, Effect)> {
        match inst {
            Inst::Def(_, Calc::Get(var)) => Some((Cell::Var(*var), Effect::Reads)),
            Inst::Def(_, Calc::Recall(slot)) => Some((Cell::VectorSlot(*slot), Effect::Reads)),
            Inst::Set(var, _) => Some((Cell::Var(*var), Effect::Writes)),
            Inst::Keep(slot, _) => Some((Cell::VectorSlot(*slot), Effect::Writes)),
            Inst::Def(..)
            | Inst::Store(_)
            | Inst::Tile(_)
            | Inst::Clear { .. }
            | Inst::If { .. }
            | Inst::Loop { .. }
            | Inst::Lanes { .. }
            | Inst::Break
            | Inst::Continue
            | Inst::EndLanes
            | Inst::EndGroup
            | Inst::Trap(_) => None,
        }
    }
}

/// State that a choice depends on.
struct Moment {
    time: usize,
    /// Machine registers in use.
    taken: isize,
}

#[derive(Clone, Copy)]
enum Effect {
    Reads,
    Writes,
}

/// Whether an instruction can be reordered with those it does not depend on.
fn is_movable(inst: &Inst) -> bool {
    match inst {
        Inst::Def(_, Calc::Atomic { .. } | Calc::Subgroup { .. }) => false,
        Inst::Def(..) | Inst::Set(..) | Inst::Keep(..) | Inst::Store(_) => true,
        Inst::Tile(_)
        | Inst::Clear { .. }
        | Inst::If { .. }
        | Inst::Loop { .. }
        | Inst::Lanes { .. }
        | Inst::Break
        | Inst::Continue
        | Inst::EndLanes
        | Inst::EndGroup
        | Inst::Trap(_) => false,
    }
}
