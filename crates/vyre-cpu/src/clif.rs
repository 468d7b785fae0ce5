//! Cranelift code generation from the piece form, for processors that `x64` does not support: each
//! op becomes one or a few Cranelift instructions, in pieces of 16 bytes.

use crate::effort::Effort;
use crate::piece::{
    self, Edge, End, FloatOrder, Function, IntOrder, Lane, Narrow, Op, Rounding, StackSlot, Update,
};
use crate::source_region::{Assembled, RegionStarts, SourceRegion};
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, AtomicRmwOp, Block, BlockArg, ConstantData, Endianness, InstBuilder, MemFlagsData, SigRef,
    Signature, SourceLoc, StackSlotData, StackSlotKind, Type, Value,
};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};

/// Bytes of a piece.
pub(crate) const PIECE_BYTES: u32 = 16;

/// Cranelift, configured for this processor.
pub(crate) struct Compiler {
    quick: OwnedTargetIsa,
    full: OwnedTargetIsa,
}

impl Compiler {
    /// Returns the compiler, or the reason why Cranelift does not support this processor.
    pub(crate) fn new() -> Result<Compiler, String> {
        Ok(Compiler { quick: isa(Effort::Quick)?, full: isa(Effort::Full)? })
    }

    /// Compiles a function to machine code.
    pub(crate) fn compile(&self, function: &Function, effort: Effort) -> Result<Assembled, String> {
        let isa = match effort {
            Effort::Quick => &*self.quick,
            Effort::Full => &*self.full,
        };
        assemble(isa, translate(function, isa))
    }

    /// Generates a function that calls its first argument with the others and preserves every
    /// register. A routine is compiled like any other function and can clobber most registers; a
    /// kernel that called it directly could keep no vectors in registers across the call site, even
    /// if the call is rarely made.
    pub(crate) fn caller_code(&self) -> Result<Vec<u8>, String> {
        let isa = &*self.full;
        let mut function = cranelift_codegen::ir::Function::new();
        function.signature = caller_signature();
        let mut routine = caller_signature();
        routine.params.remove(0);
        routine.call_conv = isa.default_call_conv();
        let routine = function.import_signature(routine);
        let entry = function.dfg.make_block();
        let types: Vec<Type> = function.signature.params.iter().map(|param| param.value_type).collect();
        let arguments: Vec<Value> =
            types.iter().map(|&ty| function.dfg.append_block_param(entry, ty)).collect();
        let mut cursor = FuncCursor::new(&mut function);
        cursor.insert_block(entry);
        cursor.ins().call_indirect(routine, arguments[0], &arguments[1..]);
        cursor.ins().return_(&[]);
        assemble(isa, function).map(|code| code.bytes)
    }
}

fn isa(effort: Effort) -> Result<OwnedTargetIsa, String> {
    let registers = match effort {
        Effort::Quick => "single_pass",
        Effort::Full => "backtracking",
    };
    let set = [
        // The kernel is already optimized, and the emitter's order is the best one: all pieces of a
        // vector go through an op before the next op, so that a core has independent work.
        // Cranelift's optimizer would group the operands of a store piece by piece, and recompute
        // shared values in each branch: option pricing took twice the time.
        ("opt_level", "none"),
        ("regalloc_algorithm", registers),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ("unwind_info", "false"),
        ("enable_probestack", "false"),
        ("is_pic", "false"),
    ];
    let mut flags = settings::builder();
    for (name, value) in set {
        flags.set(name, value).map_err(|error| format!("setting {name}: {error}"))?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}

fn assemble(isa: &dyn TargetIsa, function: cranelift_codegen::ir::Function) -> Result<Assembled, String> {
    let mut context = Context::for_function(function);
    let compiled =
        context.compile(isa, &mut ControlPlane::default()).map_err(|error| format!("{:?}", error.inner))?;
    if let Some(relocation) = compiled.buffer.relocs().first() {
        // A call out of the kernel: the host lacks an instruction that the kernel's ops need.
        return Err(format!(
            "this processor lacks an instruction the kernel needs ({:?})",
            relocation.target
        ));
    }
    let mut regions = RegionStarts::default();
    for place in compiled.buffer.get_srclocs_sorted() {
        regions.note(place.start as usize, SourceRegion::from_bits(place.loc.bits()));
    }
    Ok(regions.with(compiled.code_buffer().to_vec()))
}

/// Signature of the trampoline for routines: the routine, then its arguments. It preserves every
/// register.
fn caller_signature() -> Signature {
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature.params.extend([I64, I64, I64, I64, I32].map(AbiParam::new));
    signature
}

fn translate(function: &Function, isa: &dyn TargetIsa) -> cranelift_codegen::ir::Function {
    let mut target = cranelift_codegen::ir::Function::new();
    target.signature = Signature::new(isa.default_call_conv());
    let blocks = function.order();
    let entry = blocks[0];
    let params = function.block(entry).params.iter().map(|&param| AbiParam::new(machine(function.ty(param))));
    target.signature.params.extend(params);
    target.signature.returns.push(AbiParam::new(I32));
    let slot = |&size: &u32| {
        target.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, size, 4))
    };
    let slots = function.slots.iter().map(slot).collect();
    let mut translator = Translator {
        function,
        cursor: FuncCursor::new(&mut target),
        values: vec![None; function.value_count()],
        blocks: vec![None; function.block_count()],
        slots,
        caller: None,
        x86: isa.name() == "x64",
    };
    blocks.iter().for_each(|&block| translator.declare(block));
    blocks.iter().for_each(|&block| translator.block(block, block == entry));
    target
}

struct Translator<'f> {
    function: &'f Function,
    cursor: FuncCursor<'f>,
    values: Vec<Option<Value>>,
    blocks: Vec<Option<Block>>,
    slots: Vec<cranelift_codegen::ir::StackSlot>,
    caller: Option<SigRef>,
    x86: bool,
}

/// Returns the Cranelift type.
fn machine(ty: piece::Type) -> Type {
    let lane = match ty.lane {
        Lane::I8 => I8,
        Lane::I16 => I16,
        Lane::I32 => I32,
        Lane::I64 => I64,
        Lane::F32 => F32,
        Lane::F64 => F64,
    };
    match lane.by(ty.lane_count()) {
        Some(ty) => ty,
        None => unreachable!("a piece has a few lanes"),
    }
}

/// Memory known to be accessible, aligned or not.
fn trusted() -> MemFlagsData {
    let mut flags = MemFlagsData::new();
    flags.set_notrap();
    flags
}

fn aligned() -> MemFlagsData {
    let mut flags = trusted();
    flags.set_aligned();
    flags
}

/// Vectors are reinterpreted in little-endian order, which every supported machine has.
fn little() -> MemFlagsData {
    let mut flags = MemFlagsData::new();
    flags.set_endianness(Endianness::Little);
    flags
}

fn int_order(order: IntOrder) -> IntCC {
    match order {
        IntOrder::Equal => IntCC::Equal,
        IntOrder::NotEqual => IntCC::NotEqual,
        IntOrder::SignedLess => IntCC::SignedLessThan,
        IntOrder::SignedLessOrEqual => IntCC::SignedLessThanOrEqual,
        IntOrder::SignedGreater => IntCC::SignedGreaterThan,
        IntOrder::SignedGreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
        IntOrder::UnsignedLess => IntCC::UnsignedLessThan,
        IntOrder::UnsignedLessOrEqual => IntCC::UnsignedLessThanOrEqual,
        IntOrder::UnsignedGreater => IntCC::UnsignedGreaterThan,
        IntOrder::UnsignedGreaterOrEqual => IntCC::UnsignedGreaterThanOrEqual,
    }
}

fn float_order(order: FloatOrder) -> FloatCC {
    match order {
        FloatOrder::Equal => FloatCC::Equal,
        FloatOrder::NotEqual => FloatCC::NotEqual,
        FloatOrder::Less => FloatCC::LessThan,
        FloatOrder::LessOrEqual => FloatCC::LessThanOrEqual,
    }
}

fn update(update: Update) -> AtomicRmwOp {
    match update {
        Update::Add => AtomicRmwOp::Add,
        Update::And => AtomicRmwOp::And,
        Update::Or => AtomicRmwOp::Or,
        Update::Xor => AtomicRmwOp::Xor,
        Update::Exchange => AtomicRmwOp::Xchg,
        Update::SignedMin => AtomicRmwOp::Smin,
        Update::SignedMax => AtomicRmwOp::Smax,
        Update::UnsignedMin => AtomicRmwOp::Umin,
        Update::UnsignedMax => AtomicRmwOp::Umax,
    }
}

impl Translator<'_> {
    fn value(&self, value: piece::Value) -> Value {
        match self.values[value.index()] {
            Some(value) => value,
            None => unreachable!("{value} is defined before it is used"),
        }
    }

    fn target(&self, block: piece::Block) -> Block {
        match self.blocks[block.index()] {
            Some(block) => block,
            None => unreachable!("every block that is reached was declared"),
        }
    }

    fn slot(&self, slot: StackSlot) -> cranelift_codegen::ir::StackSlot {
        self.slots[slot.index()]
    }

    fn declare(&mut self, block: piece::Block) {
        let made = self.cursor.func.dfg.make_block();
        for &param in &self.function.block(block).params {
            let ty = machine(self.function.ty(param));
            self.values[param.index()] = Some(self.cursor.func.dfg.append_block_param(made, ty));
        }
        self.blocks[block.index()] = Some(made);
    }

    fn block(&mut self, block: piece::Block, is_entry: bool) {
        let made = self.target(block);
        self.cursor.insert_block(made);
        if self.function.block(block).cold {
            self.cursor.func.layout.set_cold(made);
        }
        if is_entry {
            self.function.zeros.iter().for_each(|&zero| self.inst(zero));
        }
        for value in self.function.body(block) {
            self.cursor.set_srcloc(SourceLoc::new(self.function.region(value).bits()));
            self.inst(value);
        }
        match self.function.ending(block) {
            End::Jump(edge) => {
                let (to, arguments) = self.edge(edge);
                self.cursor.ins().jump(to, &arguments);
            }
            End::Branch(condition, [yes, no]) => {
                let condition = self.value(*condition);
                let ((yes, with_yes), (no, with_no)) = (self.edge(yes), self.edge(no));
                self.cursor.ins().brif(condition, yes, &with_yes, no, &with_no);
            }
            End::Return(value) => {
                let value = self.value(*value);
                self.cursor.ins().return_(&[value]);
            }
        }
    }

    fn edge(&self, edge: &Edge) -> (Block, Vec<BlockArg>) {
        let arguments = edge.arguments.iter().map(|&value| BlockArg::Value(self.value(value))).collect();
        (self.target(edge.to), arguments)
    }

    fn inst(&mut self, value: piece::Value) {
        let (op, ty) = (self.function.op(value), self.function.ty(value));
        let operands: Vec<Value> =
            self.function.operands(value).iter().map(|&operand| self.value(operand)).collect();
        let from = self.function.operands(value).first().map_or(ty, |&operand| self.function.ty(operand));
        self.values[value.index()] = self.made(op, ty, from, &operands);
    }

    /// Translates an instruction whose first operand has the type `from`; `None` if it has only an
    /// effect.
    fn made(&mut self, op: Op, ty: piece::Type, from: piece::Type, operands: &[Value]) -> Option<Value> {
        let float = ty.is_float();
        let to = machine(ty);
        let (a, b, c) = match *operands {
            [] => return self.constant(op, ty),
            [a] => (a, a, a),
            [a, b] => (a, b, b),
            [a, b, c, ..] => (a, b, c),
        };
        Some(match op {
            Op::Param | Op::Const(_) | Op::LaneNumbers(_) | Op::StackAddress(_) | Op::Pattern(_) => {
                unreachable!("{op:?} has no operands")
            }
            Op::Add if float => self.cursor.ins().fadd(a, b),
            Op::Add => self.cursor.ins().iadd(a, b),
            Op::Sub if float => self.cursor.ins().fsub(a, b),
            Op::Sub => self.cursor.ins().isub(a, b),
            Op::Mul if float => self.cursor.ins().fmul(a, b),
            Op::Mul => self.cursor.ins().imul(a, b),
            Op::Neg if float => self.cursor.ins().fneg(a),
            Op::Neg => self.cursor.ins().ineg(a),
            Op::Abs if float => self.cursor.ins().fabs(a),
            Op::Abs => self.cursor.ins().iabs(a),
            Op::And => self.cursor.ins().band(a, b),
            Op::Or => self.cursor.ins().bor(a, b),
            Op::Xor => self.cursor.ins().bxor(a, b),
            Op::AndNot => self.cursor.ins().band_not(a, b),
            Op::Not => self.cursor.ins().bnot(a),
            Op::ShiftLeft => self.cursor.ins().ishl(a, b),
            Op::ShiftRight => self.cursor.ins().ushr(a, b),
            Op::ShiftRightSigned => self.cursor.ins().sshr(a, b),
            Op::IntMin { signed: true } => self.cursor.ins().smin(a, b),
            Op::IntMin { signed: false } => self.cursor.ins().umin(a, b),
            Op::IntMax { signed: true } => self.cursor.ins().smax(a, b),
            Op::IntMax { signed: false } => self.cursor.ins().umax(a, b),
            Op::ShiftLeftEach | Op::ShiftRightEach | Op::ShiftRightSignedEach => {
                unreachable!("Cranelift shifts all lanes alike")
            }
            Op::RotateLeft(_) | Op::RotateLeftEach | Op::RotateRightEach => {
                unreachable!("only AVX-512 rotates lanes")
            }
            Op::Div { signed: true } => self.cursor.ins().sdiv(a, b),
            Op::Div { signed: false } => self.cursor.ins().udiv(a, b),
            Op::Rem { signed: true } => self.cursor.ins().srem(a, b),
            Op::Rem { signed: false } => self.cursor.ins().urem(a, b),
            Op::MulHigh { signed } if ty == piece::Type::piece(Lane::I16, PIECE_BYTES) => {
                self.multiply_high_halves(signed, a, b)
            }
            Op::MulHigh { signed } if ty.is_piece() => self.multiply_high(signed, a, b),
            Op::MulHigh { signed: true } => self.cursor.ins().smulhi(a, b),
            Op::MulHigh { signed: false } => self.cursor.ins().umulhi(a, b),
            Op::CountOnes => self.cursor.ins().popcnt(a),
            Op::LeadingZeros => self.cursor.ins().clz(a),
            Op::TrailingZeros => self.cursor.ins().ctz(a),
            Op::ReverseBits => self.cursor.ins().bitrev(a),
            Op::Extend { signed: true } => self.cursor.ins().sextend(to, a),
            Op::Extend { signed: false } => self.cursor.ins().uextend(to, a),
            Op::Reduce => self.cursor.ins().ireduce(to, a),
            Op::FloatDiv => self.cursor.ins().fdiv(a, b),
            Op::FloatMin => self.by_order(ty, [a, b], [a, b]),
            Op::FloatMax => self.by_order(ty, [b, a], [a, b]),
            Op::Fma => self.cursor.ins().fma(a, b, c),
            Op::Sqrt => self.cursor.ins().sqrt(a),
            Op::Round(Rounding::Nearest) => self.cursor.ins().nearest(a),
            Op::Round(Rounding::Down) => self.cursor.ins().floor(a),
            Op::Round(Rounding::Up) => self.cursor.ins().ceil(a),
            Op::Round(Rounding::Zero) => self.cursor.ins().trunc(a),
            Op::Promote => self.cursor.ins().fpromote(to, a),
            Op::Demote => self.cursor.ins().fdemote(to, a),
            Op::FromInt { signed: true } => self.cursor.ins().fcvt_from_sint(to, a),
            Op::FromInt { signed: false } => self.cursor.ins().fcvt_from_uint(to, a),
            Op::ToInt { signed: true } => self.cursor.ins().fcvt_to_sint_sat(to, a),
            Op::ToInt { signed: false } => self.cursor.ins().fcvt_to_uint_sat(to, a),
            Op::Bitcast => self.bitcast(to, a),
            Op::Compare(order) => self.cursor.ins().icmp(int_order(order), a, b),
            Op::CompareFloats(order) => self.cursor.ins().fcmp(float_order(order), a, b),
            Op::Select => self.cursor.ins().select(a, b, c),
            Op::Choose => self.choose(ty, a, b, c),
            Op::AnyTrue => self.cursor.ins().vany_true(a),
            Op::AllTrue => self.cursor.ins().vall_true(a),
            Op::HighBits => self.cursor.ins().vhigh_bits(to, a),
            Op::Splat => self.cursor.ins().splat(to, a),
            Op::Build => self.build(to, operands),
            Op::Extract(lane) => self.cursor.ins().extractlane(a, lane),
            Op::SplatLane(lane) => self.words(a, a, [lane; 4]),
            Op::Swap(bit) => self.words(a, a, [0, 1, 2, 3].map(|lane| lane ^ bit)),
            Op::MoveUpWithin(by) => self.words(a, b, [0, 1, 2, 3].map(|lane| 4 - by + lane)),
            Op::MoveUp => self.words(a, b, [3, 4, 5, 6]),
            Op::Interleave { bytes: 4, high } => {
                self.words(a, b, [0, 4, 1, 5].map(|lane| lane + 2 * u8::from(high)))
            }
            Op::Interleave { high, .. } => {
                self.words(a, b, [0, 1, 4, 5].map(|lane| lane + 2 * u8::from(high)))
            }
            Op::Shuffle(order) => self.words(a, b, [0, 4, 8, 12].map(|shift| (order >> shift & 15) as u8)),
            Op::ShuffleBytes => self.cursor.ins().swizzle(a, b),
            Op::TruncateInt if ty.is_piece() => self.cursor.ins().fcvt_to_sint_sat(to, a),
            Op::TruncateInt => unreachable!("Cranelift's own conversions are kept"),
            Op::CarryHalf | Op::LoadHalves(..) | Op::StoreHalves(..) => {
                unreachable!("pieces of 16 bytes have no halves")
            }
            Op::Widen { signed, high } => self.widen(signed, high, a),
            Op::WidenFloat { high } => {
                let half = if high { self.words(a, a, [2, 3, 2, 3]) } else { a };
                let half = self.bitcast(machine(from), half);
                self.cursor.ins().fvpromote_low(half)
            }
            Op::NarrowFloat => {
                let (low, high) = (self.cursor.ins().fvdemote(a), self.cursor.ins().fvdemote(b));
                let joined = self.words(low, high, [0, 1, 4, 5]);
                self.bitcast(to, joined)
            }
            Op::LowHalves => self.words(a, b, [0, 2, 4, 6]),
            Op::Pack => self.cursor.ins().unarrow(a, b),
            Op::Load(offset) => self.cursor.ins().load(to, trusted(), a, offset),
            Op::LoadNarrow(narrow, offset) => self.load_narrow(ty, narrow, a, offset),
            Op::AtomicUpdate(what) => self.cursor.ins().atomic_rmw(to, aligned(), update(what), a, b),
            Op::CompareExchange => self.cursor.ins().atomic_cas(aligned(), a, b, c),
            Op::Store(offset) | Op::StorePast(offset) => {
                self.cursor.ins().store(trusted(), a, b, offset);
                return None;
            }
            Op::StoreNarrow { bytes, offset } => {
                match bytes {
                    1 => self.cursor.ins().istore8(trusted(), a, b, offset),
                    _ => self.cursor.ins().istore16(trusted(), a, b, offset),
                };
                return None;
            }
            Op::StoreMasked { .. } => unreachable!("only AVX-512 stores some lanes of a piece"),
            Op::Call => {
                let signature = match self.caller {
                    Some(signature) => signature,
                    None => *self.caller.insert(self.cursor.func.import_signature(caller_signature())),
                };
                self.cursor.ins().call_indirect(signature, a, &operands[1..]);
                return None;
            }
        })
    }

    /// A value without operands; `None` if the op has some.
    fn constant(&mut self, op: Op, ty: piece::Type) -> Option<Value> {
        Some(match op {
            Op::Const(bits) => self.constant_bits(ty, bits),
            Op::LaneNumbers(first) => {
                let numbers = (0..4).flat_map(|lane| (first + lane).to_le_bytes());
                self.vector_constant(ty, numbers.collect())
            }
            Op::Pattern(number) => {
                let pattern = self.function.patterns[number as usize][..PIECE_BYTES as usize].to_vec();
                self.vector_constant(ty, pattern)
            }
            Op::StackAddress(slot) => {
                let slot = self.slot(slot);
                self.cursor.ins().stack_addr(I64, slot, 0)
            }
            _ => return None,
        })
    }

    /// The same bits in every lane.
    fn constant_bits(&mut self, ty: piece::Type, bits: u64) -> Value {
        if ty.is_piece() {
            let lane = &bits.to_le_bytes()[..ty.lane.bytes() as usize];
            return self.vector_constant(ty, lane.repeat(ty.lane_count() as usize));
        }
        match ty.lane {
            Lane::F32 => self.cursor.ins().f32const(Ieee32::with_bits(bits as u32)),
            Lane::F64 => self.cursor.ins().f64const(Ieee64::with_bits(bits)),
            Lane::I32 => self.cursor.ins().iconst(I32, i64::from(bits as i32)),
            Lane::I8 | Lane::I16 | Lane::I64 => self.cursor.ins().iconst(machine(ty), bits as i64),
        }
    }

    fn vector_constant(&mut self, ty: piece::Type, bytes: Vec<u8>) -> Value {
        let constant = self.cursor.func.dfg.constants.insert(ConstantData::from(bytes));
        self.cursor.ins().vconst(machine(ty), constant)
    }

    fn bitcast(&mut self, to: Type, value: Value) -> Value {
        if self.cursor.func.dfg.value_type(value) == to {
            return value;
        }
        self.cursor.ins().bitcast(to, little(), value)
    }

    /// Selects one of two values by comparing floats, in a form that Cranelift matches to one
    /// machine instruction.
    fn by_order(&mut self, ty: piece::Type, [less, greater]: [Value; 2], [yes, no]: [Value; 2]) -> Value {
        let holds = self.cursor.ins().fcmp(FloatCC::LessThan, less, greater);
        if !ty.is_piece() {
            return self.cursor.ins().select(holds, yes, no);
        }
        let holds = self.bitcast(machine(ty), holds);
        self.cursor.ins().bitselect(holds, yes, no)
    }

    fn choose(&mut self, ty: piece::Type, mask: Value, yes: Value, no: Value) -> Value {
        let bits = machine(ty.bits());
        let (yes, no) = (self.bitcast(bits, yes), self.bitcast(bits, no));
        let chosen = if self.x86 {
            self.cursor.ins().blendv(mask, yes, no)
        } else {
            self.cursor.ins().bitselect(mask, yes, no)
        };
        self.bitcast(machine(ty), chosen)
    }

    fn build(&mut self, to: Type, lanes: &[Value]) -> Value {
        let first = self.cursor.ins().scalar_to_vector(to, lanes[0]);
        let rest = lanes.iter().enumerate().skip(1);
        rest.fold(first, |vector, (lane, &value)| self.cursor.ins().insertlane(vector, value, lane as u8))
    }

    fn widen(&mut self, signed: bool, high: bool, a: Value) -> Value {
        match (signed, high) {
            (true, false) => self.cursor.ins().swiden_low(a),
            (true, true) => self.cursor.ins().swiden_high(a),
            (false, false) => self.cursor.ins().uwiden_low(a),
            (false, true) => self.cursor.ins().uwiden_high(a),
        }
    }

    fn multiply_high(&mut self, signed: bool, a: Value, b: Value) -> Value {
        let [low, high] = [false, true].map(|high| {
            let (a, b) = (self.widen(signed, high, a), self.widen(signed, high, b));
            self.cursor.ins().imul(a, b)
        });
        self.words(low, high, [1, 3, 5, 7])
    }

    fn multiply_high_halves(&mut self, signed: bool, a: Value, b: Value) -> Value {
        let [low, high] = [false, true].map(|high| {
            let (a, b) = (self.widen(signed, high, a), self.widen(signed, high, b));
            let product = self.cursor.ins().imul(a, b);
            // The upper halves as signed numbers, which narrowing keeps.
            self.cursor.ins().sshr_imm_u(product, 16)
        });
        self.cursor.ins().snarrow(low, high)
    }

    /// Selects four of the eight 32-bit words of two pieces.
    fn words(&mut self, a: Value, b: Value, words: [u8; 4]) -> Value {
        let bytes = machine(piece::Type::piece(Lane::I8, PIECE_BYTES));
        let (a, b) = (self.bitcast(bytes, a), self.bitcast(bytes, b));
        let picked: Vec<u8> = words.iter().flat_map(|word| (0..4).map(move |byte| 4 * word + byte)).collect();
        let mask = self.cursor.func.dfg.immediates.push(ConstantData::from(picked));
        let picked = self.cursor.ins().shuffle(a, b, mask);
        self.bitcast(machine(piece::Type::piece(Lane::I32, PIECE_BYTES)), picked)
    }

    fn load_narrow(&mut self, ty: piece::Type, from: Narrow, address: Value, offset: i32) -> Value {
        let (to, ins) = (machine(ty), self.cursor.ins());
        match (ty.is_piece(), from.bytes, from.signed) {
            (true, 1, false) => ins.uload8x8(trusted(), address, offset),
            (true, 1, true) => ins.sload8x8(trusted(), address, offset),
            (true, _, false) => ins.uload16x4(trusted(), address, offset),
            (true, _, true) => ins.sload16x4(trusted(), address, offset),
            (false, 1, false) => ins.uload8(to, trusted(), address, offset),
            (false, 1, true) => ins.sload8(to, trusted(), address, offset),
            (false, 2, false) => ins.uload16(to, trusted(), address, offset),
            (false, 2, true) => ins.sload16(to, trusted(), address, offset),
            (false, _, false) => ins.uload32(trusted(), address, offset),
            (false, _, true) => ins.sload32(trusted(), address, offset),
        }
    }
}
