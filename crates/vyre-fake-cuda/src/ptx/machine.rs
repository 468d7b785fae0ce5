//! Interpreter of PTX.
//!
//! Workgroups run one after another. Within one, each invocation runs until it waits: at a barrier
//! for all others that have not returned, or at an exchange between lanes for those of its mask.
//! After a fixed number of instructions it yields to the others. Floats are computed as the
//! instruction specifies, and a resulting NaN has the bits that devices produce, which are not the
//! canonical ones. What the hardware leaves undefined is a fault: accesses out of bounds or
//! misaligned, lanes that wait for each other at different instructions, and shuffles from lanes
//! outside the mask.

use super::memory::{Block, SimulatedMemory};
use super::parse::{
    Address, Arithmetic, Comparison, EntryFunction, Instruction, LOCAL, Op, Rounding, SHARED, SourceOperand,
    Special, Test, Type, Update,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Workgroups per axis.
    pub blocks: [u32; 3],
    /// Invocations of a workgroup per axis.
    pub threads: [u32; 3],
}

/// Why a launch ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// Access outside an allocation.
    IllegalAddress(String),
    /// Misaligned access.
    Misaligned(String),
    /// Behaviour that is undefined on a device.
    Undefined(String),
    /// Instruction limit exceeded.
    Endless,
    /// Abandoned by the host.
    Abandoned,
}

/// Executor of launches.
#[derive(Debug)]
pub struct LaunchExecutor<'a> {
    /// Memory of the device.
    pub memory: &'a SimulatedMemory,
    /// Maximum number of instructions of a launch.
    pub limit: u64,
    /// Ends the running launch when set.
    pub abandon: &'a AtomicBool,
}

/// Number of instructions after which the other invocations of the workgroup run.
const TURN: u32 = 20_000;
const LANES: usize = 32;
/// Value of a register before its first write, and of a lane that has returned.
const GARBAGE: u64 = 0xdead_beef_dead_beef;

impl LaunchExecutor<'_> {
    /// Runs a launch to completion.
    pub fn run(&self, entry: &EntryFunction, grid: Grid, parameters: &[u8]) -> Result<(), LaunchError> {
        if parameters.len() < entry.parameter_bytes() {
            return Err(LaunchError::Undefined(format!("`{}` takes more parameters", entry.name)));
        }
        let count = grid.threads.iter().product::<u32>() as usize;
        let mut group = Group {
            entry,
            grid,
            parameters,
            blocks: self.memory.blocks(),
            last: 0,
            group: [0; 3],
            shared: vec![0; entry.shared],
            registers: vec![GARBAGE; count * entry.registers.len()],
            local: vec![0; count * entry.local],
            threads: Vec::new(),
            left: self.limit,
            abandon: self.abandon,
        };
        for z in 0..grid.blocks[2] {
            for y in 0..grid.blocks[1] {
                for x in 0..grid.blocks[0] {
                    group.group = [x, y, z];
                    group.run(count)?;
                }
            }
        }
        Ok(())
    }
}

/// State of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Ready,
    AtBarrier,
    AtExchange,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    state: ThreadState,
    at: usize,
}

struct Group<'a> {
    entry: &'a EntryFunction,
    grid: Grid,
    parameters: &'a [u8],
    blocks: Vec<Block>,
    /// Index of the last accessed allocation.
    last: usize,
    group: [u32; 3],
    shared: Vec<u8>,
    registers: Vec<u64>,
    local: Vec<u8>,
    threads: Vec<Thread>,
    left: u64,
    abandon: &'a AtomicBool,
}

fn masked(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// Sign-extends a value.
fn extended(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits;
    ((value << shift) as i64) >> shift
}

impl Group<'_> {
    fn run(&mut self, count: usize) -> Result<(), LaunchError> {
        self.threads = vec![Thread { state: ThreadState::Ready, at: 0 }; count];
        // Devices do not clear the memory of workgroups and invocations.
        self.shared.fill(0xcd);
        self.local.fill(0xcd);
        self.registers.fill(GARBAGE);
        loop {
            let mut moved = false;
            for thread in 0..count {
                if self.threads[thread].state == ThreadState::Ready {
                    moved = true;
                    self.turn(thread)?;
                }
            }
            if self.threads.iter().all(|thread| thread.state == ThreadState::Done) {
                return Ok(());
            }
            moved |= self.exchange()?;
            let waits = |thread: &Thread| matches!(thread.state, ThreadState::AtBarrier | ThreadState::Done);
            if self.threads.iter().all(waits) {
                for thread in &mut self.threads {
                    if thread.state == ThreadState::AtBarrier {
                        *thread = Thread { state: ThreadState::Ready, at: thread.at + 1 };
                    }
                }
                moved = true;
            }
            if !moved {
                return Err(LaunchError::Undefined(
                    "invocations wait for each other at different places".into(),
                ));
            }
        }
    }

    /// Runs one invocation until it waits, ends or has used its turn.
    fn turn(&mut self, thread: usize) -> Result<(), LaunchError> {
        if self.abandon.load(Ordering::Relaxed) {
            return Err(LaunchError::Abandoned);
        }
        for _ in 0..TURN {
            let entry = self.entry;
            let at = self.threads[thread].at;
            let Some(instruction) = entry.code.get(at) else {
                self.threads[thread].state = ThreadState::Done;
                return Ok(());
            };
            self.left = self.left.checked_sub(1).ok_or(LaunchError::Endless)?;
            let runs = instruction.guard.is_none_or(|(register, wanted)| {
                (self.registers[self.register(thread, register)] & 1 == 1) == wanted
            });
            if !runs {
                self.threads[thread].at = at + 1;
                continue;
            }
            match &instruction.op {
                Op::Branch { to } => self.threads[thread].at = *to,
                Op::Return => {
                    self.threads[thread].state = ThreadState::Done;
                    return Ok(());
                }
                Op::Barrier => {
                    self.threads[thread].state = ThreadState::AtBarrier;
                    return Ok(());
                }
                Op::Shuffle { .. } | Op::Ballot { .. } => {
                    self.threads[thread].state = ThreadState::AtExchange;
                    return Ok(());
                }
                _ => {
                    self.step(thread, instruction)?;
                    self.threads[thread].at = at + 1;
                }
            }
        }
        Ok(())
    }

    /// Performs the exchanges of each subgroup in which all lanes of a mask have arrived; returns
    /// whether there were any.
    fn exchange(&mut self) -> Result<bool, LaunchError> {
        let mut any = false;
        for first in (0..self.threads.len()).step_by(LANES) {
            let lanes = first..(first + LANES).min(self.threads.len());
            let Some(waiting) = lanes.clone().find(|&k| self.threads[k].state == ThreadState::AtExchange)
            else {
                continue;
            };
            let at = self.threads[waiting].at;
            let Instruction { op, line, .. } = &self.entry.code[at];
            let (Op::Shuffle { mask, .. } | Op::Ballot { mask, .. }) = op else { continue };
            let wanted = self.value(waiting, *mask) as u32;
            let undefined = |what: &str| Err(LaunchError::Undefined(format!("line {line}: {what}")));
            let mut here = Vec::new();
            let mut ready = true;
            for (lane, thread) in lanes.clone().enumerate() {
                let named = wanted >> lane & 1 == 1;
                let Thread { state, at: place } = self.threads[thread];
                match state {
                    ThreadState::Done => {}
                    ThreadState::AtExchange if place == at => {
                        if !named || self.value(thread, *mask) as u32 != wanted {
                            return undefined("lanes with different masks, or one outside of its mask");
                        }
                        here.push((lane, thread));
                    }
                    ThreadState::Ready | ThreadState::AtExchange | ThreadState::AtBarrier => ready &= !named,
                }
            }
            if wanted.checked_shr(lanes.len() as u32).unwrap_or(0) != 0 {
                return undefined("the mask names lanes that there are not");
            }
            if !ready {
                continue;
            }
            self.exchanged(&op.clone(), &here, first, *line)?;
            for (_, thread) in here {
                self.threads[thread] = Thread { state: ThreadState::Ready, at: at + 1 };
            }
            any = true;
        }
        Ok(any)
    }

    fn exchanged(
        &mut self,
        op: &Op,
        here: &[(usize, usize)],
        first: usize,
        line: usize,
    ) -> Result<(), LaunchError> {
        if let Op::Ballot { to, from, negated, .. } = op {
            let mut bits = 0;
            for &(lane, thread) in here {
                bits |= ((self.value(thread, *from) & 1) ^ u64::from(*negated)) << lane;
            }
            here.iter().for_each(|&(_, thread)| self.set(thread, *to, bits));
        }
        if let Op::Shuffle { to, found, from, lane, clamp, .. } = op {
            let given: Vec<(usize, u64)> =
                here.iter().map(|&(lane, thread)| (lane, self.value(thread, *from))).collect();
            for &(_, thread) in here {
                if self.value(thread, *clamp) & 0x1f1f != 0x1f {
                    return Err(LaunchError::Undefined(format!(
                        "line {line}: a shuffle within parts of a subgroup"
                    )));
                }
                let wanted = self.value(thread, *lane) as usize % LANES;
                let value = given.iter().find(|(lane, _)| *lane == wanted).map(|(_, value)| *value);
                let returned =
                    self.threads.get(first + wanted).map(|thread| thread.state == ThreadState::Done);
                let value = match (value, returned) {
                    (Some(value), _) => value,
                    (None, Some(true)) => GARBAGE,
                    (None, _) => {
                        let message =
                            format!("line {line}: a shuffle from lane {wanted}, which takes no part");
                        return Err(LaunchError::Undefined(message));
                    }
                };
                self.set(thread, *to, value);
                found.iter().for_each(|found| self.set(thread, *found, 1));
            }
        }
        Ok(())
    }

    fn register(&self, thread: usize, register: usize) -> usize {
        thread * self.entry.registers.len() + register
    }

    fn set(&mut self, thread: usize, register: usize, value: u64) {
        let at = self.register(thread, register);
        self.registers[at] = masked(value, self.entry.registers[register]);
    }

    fn value(&self, thread: usize, source: SourceOperand) -> u64 {
        match source {
            SourceOperand::Register(register) => self.registers[self.register(thread, register)],
            SourceOperand::Constant(value) => value,
            SourceOperand::Special(special, axis) => {
                let [x, y, _] = self.grid.threads.map(|size| size as usize);
                let place = match special {
                    Special::Tid => [thread % x, thread / x % y, thread / x / y][axis] as u32,
                    Special::CtaId => self.group[axis],
                    Special::NTid => self.grid.threads[axis],
                    Special::NCtaId => self.grid.blocks[axis],
                };
                place.into()
            }
        }
    }

    fn step(&mut self, thread: usize, Instruction { op, line, .. }: &Instruction) -> Result<(), LaunchError> {
        match op {
            Op::Move { to, from } => self.set(thread, *to, self.value(thread, *from)),
            Op::Pack { to, from, each } => {
                let parts = from.iter().rev();
                let value = parts.fold(0, |all, part| all << each | masked(self.value(thread, *part), *each));
                self.set(thread, *to, value);
            }
            Op::Unpack { to, from, each } => {
                let value = self.value(thread, *from);
                for (k, to) in to.iter().enumerate() {
                    if let Some(to) = to {
                        self.set(thread, *to, value >> (k as u32 * each));
                    }
                }
            }
            Op::Compute { what, ty, to, from } => {
                let values = from.map(|source| self.value(thread, source));
                let result = match ty {
                    Type::Float(32) => f32_result(*what, values),
                    Type::Float(_) => f64_result(*what, values),
                    _ => integer_result(*what, *ty, values),
                };
                let result = result
                    .ok_or_else(|| LaunchError::Undefined(format!("line {line}: {what:?} of {ty:?}")))?;
                self.set(thread, *to, result);
            }
            Op::Compare { what, also, ty, to, from } => {
                let values = from.map(|source| self.value(thread, source));
                let mut holds = compare(*what, *ty, values);
                if let Some((how, more)) = also {
                    let more = self.value(thread, *more) & 1 == 1;
                    holds = match how {
                        Arithmetic::And => holds && more,
                        Arithmetic::Or => holds || more,
                        _ => holds != more,
                    };
                }
                self.set(thread, *to, holds.into());
            }
            Op::Select { to, from, by } => {
                let chosen = from[usize::from(self.value(thread, *by) & 1 == 0)];
                self.set(thread, *to, self.value(thread, chosen));
            }
            Op::Convert { to, to_ty, from, from_ty, rounding } => {
                let value = convert(self.value(thread, *from), *from_ty, *to_ty, *rounding);
                self.set(thread, *to, value);
            }
            Op::LoadParameter { to, ty, at } => {
                let mut value = 0;
                for k in (0..ty.bytes()).rev() {
                    value = value << 8 | u64::from(self.parameters[at + k]);
                }
                self.set(thread, *to, value);
            }
            Op::Load { to, ty, at } => {
                for (k, to) in to.iter().enumerate() {
                    let place = self.address(thread, at) + (k * ty.bytes()) as u64;
                    let value = self.load(thread, place, ty.bytes()).map_err(|fault| fault.at(*line))?;
                    let value = if ty.is_signed() { extended(value, ty.bits()) as u64 } else { value };
                    self.set(thread, *to, value);
                }
            }
            Op::Store { from, ty, at } => {
                for (k, from) in from.iter().enumerate() {
                    let place = self.address(thread, at) + (k * ty.bytes()) as u64;
                    let value = masked(self.value(thread, *from), ty.bits());
                    self.store(thread, place, ty.bytes(), value).map_err(|fault| fault.at(*line))?;
                }
            }
            Op::Atomic { what, ty, to, at, from } => {
                let place = self.address(thread, at);
                let operands = from.map(|source| masked(self.value(thread, source), ty.bits()));
                let (what, ty) = (*what, *ty);
                let change = move |old: u64| masked(updated(what, ty, old, operands), ty.bits());
                let old = self.update(thread, place, ty.bytes(), change).map_err(|fault| fault.at(*line))?;
                if let Some(to) = to {
                    self.set(thread, *to, old);
                }
            }
            Op::Nothing => {}
            Op::Branch { .. } | Op::Barrier | Op::Shuffle { .. } | Op::Ballot { .. } | Op::Return => {
                unreachable!("these change where the invocation is")
            }
        }
        Ok(())
    }

    fn address(&self, thread: usize, at: &Address) -> u64 {
        self.value(thread, at.base).wrapping_add(at.offset)
    }

    /// Bytes at an address in the memory of the workgroup or the invocation; `None` for a global
    /// address.
    fn own(&mut self, thread: usize, at: u64, bytes: usize) -> Option<Option<&mut [u8]>> {
        if at < SHARED {
            return None;
        }
        let local = self.entry.local;
        let (memory, offset) = match at >= LOCAL {
            true => (&mut self.local[thread * local..(thread + 1) * local], at - LOCAL),
            false => (&mut self.shared[..], at - SHARED),
        };
        let offset = usize::try_from(offset).ok()?;
        Some(memory.get_mut(offset..offset.saturating_add(bytes)))
    }

    fn block(&mut self, at: u64, bytes: usize) -> Result<&Block, LaunchError> {
        if !self.blocks.get(self.last).is_some_and(|block| block.holds(at, bytes as u64)) {
            let found = self.blocks.iter().position(|block| block.holds(at, bytes as u64));
            let missing = || LaunchError::IllegalAddress(format!("{bytes} bytes at {at:#x}"));
            self.last = found.ok_or_else(missing)?;
        }
        Ok(&self.blocks[self.last])
    }

    fn load(&mut self, thread: usize, at: u64, bytes: usize) -> Result<u64, LaunchError> {
        aligned(at, bytes)?;
        match self.own(thread, at, bytes) {
            Some(Some(place)) => Ok(place.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))),
            Some(None) => Err(LaunchError::IllegalAddress(format!("{bytes} bytes at {at:#x}"))),
            None => Ok(self.block(at, bytes)?.load(at, bytes)),
        }
    }

    fn store(&mut self, thread: usize, at: u64, bytes: usize, value: u64) -> Result<(), LaunchError> {
        aligned(at, bytes)?;
        match self.own(thread, at, bytes) {
            Some(Some(place)) => place.copy_from_slice(&value.to_le_bytes()[..bytes]),
            Some(None) => return Err(LaunchError::IllegalAddress(format!("{bytes} bytes at {at:#x}"))),
            None => self.block(at, bytes)?.store(at, bytes, value),
        }
        Ok(())
    }

    fn update(
        &mut self,
        thread: usize,
        at: u64,
        bytes: usize,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, LaunchError> {
        aligned(at, bytes)?;
        if at >= SHARED {
            let old = self.load(thread, at, bytes)?;
            self.store(thread, at, bytes, change(old))?;
            return Ok(old);
        }
        Ok(self.block(at, bytes)?.update(at, bytes, change))
    }
}

fn aligned(at: u64, bytes: usize) -> Result<(), LaunchError> {
    match at.is_multiple_of(bytes as u64) {
        true => Ok(()),
        false => Err(LaunchError::Misaligned(format!("{bytes} bytes at {at:#x}"))),
    }
}

impl LaunchError {
    fn at(self, line: usize) -> LaunchError {
        match self {
            LaunchError::IllegalAddress(what) => LaunchError::IllegalAddress(format!("line {line}: {what}")),
            LaunchError::Misaligned(what) => LaunchError::Misaligned(format!("line {line}: {what}")),
            LaunchError::Undefined(what) => LaunchError::Undefined(format!("line {line}: {what}")),
            LaunchError::Endless => LaunchError::Endless,
            LaunchError::Abandoned => LaunchError::Abandoned,
        }
    }
}

fn updated(what: Update, ty: Type, old: u64, [x, y]: [u64; 2]) -> u64 {
    let below = match ty.is_signed() {
        true => extended(old, ty.bits()) < extended(x, ty.bits()),
        false => old < x,
    };
    match what {
        Update::Add => old.wrapping_add(x),
        Update::Min => {
            if below {
                old
            } else {
                x
            }
        }
        Update::Max => {
            if below {
                x
            } else {
                old
            }
        }
        Update::And => old & x,
        Update::Or => old | x,
        Update::Xor => old ^ x,
        Update::Exchange => x,
        Update::Compare => {
            if old == x {
                y
            } else {
                old
            }
        }
    }
}

/// Bits of a result; a NaN has the bits that devices produce.
fn f32_bits(x: f32) -> u64 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits().into() }
}

fn f64_bits(x: f64) -> u64 {
    if x.is_nan() { 0xfff8_0000_0000_0000 } else { x.to_bits() }
}

macro_rules! float_result {
    ($name:ident, $float:ty, $bits:ident, $word:ty) => {
        fn $name(what: Arithmetic, values: [u64; 4]) -> Option<u64> {
            use Arithmetic::*;
            let [x, y, z, _] = values.map(|bits| <$float>::from_bits(bits as $word));
            let sign = 1 << (<$word>::BITS - 1);
            // Of two zeros the negative is the lower, and a NaN loses against a number.
            let lower = |x: $float, y: $float| x < y || (x == y && x.is_sign_negative());
            Some(match what {
                Add => $bits(x + y),
                Sub => $bits(x - y),
                Mul => $bits(x * y),
                Div => $bits(x / y),
                Fma => $bits(x.mul_add(y, z)),
                Sqrt => $bits(x.sqrt()),
                Reciprocal => $bits(1.0 / x),
                Min => $bits(if x.is_nan() || (!y.is_nan() && lower(y, x)) { y } else { x }),
                Max => $bits(if x.is_nan() || (!y.is_nan() && lower(x, y)) { y } else { x }),
                Neg => (x.to_bits() ^ sign).into(),
                Abs => (x.to_bits() & !sign).into(),
                // The sign of the first operand, the rest of the second.
                Copysign => (y.to_bits() & !sign | x.to_bits() & sign).into(),
                _ => return None,
            })
        }
    };
}
float_result!(f32_result, f32, f32_bits, u32);
float_result!(f64_result, f64, f64_bits, u64);

fn integer_result(what: Arithmetic, ty: Type, values: [u64; 4]) -> Option<u64> {
    use Arithmetic::*;
    let bits = ty.bits();
    let [x, y, z, _] = values.map(|value| masked(value, bits));
    let [sx, sy] = [x, y].map(|value| extended(value, bits));
    let wide = || match ty.is_signed() {
        true => i128::from(sx) * i128::from(sy),
        false => (u128::from(x) * u128::from(y)) as i128,
    };
    Some(match what {
        Add => x.wrapping_add(y),
        Sub => x.wrapping_sub(y),
        Mul => x.wrapping_mul(y),
        MulHigh => (wide() >> bits) as u64,
        MulWide => wide() as u64,
        Mad => x.wrapping_mul(y).wrapping_add(z),
        // The third operand and the sum have twice the bits.
        MadWide => (wide() as u64).wrapping_add(values[2]),
        // Division by zero is allowed, with an unspecified result: NVRTC divides first and selects
        // afterwards. A distinctive value exposes kernels that use it.
        Div | Rem if y == 0 => x ^ 0x5a17_c0de_5a17_c0de,
        Div if ty.is_signed() => sx.wrapping_div(sy) as u64,
        Rem if ty.is_signed() => sx.wrapping_rem(sy) as u64,
        Div => x / y,
        Rem => x % y,
        Min if ty.is_signed() => sx.min(sy) as u64,
        Max if ty.is_signed() => sx.max(sy) as u64,
        Min => x.min(y),
        Max => x.max(y),
        And => x & y,
        Or => x | y,
        Xor => x ^ y,
        Not => !x,
        Neg => x.wrapping_neg(),
        Abs => sx.unsigned_abs(),
        // Shift counts are 32-bit numbers, and those beyond the width act as the width.
        Shl => x.checked_shl(values[1] as u32).filter(|_| (values[1] as u32) < bits).unwrap_or(0),
        Shr if ty.is_signed() => (sx >> (values[1] as u32).min(63)) as u64,
        Shr => x.checked_shr(values[1] as u32).unwrap_or(0),
        Popc => x.count_ones().into(),
        Clz => u64::from(x.leading_zeros() - (64 - bits)),
        Brev => x.reverse_bits() >> (64 - bits),
        Bfi => {
            let (at, count) = (values[2] as u32 & 0xff, values[3] as u32 & 0xff);
            let mask = masked(u64::MAX, count.min(64)).checked_shl(at).unwrap_or(0);
            y & !mask | x.checked_shl(at).unwrap_or(0) & mask
        }
        Bfe => {
            let (at, count) = (y as u32 & 0xff, z as u32 & 0xff);
            if ty.is_signed() || count > bits {
                return None;
            }
            masked(x.checked_shr(at).unwrap_or(0), count)
        }
        Prmt => {
            let bytes = (x | y << 32).to_le_bytes();
            let mut found = [0; 8];
            for (k, byte) in found[..4].iter_mut().enumerate() {
                let choice = z >> (4 * k) & 0xf;
                let chosen = bytes[(choice & 7) as usize];
                *byte = if choice & 8 == 0 { chosen } else { ((chosen as i8) >> 7) as u8 };
            }
            u64::from_le_bytes(found)
        }
        ShfLeft => ((x | y << 32) << (z & 31)) >> 32,
        ShfRight => (x | y << 32) >> (z & 31),
        Fma | Sqrt | Reciprocal | Copysign => return None,
    })
}

fn compare(Comparison { test, unordered }: Comparison, ty: Type, [x, y]: [u64; 2]) -> bool {
    use std::cmp::Ordering::*;
    let order = match ty {
        Type::Float(32) => f32::from_bits(x as u32).partial_cmp(&f32::from_bits(y as u32)),
        Type::Float(_) => f64::from_bits(x).partial_cmp(&f64::from_bits(y)),
        Type::Signed(bits) => Some(extended(x, bits).cmp(&extended(y, bits))),
        Type::Unsigned(bits) | Type::Bits(bits) => Some(masked(x, bits).cmp(&masked(y, bits))),
        Type::Pred => Some((x & 1).cmp(&(y & 1))),
    };
    let Some(order) = order else { return unordered || test == Test::IsNan };
    match test {
        Test::Eq => order == Equal,
        Test::Ne => order != Equal,
        Test::Lt => order == Less,
        Test::Le => order != Greater,
        Test::Gt => order == Greater,
        Test::Ge => order != Less,
        Test::IsNumber => true,
        Test::IsNan => false,
    }
}

fn convert(value: u64, from: Type, to: Type, rounding: Rounding) -> u64 {
    let integer = |x: f64| match rounding {
        Rounding::NearestInteger => x.round_ties_even(),
        Rounding::DownInteger => x.floor(),
        Rounding::UpInteger => x.ceil(),
        Rounding::ZeroInteger => x.trunc(),
        Rounding::None | Rounding::Nearest => x,
    };
    match (from, to) {
        (Type::Float(bits), Type::Float(to_bits)) => {
            let x = if bits == 32 { f32::from_bits(value as u32).into() } else { f64::from_bits(value) };
            if to_bits == 32 { f32_bits(integer(x) as f32) } else { f64_bits(integer(x)) }
        }
        (Type::Float(bits), _) => {
            let x = if bits == 32 { f64::from(f32::from_bits(value as u32)) } else { f64::from_bits(value) };
            let x = integer(x);
            // Casts saturate, as the instruction does; a NaN gives an arbitrary value that nothing
            // must rely on.
            let wide = if x.is_nan() { 0x5a5a_5a5a } else { x as i128 };
            let (low, high) = match to.is_signed() {
                true => (-(1_i128 << (to.bits() - 1)), (1_i128 << (to.bits() - 1)) - 1),
                false => (0, (1_i128 << to.bits()) - 1),
            };
            wide.clamp(low, high) as u64
        }
        (_, Type::Float(to_bits)) => {
            let wide = match from.is_signed() {
                true => i128::from(extended(value, from.bits())),
                false => i128::from(masked(value, from.bits())),
            };
            if to_bits == 32 { f32_bits(wide as f32) } else { f64_bits(wide as f64) }
        }
        (Type::Signed(bits), _) => extended(value, bits) as u64,
        (_, _) => masked(value, from.bits().min(to.bits())),
    }
}
