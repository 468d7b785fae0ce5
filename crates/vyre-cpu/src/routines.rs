//! Routines that compiled kernels call to process lanes one by one: code that rarely runs, or is
//! slow regardless of its surroundings, is compiled once here instead of at every use in every
//! kernel.
//!
//! A kernel passes vectors in the [`Lanes`] of its [`Context`]. It calls through a trampoline that
//! saves every register ([`crate::host::caller`]), so that an untaken call costs the kernel's other
//! values nothing.
//!
//! Routines trust their caller like the rest of the compiled code does: the context is the one the
//! kernel runs with, the buffer exists, and the lanes of `running` are among those of the memory.
//! Indices are checked here.

use crate::context::{BufferEntry, Context};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use vyre_foundation::ir::{AtomicOp, Op};
use vyre_foundation::types::{DataType, ValueType};

/// Maximum number of lanes of a vector.
pub(crate) const MOST_LANES: usize = 32;

/// Storage for a vector with lanes of up to 64 bits, packed at the width of its type.
type Vector = MaybeUninit<[u64; MOST_LANES]>;

/// Vectors passed between a kernel and a routine.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) indices: Vector,
    pub(crate) first: Vector,
    pub(crate) second: Vector,
    pub(crate) results: Vector,
}

impl Lanes {
    pub(crate) const fn new() -> Lanes {
        let empty = MaybeUninit::uninit();
        Lanes { indices: empty, first: empty, second: empty, results: empty }
    }
}

/// Signature of a routine: the context; a buffer number, a private array's length or the number of
/// lanes; an index or an address; the running lanes, lowest bit first.
pub(crate) type Routine = unsafe extern "C" fn(*mut Context, u64, u64, u32);

fn running(bits: u32) -> impl Iterator<Item = usize> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

/// # Safety
/// The context is the one its kernel runs with, and has a buffer of that number.
unsafe fn buffer(context: *mut Context, number: u64) -> BufferEntry {
    // SAFETY: promised by the caller.
    unsafe { *(*context).buffers.add(number as usize) }
}

/// # Safety
/// The vector holds lanes of `T`, more than `lane`.
unsafe fn get<T: Copy>(vector: *const Vector, lane: usize) -> T {
    // SAFETY: promised by the caller; a vector is aligned for any lane.
    unsafe { *vector.cast::<T>().add(lane) }
}

/// # Safety
/// The vector is writable, and `lane` is below [`MOST_LANES`].
unsafe fn set<T>(vector: *mut Vector, lane: usize, value: T) {
    // SAFETY: promised by the caller; a vector is aligned for any lane.
    unsafe { *vector.cast::<T>().add(lane) = value }
}

// Elements.

/// Representation of an element in a buffer and of its lane in a vector.
trait Element {
    type Stored: Copy;
    type Lane: Copy;
    const ZERO: Self::Lane;
    fn widen(stored: Self::Stored) -> Self::Lane;
    fn narrow(lane: Self::Lane) -> Self::Stored;
}

macro_rules! elements {
    ($($name:ident: $stored:ty as $lane:ty;)*) => {$(
        struct $name;
        impl Element for $name {
            type Stored = $stored;
            type Lane = $lane;
            const ZERO: $lane = 0;
            fn widen(stored: $stored) -> $lane { stored as $lane }
            fn narrow(lane: $lane) -> $stored { lane as $stored }
        }
    )*};
}

elements! {
    Byte: u8 as u32;
    SignedByte: i8 as i32;
    Half: u16 as u32;
    SignedHalf: i16 as i32;
    Word: u32 as u32;
    Long: u64 as u64;
}

/// A `bool`: a byte in memory, a mask lane in a vector.
struct Flag;
impl Element for Flag {
    type Stored = u8;
    type Lane = u32;
    const ZERO: u32 = 0;
    fn widen(stored: u8) -> u32 {
        if stored == 0 { 0 } else { u32::MAX }
    }
    fn narrow(lane: u32) -> u8 {
        u8::from(lane != 0)
    }
}

macro_rules! of_element {
    ($element:expr, $routine:ident) => {
        match $element {
            DataType::Bool => $routine::<Flag>,
            DataType::U8 => $routine::<Byte>,
            DataType::I8 => $routine::<SignedByte>,
            DataType::U16 => $routine::<Half>,
            DataType::I16 => $routine::<SignedHalf>,
            DataType::U32 | DataType::I32 | DataType::F32 => $routine::<Word>,
            DataType::U64 | DataType::I64 | DataType::F64 => $routine::<Long>,
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are moved as their bits"),
        }
    };
}

/// Loads consecutive elements of a buffer, starting at an index, into the results; zero out of
/// range.
pub(crate) fn load_neighbours(element: DataType) -> Routine {
    of_element!(element, load_from)
}

unsafe extern "C" fn load_from<E: Element>(context: *mut Context, number: u64, index: u64, bits: u32) {
    // SAFETY: the caller is a kernel with this context (see the module documentation); an index
    // below the length is in memory.
    unsafe {
        let entry = buffer(context, number);
        for lane in running(bits) {
            let at = u64::from((index as u32).wrapping_add(lane as u32));
            let inside = at < entry.length;
            let value = if inside { read::<E>(entry.data, at) } else { E::ZERO };
            set(&raw mut (*context).lanes.results, lane, value);
        }
    }
}

/// # Safety
/// The element is in memory.
unsafe fn read<E: Element>(data: *mut u8, index: u64) -> E::Lane {
    // SAFETY: promised by the caller; a caller's buffer can have any alignment.
    E::widen(unsafe { data.cast::<E::Stored>().add(index as usize).read_unaligned() })
}

/// # Safety
/// The element is in writable memory.
unsafe fn write<E: Element>(data: *mut u8, index: u64, value: E::Lane) {
    // SAFETY: promised by the caller; a caller's buffer can have any alignment.
    unsafe { data.cast::<E::Stored>().add(index as usize).write_unaligned(E::narrow(value)) }
}

/// Stores `first` to consecutive elements of a buffer, starting at an index, where they are in
/// range.
pub(crate) fn store_neighbours(element: DataType) -> Routine {
    of_element!(element, store_from)
}

unsafe extern "C" fn store_from<E: Element>(context: *mut Context, number: u64, index: u64, bits: u32) {
    // SAFETY: as in `load_from`.
    unsafe {
        let entry = buffer(context, number);
        for lane in running(bits) {
            let at = u64::from((index as u32).wrapping_add(lane as u32));
            if at < entry.length {
                write::<E>(entry.data, at, get(&raw const (*context).lanes.first, lane));
            }
        }
    }
}

/// Stores `first` to the elements of a buffer at `indices`, where they are in range.
pub(crate) fn store_each(element: DataType) -> Routine {
    of_element!(element, store_at)
}

unsafe extern "C" fn store_at<E: Element>(context: *mut Context, number: u64, _: u64, bits: u32) {
    // SAFETY: as in `load_from`.
    unsafe {
        let entry = buffer(context, number);
        for lane in running(bits) {
            let at = u64::from(get::<u32>(&raw const (*context).lanes.indices, lane));
            if at < entry.length {
                write::<E>(entry.data, at, get(&raw const (*context).lanes.first, lane));
            }
        }
    }
}

/// Stores `first` to a private array of the given length, at the rows of `indices`. The array is at
/// the address, row by row, with one element per lane in each row.
pub(crate) fn store_array(ty: ValueType, lanes: u32) -> Routine {
    let wide = ty.bits() == 64;
    match (wide, lanes) {
        (false, 8) => store_rows::<Word, 8>,
        (false, 16) => store_rows::<Word, 16>,
        (false, _) => store_rows::<Word, 32>,
        (true, 8) => store_rows::<Long, 8>,
        (true, 16) => store_rows::<Long, 16>,
        (true, _) => store_rows::<Long, 32>,
    }
}

unsafe extern "C" fn store_rows<E: Element, const LANES: u64>(
    context: *mut Context,
    count: u64,
    address: u64,
    bits: u32,
) {
    // SAFETY: as in `load_from`; the array is in the thread's scratch memory.
    unsafe {
        for lane in running(bits) {
            let row = u64::from(get::<u32>(&raw const (*context).lanes.indices, lane));
            if row < count {
                let value = get(&raw const (*context).lanes.first, lane);
                write::<E>(address as *mut u8, row * LANES + lane as u64, value);
            }
        }
    }
}

// Atomics.

/// An update of one element, which returns the old value.
trait Update<T> {
    /// Whether it has a second operand.
    const TWO: bool;

    /// # Safety
    /// The element is in memory and aligned; for a non-atomic update, no other thread accesses it.
    unsafe fn update(at: *mut T, first: T, second: T) -> T;
}

macro_rules! updates {
    ($($name:ident: |$old:ident, $first:ident, $second:ident| $plain:expr, $atomic:ident;)*) => {$(
        struct $name<const SHARED: bool>;
        updates!(types $name, |$old, $first, $second| $plain, $atomic, u32 AtomicU32, i32 AtomicI32, u64 AtomicU64, i64 AtomicI64);
    )*};
    (types $name:ident, |$old:ident, $first:ident, $second:ident| $plain:expr, $atomic:ident, $($ty:ident $cell:ident),*) => {$(
        impl Update<$ty> for $name<false> {
            const TWO: bool = updates!(two $atomic);
            unsafe fn update(at: *mut $ty, $first: $ty, $second: $ty) -> $ty {
                // SAFETY: promised by the caller.
                unsafe {
                    let $old = at.read();
                    at.write($plain);
                    $old
                }
            }
        }
        impl Update<$ty> for $name<true> {
            const TWO: bool = updates!(two $atomic);
            unsafe fn update(at: *mut $ty, $first: $ty, $second: $ty) -> $ty {
                // SAFETY: promised by the caller; other threads access the element only by atomics.
                let cell = unsafe { $cell::from_ptr(at) };
                updates!(call $atomic, cell, $first, $second)
            }
        }
    )*};
    (two compare_exchange) => { true };
    (two $atomic:ident) => { false };
    (call compare_exchange, $cell:ident, $first:ident, $second:ident) => {
        match $cell.compare_exchange($first, $second, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(old) | Err(old) => old,
        }
    };
    (call load, $cell:ident, $first:ident, $second:ident) => {{
        let _ = ($first, $second);
        $cell.load(Ordering::SeqCst)
    }};
    (call $atomic:ident, $cell:ident, $first:ident, $second:ident) => {{
        let _ = $second;
        $cell.$atomic($first, Ordering::SeqCst)
    }};
}

updates! {
    Add: |old, first, _second| old.wrapping_add(first), fetch_add;
    Min: |old, first, _second| old.min(first), fetch_min;
    Max: |old, first, _second| old.max(first), fetch_max;
    And: |old, first, _second| old & first, fetch_and;
    Or: |old, first, _second| old | first, fetch_or;
    Xor: |old, first, _second| old ^ first, fetch_xor;
    Exchange: |_old, first, _second| first, swap;
    CompareExchange: |old, first, second| if old == first { second } else { old }, compare_exchange;
    Load: |old, first, _second| { let _ = first; old }, load;
}

/// Updates the elements of a buffer at `indices` with `first` and `second`, lowest lane first. The
/// results are the old values, or zero out of range and in lanes that do not run. Memory shared
/// between threads is updated atomically.
pub(crate) fn atomic(op: AtomicOp, ty: ValueType, memory: Sharing) -> Routine {
    macro_rules! of_type {
        ($update:ty) => {
            match ty {
                ValueType::U32 => update_each::<u32, $update>,
                ValueType::I32 => update_each::<i32, $update>,
                ValueType::U64 => update_each::<u64, $update>,
                ValueType::I64 => update_each::<i64, $update>,
                ValueType::Bool | ValueType::F32 | ValueType::F64 => unreachable!("atomics are on integers"),
            }
        };
    }
    macro_rules! of_memory {
        ($update:ident) => {
            match memory {
                Sharing::Threads => of_type!($update<true>),
                Sharing::Own => of_type!($update<false>),
            }
        };
    }
    match op {
        AtomicOp::Add => of_memory!(Add),
        AtomicOp::Min => of_memory!(Min),
        AtomicOp::Max => of_memory!(Max),
        AtomicOp::And => of_memory!(And),
        AtomicOp::Or => of_memory!(Or),
        AtomicOp::Xor => of_memory!(Xor),
        AtomicOp::Exchange | AtomicOp::Store => of_memory!(Exchange),
        AtomicOp::Load => of_memory!(Load),
        AtomicOp::CompareExchange => of_memory!(CompareExchange),
    }
}

/// Visibility of memory during a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sharing {
    /// Shared with other threads.
    Threads,
    /// Private to one thread, which runs the whole workgroup.
    Own,
}

unsafe extern "C" fn update_each<T: Copy, U: Update<T>>(
    context: *mut Context,
    number: u64,
    _: u64,
    bits: u32,
) {
    // SAFETY: as in `load_from`; buffers of atomics are aligned, and the kernel passed all operands
    // of the update.
    unsafe {
        let entry = buffer(context, number);
        let lanes = &raw mut (*context).lanes;
        (*lanes).results.write([0; MOST_LANES]);
        for lane in running(bits) {
            let at = u64::from(get::<u32>(&raw const (*lanes).indices, lane));
            if at < entry.length {
                let element = entry.data.cast::<T>().add(at as usize);
                let first = get(&raw const (*lanes).first, lane);
                let second = if U::TWO { get(&raw const (*lanes).second, lane) } else { first };
                set(&raw mut (*lanes).results, lane, U::update(element, first, second));
            }
        }
    }
}

// Ops.

/// A routine that applies an expression to the lanes of `first`, or of `first` and `second`.
macro_rules! lanes {
    (|$x:ident: $from:ty| $result:expr) => {
        lanes!(context, lane, [$x: $from = get(&raw const (*context).lanes.first, lane)], $result)
    };
    (|$x:ident, $y:ident: $from:ty| $result:expr) => {
        lanes!(
            context,
            lane,
            [
                $x: $from = get(&raw const (*context).lanes.first, lane),
                $y: $from = get(&raw const (*context).lanes.second, lane)
            ],
            $result
        )
    };
    ($context:ident, $lane:ident, [$($operand:ident: $from:ty = $read:expr),*], $result:expr) => {{
        unsafe extern "C" fn routine($context: *mut Context, count: u64, _: u64, _: u32) {
            for $lane in 0..count as usize {
                // SAFETY: as in `load_from`; the kernel passed the op's operands, with `count`
                // lanes.
                unsafe {
                    $(let $operand: $from = $read;)*
                    set(&raw mut (*$context).lanes.results, $lane, $result);
                }
            }
        }
        routine
    }};
}

macro_rules! of_wide_integers {
    ($ty:expr, |$($x:ident),*| $result:expr) => {
        match $ty {
            ValueType::U64 => lanes!(|$($x),*: u64| $result),
            ValueType::I64 => lanes!(|$($x),*: i64| $result),
            ValueType::Bool
            | ValueType::U32
            | ValueType::I32
            | ValueType::F32
            | ValueType::F64 => return None,
        }
    };
}

/// Returns the routine for an op on the lanes of `first` and `second`, if there is one: for ops
/// that have no vector instruction and are slow enough to justify a call.
pub(crate) fn op(op: Op, types: &[ValueType]) -> Option<Routine> {
    let ty = types[0];
    Some(match op {
        Op::Div => of_wide_integers!(ty, |x, y| if y == 0 { x } else { x.wrapping_div(y) }),
        Op::Rem => of_wide_integers!(ty, |x, y| if y == 0 { y } else { x.wrapping_rem(y) }),
        Op::ToU32 if ty == ValueType::F64 => lanes!(|x: f64| x as u32),
        Op::ToI32 if ty == ValueType::F64 => lanes!(|x: f64| x as i32),
        Op::ToU64 if ty == ValueType::F32 => lanes!(|x: f32| x as u64),
        Op::ToU64 if ty == ValueType::F64 => lanes!(|x: f64| x as u64),
        Op::ToI64 if ty == ValueType::F32 => lanes!(|x: f32| x as i64),
        Op::ToI64 if ty == ValueType::F64 => lanes!(|x: f64| x as i64),
        Op::ToF32 if ty == ValueType::U64 => lanes!(|x: u64| x as f32),
        Op::ToF32 if ty == ValueType::I64 => lanes!(|x: i64| x as f32),
        Op::ToF64 if ty == ValueType::U64 => lanes!(|x: u64| x as f64),
        Op::ToF64 if ty == ValueType::I64 => lanes!(|x: i64| x as f64),
        _ => return None,
    })
}
