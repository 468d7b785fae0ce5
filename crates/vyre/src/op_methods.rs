//! Ready ops as methods: `runtime.sort(&mut v)?`, on slices, vectors, arrays and resident buffers.
//!
//! Each is an op of the [catalogue](crate::catalogue), or a small kernel. The runtime loads it on
//! the first call for an element type (and, where a plan depends on more than one size, for those
//! sizes) and keeps it. Resident buffers stay where they are: a chain of ops on them copies nothing
//! back.

use crate::argument::{Argument, Element, argument_error};
use crate::catalogue::matmul::{Sizes, matmul_tuned};
use crate::catalogue::scan::ScanKind;
use crate::catalogue::{Plan, PlanError, grid, histogram, reduce, scan, softmax, sort};
use crate::exact_sum::{ExactFloat, ExactSum, thread_count};
use crate::op_routine::OpRoutine;
use crate::report::Report;
use crate::resident::Resident;
use crate::routine_core::Device;
use crate::runtime::Runtime;
use crate::typed::{EmbeddedKernel, EmbeddedSource, Instance, KernelCall, Map, Number, Read, Write};
use bytemuck::{Pod, Zeroable};
use vyre_driver::BackendError;
use vyre_foundation::ir::Combine;

/// Elements that ops work on: a slice, vector, array or [`Resident`] buffer.
pub trait Array: sealed::Sealed {
    /// The type of an element.
    type Element: Element + Pod;

    /// The number of elements.
    fn count(&self) -> usize;

    #[doc(hidden)]
    fn read(&self) -> Argument<'_>;

    #[doc(hidden)]
    fn write(&mut self) -> Argument<'_>;

    /// Calls `change` with the present contents, to read, and with memory of the same length, to
    /// write, which then replaces the contents.
    #[doc(hidden)]
    fn replace(
        &mut self,
        runtime: &Runtime,
        change: impl FnOnce(Argument<'_>, Argument<'_>) -> Result<Report, BackendError>,
    ) -> Result<Report, BackendError>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! arrays {
    ($(($($count:tt)*) $array:ty: |$own:ident, $runtime:ident, $change:ident| $replace:expr;)*) => { $(
        impl<T, $($count)*> sealed::Sealed for $array {}
        impl<T: Element + Pod, $($count)*> Array for $array {
            type Element = T;

            fn count(&self) -> usize {
                self.len()
            }

            fn read(&self) -> Argument<'_> {
                self.into()
            }

            fn write(&mut self) -> Argument<'_> {
                self.into()
            }

            fn replace(
                &mut self,
                $runtime: &Runtime,
                $change: impl FnOnce(Argument<'_>, Argument<'_>) -> Result<Report, BackendError>,
            ) -> Result<Report, BackendError> {
                let $own = self;
                $replace
            }
        }
    )* };
}

arrays! {
    () [T]: |own, _runtime, change| change((&own.to_vec()).into(), own.into());
    () Vec<T>: |own, _runtime, change| change((&own.to_vec()).into(), own.into());
    (const N: usize) [T; N]: |own, _runtime, change| change((&own.to_vec()).into(), own.into());
    () Resident<T>: |own, runtime, change| {
        let mut after = runtime.resident(&vec![T::zeroed(); own.len()]);
        let report = change((&*own).into(), (&mut after).into())?;
        *own = after;
        Ok(report)
    };
}

/// A number usable as a sort key: `u32`, `i32`, or `f32` in the total order of IEEE-754.
pub trait SortKey: Number {
    #[doc(hidden)]
    const KEY: sort::Key;
}

macro_rules! sort_keys {
    ($($ty:ident $key:ident;)*) => { $(impl SortKey for $ty {
        const KEY: sort::Key = sort::Key::$key;
    })* };
}

sort_keys! {
    u32 U32;
    i32 I32;
    f32 F32;
}

/// A number that [`Runtime::histogram`] counts: `u8`, `u16` or `u32`.
pub trait Tally: Element + Pod {}
impl Tally for u8 {}
impl Tally for u16 {}
impl Tally for u32 {}

/// A matrix in row-major order.
pub struct Matrix<'a, A: ?Sized> {
    /// The elements.
    pub elements: &'a A,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
}

/// A matrix to write, in row-major order.
pub struct MatrixMut<'a, A: ?Sized> {
    /// The elements.
    pub elements: &'a mut A,
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
}

/// One op per number type, indexed by `Number::PLACE`.
struct PerType([EmbeddedKernel; 6]);

impl PerType {
    const fn new() -> PerType {
        PerType([const { EmbeddedKernel::new(EmbeddedSource::Wire(&[]), &[]) }; 6])
    }

    fn of<T: Number>(&self) -> &EmbeddedKernel {
        &self.0[T::PLACE]
    }
}

macro_rules! ops {
    ($($name:ident)*) => { $(static $name: PerType = PerType::new();)* };
}

ops!(SORT SORT_PAIRS SUM MIN MAX DOT ARGMAX SCAN SCAN_EXCLUSIVE COMPACT TRANSPOSE SOFTMAX MATMUL);

/// One histogram op per [`Tally`] type.
static HISTOGRAM: [EmbeddedKernel; 3] = [const { EmbeddedKernel::new(EmbeddedSource::Wire(&[]), &[]) }; 3];

#[vyre::kernel]
fn gather<T: Number>(x: &[T], index: &[u32], #[output(len_of = index)] y: &mut [T]) {
    let i = vyre::index();
    y[i] = x[index[i] as usize];
}

#[vyre::kernel(over = index)]
fn scatter<T: Number>(x: &[T], index: &[u32], y: &mut [T]) {
    let i = vyre::index();
    y[index[i] as usize] = x[i];
}

/// Selects a kernel's instance for a number type, by `Number::PLACE`.
macro_rules! instance {
    ($kernel:ident, $ty:ident) => {
        [
            <$kernel as Instance<(u32,)>>::kernel(),
            <$kernel as Instance<(i32,)>>::kernel(),
            <$kernel as Instance<(u64,)>>::kernel(),
            <$kernel as Instance<(i64,)>>::kernel(),
            <$kernel as Instance<(f32,)>>::kernel(),
            <$kernel as Instance<(f64,)>>::kernel(),
        ][$ty::PLACE]
    };
}

/// The count as a buffer size, which is below 2^32.
fn size(count: usize) -> Result<u32, BackendError> {
    u32::try_from(count)
        .map_err(|_| argument_error(format!("{count} elements; a buffer has fewer than 2^32")))
}

/// Fails if two lengths differ.
fn same(what: [&str; 2], lengths: [usize; 2]) -> Result<(), BackendError> {
    let ([a, b], [m, n]) = (what, lengths);
    if m == n {
        return Ok(());
    }
    Err(argument_error(format!("{a} has {m} elements, and {b} {n}; the lengths must be equal")))
}

/// Ready ops. Those on floats give the same bits on every strict backend; `docs/catalogue.md`
/// specifies what each computes.
impl Runtime {
    fn op(
        &self,
        op: &EmbeddedKernel,
        sizes: [u32; 2],
        make: impl Fn(u32, &Device<'_>) -> Result<Plan, PlanError> + Send + Sync + 'static,
    ) -> Result<OpRoutine, BackendError> {
        self.op_of(op, sizes, || self.load_op(make))
    }

    /// Sorts keys in ascending order.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let mut v = vec![3, -7, 12, 0, -1];
    /// runtime.sort(&mut v)?;
    /// assert_eq!(v, [-7, -1, 0, 3, 12]);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn sort<A: Array + ?Sized>(&self, keys: &mut A) -> Result<Report, BackendError>
    where
        A::Element: SortKey,
    {
        let count = keys.count();
        let op = self.op(SORT.of::<A::Element>(), [0; 2], |size, device| {
            sort::keys(<A::Element as SortKey>::KEY, size, device)
        })?;
        keys.replace(self, |from, to| op.call(count).bind("keys", from).bind("sorted", to).run())
    }

    /// Sorts keys in ascending order, and values along with them; equal keys keep their order.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let (mut keys, mut values) = ([0.5, -1.0, 0.0], [10, 11, 12]);
    /// runtime.sort_pairs(&mut keys, &mut values)?;
    /// assert_eq!((keys, values), ([-1.0, 0.0, 0.5], [11, 12, 10]));
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn sort_pairs<K: Array + ?Sized, V: Array<Element = u32> + ?Sized>(
        &self,
        keys: &mut K,
        values: &mut V,
    ) -> Result<Report, BackendError>
    where
        K::Element: SortKey,
    {
        same(["keys", "values"], [keys.count(), values.count()])?;
        let count = keys.count();
        let op = self.op(SORT_PAIRS.of::<K::Element>(), [0; 2], |size, device| {
            sort::pairs(<K::Element as SortKey>::KEY, size, device)
        })?;
        keys.replace(self, |keys, sorted_keys| {
            values.replace(self, |values, sorted_values| {
                let call = op.call(count).bind("keys", keys).bind("values", values);
                call.bind("sorted keys", sorted_keys).bind("sorted values", sorted_values).run()
            })
        })
    }

    fn reduced<A: Array + ?Sized>(
        &self,
        op: &PerType,
        combine: Combine,
        x: &A,
    ) -> Result<A::Element, BackendError>
    where
        A::Element: Number,
    {
        let count = x.count();
        let op = self.op(op.of::<A::Element>(), [0; 2], move |size, device| {
            reduce::reduce(combine, <A::Element as Element>::STANDS_FOR[0], size, device)
        })?;
        let mut result = [A::Element::zeroed()];
        op.call(count).bind("x", x.read()).bind("result", &mut result).run()?;
        Ok(result[0])
    }

    /// The sum of all elements; 0 if there are none. Integers wrap; floats are added in the order
    /// documented in the module [`reduce`](crate::catalogue::reduce).
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let x = runtime.resident(&[1.5, 2.0, 3.0]);
    /// assert_eq!(
    ///     (runtime.sum(&x)?, runtime.max(&x)?, runtime.argmax(&x)?),
    ///     (6.5, Some(3.0), Some(2))
    /// );
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn sum<A: Array + ?Sized>(&self, x: &A) -> Result<A::Element, BackendError>
    where
        A::Element: Number,
    {
        self.reduced(&SUM, Combine::Add, x)
    }

    /// The exact sum of all elements, rounded once to nearest, ties to even. The bits are the same
    /// in any order, and for any parts summed as [`ExactSum`]s and combined. A NaN, or infinities
    /// of both signs, give NaN. An empty sum and a sum of zero give 0.0, except that a sum of
    /// `-0.0` alone gives `-0.0`.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// assert_eq!(runtime.exact_sum(&[1e30_f32, 1.0, -1e30]), 1.0);
    /// assert_eq!(runtime.exact_sum(&[1e300, 1e-300, -1e300]), 1e-300);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn exact_sum<T: ExactFloat>(&self, x: &[T]) -> T {
        T::rounded(&ExactSum::of_shared(x, thread_count()))
    }

    /// The least element, ignoring NaNs; infinity if there are only NaNs, `None` if there are no
    /// elements.
    pub fn min<A: Array + ?Sized>(&self, x: &A) -> Result<Option<A::Element>, BackendError>
    where
        A::Element: Number,
    {
        let least = self.reduced(&MIN, Combine::Min, x)?;
        Ok((x.count() > 0).then_some(least))
    }

    /// The greatest element, ignoring NaNs; -infinity if there are only NaNs, `None` if there are
    /// no elements.
    pub fn max<A: Array + ?Sized>(&self, x: &A) -> Result<Option<A::Element>, BackendError>
    where
        A::Element: Number,
    {
        let greatest = self.reduced(&MAX, Combine::Max, x)?;
        Ok((x.count() > 0).then_some(greatest))
    }

    /// The sum of `x[i] * y[i]`, in the order of [`sum`](Self::sum).
    pub fn dot<A, B>(&self, x: &A, y: &B) -> Result<A::Element, BackendError>
    where
        A: Array + ?Sized,
        B: Array<Element = A::Element> + ?Sized,
        A::Element: Number,
    {
        same(["x", "y"], [x.count(), y.count()])?;
        let count = x.count();
        let op = self.op(DOT.of::<A::Element>(), [0; 2], |size, device| {
            reduce::dot(<A::Element as Element>::STANDS_FOR[0], size, device)
        })?;
        let mut result = [A::Element::zeroed()];
        op.call(count).bind("x", x.read()).bind("y", y.read()).bind("result", &mut result).run()?;
        Ok(result[0])
    }

    /// The index of the greatest element, the first among equals, ignoring NaNs; `None` if there is
    /// no number.
    pub fn argmax<A: Array + ?Sized>(&self, x: &A) -> Result<Option<usize>, BackendError>
    where
        A::Element: Number,
    {
        let count = x.count();
        let op = self.op(ARGMAX.of::<A::Element>(), [0; 2], |size, device| {
            reduce::argmax(<A::Element as Element>::STANDS_FOR[0], size, device)
        })?;
        let mut index = [0_u32];
        op.call(count).bind("x", x.read()).bind("index", &mut index).run()?;
        Ok((index[0] != u32::MAX).then_some(index[0] as usize))
    }

    fn scanned<A, B>(&self, op: &PerType, kind: ScanKind, x: &A, y: &mut B) -> Result<Report, BackendError>
    where
        A: Array + ?Sized,
        B: Array<Element = A::Element> + ?Sized,
        A::Element: Number,
    {
        same(["x", "y"], [x.count(), y.count()])?;
        let count = x.count();
        let op = self.op(op.of::<A::Element>(), [0; 2], move |size, device| {
            scan::scan(kind, <A::Element as Element>::STANDS_FOR[0], size, device)
        })?;
        op.call(count).bind("x", x.read()).bind("y", y.write()).run()
    }

    /// Running sums: `y[i] = x[0] + … + x[i]`.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let (x, mut y) = ([1_u32, 2, 3], [0; 3]);
    /// runtime.scan(&x, &mut y)?;
    /// assert_eq!(y, [1, 3, 6]);
    /// runtime.scan_exclusive(&x, &mut y)?;
    /// assert_eq!(y, [0, 1, 3]);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn scan<A, B>(&self, x: &A, y: &mut B) -> Result<Report, BackendError>
    where
        A: Array + ?Sized,
        B: Array<Element = A::Element> + ?Sized,
        A::Element: Number,
    {
        self.scanned(&SCAN, ScanKind::Inclusive, x, y)
    }

    /// Running sums of the preceding elements: `y[i] = x[0] + … + x[i - 1]`.
    pub fn scan_exclusive<A, B>(&self, x: &A, y: &mut B) -> Result<Report, BackendError>
    where
        A: Array + ?Sized,
        B: Array<Element = A::Element> + ?Sized,
        A::Element: Number,
    {
        self.scanned(&SCAN_EXCLUSIVE, ScanKind::Exclusive, x, y)
    }

    /// Copies the elements `x[i]` with `keep[i] != 0` to `y` in order, followed by zeros. Returns
    /// how many were kept.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let mut y = [0.0; 3];
    /// assert_eq!(runtime.compact(&[1.0, 2.0, 3.0], &[1, 0, 1], &mut y)?, 2);
    /// assert_eq!(y, [1.0, 3.0, 0.0]);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn compact<A, K, B>(&self, x: &A, keep: &K, y: &mut B) -> Result<usize, BackendError>
    where
        A: Array + ?Sized,
        K: Array<Element = u32> + ?Sized,
        B: Array<Element = A::Element> + ?Sized,
        A::Element: Number,
    {
        same(["x", "keep"], [x.count(), keep.count()])?;
        same(["x", "y"], [x.count(), y.count()])?;
        let length = x.count();
        let op = self.op(COMPACT.of::<A::Element>(), [0; 2], |size, device| {
            Ok(scan::compact(<A::Element as Element>::STANDS_FOR[0], size, device))
        })?;
        let mut count = [0_u32];
        let call = op.call(length).bind("x", x.read()).bind("keep", keep.read());
        call.bind("y", y.write()).bind("count", &mut count).run()?;
        Ok(count[0] as usize)
    }

    /// Counts each value: `counts[v]` is the number of elements equal to `v`. Values without a
    /// count are ignored. There are 1 to 1024 counts.
    pub fn histogram<A, B>(&self, x: &A, counts: &mut B) -> Result<Report, BackendError>
    where
        A: Array + ?Sized,
        B: Array<Element = u32> + ?Sized,
        A::Element: Tally,
    {
        let (length, bins) = (x.count(), size(counts.count())?);
        let op = &HISTOGRAM[size_of::<A::Element>() / 2];
        let op = self.op(op, [bins, 0], move |size, device| {
            histogram::histogram(<A::Element as Element>::STANDS_FOR[0], bins, size, device)
        })?;
        op.call(length).bind("x", x.read()).bind("counts", counts.write()).run()
    }

    /// `y[i] = x[index[i]]`, or zero for an index out of range.
    pub fn gather<'a, T: Number>(
        &self,
        x: impl Read<'a, T>,
        index: impl Read<'a, u32>,
        y: impl Write<'a, T>,
    ) -> Result<Report, BackendError> {
        let arguments = [x.argument(), index.argument(), y.argument()];
        KernelCall::new(instance!(gather, T), &[], arguments).run(self)
    }

    /// `y[index[i]] = x[i]`; an index out of range writes nothing. Indices in range must be
    /// distinct.
    pub fn scatter<'a, T: Number>(
        &self,
        x: impl Read<'a, T>,
        index: impl Read<'a, u32>,
        y: impl Write<'a, T>,
    ) -> Result<Report, BackendError> {
        let arguments = [x.argument(), index.argument(), y.argument()];
        KernelCall::new(instance!(scatter, T), &[], arguments).run(self)
    }

    /// `y[c * rows + r] = x[r * columns + c]`.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// # use vyre::{Matrix, MatrixMut};
    /// let mut y = [0_u32; 6];
    /// runtime.transpose(Matrix { elements: &[1, 2, 3, 4, 5, 6], rows: 2, columns: 3 }, &mut y)?;
    /// assert_eq!(y, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn transpose<A, B>(&self, x: Matrix<'_, A>, y: &mut B) -> Result<Report, BackendError>
    where
        A: Array + ?Sized,
        B: Array<Element = A::Element> + ?Sized,
        A::Element: Number,
    {
        x.check("x")?;
        same(["x", "y"], [x.elements.count(), y.count()])?;
        let width = size(x.columns)?;
        let op = self.op(TRANSPOSE.of::<A::Element>(), [width, 0], move |height, device| {
            grid::transpose(<A::Element as Element>::STANDS_FOR[0], width, height, device)
        })?;
        op.call(x.rows).bind("x", x.elements.read()).bind("y", y.write()).run()
    }

    /// `y = exp(x - max) / Σ exp(x - max)` within each row.
    pub fn softmax_rows<A, B>(&self, x: Matrix<'_, A>, y: &mut B) -> Result<Report, BackendError>
    where
        A: Array<Element = f32> + ?Sized,
        B: Array<Element = f32> + ?Sized,
    {
        x.check("x")?;
        same(["x", "y"], [x.elements.count(), y.count()])?;
        let columns = size(x.columns)?;
        let make = move |rows, device: &Device<'_>| softmax::rows(rows, columns, device);
        let op = self.op(SOFTMAX.of::<f32>(), [columns, 0], make)?;
        op.call(x.rows).bind("x", x.elements.read()).bind("y", y.write()).run()
    }

    /// `c = a b`, each element summed along the rows of `a` in order.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// # use vyre::{Matrix, MatrixMut};
    /// let (a, b, mut c) = ([1.0, 2.0], [3.0, 4.0], [0.0; 4]);
    /// runtime.matmul(
    ///     Matrix { elements: &a, rows: 2, columns: 1 },
    ///     Matrix { elements: &b, rows: 1, columns: 2 },
    ///     MatrixMut { elements: &mut c, rows: 2, columns: 2 },
    /// )?;
    /// assert_eq!(c, [3.0, 4.0, 6.0, 8.0]);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn matmul<A, B, C>(
        &self,
        a: Matrix<'_, A>,
        b: Matrix<'_, B>,
        c: MatrixMut<'_, C>,
    ) -> Result<Report, BackendError>
    where
        A: Array<Element = f32> + ?Sized,
        B: Array<Element = f32> + ?Sized,
        C: Array<Element = f32> + ?Sized,
    {
        a.check("a")?;
        b.check("b")?;
        Matrix { elements: &*c.elements, rows: c.rows, columns: c.columns }.check("c")?;
        if (a.columns, c.rows, c.columns) != (b.rows, a.rows, b.columns) {
            let shape = |rows: usize, columns: usize| format!("{rows} by {columns}");
            return Err(argument_error(format!(
                "a is {}, b {} and c {}, which do not fit a product",
                shape(a.rows, a.columns),
                shape(b.rows, b.columns),
                shape(c.rows, c.columns)
            )));
        }
        let (depth, columns) = (size(a.columns)?, size(b.columns)?);
        let op = self.op(MATMUL.of::<f32>(), [depth, columns], move |rows, device| {
            matmul_tuned(Sizes { rows, depth, columns }, device, device.tuner())
        })?;
        let call = op.call(a.rows).bind("a", a.elements.read()).bind("b", b.elements.read());
        call.bind("c", c.elements.write()).run()
    }

    /// Maps every element of `from` to an element of `to`.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let (x, mut y) = (vec![1.0, 2.0, 3.0], vec![0.0; 3]);
    /// runtime.map(vyre::map!(|x: f32| x * x + 1.0), &x, &mut y)?;
    /// assert_eq!(y, [2.0, 5.0, 10.0]);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn map<'a, A, B>(
        &self,
        map: Map<A, B>,
        from: impl Read<'a, A>,
        to: impl Write<'a, B>,
    ) -> Result<Report, BackendError> {
        map.call(from, to).run(self)
    }
}

impl<A: Array + ?Sized> Matrix<'_, A> {
    fn check(&self, name: &str) -> Result<(), BackendError> {
        let Matrix { elements, rows, columns } = self;
        if rows.checked_mul(*columns) == Some(elements.count()) {
            return Ok(());
        }
        Err(argument_error(format!("{name} is {rows} by {columns}, and has {} elements", elements.count())))
    }
}
