//! A kernel flattened to a list of instructions.
//!
//! Structured statements become jumps, so that the state of an invocation is a program counter and
//! registers, and it can stop anywhere. Locals take the first registers. A value takes the next
//! free register of its block and releases it when the block ends: values are used only in their
//! block and blocks nested in it.

use vyre_foundation::ir::{Builtin, Span};
use vyre_foundation::kernel::{
    ArrayId, BufferId, Def, KernelBody, LocalId, Operands, Place, Stmt, StmtKind, ValueId,
};
use vyre_foundation::ops::{AtomicOp, Op, SubgroupOp};
use vyre_foundation::types::{DataType, Value};

/// A register of an invocation.
pub(crate) type Register = u32;

/// One step of an invocation. `to` is the result register; jump targets are instruction indices.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instr {
    Const {
        to: Register,
        value: Value,
    },
    Copy {
        to: Register,
        from: Register,
    },
    Op {
        to: Register,
        op: Op,
        args: [Register; 4],
        count: u8,
    },
    Load {
        to: Register,
        access: ElementAccess,
    },
    Store {
        access: ElementAccess,
        value: Register,
    },
    Clear(ArrayId),
    Len {
        to: Register,
        buffer: BufferId,
    },
    Builtin {
        to: Register,
        builtin: Builtin,
        axis: u8,
    },
    Atomic {
        to: Register,
        op: AtomicOp,
        access: ElementAccess,
        operands: [Register; 2],
    },
    SubgroupSize {
        to: Register,
    },
    SubgroupId {
        to: Register,
    },
    SubgroupCount {
        to: Register,
    },
    SubgroupLane {
        to: Register,
    },
    /// Waits for the subgroup.
    Subgroup {
        to: Register,
        op: SubgroupOp,
        args: [Register; 2],
    },
    Jump(usize),
    JumpUnless {
        condition: Register,
        target: usize,
    },
    /// Computes the trip count and enters the loop, or jumps past it.
    ForStart {
        counter: Register,
        bounds: [Register; 3],
        remaining: usize,
        exit: usize,
    },
    /// Continues with the next iteration at `head`, or leaves the loop.
    ForNext {
        counter: Register,
        step: Register,
        remaining: usize,
        head: usize,
    },
    /// Waits for the workgroup.
    Barrier,
    Return,
    Trap(u32),
}

/// The element that an instruction accesses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementAccess {
    pub(crate) place: Place,
    pub(crate) index: Register,
    /// Whether the compiler claims that the index is in range.
    pub(crate) in_bounds: bool,
}

/// Location of a private array in an invocation's array bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArraySpan {
    pub(crate) element: DataType,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// The instructions of a kernel and the size of an invocation's state.
#[derive(Debug)]
pub(crate) struct FlatKernel {
    pub(crate) instrs: Vec<Instr>,
    /// Source span of each instruction.
    pub(crate) at: Vec<Option<Span>>,
    pub(crate) registers: usize,
    /// Maximum number of counted loops open at once.
    pub(crate) loops: usize,
    pub(crate) arrays: Vec<ArraySpan>,
    pub(crate) array_bytes: usize,
    /// Whether invocations ever wait for each other.
    pub(crate) waits: bool,
}

impl FlatKernel {
    /// Flattens the kernel.
    pub(crate) fn new(kernel: &KernelBody) -> FlatKernel {
        let mut flattener = Flattener::new(kernel);
        flattener.block(&kernel.body);
        flattener.emit(Instr::Return, None);
        flattener.code
    }
}

struct Flattener {
    code: FlatKernel,
    /// The register of each value, set at its definition.
    registers_of_values: Vec<Register>,
    free: Register,
    open_counters: usize,
    open_loops: Vec<OpenLoop>,
}

/// Jumps of a loop whose targets are not yet known.
#[derive(Default)]
struct OpenLoop {
    breaks: Vec<usize>,
    continues: Vec<usize>,
}

impl Flattener {
    fn new(kernel: &KernelBody) -> Flattener {
        let mut array_bytes = 0;
        let spans = kernel.arrays.iter().map(|array| {
            let element = array.element.data_type();
            let span =
                ArraySpan { element, start: array_bytes, bytes: array.count as usize * element.size() };
            array_bytes += span.bytes;
            span
        });
        let arrays = spans.collect();
        let registers = kernel.locals.len();
        let code = FlatKernel {
            instrs: Vec::new(),
            at: Vec::new(),
            registers,
            loops: 0,
            arrays,
            array_bytes,
            waits: false,
        };
        Flattener {
            code,
            registers_of_values: vec![0; kernel.values.len()],
            free: registers as Register,
            open_counters: 0,
            open_loops: Vec::new(),
        }
    }

    fn emit(&mut self, instr: Instr, at: Option<Span>) -> usize {
        self.code.instrs.push(instr);
        self.code.at.push(at);
        self.code.instrs.len() - 1
    }

    fn here(&self) -> usize {
        self.code.instrs.len()
    }

    fn define(&mut self, value: ValueId) -> Register {
        let slot = self.free;
        self.free += 1;
        self.code.registers = self.code.registers.max(self.free as usize);
        self.registers_of_values[value.index()] = slot;
        slot
    }

    fn register_of(&self, value: ValueId) -> Register {
        self.registers_of_values[value.index()]
    }

    /// The registers of up to `N` operands; missing ones are 0 and never read.
    fn operands<const N: usize>(&self, operands: &Operands) -> [Register; N] {
        std::array::from_fn(|k| operands.get(k).map_or(0, |&value| self.register_of(value)))
    }

    fn block(&mut self, stmts: &[Stmt]) {
        let free = self.free;
        for stmt in stmts {
            self.stmt(stmt);
        }
        self.free = free;
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let at = stmt.at;
        match &stmt.kind {
            StmtKind::Def(value, def) => self.def(*value, def, at),
            StmtKind::Set(local, value) => {
                let from = self.register_of(*value);
                self.emit(Instr::Copy { to: register(*local), from }, at);
            }
            StmtKind::Clear(array) => {
                self.emit(Instr::Clear(*array), at);
            }
            StmtKind::Store { place, index, value, in_bounds } => {
                let access =
                    ElementAccess { place: *place, index: self.register_of(*index), in_bounds: *in_bounds };
                let value = self.register_of(*value);
                self.emit(Instr::Store { access, value }, at);
            }
            StmtKind::If { condition, then, otherwise } => {
                let condition = self.register_of(*condition);
                self.branch(condition, [then, otherwise], at);
            }
            StmtKind::For { counter, from, to, step, body } => {
                let bounds = [*from, *to, *step].map(|value| self.register_of(value));
                self.counted_loop(*counter, bounds, body, at);
            }
            StmtKind::Loop(body) => self.endless_loop(body, at),
            StmtKind::Break => {
                let jump = self.emit(Instr::Jump(0), at);
                self.innermost_loop().breaks.push(jump);
            }
            StmtKind::Continue => {
                let jump = self.emit(Instr::Jump(0), at);
                self.innermost_loop().continues.push(jump);
            }
            StmtKind::Return => {
                self.emit(Instr::Return, at);
            }
            StmtKind::Barrier => {
                self.code.waits = true;
                self.emit(Instr::Barrier, at);
            }
            StmtKind::Region { body, .. } => self.block(body),
            StmtKind::Trap(code) => {
                self.emit(Instr::Trap(*code), at);
            }
        }
    }

    fn def(&mut self, value: ValueId, def: &Def, at: Option<Span>) {
        // Look up the operands before allocating the result register: they never share one.
        let instr = match def {
            Def::Const(constant) => Instr::Const { to: self.define(value), value: *constant },
            Def::Get(local) => Instr::Copy { to: self.define(value), from: register(*local) },
            Def::Op(op, operands) => {
                let (args, count) = (self.operands(operands), operands.len() as u8);
                Instr::Op { to: self.define(value), op: *op, args, count }
            }
            Def::Load { place, index, in_bounds } => {
                let access =
                    ElementAccess { place: *place, index: self.register_of(*index), in_bounds: *in_bounds };
                Instr::Load { to: self.define(value), access }
            }
            Def::Len(buffer) => Instr::Len { to: self.define(value), buffer: *buffer },
            Def::Builtin(builtin, axis) => {
                Instr::Builtin { to: self.define(value), builtin: *builtin, axis: *axis }
            }
            Def::Atomic { op, buffer, index, operands, in_bounds } => {
                let (place, index) = (Place::Buffer(*buffer), self.register_of(*index));
                let access = ElementAccess { place, index, in_bounds: *in_bounds };
                let operands = self.operands(operands);
                Instr::Atomic { to: self.define(value), op: *op, access, operands }
            }
            Def::Subgroup(op, operands) => self.subgroup(value, *op, operands),
        };
        self.emit(instr, at);
    }

    fn subgroup(&mut self, value: ValueId, op: SubgroupOp, operands: &Operands) -> Instr {
        let args = self.operands(operands);
        let to = self.define(value);
        match op {
            SubgroupOp::Size => Instr::SubgroupSize { to },
            SubgroupOp::Lane => Instr::SubgroupLane { to },
            SubgroupOp::Id => Instr::SubgroupId { to },
            SubgroupOp::Count => Instr::SubgroupCount { to },
            SubgroupOp::Ballot
            | SubgroupOp::Broadcast
            | SubgroupOp::Shuffle
            | SubgroupOp::Reduce(_)
            | SubgroupOp::Inclusive(_)
            | SubgroupOp::Exclusive(_) => {
                self.code.waits = true;
                Instr::Subgroup { to, op, args }
            }
        }
    }

    fn branch(&mut self, condition: Register, [then, otherwise]: [&[Stmt]; 2], at: Option<Span>) {
        let test = self.emit(Instr::JumpUnless { condition, target: 0 }, at);
        self.block(then);
        if otherwise.is_empty() {
            return self.land([test]);
        }
        let over = self.emit(Instr::Jump(0), at);
        self.land([test]);
        self.block(otherwise);
        self.land([over]);
    }

    fn counted_loop(&mut self, counter: ValueId, bounds: [Register; 3], body: &[Stmt], at: Option<Span>) {
        let (free, remaining) = (self.free, self.open_counters);
        self.open_counters += 1;
        self.code.loops = self.code.loops.max(self.open_counters);
        let counter = self.define(counter);
        let start = self.emit(Instr::ForStart { counter, bounds, remaining, exit: 0 }, at);
        let head = self.here();
        self.open_loops.push(OpenLoop::default());
        self.block(body);
        let jumps = self.close_loop();
        self.land(jumps.continues);
        self.emit(Instr::ForNext { counter, step: bounds[2], remaining, head }, at);
        self.land(jumps.breaks.into_iter().chain([start]));
        self.open_counters -= 1;
        self.free = free;
    }

    fn endless_loop(&mut self, body: &[Stmt], at: Option<Span>) {
        let head = self.here();
        self.open_loops.push(OpenLoop::default());
        self.block(body);
        self.emit(Instr::Jump(head), at);
        let jumps = self.close_loop();
        self.aim(jumps.continues, head);
        self.land(jumps.breaks);
    }

    fn innermost_loop(&mut self) -> &mut OpenLoop {
        let Some(open) = self.open_loops.last_mut() else { unreachable!("validated: inside a loop") };
        open
    }

    fn close_loop(&mut self) -> OpenLoop {
        let Some(closed) = self.open_loops.pop() else { unreachable!("opened by the caller") };
        closed
    }

    /// Patches these jumps to the next instruction.
    fn land(&mut self, jumps: impl IntoIterator<Item = usize>) {
        self.aim(jumps, self.here());
    }

    fn aim(&mut self, jumps: impl IntoIterator<Item = usize>, destination: usize) {
        for jump in jumps {
            match &mut self.code.instrs[jump] {
                Instr::Jump(target)
                | Instr::JumpUnless { target, .. }
                | Instr::ForStart { exit: target, .. } => *target = destination,
                other => unreachable!("{other:?} does not jump forward"),
            }
        }
    }
}

fn register(local: LocalId) -> Register {
    local.0
}
