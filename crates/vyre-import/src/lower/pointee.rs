//! Storage: what pointers refer to, and how it is loaded and stored.
//!
//! A variable without arrays is one program variable per scalar. A variable with arrays, private or
//! workgroup, is one array per kind of scalar, which holds the scalars of a part side by side. A
//! buffer has elements of a single kind if it holds only that, and otherwise consists of 32-bit
//! words that are decoded.

use super::scalar_type::ScalarType;
use super::types::{Component, Counts, MAX_LEAVES};
use super::{Lower, Value};
use crate::fault::{Fault, Result};
use naga::TypeInner;
use vyre_foundation::ir::{AtomicOp, Expr, Name, Node};

/// Where a variable lives.
#[derive(Clone, Debug)]
pub(super) enum Root {
    /// One variable per scalar.
    Variables(Vec<Name>),
    /// The counter of a loop, which replaces the variable; it is only loaded.
    Counter(Expr),
    /// One array per kind of scalar; `None` for kinds that do not occur.
    Arrays(Vec<Option<Name>>),
    /// A buffer.
    Buffer(Buffer),
}

/// A buffer that the host shares.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) name: Name,
    /// Kind of the elements; `None` for words of mixed kinds.
    pub(super) element: Option<ScalarType>,
    /// Kind of the words if kinds are mixed: `U64` if all kinds have 64 bits, otherwise `U32`.
    pub(super) word: ScalarType,
    pub(super) written: bool,
}

impl Buffer {
    /// Size of an element in bytes.
    pub(super) fn unit(&self) -> u32 {
        self.element.unwrap_or(self.word).width()
    }
}

/// A part of a variable.
#[derive(Clone, Debug)]
pub(super) struct Pointee {
    pub(super) root: Root,
    pub(super) inner: TypeInner,
    /// Fixed part of the offset: scalars of each kind, and bytes.
    counts: Counts,
    bytes: u32,
    /// Computed indices.
    moving: Vec<Moving>,
}

#[derive(Clone, Debug)]
struct Moving {
    index: Expr,
    counts: Counts,
    stride: u32,
    /// Number of components to choose from; 0 if unknown.
    limit: u32,
}

/// Index of an element of an array or buffer: a computed part and a fixed part.
#[derive(Clone)]
struct Address {
    moving: Option<Expr>,
    fixed: u32,
}

impl Address {
    /// Index of the element `further` elements on.
    fn index(&self, further: u32) -> Expr {
        let fixed = self.fixed.wrapping_add(further);
        match &self.moving {
            None => Expr::u32(fixed),
            Some(moving) if fixed == 0 => moving.clone(),
            Some(moving) => moving.clone() + Expr::u32(fixed),
        }
    }
}

impl Pointee {
    pub(super) fn new(root: Root, inner: TypeInner) -> Pointee {
        Pointee { root, inner, counts: Counts::default(), bytes: 0, moving: Vec::new() }
    }

    fn is_atomic(&self) -> bool {
        matches!(self.inner, TypeInner::Atomic(_))
    }

    /// The buffer or array that holds the pointee's scalars of this kind.
    pub(super) fn memory(&self, kind: ScalarType) -> Result<Name> {
        let name = match &self.root {
            Root::Arrays(names) => names[kind as usize].clone(),
            Root::Buffer(buffer) => Some(buffer.name.clone()),
            Root::Variables(_) | Root::Counter(_) => None,
        };
        name.ok_or_else(|| Fault::unsupported("an atomic outside of shared memory"))
    }
}

impl<'m> Lower<'m> {
    /// A component of a pointee, by a fixed index.
    pub(super) fn component(&mut self, mut pointee: Pointee, index: u32) -> Result<Pointee> {
        let Component { inner, stride } = self.types.component(&pointee.inner, index)?;
        let is_struct = matches!(pointee.inner, TypeInner::Struct { .. });
        pointee.bytes =
            pointee.bytes.wrapping_add(if is_struct { stride } else { index.wrapping_mul(stride) });
        if !matches!(pointee.root, Root::Buffer(_)) {
            let (step, times) = if is_struct {
                (self.types.counts_before(&pointee.inner, index)?, 1)
            } else {
                (self.types.counts(&inner)?, index)
            };
            for (count, step) in pointee.counts.iter_mut().zip(step) {
                *count = count.wrapping_add(step.wrapping_mul(times));
            }
        }
        pointee.inner = inner;
        Ok(pointee)
    }

    /// A component of a pointee, by a computed index.
    pub(super) fn element(&mut self, mut pointee: Pointee, index: Expr) -> Result<Pointee> {
        if let Expr::Literal(vyre_foundation::ir::Value::U32(index)) = index {
            return self.component(pointee, index);
        }
        let Component { inner, stride } = self.types.component(&pointee.inner, 0)?;
        let in_buffer = matches!(pointee.root, Root::Buffer(_));
        let counts = if in_buffer { Counts::default() } else { self.types.counts(&inner)? };
        let limit = if in_buffer { 0 } else { self.types.count(&pointee.inner)? };
        pointee.moving.push(Moving { index, counts, stride, limit });
        pointee.inner = inner;
        Ok(pointee)
    }

    /// The pointee with indices that can be used any number of times, now or later.
    pub(super) fn shared_pointee(&mut self, mut pointee: Pointee) -> Result<Pointee> {
        for part in &mut pointee.moving {
            part.index = self.shared(part.index.clone())?;
        }
        Ok(pointee)
    }

    /// Index of the pointee's first element in the array for a kind of scalar.
    fn address_of_kind(&mut self, pointee: &Pointee, kind: ScalarType) -> Result<Address> {
        let strides = pointee.moving.iter().map(|part| (part.index.clone(), part.counts[kind as usize]));
        let moving = sum(strides.collect());
        Ok(Address { moving: self.shared_by_leaves(moving, pointee)?, fixed: pointee.counts[kind as usize] })
    }

    /// Index of the pointee's first unit in a buffer.
    fn address_in_units(&mut self, pointee: &Pointee, unit: u32) -> Result<Address> {
        let strides = pointee.moving.iter().map(|part| (part.index.clone(), part.stride / unit));
        let moving = sum(strides.collect());
        Ok(Address { moving: self.shared_by_leaves(moving, pointee)?, fixed: pointee.bytes / unit })
    }

    /// Names the part of an index that every scalar of the pointee needs.
    fn shared_by_leaves(&mut self, value: Option<Expr>, pointee: &Pointee) -> Result<Option<Expr>> {
        match value {
            Some(value) if !matches!(pointee.inner, TypeInner::Scalar(_)) => self.shared(value).map(Some),
            value => Ok(value),
        }
    }

    /// Index of the element that an atomic operates on.
    pub(super) fn atomic_index(&mut self, pointee: &Pointee, kind: ScalarType) -> Result<Expr> {
        let address = match &pointee.root {
            Root::Buffer(buffer) => self.address_in_units(pointee, buffer.unit())?,
            Root::Arrays(_) | Root::Variables(_) | Root::Counter(_) => self.address_of_kind(pointee, kind)?,
        };
        Ok(address.index(0))
    }

    /// Length of the run-time sized array at a pointee.
    pub(super) fn array_length(&mut self, pointee: &Pointee) -> Result<Expr> {
        let (Root::Buffer(buffer), TypeInner::Array { stride, .. }) = (&pointee.root, &pointee.inner) else {
            return Err(Fault::unsupported("the length of something that is not a run-time sized array"));
        };
        let unit = buffer.unit();
        let length = Expr::buf_len(buffer.name.clone());
        let rest = if pointee.bytes == 0 { length } else { length.sat_sub(Expr::u32(pointee.bytes / unit)) };
        Ok(if stride / unit <= 1 { rest } else { rest / Expr::u32(stride / unit) })
    }

    /// Loads the scalars at a pointee.
    pub(super) fn load(&mut self, pointee: &Pointee) -> Result<Vec<Expr>> {
        if pointee.is_atomic() {
            return self.atomic_load(pointee).map(|value| vec![value]);
        }
        match &pointee.root {
            Root::Counter(counter) => Ok(vec![counter.clone()]),
            Root::Variables(names) => {
                let pointee = &self.shared_pointee(pointee.clone())?;
                let first = pointee.counts.iter().sum::<u32>() as usize;
                let count = self.types.kinds(&pointee.inner)?.len();
                (first..first + count).map(|leaf| choose(names, leaf, &pointee.moving)).collect()
            }
            Root::Arrays(names) => self.load_arrays(pointee, names),
            Root::Buffer(Buffer { name, element: Some(kind), .. }) => {
                let leaves = self.types.leaves(&pointee.inner)?;
                let address = self.address_in_units(pointee, kind.width())?;
                Ok(leaves
                    .iter()
                    .map(|(at, _)| Expr::load(name.clone(), address.index(at / kind.width())))
                    .collect())
            }
            Root::Buffer(buffer) if buffer.word == ScalarType::U64 => self.load_long_words(pointee, buffer),
            Root::Buffer(buffer) => self.load_words(pointee, buffer),
        }
    }

    fn load_long_words(&mut self, pointee: &Pointee, buffer: &Buffer) -> Result<Vec<Expr>> {
        let leaves = self.types.leaves(&pointee.inner)?;
        let address = self.address_in_units(pointee, 8)?;
        let load = |(at, kind): (u32, ScalarType)| {
            ScalarType::U64.bits(Expr::load(buffer.name.clone(), address.index(at / 8)), kind)
        };
        Ok(leaves.into_iter().map(load).collect())
    }

    fn load_arrays(&mut self, pointee: &Pointee, names: &[Option<Name>]) -> Result<Vec<Expr>> {
        let mut cursor = Cursor::default();
        let mut leaves = Vec::new();
        for kind in self.types.kinds(&pointee.inner)? {
            let address = cursor.address(self, pointee, kind)?;
            let name = array_of(names, kind)?;
            leaves.push(Expr::load(name, address));
        }
        Ok(leaves)
    }

    fn load_words(&mut self, pointee: &Pointee, buffer: &Buffer) -> Result<Vec<Expr>> {
        let word = |index: Expr| Expr::load(buffer.name.clone(), index);
        let leaves = self.types.leaves(&pointee.inner)?;
        let halves = leaves.iter().any(|(_, kind)| *kind == ScalarType::F16);
        let address = self.address_in_units(pointee, if halves { 2 } else { 4 })?;
        let mut values = Vec::new();
        for (at, kind) in leaves {
            values.push(match kind {
                ScalarType::F16 => {
                    let half = self.shared(address.index(at / 2))?;
                    let at = half.clone() >> Expr::u32(1);
                    let word =
                        if buffer.written { Expr::atomic_load(buffer.name.clone(), at) } else { word(at) };
                    let shift = (half & Expr::u32(1)) << Expr::u32(4);
                    ScalarType::U32.bits(word >> shift, ScalarType::F16)
                }
                ScalarType::Bool | ScalarType::U32 | ScalarType::I32 | ScalarType::F32 => {
                    let index = word_index(&address, at, halves);
                    ScalarType::U32.bits(word(index), kind)
                }
                ScalarType::U64 | ScalarType::I64 | ScalarType::F64 => {
                    let low = self.shared(word_index(&address, at, halves))?;
                    let high = word_index(&address, at + 4, halves);
                    let high = word(high).cast(ScalarType::U64.value()) << Expr::u32(32);
                    ScalarType::U64.bits(word(low).cast(ScalarType::U64.value()) | high, kind)
                }
            });
        }
        Ok(values)
    }

    /// Stores scalars to a pointee. They were evaluated before; those that read what is written
    /// here are named first.
    pub(super) fn store(&mut self, pointee: &Pointee, mut values: Vec<Expr>) -> Result<()> {
        let touched = self.names_of(pointee);
        for name in &touched {
            self.settle(name)?;
        }
        if values.len() > 1 {
            for value in &mut values {
                if touched.iter().any(|name| mentions(value, name)) {
                    *value = self.name_it("t", value.clone())?;
                }
            }
        }
        if pointee.is_atomic() {
            return self.atomic_store(pointee, values);
        }
        match &pointee.root {
            Root::Counter(_) => Err(Fault::unsupported("an assignment to the counter of a loop")),
            Root::Variables(names) => self.store_variables(pointee, names, values),
            Root::Arrays(names) => self.store_arrays(pointee, names, values),
            Root::Buffer(Buffer { name, element: Some(kind), .. }) => {
                let leaves = self.types.leaves(&pointee.inner)?;
                let address = self.address_in_units(pointee, kind.width())?;
                for ((at, _), value) in leaves.into_iter().zip(values) {
                    self.emit(Node::store(name.clone(), address.index(at / kind.width()), value))?;
                }
                Ok(())
            }
            Root::Buffer(buffer) if buffer.word == ScalarType::U64 => {
                let leaves = self.types.leaves(&pointee.inner)?;
                let address = self.address_in_units(pointee, 8)?;
                for ((at, kind), value) in leaves.into_iter().zip(values) {
                    let bits = kind.bits(value, ScalarType::U64);
                    self.emit(Node::store(buffer.name.clone(), address.index(at / 8), bits))?;
                }
                Ok(())
            }
            Root::Buffer(buffer) => self.store_words(pointee, buffer, values),
        }
    }

    /// Variables, arrays or buffers that a store to the pointee can change.
    fn names_of(&self, pointee: &Pointee) -> Vec<Name> {
        match &pointee.root {
            Root::Variables(names) => names.clone(),
            Root::Arrays(names) => names.iter().flatten().cloned().collect(),
            Root::Buffer(buffer) => vec![buffer.name.clone()],
            Root::Counter(_) => Vec::new(),
        }
    }

    fn store_variables(&mut self, pointee: &Pointee, names: &[Name], values: Vec<Expr>) -> Result<()> {
        let pointee = &self.shared_pointee(pointee.clone())?;
        let first = pointee.counts.iter().sum::<u32>() as usize;
        for (leaf, value) in (first..).zip(values) {
            let value = if pointee.moving.is_empty() { value } else { self.shared(value)? };
            for (target, chosen) in targets(leaf, &pointee.moving) {
                let Some(name) = names.get(target) else { continue };
                let value = match chosen {
                    None => value.clone(),
                    Some(chosen) => Expr::select(chosen, value.clone(), Expr::Var(name.clone())),
                };
                self.emit(Node::assign(name.clone(), value))?;
            }
        }
        Ok(())
    }

    fn store_arrays(&mut self, pointee: &Pointee, names: &[Option<Name>], values: Vec<Expr>) -> Result<()> {
        let mut cursor = Cursor::default();
        for (kind, value) in self.types.kinds(&pointee.inner)?.into_iter().zip(values) {
            let address = cursor.address(self, pointee, kind)?;
            self.emit(Node::store(array_of(names, kind)?, address, value))?;
        }
        Ok(())
    }

    fn store_words(&mut self, pointee: &Pointee, buffer: &Buffer, values: Vec<Expr>) -> Result<()> {
        let name = &buffer.name;
        let leaves = self.types.leaves(&pointee.inner)?;
        let halves = leaves.iter().any(|(_, kind)| *kind == ScalarType::F16);
        let address = self.address_in_units(pointee, if halves { 2 } else { 4 })?;
        for ((at, kind), value) in leaves.into_iter().zip(values) {
            match kind {
                // The other half of the word can be written concurrently.
                ScalarType::F16 => {
                    let half = self.shared(address.index(at / 2))?;
                    let index = self.shared(half.clone() >> Expr::u32(1))?;
                    let shift = self.shared((half & Expr::u32(1)) << Expr::u32(4))?;
                    let bits = ScalarType::F16.bits(value, ScalarType::U32) << shift.clone();
                    let keep = !(Expr::u32(0xffff) << shift);
                    let bits = self.shared(bits)?;
                    self.emit(Node::eval(Expr::atomic(AtomicOp::And, name.clone(), index.clone(), keep)))?;
                    self.emit(Node::eval(Expr::atomic(AtomicOp::Or, name.clone(), index, bits)))?;
                }
                ScalarType::Bool | ScalarType::U32 | ScalarType::I32 | ScalarType::F32 => {
                    let index = word_index(&address, at, halves);
                    self.emit(Node::store(name.clone(), index, kind.bits(value, ScalarType::U32)))?;
                }
                ScalarType::U64 | ScalarType::I64 | ScalarType::F64 => {
                    let bits = self.shared(kind.bits(value, ScalarType::U64))?;
                    let (low, high) =
                        (word_index(&address, at, halves), word_index(&address, at + 4, halves));
                    self.emit(Node::store(name.clone(), low, bits.clone().cast(ScalarType::U32.value())))?;
                    let upper = (bits >> Expr::u32(32)).cast(ScalarType::U32.value());
                    self.emit(Node::store(name.clone(), high, upper))?;
                }
            }
        }
        Ok(())
    }

    /// Zeroes a pointee; a large part of an array in a loop.
    pub(super) fn clear(&mut self, pointee: &Pointee) -> Result<()> {
        let counts = match (&pointee.root, self.types.counts(&pointee.inner)) {
            (Root::Arrays(_), Ok(counts)) if counts.iter().sum::<u32>() > 16 => counts,
            _ => {
                let zeros = self.types.kinds(&pointee.inner)?.into_iter().map(ScalarType::zero).collect();
                return self.store(pointee, zeros);
            }
        };
        for name in self.names_of(pointee) {
            self.settle(&name)?;
        }
        for kind in ScalarType::ALL {
            let count = counts[kind as usize];
            if count == 0 {
                continue;
            }
            let name = pointee.memory(kind)?;
            let address = self.address_of_kind(pointee, kind)?;
            let counter = self.fresh("k");
            let index = match address.index(0) {
                Expr::Literal(vyre_foundation::ir::Value::U32(0)) => Expr::Var(counter.clone()),
                start => start + Expr::Var(counter.clone()),
            };
            let body = self.nested(|lower| lower.emit(Node::store(name, index, kind.zero())))?;
            let bounds = [Expr::u32(0), Expr::u32(count), Expr::u32(1)];
            self.code.count(&counter, bounds, body, self.here);
        }
        Ok(())
    }

    /// Declares a variable of a type, zeroed or with these values. Its private arrays are declared
    /// with it.
    pub(super) fn declare(
        &mut self,
        label: &str,
        inner: &TypeInner,
        values: Option<Vec<Expr>>,
    ) -> Result<Root> {
        if self.types.has_array(inner) {
            let root = self.declare_arrays(label, inner)?;
            if let Some(values) = values {
                self.store(&Pointee::new(root.clone(), inner.clone()), values)?;
            }
            return Ok(root);
        }
        let kinds = self.types.kinds(inner)?;
        let labels = self.types.labels(inner);
        let mut names = Vec::new();
        for (leaf, kind) in kinds.into_iter().enumerate() {
            let suffix = labels.get(leaf).map_or("", String::as_str);
            let name = self.fresh(&format!("{label}{suffix}"));
            let value =
                values.as_ref().and_then(|values| values.get(leaf).cloned()).unwrap_or_else(|| kind.zero());
            self.emit(Node::let_(name.clone(), value))?;
            self.mutable.insert(name.clone());
            names.push(name);
        }
        Ok(Root::Variables(names))
    }

    fn declare_arrays(&mut self, label: &str, inner: &TypeInner) -> Result<Root> {
        let counts = self.types.counts(inner)?;
        let several = counts.iter().filter(|count| **count > 0).count() > 1;
        let mut names = vec![None; ScalarType::COUNT];
        for kind in ScalarType::ALL.into_iter().filter(|kind| counts[*kind as usize] > 0) {
            let label = if several { format!("{label}_{}", kind.suffix()) } else { label.into() };
            let name = self.fresh(&label);
            self.emit(Node::array(name.clone(), kind.value(), counts[kind as usize]))?;
            names[kind as usize] = Some(name);
        }
        Ok(Root::Arrays(names))
    }

    /// A component of a value, by a computed index: a select if there are few, an array if there
    /// are many.
    pub(super) fn component_of_value(
        &mut self,
        values: Vec<Expr>,
        inner: &TypeInner,
        index: Expr,
    ) -> Result<Value> {
        let count = self.types.count(inner)? as usize;
        let each = values.len() / count.max(1);
        if count > 16 {
            if values.len() > MAX_LEAVES {
                return Err(Fault::too_large("an array value of this size cannot be indexed"));
            }
            let root = self.declare_arrays("table", inner)?;
            self.store(&Pointee::new(root.clone(), inner.clone()), values)?;
            let pointee = self.element(Pointee::new(root, inner.clone()), index)?;
            return self.load(&pointee).map(Value::Leaves);
        }
        let index = self.shared(index)?;
        let values = self.shared_all(values)?;
        let mut chosen: Vec<Expr> = values[(count - 1) * each..].to_vec();
        for number in (0..count - 1).rev() {
            for (leaf, value) in chosen.iter_mut().enumerate() {
                let is_this = index.clone().equals(Expr::u32(number as u32));
                *value = Expr::select(is_this, values[number * each + leaf].clone(), value.clone());
            }
        }
        Ok(Value::Leaves(chosen))
    }
}

/// Indices of successive scalars of each kind.
#[derive(Default)]
struct Cursor {
    starts: [Option<Address>; ScalarType::COUNT],
    passed: Counts,
}

impl Cursor {
    fn address(&mut self, lower: &mut Lower<'_>, pointee: &Pointee, kind: ScalarType) -> Result<Expr> {
        let start = match &self.starts[kind as usize] {
            Some(start) => start.clone(),
            None => {
                let start = lower.address_of_kind(pointee, kind)?;
                self.starts[kind as usize] = Some(start.clone());
                start
            }
        };
        let passed = &mut self.passed[kind as usize];
        *passed += 1;
        Ok(start.index(*passed - 1))
    }
}

fn array_of(names: &[Option<Name>], kind: ScalarType) -> Result<Name> {
    names[kind as usize]
        .clone()
        .ok_or_else(|| Fault::unsupported("a part of a variable that it does not have"))
}

/// Index of the word that is `at` bytes from an address in words or half-words.
fn word_index(address: &Address, at: u32, halves: bool) -> Expr {
    if !halves {
        return address.index(at / 4);
    }
    match &address.moving {
        None => Expr::u32(address.fixed.wrapping_add(at / 2) / 2),
        Some(_) => address.index(at / 2) >> Expr::u32(1),
    }
}

fn sum(parts: Vec<(Expr, u32)>) -> Option<Expr> {
    let scaled = parts.into_iter().filter(|(_, stride)| *stride > 0).map(|(index, stride)| match stride {
        1 => index,
        stride => index * Expr::u32(stride),
    });
    scaled.reduce(|sum, part| sum + part)
}

/// The scalar of a variable that computed indices select.
fn choose(names: &[Name], leaf: usize, moving: &[Moving]) -> Result<Expr> {
    let mut value: Option<Expr> = None;
    for (target, chosen) in targets(leaf, moving).into_iter().rev() {
        let Some(name) = names.get(target) else { continue };
        let this = Expr::Var(name.clone());
        value = Some(match (value, chosen) {
            (Some(other), Some(chosen)) => Expr::select(chosen, this, other),
            _ => this,
        });
    }
    value.ok_or_else(|| Fault::unsupported("a part of a variable that it does not have"))
}

/// Scalars that computed indices can refer to, each with its condition.
fn targets(leaf: usize, moving: &[Moving]) -> Vec<(usize, Option<Expr>)> {
    let mut targets = vec![(leaf, None)];
    for part in moving {
        let stride = part.counts.iter().sum::<u32>() as usize;
        let mut further = Vec::new();
        for (leaf, chosen) in targets {
            for number in 0..part.limit {
                let is_this = part.index.clone().equals(Expr::u32(number));
                let both = match &chosen {
                    None => is_this,
                    Some(chosen) => Expr::clone(chosen) & is_this,
                };
                further.push((leaf + number as usize * stride, Some(both)));
            }
        }
        targets = further;
    }
    targets
}

/// Whether an expression reads the variable or memory with this name.
pub(super) fn mentions(expr: &Expr, name: &Name) -> bool {
    let here = match expr {
        Expr::Var(read) | Expr::Load(read, _) | Expr::Atomic(_, read, _) => read == name,
        Expr::Literal(_)
        | Expr::Builtin(..)
        | Expr::BufLen(_)
        | Expr::Op(..)
        | Expr::Subgroup(..)
        | Expr::Workgroup(..)
        | Expr::Call(..) => false,
    };
    here || expr.args().iter().any(|arg| mentions(arg, name))
}
