//! Typed calls: the kernels made by `#[vyre::kernel]` and `include_kernel!`, and how they find
//! their routines.
//!
//! A kernel is a static: wire bytes validated when the crate was compiled, or text where rustc knew
//! constants that the macro did not. A runtime loads it on its first call and keeps it; from then
//! on a call finds it with two array accesses, without a lock.

use crate::argument::{Argument, Bound, Element, ElementKind};
use crate::call::Call;
use crate::op_routine::OpRoutine;
use crate::report::Report;
use crate::resident::{Resident, ResidentCell};
use crate::routine::Routine;
use crate::runtime::Runtime;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use vyre_driver::BackendError;
use vyre_foundation::ir::{self, DataType, Expr, Name, Program, rewrite_block, rewrite_expr};
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::text::{self, Constants};
use vyre_foundation::wire;

/// A kernel embedded in the program.
#[doc(hidden)]
pub struct EmbeddedKernel {
    source: EmbeddedSource,
    functions: Functions,
    id: AtomicUsize,
}

/// The functions called, each under its name in the caller's text.
type Functions = &'static [(&'static str, &'static EmbeddedFunction)];

/// A constant's name and value.
type NamedConstant = (&'static str, Constant);

/// The embedded form of a kernel or function.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq)]
pub enum EmbeddedSource {
    Wire(&'static [u8]),
    /// A text, with the values of constants declared outside it.
    Text(&'static str, &'static [NamedConstant]),
}

macro_rules! constants {
    ($($name:ident $ty:ident,)*; as_text $($float:ident $float_ty:ident,)*) => {
        /// The value of a constant.
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Constant { $($name($ty),)* $($float($float_ty),)* }

        impl Constant {
            /// Adds the value to the constants; the parser refuses one that does not fit the text's
            /// type.
            fn set(self, constants: Constants, name: &str) -> Constants {
                match self {
                    $(Constant::$name(value) => constants.set(name, value),)*
                    $(Constant::$float(value) => constants.set(name, format!("{value:?}")),)*
                }
            }
        }
    };
}

constants! {
    Bool bool, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, Usize usize,;
    as_text F32 f32, F64 f64,
}

/// A function with `#[vyre::function]`.
#[doc(hidden)]
pub struct EmbeddedFunction {
    /// The function's path.
    pub name: &'static str,
    pub source: EmbeddedSource,
    pub functions: Functions,
}

/// Implemented for functions with `#[vyre::function]`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function that kernels can call",
    note = "declare it with `#[vyre::function]`"
)]
pub trait KernelFunction {
    const FUNCTION: &'static EmbeddedFunction;
}

/// The kernel of a generic function for a choice of types.
#[doc(hidden)]
#[diagnostic::on_unimplemented(message = "the kernel `{Self}` does not exist for the types `{Types}`")]
pub trait Instance<Types> {
    fn kernel() -> &'static EmbeddedKernel;
}

impl EmbeddedKernel {
    pub const fn new(source: EmbeddedSource, functions: Functions) -> EmbeddedKernel {
        EmbeddedKernel { source, functions, id: AtomicUsize::new(0) }
    }

    /// The program, linked with the functions that it calls, with these values of its const
    /// parameters.
    pub fn program(&self, constants: &[NamedConstant]) -> Result<Program, BackendError> {
        let program = self.source.program(constants)?;
        if self.functions.is_empty() {
            return Ok(program);
        }
        let mut linker = Linker::default();
        let names = linker.names(self.functions)?;
        let entry = rewrite_block(program.entry().clone(), &mut |node| vec![node], &mut |expr| {
            linker.linked(expr, &names)
        });
        let mut linked = Program::new(program.buffers().to_vec(), program.workgroup_size(), entry.into_vec())
            .with_domain(program.domain().clone())
            .with_functions(linker.functions.into_iter().map(|(_, function)| function).collect());
        if let Some(name) = program.name() {
            linked = linked.with_name(name.clone());
        }
        Ok(linked)
    }

    /// A number unique to the kernel in this process, from 1.
    fn id(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        match self.id.load(Ordering::Relaxed) {
            0 => {
                let new = NEXT.fetch_add(1, Ordering::Relaxed);
                self.id
                    .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|id| id, |_| new)
            }
            id => id,
        }
    }
}

impl EmbeddedSource {
    fn program(&self, constants: &[NamedConstant]) -> Result<Program, BackendError> {
        match self {
            EmbeddedSource::Wire(bytes) => {
                wire::decode(bytes).map_err(|error| BackendError::new(error.to_string()))
            }
            EmbeddedSource::Text(source, outer) => {
                let rows = outer.iter().chain(constants);
                let set = rows.fold(Constants::new(), |set, (name, value)| value.set(set, name));
                Ok(text::parse_with(source, &set)?)
            }
        }
    }
}

/// The functions of a program under construction. Functions nested in function bodies can share a
/// path, so two of the same path are kept distinct.
#[derive(Default)]
struct Linker {
    functions: Vec<(&'static EmbeddedFunction, ir::Function)>,
}

impl Linker {
    /// The linked name for each of the caller's names.
    fn names(&mut self, functions: Functions) -> Result<Vec<(&'static str, Name)>, BackendError> {
        functions.iter().map(|(name, function)| Ok((*name, self.add(function)?))).collect()
    }

    fn add(&mut self, function: &'static EmbeddedFunction) -> Result<Name, BackendError> {
        let same = |other: &EmbeddedFunction| other.name == function.name && other.source == function.source;
        if let Some((_, linked)) = self.functions.iter().find(|(other, _)| same(other)) {
            return Ok(linked.name.clone());
        }
        let names = self.names(function.functions)?;
        let program = function.source.program(&[])?;
        let Some(mut linked) = program.functions().first().cloned() else {
            return Err(BackendError::new(format!(
                "the function `{}` of a kernel was not compiled",
                function.name
            )));
        };
        let taken = self.functions.iter().filter(|(other, _)| other.name == function.name).count();
        linked.name =
            if taken == 0 { function.name.into() } else { format!("{}'{taken}", function.name).into() };
        linked.body =
            rewrite_block(linked.body, &mut |node| vec![node], &mut |expr| self.linked(expr, &names));
        linked.value = rewrite_expr(linked.value, &mut |expr| self.linked(expr, &names));
        let name = linked.name.clone();
        self.functions.push((function, linked));
        Ok(name)
    }

    /// A call by the function's linked name, with literals cast to the parameter types.
    fn linked(&self, expr: Expr, names: &[(&'static str, Name)]) -> Expr {
        let Expr::Call(local, arguments) = expr else { return expr };
        let Some((_, name)) = names.iter().find(|(name, _)| *name == &*local) else {
            return Expr::Call(local, arguments);
        };
        let function = self.functions.iter().find(|(_, function)| function.name == *name);
        let types = function.map(|(_, function)| function.params.as_slice()).unwrap_or_default();
        let arguments: Vec<Expr> = arguments
            .into_vec()
            .into_iter()
            .enumerate()
            .map(|(at, argument)| match (argument, types.get(at)) {
                (Expr::Literal(value), Some((_, ty))) if value.ty() != *ty => {
                    Expr::Literal(eval(Op::cast(*ty), &[value]).unwrap_or(value))
                }
                (argument, _) => argument,
            })
            .collect();
        Expr::Call(name.clone(), arguments.into())
    }
}

/// Kernels and ops loaded by a runtime: a list per id, one item per key.
#[derive(Default)]
pub(crate) struct LoadedKernels {
    /// Each chunk is twice as long as the one before, so that none moves.
    chunks: [OnceLock<Box<[LoadedCell]>>; CHUNKS],
}

/// Together with the first length this makes room for almost 2^29 ids.
const CHUNKS: usize = 24;
/// The length of the first chunk, as an exponent of two.
const FIRST: usize = 5;
/// Maximum sizes at which an op is kept; at others each call loads it. It bounds what a caller that
/// sweeps sizes keeps; chosen, not measured.
const KEPT: usize = 64;

type LoadedCell = OnceLock<Box<LoadedEntry>>;

/// Distinguishes the items of one id.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum LoadedKey {
    Constants(&'static [NamedConstant]),
    Sizes([u32; 2]),
}

struct LoadedEntry {
    key: LoadedKey,
    item: Item,
    next: LoadedCell,
}

enum Item {
    EmbeddedKernel(Routine),
    Op(OpRoutine),
}

impl LoadedKernels {
    fn cell(&self, id: usize) -> Result<&LoadedCell, BackendError> {
        let place = id - 1 + (1 << FIRST);
        let chunk = place.ilog2() as usize - FIRST;
        let length = 1 << (chunk + FIRST);
        let found = self.chunks.get(chunk).and_then(|chunk| {
            chunk.get_or_init(|| (0..length).map(|_| LoadedCell::new()).collect()).get(place - length)
        });
        found.ok_or_else(|| BackendError::new("a process has at most half a billion kernels".to_string()))
    }

    /// The item of this kernel and key, and the number of the kernel's items before it.
    fn find(&self, kernel: &EmbeddedKernel, key: LoadedKey) -> Result<(Option<&Item>, usize), BackendError> {
        let mut cell = self.cell(kernel.id())?;
        let mut before = 0;
        while let Some(entry) = cell.get() {
            if entry.key == key {
                return Ok((Some(&entry.item), before));
            }
            (cell, before) = (&entry.next, before + 1);
        }
        Ok((None, before))
    }

    /// Keeps an item, unless another with its key came first; returns the one that is kept.
    fn keep(&self, kernel: &EmbeddedKernel, key: LoadedKey, item: Item) -> Result<&Item, BackendError> {
        let mut cell = self.cell(kernel.id())?;
        let mut entry = Some(Box::new(LoadedEntry { key, item, next: LoadedCell::new() }));
        loop {
            match cell.get() {
                Some(found) if found.key == key => return Ok(&found.item),
                Some(found) => cell = &found.next,
                None => entry = entry.and_then(|entry| cell.set(entry).err()),
            }
        }
    }
}

impl Runtime {
    /// The routine of a kernel, loaded once.
    fn routine_of(
        &self,
        kernel: &EmbeddedKernel,
        constants: &'static [NamedConstant],
    ) -> Result<&Routine, BackendError> {
        let key = LoadedKey::Constants(constants);
        let item = match self.loaded().find(kernel, key)?.0 {
            Some(item) => item,
            None => {
                let routine = self.load(kernel.program(constants)?)?;
                self.loaded().keep(kernel, key, Item::EmbeddedKernel(routine))?
            }
        };
        match item {
            Item::EmbeddedKernel(routine) => Ok(routine),
            Item::Op(_) => Err(BackendError::new("a kernel has the place of an op".to_string())),
        }
    }

    /// The routine of an op at these sizes, loaded once. `op` only identifies the op, and holds no
    /// code.
    pub(crate) fn op_of(
        &self,
        op: &EmbeddedKernel,
        sizes: [u32; 2],
        load: impl FnOnce() -> Result<OpRoutine, BackendError>,
    ) -> Result<OpRoutine, BackendError> {
        let key = LoadedKey::Sizes(sizes);
        let (found, before) = self.loaded().find(op, key)?;
        if let Some(Item::Op(routine)) = found {
            return Ok(routine.clone());
        }
        let routine = load()?;
        if before < KEPT {
            self.loaded().keep(op, key, Item::Op(routine.clone()))?;
        }
        Ok(routine)
    }
}

/// A call of a kernel that was compiled into the program, with everything bound. Made by calling a
/// function with [`#[vyre::kernel]`](macro@crate::kernel).
#[must_use = "a call does nothing until it is run"]
pub struct KernelCall<'a, const ARGUMENTS: usize> {
    kernel: &'static EmbeddedKernel,
    constants: &'static [NamedConstant],
    arguments: [Argument<'a>; ARGUMENTS],
}

impl<'a, const ARGUMENTS: usize> KernelCall<'a, ARGUMENTS> {
    #[doc(hidden)]
    #[inline]
    pub fn new(
        kernel: &'static EmbeddedKernel,
        constants: &'static [NamedConstant],
        arguments: [Argument<'a>; ARGUMENTS],
    ) -> KernelCall<'a, ARGUMENTS> {
        KernelCall { kernel, constants, arguments }
    }

    /// Runs the call and waits for it.
    #[inline]
    pub fn run(self, runtime: &Runtime) -> Result<Report, BackendError> {
        let routine = runtime.routine_of(self.kernel, self.constants)?;
        let mut call = routine.call();
        self.bind_to(&mut call);
        call.run()
    }

    /// Binds the arguments, which are in the order of the buffers.
    #[inline]
    fn bind_to<'r>(self, call: &mut Call<'r>)
    where
        'a: 'r,
    {
        self.arguments
            .into_iter()
            .enumerate()
            .for_each(|(position, argument)| call.take_at(position, argument));
    }

    /// The call on a runtime, for setting options before it runs or for adding it to a
    /// [`Sequence`](crate::Sequence).
    #[inline]
    pub fn on<'r>(self, runtime: &'r Runtime) -> Result<Call<'r>, BackendError>
    where
        'a: 'r,
    {
        let mut call = runtime.routine_of(self.kernel, self.constants)?.call();
        self.bind_to(&mut call);
        Ok(call)
    }
}

/// A number that can be bound to a scalar parameter.
#[doc(hidden)]
pub trait Uniform: Copy {
    fn argument(self) -> Argument<'static>;
}

/// The closed set of types that kernels can be generic over.
macro_rules! numbers {
    ($($ty:ident $place:literal)*; floats $($float:ident)*; integers $($integer:ident)*; uniforms $($uniform:ident)*) => {
        $(impl Number for $ty {
            const PLACE: usize = $place;
        })*
        $(impl Float for $float {})*
        $(impl Integer for $integer {})*
        $(impl Uniform for $uniform {
            #[inline]
            fn argument(self) -> Argument<'static> {
                self.into()
            }
        })*
    };
}

/// The numbers that a kernel computes with. As a bound on a kernel's type parameter, it makes one
/// kernel for each of `u32`, `i32`, `u64`, `i64`, `f32` and `f64`.
pub trait Number: Element + Pod + Uniform {
    /// The index among the number types.
    #[doc(hidden)]
    const PLACE: usize;
}

/// The floats `f32` and `f64`, as a bound on a kernel's type parameter.
pub trait Float: Number {}

/// The integers `u32`, `i32`, `u64` and `i64`, as a bound on a kernel's type parameter.
pub trait Integer: Number {}

numbers!(u32 0 i32 1 u64 2 i64 3 f32 4 f64 5; floats f32 f64; integers u32 i32 u64 i64; uniforms bool u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// Describes, in messages, a size too large for any kernel.
static TOO_LARGE: ElementKind = ElementKind { name: "a usize of 2^32 or more", stands_for: &[DataType::U64] };

impl Uniform for usize {
    /// The number as `u32`, which `usize` is in a kernel; running the call reports a larger one.
    #[inline]
    fn argument(self) -> Argument<'static> {
        match u32::try_from(self) {
            Ok(number) => number.into(),
            Err(_) => Argument { memory: Bound::Number([0; 8], 8), kind: &TOO_LARGE },
        }
    }
}

/// Memory that a kernel reads: a slice, vector or array, or a resident buffer.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot read elements of `{T}` from `{Self}`",
    label = "expected `&[{T}]`, or a reference to a vector, array or resident buffer of `{T}`"
)]
pub trait Read<'a, T>: sealed::Bindable {
    #[doc(hidden)]
    fn argument(self) -> Argument<'a>;
}

/// Memory that a kernel writes: a slice, vector or array, or a resident buffer.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot write elements of `{T}` to `{Self}`",
    label = "expected `&mut [{T}]`, or a mutable reference to a vector, array or resident buffer of `{T}`"
)]
pub trait Write<'a, T>: sealed::Bindable {
    #[doc(hidden)]
    fn argument(self) -> Argument<'a>;
}

mod sealed {
    /// Memory that a buffer can be bound to.
    pub trait Bindable {}
}

macro_rules! memory {
    ($($access:ident ($($count:tt)*) $memory:ty: $bound:path;)*) => { $(
        impl<'a, T, $($count)*> sealed::Bindable for $memory {}
        impl<'a, T: Element + $bound, $($count)*> $access<'a, T> for $memory {
            #[inline]
            fn argument(self) -> Argument<'a> {
                self.into()
            }
        }
    )* };
}

memory! {
    Read () &'a [T]: Element;
    Read () &'a Vec<T>: Element;
    Read (const N: usize) &'a [T; N]: Element;
    Read () &'a Resident<T>: Element;
    Write () &'a mut [T]: Pod;
    Write () &'a mut Vec<T>: Pod;
    Write (const N: usize) &'a mut [T; N]: Pod;
    Write () &'a mut Resident<T>: Element;
    Write () ResidentCell<'a, T>: Element;
}

impl<'a, T: Element> Read<'a, T> for ResidentCell<'a, T> {
    #[inline]
    fn argument(self) -> Argument<'a> {
        self.into()
    }
}

/// A kernel that maps each element, from [`map!`](macro@crate::map).
pub struct Map<A, B> {
    kernel: &'static EmbeddedKernel,
    types: PhantomData<fn(A) -> B>,
}

impl<A, B> Map<A, B> {
    #[doc(hidden)]
    pub fn new(kernel: &'static EmbeddedKernel) -> Map<A, B> {
        Map { kernel, types: PhantomData }
    }

    /// A call that maps `from` to `to`, which must have the same length.
    pub fn call<'a>(&self, from: impl Read<'a, A>, to: impl Write<'a, B>) -> KernelCall<'a, 2> {
        KernelCall::new(self.kernel, &[], [from.argument(), to.argument()])
    }
}
