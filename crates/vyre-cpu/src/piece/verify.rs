//! Verifier for functions, run in tests and with debug assertions:
//!
//! - every reachable block was written, and arguments match the parameters of their target block;
//! - every operand is defined before its use, on every path;
//! - operands and results have the types documented in [`Op`].

use super::{Block, Edge, End, Function, I8, I32, I64, Lane, Op, Type, Value};

/// Checks a function; the error names the first value or block that is wrong.
pub(crate) fn verify(function: &Function) -> Result<(), String> {
    let order = function.order();
    let mut checker = Checker { function, defined: Dominance::new(function, &order) };
    for &block in &order {
        checker.block(block)?;
    }
    Ok(())
}

struct Checker<'f> {
    function: &'f Function,
    defined: Dominance,
}

/// Defining blocks of values, and the dominator tree.
struct Dominance {
    /// Per value: the block that defines it.
    block_of: Vec<Option<Block>>,
    /// Per block: its immediate dominator, and its position in the order.
    above: Vec<Option<Block>>,
    place: Vec<usize>,
}

impl Dominance {
    fn new(function: &Function, order: &[Block]) -> Dominance {
        let mut block_of = vec![None; function.value_count()];
        let mut place = vec![usize::MAX; function.block_count()];
        let mut before: Vec<Vec<Block>> = vec![Vec::new(); function.block_count()];
        for (at, &block) in order.iter().enumerate() {
            place[block.index()] = at;
            let zeros = if at == 0 { &function.zeros[..] } else { &[] };
            let params = function.block(block).params.iter().chain(zeros);
            params
                .copied()
                .chain(function.body(block))
                .for_each(|value| block_of[value.index()] = Some(block));
            function.ending(block).edges().iter().for_each(|edge| before[edge.to.index()].push(block));
        }
        let mut above: Vec<Option<Block>> = vec![None; function.block_count()];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for &block in order.iter().skip(1) {
                let known = before[block.index()]
                    .iter()
                    .copied()
                    .filter(|&from| from == order[0] || above[from.index()].is_some());
                let found = known.reduce(|a, b| meet(&above, &place, a, b));
                changed |= found != above[block.index()];
                above[block.index()] = found;
            }
        }
        Dominance { block_of, above, place }
    }

    /// Whether `over` dominates `block`.
    fn leads_through(&self, over: Block, block: Block) -> bool {
        let mut at = Some(block);
        while let Some(here) = at {
            if here == over {
                return true;
            }
            if self.place[here.index()] < self.place[over.index()] {
                return false;
            }
            at = self.above[here.index()];
        }
        false
    }
}

/// Returns the closest common dominator of two blocks.
fn meet(above: &[Option<Block>], place: &[usize], a: Block, b: Block) -> Block {
    let (mut a, mut b) = (a, b);
    while a != b {
        let later = if place[a.index()] > place[b.index()] { &mut a } else { &mut b };
        match above[later.index()] {
            Some(next) => *later = next,
            None => return *later,
        }
    }
    a
}

impl Checker<'_> {
    fn block(&mut self, block: Block) -> Result<(), String> {
        for value in self.function.body(block) {
            for &operand in self.function.operands(value) {
                let here = self.defined.block_of[operand.index()] == Some(block);
                if !(here && (operand < value || self.is_param(operand))
                    || !here && self.reaches(operand, block))
                {
                    return Err(format!("{value} uses {operand} before it is defined\n{}", self.function));
                }
            }
            self.types(value).map_err(|wrong| format!("{value}: {wrong}\n{}", self.function))?;
        }
        let end = self.function.ending(block);
        let arguments = end.edges().iter().flat_map(|edge| edge.arguments.iter().copied());
        for value in arguments.chain(end.operand()) {
            let here = self.defined.block_of[value.index()] == Some(block);
            if !here && !self.reaches(value, block) {
                return Err(format!(
                    "the end of {block:?} uses {value} before it is defined\n{}",
                    self.function
                ));
            }
        }
        if let End::Branch(_, [Edge { to: yes, .. }, Edge { to: no, .. }]) = end
            && yes == no
        {
            return Err(format!("{block:?} branches twice to {yes:?}"));
        }
        end.edges().iter().try_for_each(|edge| self.edge(block, edge))
    }

    fn is_param(&self, value: Value) -> bool {
        self.function.op(value) == Op::Param || self.function.zeros.contains(&value)
    }

    fn reaches(&self, value: Value, block: Block) -> bool {
        self.defined.block_of[value.index()].is_some_and(|from| self.defined.leads_through(from, block))
    }

    fn edge(&self, from: Block, edge: &Edge) -> Result<(), String> {
        let params = &self.function.block(edge.to).params;
        let types =
            |values: &[Value]| values.iter().map(|&value| self.function.ty(value)).collect::<Vec<Type>>();
        if types(params) == types(&edge.arguments) {
            return Ok(());
        }
        Err(format!("{from:?} goes to {:?} with arguments that do not fit\n{}", edge.to, self.function))
    }

    /// Checks the operand types that an op requires.
    fn types(&self, value: Value) -> Result<(), String> {
        let (op, ty) = (self.function.op(value), self.function.ty(value));
        let given: Vec<Type> =
            self.function.operands(value).iter().map(|&operand| self.function.ty(operand)).collect();
        let piece = |lane| Type::piece(lane, self.function.machine.piece_bytes);
        let avx512 = self.function.machine.avx512;
        let (word_piece, wide_piece) = (avx512 && ty == piece(Lane::I32), avx512 && ty == piece(Lane::I64));
        let scalar = !ty.is_piece();
        let first = given.first().copied().unwrap_or(ty);
        let fits = match op {
            Op::Param | Op::Const(_) | Op::StackAddress(_) => given.is_empty(),
            Op::LaneNumbers(_) => ty == piece(Lane::I32),
            Op::Add | Op::Sub | Op::Mul => given == [ty, ty],
            Op::And | Op::Or | Op::Xor | Op::AndNot => given == [ty, ty] && !ty.is_float(),
            Op::Neg | Op::Abs => given == [ty],
            Op::Not => given == [ty] && !ty.is_float(),
            Op::ShiftLeft | Op::ShiftRight | Op::ShiftRightSigned => given == [ty, I32] && !ty.is_float(),
            Op::ShiftLeftEach | Op::ShiftRightEach => given == [ty, ty] && !scalar && ty.lane.bytes() >= 4,
            Op::ShiftRightSignedEach => given == [ty, ty] && (ty == piece(Lane::I32) || wide_piece),
            Op::IntMin { .. } | Op::IntMax { .. } => {
                given == [ty, ty] && (ty == piece(Lane::I32) || ty == piece(Lane::I16) || wide_piece)
            }
            Op::RotateLeft(_) => given == [ty] && (word_piece || wide_piece),
            Op::RotateLeftEach | Op::RotateRightEach => given == [ty, ty] && (word_piece || wide_piece),
            Op::Div { .. } | Op::Rem { .. } => given == [ty, ty] && scalar && !ty.is_float(),
            Op::MulHigh { .. } => {
                given == [ty, ty] && (ty == I64 || ty == piece(Lane::I32) || ty == piece(Lane::I16))
            }
            Op::CountOnes if !scalar => {
                given == [ty] && self.function.machine.counts_bits && (word_piece || wide_piece)
            }
            Op::LeadingZeros if !scalar => given == [ty] && (word_piece || wide_piece),
            Op::CountOnes | Op::LeadingZeros => given == [ty] && (ty == I32 || ty == I64),
            Op::TrailingZeros | Op::ReverseBits => given == [ty] && (ty == I32 || ty == I64),
            Op::Extend { .. } | Op::Reduce => {
                let (wide, narrow) = if op == Op::Reduce { (first, ty) } else { (ty, first) };
                given.len() == 1 && scalar && !narrow.is_float() && wide.bytes() > narrow.bytes()
            }
            Op::FloatDiv | Op::FloatMin | Op::FloatMax => given == [ty, ty] && ty.is_float(),
            Op::Fma => given == [ty, ty, ty] && ty.is_float(),
            Op::Sqrt | Op::Round(_) => given == [ty] && ty.is_float(),
            Op::Promote => given == [super::F32] && ty == super::F64,
            Op::Demote => given == [super::F64] && ty == super::F32,
            Op::FromInt { .. } => {
                given.len() == 1
                    && ty.is_float()
                    && !first.is_float()
                    && (scalar || first == ty.bits() && !ty.is_wide())
            }
            Op::ToInt { .. } => {
                given.len() == 1
                    && first.is_float()
                    && !ty.is_float()
                    && (scalar || ty == first.bits() && !ty.is_wide())
            }
            Op::TruncateInt if !scalar => given == [piece(Lane::F32)] && ty == piece(Lane::I32),
            Op::TruncateInt => given.len() == 1 && first.is_float() && (ty == I32 || ty == I64),
            Op::Bitcast => given.len() == 1 && first.bytes() == ty.bytes(),
            Op::Compare(_) => given == [first, first] && !first.is_float() && ty == first.compared(),
            Op::CompareFloats(_) => given == [first, first] && first.is_float() && ty == first.compared(),
            Op::Select => given == [I8, ty, ty] && scalar,
            Op::Choose => given == [ty.bits(), ty, ty] && !scalar,
            Op::AnyTrue | Op::AllTrue => given.len() == 1 && first.is_piece() && ty == I8,
            Op::HighBits => given == [piece(Lane::I32)] && ty == I32,
            Op::Splat => given == [ty.lane_type()],
            Op::Build => {
                given.len() == ty.lane_count() as usize && given.iter().all(|&given| given == ty.lane_type())
            }
            Op::Extract(lane) => {
                given.len() == 1 && first.lane_type() == ty && u32::from(lane) < first.lane_count()
            }
            Op::SplatLane(_) | Op::Swap(_) => given == [ty] && ty == piece(Lane::I32),
            Op::Shuffle(_) => given == [ty, ty] && ty == piece(Lane::I32),
            Op::ShuffleBytes => given == [ty, ty] && ty == piece(Lane::I8),
            Op::Pattern(number) => {
                given.is_empty() && ty == piece(Lane::I8) && (number as usize) < self.function.patterns.len()
            }
            Op::MoveUpWithin(_) | Op::MoveUp => given == [ty, ty] && ty == piece(Lane::I32),
            Op::Interleave { bytes, .. } => {
                given == [ty, ty]
                    && ty == piece(Lane::I32)
                    && (matches!(bytes, 4 | 8) || bytes == 16 && ty.bytes() == 32)
            }
            Op::CarryHalf => given == [ty, ty] && ty == piece(Lane::I32) && ty.bytes() == 32,
            Op::Widen { .. } => given == [piece(first.lane)] && ty.lane.bytes() == 2 * first.lane.bytes(),
            Op::WidenFloat { .. } => given == [piece(Lane::F32)] && ty == piece(Lane::F64),
            Op::NarrowFloat => given == [piece(Lane::F64); 2] && ty == piece(Lane::F32),
            Op::LowHalves => given == [piece(Lane::I64); 2] && ty == piece(Lane::I32),
            Op::Pack => given == [first, first] && first.lane.bytes() == 2 * ty.lane.bytes(),
            Op::LoadHalves(..) => given == [I64] && ty == piece(Lane::I8) && ty.bytes() == 32,
            Op::Load(_) => given == [I64],
            Op::LoadNarrow(from, _) => given == [I64] && u32::from(from.bytes) < ty.lane.bytes(),
            Op::Store(_) | Op::StoreNarrow { .. } => given == [first, I64],
            Op::StoreHalves(..) | Op::StorePast(_) => given == [first, I64] && first.bytes() == 32,
            Op::StoreMasked { bytes, .. } => {
                let lane = first.lane.bytes();
                let is_narrower = matches!((lane, bytes), (2, 1) | (4, 1 | 2));
                avx512
                    && given == [first, first.bits(), I64]
                    && first == piece(first.lane)
                    && (is_narrower || lane == u32::from(bytes) && lane > 1)
            }
            Op::AtomicUpdate(_) => given == [I64, ty] && (ty == I32 || ty == I64),
            Op::CompareExchange => given == [I64, ty, ty] && (ty == I32 || ty == I64),
            Op::Call => given == [I64, I64, I64, I64, I64, I32],
        };
        if fits { Ok(()) } else { Err(format!("{op:?} does not take {given:?} and give {ty}")) }
    }
}
