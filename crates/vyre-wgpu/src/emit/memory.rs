//! Buffers, workgroup memory and private arrays: words of bits, and the layout of elements in them.

use super::build::{Builder, Expr, scalar};
use super::{Emitter, Global, count, global};
use naga::{
    AddressSpace, ArraySize, AtomicFunction, BinaryOperator, Block, Expression, PredeclaredType, Scalar,
    ScalarKind, Statement, StorageAccess, TypeInner,
};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{ArrayId, BufferId, Place, ValueId};
use vyre_foundation::ops::AtomicOp;
use vyre_foundation::types::{DataType, Value, ValueType};

/// Length up to which a private array is cleared element by element; a loop clears longer ones.
/// Chosen to keep the shader short, not measured.
const CLEARED_AT_ONCE: u32 = 16;

/// Where a buffer's elements are.
#[derive(Clone, Copy)]
pub(super) enum ElementStorage {
    /// In its own memory: words of this type.
    Words { base: Expr, word: Scalar },
    /// In the parameters, starting at this word.
    Packed(u32),
}

/// An element that a statement accesses.
#[derive(Clone, Copy)]
pub(super) struct Element {
    place: Place,
    index: Expr,
    range: Range,
}

/// Whether an index is in range, as far as known at compile time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Range {
    Inside,
    Outside,
    Unknown,
}

impl Emitter<'_> {
    pub(super) fn declare_memory(&mut self) {
        for (number, buffer) in self.kernel.buffers.iter().enumerate() {
            let id = BufferId(number as u32);
            let packed = self.layout.packed.iter().find(|(packed, _)| *packed == id);
            let storage = match packed {
                Some((_, word)) => ElementStorage::Packed(*word),
                None => self.declare_words(id),
            };
            debug_assert!(!buffer.stored || buffer.decl.access.is_writable(), "validation checked stores");
            self.storages.push(storage);
        }
        for array in &self.kernel.arrays {
            let base = self.build.ty(TypeInner::Scalar(private_scalar(array.element)));
            let stride = u32::from(private_scalar(array.element).width);
            let ty = self.build.ty(TypeInner::Array {
                base,
                size: ArraySize::Constant(count(array.count)),
                stride,
            });
            let variable = self.build.variable(Some(&array.name), ty);
            self.arrays.push(variable);
        }
    }

    fn declare_words(&mut self, id: BufferId) -> ElementStorage {
        let buffer = self.kernel.buffer(id);
        let element = buffer.decl.element;
        let atomic = buffer.atomic || (buffer.stored && element.size() < 4);
        let width = element.size().max(4) as u8;
        let signed = buffer.atomic && element.value_type().is_signed_integer();
        let word = Scalar { kind: if signed { ScalarKind::Sint } else { ScalarKind::Uint }, width };
        let base = self.build.ty(if atomic { TypeInner::Atomic(word) } else { TypeInner::Scalar(word) });
        let binding =
            self.layout.bindings.iter().position(|bound| *bound == id).map(|position| 1 + position as u32);
        let (space, size) = if buffer.decl.access == Access::Workgroup {
            (AddressSpace::WorkGroup, ArraySize::Constant(count(words_of(element, buffer.decl.count))))
        } else {
            let access =
                if buffer.stored { StorageAccess::LOAD | StorageAccess::STORE } else { StorageAccess::LOAD };
            (AddressSpace::Storage { access }, ArraySize::Dynamic)
        };
        let ty = self.build.ty(TypeInner::Array { base, size, stride: width.into() });
        let base = global(&mut self.build, Global { name: &buffer.decl.name, space, binding, ty });
        ElementStorage::Words { base, word }
    }

    /// Zeroes workgroup memory, each invocation its share, and waits at a barrier.
    pub(super) fn clear_shared(&mut self) {
        let invocations: u32 = self.form.workgroup.iter().product();
        let mut cleared = false;
        for (number, buffer) in self.kernel.buffers.iter().enumerate() {
            let used = buffer.loaded || buffer.stored;
            if buffer.decl.access != Access::Workgroup || !used {
                continue;
            }
            let ElementStorage::Words { base, word } = self.storages[number] else {
                unreachable!("workgroup memory is not packed into the parameters")
            };
            let words = words_of(buffer.decl.element, buffer.decl.count);
            let ty = self.build.ty(TypeInner::Scalar(word));
            let zero = self.build.name(Expression::ZeroValue(ty));
            self.clear_words([base, zero], self.ids.linear, [words, invocations]);
            cleared = true;
        }
        if cleared {
            self.build.push(Statement::ControlBarrier(naga::Barrier::WORK_GROUP));
        }
    }

    /// Stores zero at `start` and at every `stride`th word after it.
    fn clear_words(&mut self, [base, zero]: [Expr; 2], start: Expr, [words, stride]: [u32; 2]) {
        let words = self.build.u32(words);
        let at = self.build.value_ty(ValueType::U32);
        let at = self.build.variable(Some("at"), at);
        self.build.store(at, start);
        self.repeated(
            |this| {
                let index = this.build.load(at);
                let inside = this.build.binary(BinaryOperator::Less, index, words);
                this.break_unless(inside);
                let pointer = this.build.element(base, index);
                this.build.store(pointer, zero);
            },
            |this| {
                let index = this.build.load(at);
                let next = this.build.with_u32(BinaryOperator::Add, index, stride);
                this.build.store(at, next);
            },
        );
    }

    pub(super) fn clear_array(&mut self, id: ArrayId) {
        let array = &self.kernel.arrays[id.index()];
        let base = self.arrays[id.index()];
        let zero = self.constant(Value::zero(private_type(array.element)));
        if array.count > CLEARED_AT_ONCE {
            let start = self.build.u32(0);
            return self.clear_words([base, zero], start, [array.count, 1]);
        }
        for k in 0..array.count {
            let pointer = self.build.component(base, k);
            self.build.store(pointer, zero);
        }
    }

    /// Number of elements in the buffer.
    pub(super) fn length(&mut self, id: BufferId) -> Expr {
        let parameter = self.layout.lengths.iter().find(|(buffer, _)| *buffer == id).map(|(_, word)| *word);
        match parameter {
            Some(word) => self.parameter(word),
            None => self.build.u32(self.kernel.buffer(id).decl.count),
        }
    }

    fn place_length(&mut self, place: Place) -> Expr {
        match place {
            Place::Buffer(id) => self.length(id),
            Place::Array(id) => self.build.u32(self.kernel.arrays[id.index()].count),
        }
    }

    /// The element at an index. Naga rejects literal indices outside fixed-size memory, so those
    /// are detected here.
    pub(super) fn at(&mut self, place: Place, index: ValueId, in_bounds: bool) -> Element {
        let fixed = match place {
            Place::Buffer(id) => self.kernel.buffer(id).decl.count,
            Place::Array(id) => self.kernel.arrays[id.index()].count,
        };
        let range = match self.constants[index.index()].and_then(Value::as_u32) {
            Some(index) if fixed > 0 && index >= fixed => Range::Outside,
            Some(_) if fixed > 0 => Range::Inside,
            Some(_) | None if in_bounds => Range::Inside,
            Some(_) | None => Range::Unknown,
        };
        Element { place, index: self.value(index), range }
    }

    fn is_inside(&mut self, at: Element) -> Expr {
        let length = self.place_length(at.place);
        self.build.binary(BinaryOperator::Less, at.index, length)
    }

    /// Runs `build` under the condition that the element exists.
    fn where_inside(&mut self, at: Element, build: impl FnOnce(&mut Self)) {
        match at.range {
            Range::Inside => build(self),
            Range::Outside => {}
            Range::Unknown => {
                let condition = self.is_inside(at);
                let accept = self.nested(build);
                self.build.push(Statement::If { condition, accept, reject: Block::new() });
            }
        }
    }

    pub(super) fn load_element(&mut self, at: Element) -> Expr {
        let element = self.kernel.element(at.place);
        let bits = match at.range {
            Range::Inside => self.load_bits(at.place, at.index),
            Range::Outside => return self.constant(Value::zero(element.value_type())),
            Range::Unknown => {
                let inside = self.is_inside(at);
                let first = self.build.u32(0);
                let index = self.build.select(inside, at.index, first);
                let bits = self.load_bits(at.place, index);
                let zero = match at.place {
                    Place::Array(_) => self.constant(Value::zero(private_type(element.value_type()))),
                    Place::Buffer(_) => {
                        self.zero_bits(if element.size() == 8 { ValueType::U64 } else { ValueType::U32 })
                    }
                };
                self.build.select(inside, bits, zero)
            }
        };
        self.decode(at.place, bits)
    }

    /// The element's bits, zero-extended; for a private array, its value (a `bool` as a number).
    fn load_bits(&mut self, place: Place, index: Expr) -> Expr {
        let id = match place {
            Place::Array(id) => {
                let pointer = self.build.element(self.arrays[id.index()], index);
                return self.build.load(pointer);
            }
            Place::Buffer(id) => id,
        };
        let element = self.kernel.buffer(id).decl.element;
        match element.size() {
            8 => self.load_wide(id, index),
            4 => self.load_word(id, index),
            size => {
                let at = Narrow::new(&mut self.build, size as u32, index);
                let word = self.load_word(id, at.word);
                let shifted = self.build.binary(BinaryOperator::ShiftRight, word, at.shift);
                self.build.with_u32(BinaryOperator::And, shifted, at.mask)
            }
        }
    }

    fn load_word(&mut self, id: BufferId, index: Expr) -> Expr {
        match self.storages[id.index()] {
            ElementStorage::Words { base, word } => {
                let pointer = self.build.element(base, index);
                let loaded = self.build.load(pointer);
                if word.kind == ScalarKind::Sint {
                    self.build.bitcast(loaded, ScalarKind::Uint)
                } else {
                    loaded
                }
            }
            ElementStorage::Packed(start) => {
                let word = self.build.with_u32(BinaryOperator::Add, index, start);
                let quad = self.build.with_u32(BinaryOperator::ShiftRight, word, 2);
                let lane = self.build.with_u32(BinaryOperator::And, word, 3);
                let quad = self.build.element(self.parameters, quad);
                let pointer = self.build.element(quad, lane);
                let loaded = self.build.load(pointer);
                self.not_inlined(loaded)
            }
        }
    }

    fn load_wide(&mut self, id: BufferId, index: Expr) -> Expr {
        if let ElementStorage::Words { .. } = self.storages[id.index()] {
            return self.load_word(id, index);
        }
        let low = self.build.with_u32(BinaryOperator::Multiply, index, 2);
        let high = self.build.with_u32(BinaryOperator::Add, low, 1);
        let [low, high] = [low, high].map(|word| self.load_word(id, word));
        self.joined(low, high)
    }

    /// Joins two words into one of 64 bits.
    pub(super) fn joined(&mut self, low: Expr, high: Expr) -> Expr {
        let [low, high] = [low, high].map(|half| self.build.convert(half, ValueType::U64));
        let high = self.build.with_u32(BinaryOperator::ShiftLeft, high, 32);
        self.build.binary(BinaryOperator::InclusiveOr, high, low)
    }

    /// Decodes a value from its bits.
    fn decode(&mut self, place: Place, bits: Expr) -> Expr {
        let element = self.kernel.element(place);
        if let Place::Array(_) = place {
            let is_bool = element == DataType::Bool;
            return if is_bool { self.build.with_u32(BinaryOperator::NotEqual, bits, 0) } else { bits };
        }
        match element {
            DataType::Bool => self.build.with_u32(BinaryOperator::NotEqual, bits, 0),
            DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64 => bits,
            DataType::I8 => self.extended(bits, 24),
            DataType::I16 => self.extended(bits, 16),
            DataType::I32 | DataType::I64 => self.build.bitcast(bits, ScalarKind::Sint),
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are stored as their bits"),
            DataType::F32 | DataType::F64 => self.build.bitcast(bits, ScalarKind::Float),
        }
    }

    /// Sign-extends the low bits; the `spare` bits above them are ignored.
    fn extended(&mut self, bits: Expr, spare: u32) -> Expr {
        let top = self.build.with_u32(BinaryOperator::ShiftLeft, bits, spare);
        let top = self.build.bitcast(top, ScalarKind::Sint);
        self.build.with_u32(BinaryOperator::ShiftRight, top, spare)
    }

    /// Bits that a store leaves in memory; narrow ones are not yet masked to their width.
    fn encode(&mut self, element: DataType, value: Expr) -> Expr {
        match element {
            DataType::Bool => {
                let [no, yes] = [0, 1].map(|bit| self.build.u32(bit));
                self.build.select(value, yes, no)
            }
            DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64 => value,
            DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64 => {
                self.build.bitcast(value, ScalarKind::Uint)
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are stored as their bits"),
            DataType::F32 => self.canonical_bits(value, ValueType::F32),
            DataType::F64 => self.canonical_bits(value, ValueType::F64),
        }
    }

    pub(super) fn store_element(&mut self, at: Element, value: Expr) {
        self.where_inside(at, |this| this.store_inside(at.place, at.index, value));
    }

    fn store_inside(&mut self, place: Place, index: Expr, value: Expr) {
        let element = self.kernel.element(place);
        let id = match place {
            Place::Array(id) => {
                let value = if element == DataType::Bool { self.encode(element, value) } else { value };
                let pointer = self.build.element(self.arrays[id.index()], index);
                return self.build.store(pointer, value);
            }
            Place::Buffer(id) => id,
        };
        let ElementStorage::Words { base, word } = self.storages[id.index()] else {
            unreachable!("a buffer that is stored to is not packed into the parameters")
        };
        let bits = self.encode(element, value);
        if element.size() >= 4 {
            let signed = word.kind == ScalarKind::Sint;
            let bits = if signed { self.build.bitcast(bits, ScalarKind::Sint) } else { bits };
            let pointer = self.build.element(base, index);
            return self.build.store(pointer, bits);
        }
        // Clear the old bits, then set the new ones: other invocations can change other bits of the
        // word in between.
        let at = Narrow::new(&mut self.build, element.size() as u32, index);
        let bits = self.build.with_u32(BinaryOperator::And, bits, at.mask);
        let bits = self.build.binary(BinaryOperator::ShiftLeft, bits, at.shift);
        let mask = self.build.u32(at.mask);
        let mask = self.build.binary(BinaryOperator::ShiftLeft, mask, at.shift);
        let others = self.build.unary(naga::UnaryOperator::BitwiseNot, mask);
        let pointer = self.build.element(base, at.word);
        for (fun, value) in [(AtomicFunction::And, others), (AtomicFunction::InclusiveOr, bits)] {
            let ty = self.build.value_ty(ValueType::U32);
            let result = Some(self.build.name(Expression::AtomicResult { ty, comparison: false }));
            self.build.push(Statement::Atomic { pointer, fun, value, result });
        }
    }

    /// An atomic update; returns the old value, or zero if the index is out of range.
    pub(super) fn atomic(&mut self, op: AtomicOp, buffer: BufferId, at: Element, operands: &[Expr]) -> Expr {
        if at.range == Range::Inside {
            return self.atomic_inside(op, buffer, at.index, operands);
        }
        let value = self.kernel.buffer(buffer).decl.element.value_type();
        let ty = self.build.value_ty(value);
        let old = self.build.variable(Some("old"), ty);
        let zero = self.build.constant(Value::zero(value));
        self.build.store(old, zero);
        self.where_inside(at, |this| {
            let found = this.atomic_inside(op, buffer, at.index, operands);
            this.build.store(old, found);
        });
        self.build.load(old)
    }

    fn atomic_inside(&mut self, op: AtomicOp, buffer: BufferId, index: Expr, operands: &[Expr]) -> Expr {
        let ElementStorage::Words { base, word } = self.storages[buffer.index()] else {
            unreachable!("a buffer that is updated is not packed into the parameters")
        };
        let pointer = self.build.element(base, index);
        if op == AtomicOp::Load {
            return self.build.load(pointer);
        }
        let (mut value, mut comparison) = (operands[0], false);
        let fun = match op {
            AtomicOp::Add => AtomicFunction::Add,
            AtomicOp::Min => AtomicFunction::Min,
            AtomicOp::Max => AtomicFunction::Max,
            AtomicOp::And => AtomicFunction::And,
            AtomicOp::Or => AtomicFunction::InclusiveOr,
            AtomicOp::Xor => AtomicFunction::ExclusiveOr,
            AtomicOp::Exchange | AtomicOp::Store => AtomicFunction::Exchange { compare: None },
            AtomicOp::Load => unreachable!("a load was made above"),
            AtomicOp::CompareExchange => {
                (value, comparison) = (operands[1], true);
                AtomicFunction::Exchange { compare: Some(operands[0]) }
            }
        };
        let ty = if comparison {
            self.build
                .module
                .generate_predeclared_type(PredeclaredType::AtomicCompareExchangeWeakResult(word))
        } else {
            self.build.ty(TypeInner::Scalar(word))
        };
        let result = self.build.name(Expression::AtomicResult { ty, comparison });
        self.build.push(Statement::Atomic { pointer, fun, value, result: Some(result) });
        if comparison { self.build.component(result, 0) } else { result }
    }
}

/// Position of an element of one or two bytes.
struct Narrow {
    word: Expr,
    shift: Expr,
    mask: u32,
}

impl Narrow {
    fn new(build: &mut Builder, size: u32, index: Expr) -> Narrow {
        let per_word = 4 / size;
        let word = build.with_u32(BinaryOperator::ShiftRight, index, per_word.trailing_zeros());
        let lane = build.with_u32(BinaryOperator::And, index, per_word - 1);
        let shift = build.with_u32(BinaryOperator::ShiftLeft, lane, (8 * size).trailing_zeros());
        Narrow { word, shift, mask: (1 << (8 * size)) - 1 }
    }
}

/// Number of words that hold this many elements.
fn words_of(element: DataType, elements: u32) -> u32 {
    if element.size() >= 4 { elements } else { elements.div_ceil(4 / element.size() as u32) }
}

/// Type of a private array's elements: private arrays hold values, with a `bool` as a number.
fn private_type(element: ValueType) -> ValueType {
    if element == ValueType::Bool { ValueType::U32 } else { element }
}

fn private_scalar(element: ValueType) -> Scalar {
    scalar(private_type(element))
}
