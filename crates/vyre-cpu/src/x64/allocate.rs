//! Register allocation, by regalloc2.

use super::bytes::VEX_REGISTERS;
use super::instruction::{InstKind, MachineFunction, PIECE_BYTES};
use super::stack_frame::SPILL_BYTES;
use super::stack_slots;
use crate::effort::Effort;
use regalloc2::{
    Algorithm, Block, Ctx, Function, Inst, InstRange, MachineEnv, Operand, Output, PReg, PRegSet, RegClass,
    RegallocOptions, VReg,
};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::LazyLock;

/// Stack sizes up to this many bytes are not compacted: they fit in half of a first-level cache, so
/// sharing slots would only take compile time.
const ROOMY: usize = if cfg!(test) { 0 } else { 16 << 10 };

/// Allocates registers and runs `then` on the result. The allocator's working memory is reused by
/// the thread's next function.
pub(super) fn allocated<T>(
    code: &MachineFunction,
    effort: Effort,
    then: impl FnOnce(&Output) -> T,
) -> Result<T, String> {
    thread_local! {
        static CONTEXT: RefCell<Ctx> = RefCell::new(Ctx::default());
    }
    let options = RegallocOptions {
        verbose_log: false,
        validate_ssa: cfg!(debug_assertions),
        algorithm: match effort {
            Effort::Quick => Algorithm::Fastalloc,
            Effort::Full => Algorithm::Ion,
        },
    };
    CONTEXT.with_borrow_mut(|context| {
        regalloc2::run_with_ctx(code, environment(code), &options, context)
            .map_err(|error| format!("no registers for the kernel: {error:?}"))?;
        if effort == Effort::Quick && SPILL_BYTES * context.output.num_spillslots > ROOMY {
            stack_slots::share(code, &mut context.output);
        }
        #[cfg(test)]
        check(code, &context.output);
        Ok(then(&context.output))
    })
}

/// Independently checks that every value is where it is read.
#[cfg(test)]
fn check(code: &MachineFunction, output: &Output) {
    let mut checker = regalloc2::checker::Checker::new(code, environment(code));
    checker.prepare(output);
    checker.run().unwrap_or_else(|wrong| panic!("{wrong:?}"));
}

pub(super) fn general(number: u8) -> PReg {
    PReg::new(number.into(), RegClass::Int)
}

/// Callee-saved registers.
pub(super) const KEPT: [u8; 5] = [3, 12, 13, 14, 15];

/// Returns the registers of the machine that the code is for.
fn environment(code: &MachineFunction) -> &'static MachineEnv {
    static LOWER: LazyLock<MachineEnv> = LazyLock::new(|| with_vectors(VEX_REGISTERS.into()));
    static ALL: LazyLock<MachineEnv> = LazyLock::new(|| with_vectors(32));
    if code.vector_registers > VEX_REGISTERS.into() { &ALL } else { &LOWER }
}

/// The upper vector registers come last: instructions that name them are longer.
fn with_vectors(count: usize) -> MachineEnv {
    let set =
        |numbers: &[u8]| numbers.iter().fold(PRegSet::empty(), |set, &number| set.with(general(number)));
    let vectors = |numbers: Range<usize>| {
        numbers.fold(PRegSet::empty(), |set, number| set.with(PReg::new(number, RegClass::Float)))
    };
    let (lower, upper) = (vectors(0..VEX_REGISTERS.into()), vectors(VEX_REGISTERS.into()..count));
    MachineEnv {
        preferred_regs_by_class: [set(&[0, 1, 2, 6, 7, 8, 9, 10, 11]), lower, PRegSet::empty()],
        non_preferred_regs_by_class: [set(&KEPT), upper, PRegSet::empty()],
        scratch_by_class: [None; 3],
        fixed_stack_slots: Vec::new(),
    }
}

impl Function for MachineFunction {
    fn num_insts(&self) -> usize {
        self.insts.len()
    }

    fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn entry_block(&self) -> Block {
        Block::new(0)
    }

    fn block_insns(&self, block: Block) -> InstRange {
        let data = &self.blocks[block.index()];
        InstRange::new(Inst::new(data.first as usize), Inst::new(data.end as usize))
    }

    fn block_succs(&self, block: Block) -> &[Block] {
        &self.blocks[block.index()].successors
    }

    fn block_preds(&self, block: Block) -> &[Block] {
        &self.blocks[block.index()].predecessors
    }

    fn block_params(&self, block: Block) -> &[VReg] {
        &self.blocks[block.index()].params
    }

    fn is_ret(&self, inst: Inst) -> bool {
        self.insts[inst.index()].kind == InstKind::Return
    }

    fn is_branch(&self, inst: Inst) -> bool {
        matches!(self.insts[inst.index()].kind, InstKind::Jump(_) | InstKind::Branch(..))
    }

    fn branch_blockparams(&self, block: Block, _: Inst, _: usize) -> &[VReg] {
        &self.blocks[block.index()].arguments
    }

    fn inst_operands(&self, inst: Inst) -> &[Operand] {
        self.operands(&self.insts[inst.index()])
    }

    fn inst_clobbers(&self, _: Inst) -> PRegSet {
        // Calls go through code that preserves every register.
        PRegSet::empty()
    }

    fn num_vregs(&self) -> usize {
        self.register_count
    }

    fn spillslot_size(&self, class: RegClass) -> usize {
        match class {
            RegClass::Int => 1,
            RegClass::Float | RegClass::Vector => PIECE_BYTES as usize / SPILL_BYTES,
        }
    }
}
