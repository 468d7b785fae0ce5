//! A backend in one file: it walks kernels statement by statement, one invocation after the other.

use std::time::{Duration, Instant};
use vyre_driver::native::{Built, Form, Job, Memory, Native, NativeBackend, NativeDevice};
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, DispatchConfig};
use vyre_foundation::kernel::{Def, Kernel, KernelBody, Place, PrivateArray, Stmt, StmtKind, ValueId};
use vyre_foundation::ops::eval;
use vyre_foundation::optimize::optimize;
use vyre_foundation::types::Value;

const ID: &str = "walker";

/// The backend. A crate submits it to the registry to link it; a runtime also accepts an instance.
pub(crate) struct Walker(pub(crate) Native<Walk>);

impl NativeBackend for Walker {
    type Device = Walk;

    fn native(&self) -> &Native<Walk> {
        &self.0
    }
}

/// Its device: the code of a kernel is the kernel.
pub(crate) struct Walk;

impl NativeDevice for Walk {
    type Code = ();
    type Memory = ();

    fn id(&self) -> &'static str {
        ID
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile {
            device_name: "a walker",
            device_class: DeviceClass::Cpu,
            supports_int64: true,
            supports_f64: true,
            strict_float: true,
            ..DeviceProfile::conservative(ID)
        }
    }

    fn admit(&self, kernel: &Kernel, _config: &DispatchConfig) -> Result<(), BackendError> {
        if kernel.shape_free && !kernel.buffers.iter().any(|buffer| buffer.atomic) {
            return Ok(());
        }
        let name = "atomics, and invocations that know their workgroup".into();
        Err(BackendError::UnsupportedFeature { name, backend: ID.into() })
    }

    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<()>, BackendError> {
        Ok(Built { kernel: optimize(kernel.clone(), &form.passes()), code: (), bytes: 0 })
    }

    fn run(&self, mut job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        for argument in job.arguments.iter_mut() {
            if let Memory::Write(bytes) = &mut argument.memory {
                argument.start.apply(bytes);
            }
        }
        let launch = job.launch;
        let covered = || std::array::from_fn(|axis| launch.grid[axis].saturating_mul(launch.workgroup[axis]));
        let [x, y, z] = launch.limit.unwrap_or_else(covered);
        let kernel = &*job.variant.kernel;
        let mut walk = Invocation {
            kernel,
            deadline: job.config.timeout.map(|limit| (Instant::now() + limit, limit)),
            at: [0; 3],
            values: vec![Value::U32(0); kernel.values.len()],
            locals: vec![Value::U32(0); kernel.locals.len()],
            arrays: vec![Vec::new(); kernel.arrays.len()],
            job: &mut job,
        };
        for number in 0..u64::from(x) * u64::from(y) * u64::from(z) {
            let row = number / u64::from(x);
            walk.at = [number % u64::from(x), row % u64::from(y), row / u64::from(y)].map(|axis| axis as u32);
            walk.block(&kernel.body)?;
        }
        Ok(None)
    }
}

/// Where control goes after a statement.
#[derive(PartialEq)]
enum Flow {
    On,
    Break,
    Continue,
    Return,
}

struct Invocation<'a, 'j, 'm> {
    kernel: &'a KernelBody,
    job: &'a mut Job<'j, 'm, Walk>,
    deadline: Option<(Instant, Duration)>,
    at: [u32; 3],
    values: Vec<Value>,
    locals: Vec<Value>,
    arrays: Vec<Vec<u8>>,
}

impl Invocation<'_, '_, '_> {
    fn block(&mut self, block: &[Stmt]) -> Result<Flow, BackendError> {
        for stmt in block {
            let flow = self.stmt(&stmt.kind)?;
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    fn stmt(&mut self, stmt: &StmtKind) -> Result<Flow, BackendError> {
        match stmt {
            StmtKind::Def(value, def) => self.values[value.index()] = self.define(def),
            StmtKind::Set(local, value) => self.locals[local.index()] = self.get(*value),
            StmtKind::Clear(array) => {
                let PrivateArray { element, count, .. } = &self.kernel.arrays[array.index()];
                self.arrays[array.index()] = vec![0; *count as usize * element.data_type().size()];
            }
            StmtKind::Store { place, index, value, .. } => self.store(*place, *index, self.get(*value)),
            StmtKind::If { condition, then, otherwise } => {
                let holds = self.get(*condition) == Value::Bool(true);
                return self.block(if holds { then } else { otherwise });
            }
            StmtKind::For { counter, from, to, step, body } => {
                let [mut k, to, step] = [*from, *to, *step].map(|id| self.get(id).as_integer().unwrap_or(0));
                let ty = self.kernel.ty(*counter);
                while (step > 0 && k < to) || (step < 0 && k > to) {
                    self.values[counter.index()] = Value::from_bits(ty, k as u64);
                    if let Some(left) = self.round(body)? {
                        return Ok(left);
                    }
                    k += step;
                }
            }
            StmtKind::Loop(body) => loop {
                if let Some(left) = self.round(body)? {
                    return Ok(left);
                }
            },
            StmtKind::Region { body, .. } => return self.block(body),
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
            StmtKind::Return => return Ok(Flow::Return),
            StmtKind::Trap(code) => {
                return Err(BackendError::Trapped { kernel: self.kernel.display_name().into(), code: *code });
            }
            StmtKind::Barrier => unreachable!("such kernels are not admitted"),
        }
        Ok(Flow::On)
    }

    /// Runs an iteration of a loop, unless the time is up; returns where control goes if it leaves
    /// the loop.
    fn round(&mut self, body: &[Stmt]) -> Result<Option<Flow>, BackendError> {
        if let Some((_, limit)) = self.deadline.filter(|(end, _)| Instant::now() >= *end) {
            return Err(BackendError::Timeout { backend: ID.into(), limit });
        }
        Ok(match self.block(body)? {
            Flow::On | Flow::Continue => None,
            Flow::Break => Some(Flow::On),
            Flow::Return => Some(Flow::Return),
        })
    }

    fn get(&self, value: ValueId) -> Value {
        self.values[value.index()]
    }

    fn define(&mut self, def: &Def) -> Value {
        match def {
            Def::Const(value) => *value,
            Def::Get(local) => self.locals[local.index()],
            Def::Op(op, operands) => {
                let operands: Vec<Value> = operands.iter().map(|&operand| self.get(operand)).collect();
                eval(*op, &operands).unwrap_or_else(|| unreachable!("{op:?} was checked on {operands:?}"))
            }
            Def::Load { place, index, .. } => self.load(*place, *index),
            Def::Len(id) => Value::U32(self.job.launch.lengths[id.index()]),
            Def::Builtin(_, axis) => Value::U32(self.at[usize::from(*axis)]),
            Def::Atomic { .. } | Def::Subgroup(..) => unreachable!("such kernels are not admitted"),
        }
    }

    /// The byte range of an element.
    fn range(&self, place: Place, index: ValueId) -> std::ops::Range<usize> {
        let (size, index) = (self.kernel.element(place).size(), self.get(index).as_u32().unwrap_or(u32::MAX));
        index as usize * size..(index as usize + 1) * size
    }

    fn load(&self, place: Place, index: ValueId) -> Value {
        let (element, range) = (self.kernel.element(place), self.range(place, index));
        let bytes = match place {
            Place::Array(array) => &self.arrays[array.index()],
            Place::Buffer(id) => match self.job.argument(id).map(|argument| &argument.memory) {
                Some(Memory::Read(bytes)) => *bytes,
                Some(Memory::Write(bytes)) => &**bytes,
                Some(Memory::Resident(()) | Memory::ResidentMut(())) | None => &[],
            },
        };
        let found = bytes.get(range).and_then(|bytes| element.load(bytes));
        found.unwrap_or(Value::zero(element.value_type()))
    }

    fn store(&mut self, place: Place, index: ValueId, value: Value) {
        let (element, range) = (self.kernel.element(place), self.range(place, index));
        let bytes: &mut [u8] = match place {
            Place::Array(array) => &mut self.arrays[array.index()],
            Place::Buffer(id) => {
                let found = self.job.arguments.iter_mut().find(|argument| argument.buffer == id);
                match found.map(|argument| &mut argument.memory) {
                    Some(Memory::Write(bytes)) => bytes,
                    Some(Memory::Read(_) | Memory::Resident(()) | Memory::ResidentMut(())) | None => &mut [],
                }
            }
        };
        if let Some(bytes) = bytes.get_mut(range) {
            element.store(value, bytes);
        }
    }
}
