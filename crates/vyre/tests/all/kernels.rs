//! Kernels in Rust: typed calls on every backend match the same function on the host bit for bit.

use std::sync::OnceLock;
use vyre::prelude::*;

/// A runtime with the compiled backend and the interpreter.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let built = Runtime::builder().backends(["cpu", "cpu-ref"]).without_tables().build();
        built.expect("the backends open")
    })
}

/// Calls a kernel on the compiled backend, the interpreter and the host, each on its own copy of
/// the written arguments; all must agree bit for bit.
macro_rules! agree {
    ($kernel:ident $(::<$($generic:tt),*>)? ($($before:expr),*; $($written:ident),*)) => {{
        let host = {
            $(let mut $written = $written.clone();)*
            $kernel::on_host $(::<$($generic),*>)? ($($before,)* $(&mut $written),*);
            ($(bits(&$written)),*)
        };
        for backend in ["cpu", "cpu-ref"] {
            $(let mut $written = $written.clone();)*
            let call = $kernel $(::<$($generic),*>)? ($($before,)* $(&mut $written),*);
            call.on(runtime()).expect("loads").on(backend).run().expect("runs");
            assert_eq!(($(bits(&$written)),*), host, "{} on {backend}", stringify!($kernel));
        }
    }};
}

fn bits<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// Numbers that are likely to show differences, then ordinary ones.
fn floats() -> Vec<f32> {
    let odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -2.5,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1e-40,
        3e38,
        300.7,
    ];
    odd.into_iter().chain((0..87).map(|i| (i as f32 - 40.0) * 1.37)).collect()
}

#[vyre::kernel]
fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    y[i] = a * x[i] + y[i];
}

#[test]
fn a_typed_call() -> Result<(), BackendError> {
    let x = floats();
    let mut y = vec![1.0f32; x.len()];
    saxpy(2.0, &x, &mut y).run(runtime())?;
    assert_eq!(y[2], 3.0);
    agree!(saxpy(2.0, &x; y));
    let (a, mut b) = (runtime().resident(&[1.0f32, 2.0]), runtime().resident(&[0.5f32, 0.5]));
    saxpy(10.0, &a, &mut b).run(runtime())?;
    assert_eq!(b.read()?, [10.5, 20.5]);
    assert_eq!(saxpy::program()?.name().map(|name| &**name), Some("saxpy"));
    Ok(())
}

#[vyre::kernel]
fn methods(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    let v = x[i];
    let u = v.abs() + 0.25;
    let mut sum = v.sqrt() + v.floor() + v.ceil() + v.trunc() + v.round_ties_even();
    sum += v.min(1.5).max(-1.5) + v.clamp(-0.5, 0.5) + u.ln() + u.log2() + u.log10() + u.ln_1p();
    sum += (v * 0.1).exp() + (v * 0.1).exp2() + v.sin() + v.cos() + v.tan() + v.atan() + v.tanh() + v.cbrt();
    sum += v.mul_add(0.5, 2.0) + u.powf(0.3) + v.atan2(u) + v.hypot(u) + v.copysign(-1.0);
    sum += vyre::rsqrt(u) + vyre::fract(v) + vyre::sign(v) + vyre::erf(v) + vyre::bits_f16(vyre::f16_bits(v));
    if v.is_nan() || !v.is_finite() {
        sum = f32::from_bits(v.to_bits() ^ 1);
    }
    y[i] = if sum.is_nan() { v } else { sum };
}

#[vyre::kernel]
fn methods_64(x: &[f64], y: &mut [f64]) {
    let i = vyre::index();
    y[i] = x[i].sin() + x[i].exp().min(1e9) * std::f64::consts::PI - f64::MIN_POSITIVE + x[i].sqrt().max(0.0);
}

#[test]
fn floats_agree() {
    let (x, y) = (floats(), vec![0.0f32; 100]);
    agree!(methods(&x; y));
    let (x, y) = (x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>(), vec![0.0f64; 100]);
    agree!(methods_64(&x; y));
}

#[vyre::kernel]
fn integers(x: &[i32], y: &mut [u32]) {
    let i = vyre::index();
    let v = x[i];
    let w = v as u32;
    let mut mixed = w.rotate_left(5) ^ w.wrapping_mul(2654435761) ^ v.wrapping_sub(7) as u32;
    mixed = mixed.wrapping_add(w.leading_zeros() << 3 | w.count_ones())
        ^ w.trailing_zeros()
        ^ w.reverse_bits() >> 2;
    mixed ^= (v.saturating_add(i32::MAX - 3) >> 1) as u32 ^ v.abs_diff(-9) ^ w.saturating_sub(100);
    mixed ^= !w & 0xff00 | (v.min(3).max(-3) as u32) % 16;
    let wide = (v as i64) * 3_000_000_000 - (w as i64);
    mixed ^= (wide >> 13) as u32 ^ (wide as u64 / 10) as u32 ^ vyre::mul_hi(w, 0x9e3779b9);
    y[i] = if v == i32::MIN { u32::MAX } else { mixed ^ vyre::extract_bits(w, 4, 9) };
}

#[test]
fn integers_agree() {
    let x: Vec<i32> =
        [0, 1, -1, i32::MIN, i32::MAX, 255].into_iter().chain((0..94).map(|i| i * 7919 - 40_000)).collect();
    let y = vec![0u32; x.len()];
    agree!(integers(&x; y));
}

#[vyre::kernel]
fn narrow(x: &[u8], s: &[i16], f: &[f32], y: &mut [u8], z: &mut [i8], h: &mut [u16]) {
    let i = vyre::index();
    let byte = x[i];
    let larger = byte.max(x[(i + 1) % x.len()]);
    y[i] = if byte == 7 || larger > 200 { f[i] as u8 } else { (byte as u32 * 3 + 1) as u8 };
    let number = (s[i] as i32 - 300) as i8;
    z[i] = if number < 0 { number } else { (f[i] * 10.0) as i8 };
    let wrapped = (s[i] as i32 * 77) as u16;
    h[i] = (wrapped as u32 / 3 + wrapped as u8 as u32) as u16 ^ (vyre::f16_bits(f[i]) as u16);
}

#[test]
fn narrow_memory_agrees() {
    let f = floats();
    let x: Vec<u8> = (0..100).map(|i| (i * 37 % 256) as u8).collect();
    let s: Vec<i16> = (0..100).map(|i| (i * 797 % 65536) as i16).collect();
    let (mut y, mut z, mut h) = (vec![0u8; 100], vec![0i8; 100], vec![0u16; 100]);
    let host = (y.clone(), z.clone(), h.clone());
    let (mut hy, mut hz, mut hh) = host;
    narrow::on_host(&x, &s, &f, &mut hy, &mut hz, &mut hh);
    for backend in ["cpu", "cpu-ref"] {
        let call = narrow(&x, &s, &f, &mut y, &mut z, &mut h);
        call.on(runtime()).expect("loads").on(backend).run().expect("runs");
        assert_eq!((&y, &z, &h), (&hy, &hz, &hh), "{backend}");
    }
}

#[vyre::kernel]
fn control(x: &[i32], y: &mut [i32]) {
    let i = vyre::index();
    let x = x[i];
    // Shadowing, several bindings at once, and values of blocks.
    let (mut a, mut b) = (0, 1);
    for _ in 0..x % 10 {
        (a, b) = (b, a + b);
    }
    let a = {
        let twice = a * 2;
        twice + 1
    };
    let later;
    if x > 5 {
        later = a;
    } else {
        later = -a;
    }
    let mut total = later;
    for k in (0..5).rev() {
        if k == 3 {
            continue;
        }
        total = total * 2 + k;
    }
    for k in (1..20usize).step_by(6) {
        total += k as i32;
    }
    for k in -2..=2 {
        total -= k * k * x;
    }
    let mut n = x;
    loop {
        n /= 3;
        if n == 0 {
            break;
        }
        total += 1;
        while n > 50 && total > 0 {
            n -= 7;
        }
    }
    if total % 7 == 0 {
        y[i] = -1;
        return;
    }
    y[i] = if total > 0 {
        let mut digits = 0;
        let mut rest = total;
        while rest > 0 {
            rest /= 10;
            digits += 1;
        }
        digits * 1000 + total % 1000
    } else if total == 0 {
        5
    } else {
        total
    };
}

#[test]
fn control_flow_agrees() {
    let x: Vec<i32> = (0..100).map(|i| i * 13 - 200).collect();
    let y = vec![0i32; 100];
    agree!(control(&x; y));
}

#[vyre::kernel]
fn arrays(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    let mut window = [0.0f32; 5];
    let weights = [0.1, 0.2, 0.4, 0.2, 0.1];
    let ones = [1.0f32; 3];
    for k in 0..window.len() {
        let at = i + k;
        window[k] = if at >= 2 && at - 2 < x.len() { x[at - 2] } else { 0.0 };
    }
    let mut sum = 0.0;
    for k in 0..5 {
        sum += window[k] * weights[k] * ones[k % 3];
    }
    window[0] += sum;
    y[i] = window[0];
}

#[test]
fn private_arrays_agree() {
    let x: Vec<f32> = (0..50).map(|i| i as f32 * 0.37).collect();
    let y = vec![0.0f32; 50];
    agree!(arrays(&x; y));
}

/// Side effects on the right of `&&` and `||`, in conditions and in values run as often, and in the
/// same order, as in Rust.
#[vyre::kernel(over = 1)]
fn effects(log: &mut [u32], count: &mut [u32]) {
    let mut n = 0u32;
    while n < 10 && vyre::atomic_add(&mut count[0], 1) < 5 {
        n += 1;
    }
    if n > 100 && vyre::atomic_add(&mut count[1], 1) == 0 {
        n += 1000;
    }
    if n == 5 || vyre::atomic_add(&mut count[2], 1) == 0 {
        n += 10;
    }
    // The value is evaluated before the index, each once.
    log[vyre::atomic_add(&mut count[3], 1) as usize] = vyre::atomic_add(&mut count[3], 1);
    let mut v = 1u32;
    let w =
        v + {
            v = 10;
            v * 2
        } + v;
    log[2] = w;
    log[3] = n;
    log[4] += if n > 3 { vyre::atomic_exchange(&mut count[4], 7) + 1 } else { 0 };
    v += {
        v = 100;
        5
    };
    log[5] = v;
}

#[test]
fn effects_happen_in_order() {
    let (log, count) = (vec![9u32; 6], vec![0u32; 5]);
    agree!(effects(; log, count));
}

const STEPS: u32 = 12;
const GAIN: f32 = 0.75;

mod shapes {
    pub(crate) const OFFSET: f64 = 0.1;

    #[vyre::function]
    pub(crate) fn square(x: f32) -> f32 {
        x * x
    }

    #[vyre::function]
    pub(crate) fn blend(a: f32, b: f32, t: f32) -> f32 {
        if t <= 0.0 {
            return a;
        }
        let d = square(b) - a;
        let mut sum = a;
        let mut k = 0;
        while k < 3 {
            sum += d * t;
            k += 1;
        }
        sum
    }
}

#[vyre::function]
fn square(x: u32) -> u32 {
    x * x + super_offset(1, true)
}

#[vyre::function]
fn super_offset(x: u32, add: bool) -> u32 {
    if add { x + STEPS } else { x }
}

#[vyre::kernel]
fn calls(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    let v: f32 = shapes::blend(x[i], 0.5, 0.1);
    let near: u32 = square(i as u32 % 9);
    let offset: f64 = shapes::OFFSET;
    y[i] = v * GAIN + near as f32 + shapes::square(v) + offset as f32 + STEPS as f32;
}

#[test]
fn functions_and_constants_agree() {
    let (x, y) = (floats(), vec![0.0f32; 100]);
    agree!(calls(&x; y));
}

#[vyre::kernel]
fn axpy<T: vyre::Float>(a: T, x: &[T], y: &mut [T]) {
    let i = vyre::index();
    y[i] = a * x[i] + y[i] * 2.0 + T::EPSILON;
}

#[vyre::kernel]
fn convert<A: vyre::Number, B: vyre::Integer>(x: &[A], y: &mut [B]) {
    let i = vyre::index();
    y[i] = x[i] as B + 1;
}

#[test]
fn generic_kernels_agree() {
    let (x, y) = (floats(), vec![0.5f32; 100]);
    agree!(axpy(3.5, &x; y));
    let (x, y) = (vec![0.1f64; 9], vec![0.5f64; 9]);
    agree!(axpy(3.5, &x; y));
    let (x, y) = (vec![-3.7f64, 2.2, 1e5], vec![0i64; 3]);
    agree!(convert(&x; y));
    let (x, y) = (vec![3u32, 2, 1], vec![0i32; 3]);
    agree!(convert(&x; y));
    let name = axpy::program::<f64>().expect("links").name().map(|name| name.to_string());
    assert_eq!(name.as_deref(), Some("axpy<f64>"));
}

#[vyre::kernel(check(N = 3))]
fn mean_of<const N: usize, const SCALE: i32>(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    let mut around = [0.0f32; N];
    for k in 0..N {
        around[k] = x[(i + k) % x.len()];
    }
    let mut sum = 0.0;
    for k in 0..around.len() {
        sum += around[k];
    }
    y[i] = sum / N as f32 * SCALE as f32;
}

#[test]
fn const_generics_agree() {
    let x: Vec<f32> = (0..40).map(|i| i as f32).collect();
    let mut y = vec![0.0f32; 40];
    agree!(mean_of::<3, 2>(&x; y));
    agree!(mean_of::<8, { -1 }>(&x; y));
    mean_of::<3, 2>(&x, &mut y).run(runtime()).expect("runs");
    assert_eq!(y[0], 2.0);
    mean_of::<5, 1>(&x, &mut y).run(runtime()).expect("runs");
    assert_eq!(y[0], 2.0);
}

#[vyre::kernel(over = [width, height], workgroup = [16, 4])]
fn blur(width: u32, height: u32, x: &[f32], #[output(len = width * height)] y: &mut [f32]) {
    let (column, row) = (vyre::index() as u32, vyre::index_y() as u32);
    let mut sum = 0.0;
    for dy in 0..3 {
        for dx in 0..3 {
            let (c, r) = ((column + dx).wrapping_sub(1), (row + dy).wrapping_sub(1));
            if c < width && r < height {
                sum += x[(r * width + c) as usize];
            }
        }
    }
    y[(row * width + column) as usize] = sum / 9.0;
}

#[vyre::kernel]
fn unwritten(x: &[f32], #[output(len_of = x)] y: &mut [f32]) {
    let i = vyre::index();
    if x[i] > 0.0 {
        y[i] = x[i] + y[i];
    }
}

#[vyre::kernel(workgroup = 8)]
fn grouped(x: &[u32], y: &mut [u32]) {
    let i = vyre::index();
    if i < y.len() {
        y[i] = x[i] * 1000
            + (vyre::local_index() * 100 + vyre::workgroup_index() * 10 + vyre::workgroup_count()) as u32;
    }
}

#[test]
fn domains_agree() {
    let x: Vec<f32> = (0..35).map(|i| (i * i % 17) as f32).collect();
    let y = vec![9.0f32; 35];
    agree!(blur(7, 5, &x; y));
    let (x, y) = (floats(), vec![5.0f32; 100]);
    agree!(unwritten(&x; y));
    let (x, y) = ((0..21).collect::<Vec<u32>>(), vec![0u32; 21]);
    agree!(grouped(&x; y));
}

#[vyre::kernel]
fn uniforms(n: usize, on: bool, shift: u8, #[uniform] w: &[f32; 3], table: &[f32; 4], y: &mut [f32]) {
    let i = vyre::index();
    let v = if on { w[i % 3] } else { -w[0] };
    y[i] = v + table[i % 4] * (n + (shift as usize)) as f32;
}

#[test]
fn scalars_and_sizes() {
    let mut y = vec![0.0f32; 10];
    agree!(uniforms(5, true, 3, &[1.0, 2.0, 3.0], &[0.5, 0.25, 0.0, 1.0]; y));
    let too_large = uniforms(1 << 40, true, 3, &[1.0, 2.0, 3.0], &[0.5; 4], &mut y).run(runtime());
    let message = too_large.expect_err("it has 41 bits").to_string();
    assert!(message.contains("not a usize of 2^32 or more"), "{message}");
    let short = uniforms(1, true, 3, &[1.0, 2.0], &[0.5; 4], &mut y).run(runtime());
    assert!(short.is_err_and(|error| error.to_string().contains('w')));
}

#[vyre::kernel(over = x, workgroup = 64)]
fn block_sums(x: &[u32], sums: &mut [u32], #[workgroup] tile: &mut [u32; 64]) {
    let (i, l) = (vyre::index(), vyre::local_index());
    tile[l] = if i < x.len() { x[i] } else { 0 };
    vyre::barrier();
    let mut half = 32;
    while half > 0 {
        if l < half {
            tile[l] += tile[l + half];
        }
        vyre::barrier();
        half /= 2;
    }
    if l == 0 {
        sums[vyre::workgroup_index()] = tile[0];
    }
}

#[vyre::kernel(over = x, workgroup = 64)]
fn subgroup_sums(x: &[u32], total: &mut [u32; 1]) {
    let sum = vyre::subgroup_reduce_add(x[vyre::index()]);
    if vyre::subgroup_lane() == 0 {
        vyre::atomic_add(&mut total[0], sum);
    }
}

#[test]
fn workgroups_exchange() -> Result<(), BackendError> {
    let x: Vec<u32> = (0..200).collect();
    for backend in ["cpu", "cpu-ref"] {
        let (mut sums, mut total) = ([0u32; 4], [0u32]);
        block_sums(&x, &mut sums).on(runtime())?.on(backend).run()?;
        assert_eq!(sums, [2016, 6112, 10208, 1564]);
        subgroup_sums(&x, &mut total).on(runtime())?.on(backend).run()?;
        assert_eq!(total[0], 19900);
    }
    Ok(())
}

#[vyre::function]
fn root(i: usize, x: f32) -> f32 {
    vyre::assert!(x >= 0.0, "negative at {}: {}", i, x);
    x.sqrt()
}

#[vyre::kernel]
fn told(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    if i == 1 {
        vyre::print!("x is {} {{}}", x[i]);
    }
    y[i] = root(i, x[i]);
}

#[test]
fn messages_are_reported() -> Result<(), BackendError> {
    let mut y = [0.0f32; 2];
    let report = told(&[4.0, 9.0], &mut y).run(runtime())?;
    assert_eq!((y, &*report.prints().messages[0].text), ([2.0, 3.0], "x is 9 {}"));
    let failed = told(&[4.0, -9.0], &mut y).run(runtime()).expect_err("one is negative");
    assert!(failed.to_string().contains("negative at 1: -9"), "{failed}");
    Ok(())
}

#[test]
fn a_map_is_a_kernel() -> Result<(), BackendError> {
    let map = vyre::map!(|x: f32| x * x + 1.0);
    let mut y = [0.0f32; 3];
    map.call(&[1.0, 2.0, 3.0], &mut y).run(runtime())?;
    assert_eq!(y, [2.0, 5.0, 10.0]);
    let mut bytes = [0u8; 2];
    vyre::map!(|x: i32| (x + 1) as u8).call(&[1, 299], &mut bytes).run(runtime())?;
    assert_eq!(bytes, [2, 44]);
    Ok(())
}

vyre::include_kernel!("../../../../examples/saxpy.vyre" as saxpy_of_text);
vyre::include_kernel!(pub "../../../../examples/blur.vyre" as blur_of_text);

#[test]
fn kernels_of_files() -> Result<(), BackendError> {
    let (x, mut y) = (floats(), vec![0.5f32; 100]);
    let mut own = y.clone();
    saxpy_of_text(2.0, &x, &mut y).run(runtime())?;
    saxpy(2.0, &x, &mut own).run(runtime())?;
    assert_eq!(bits(&y), bits(&own));
    let mut blurred = [0u8; 4];
    blur_of_text(2, 2, &[160u8, 0, 0, 0], &mut blurred).run(runtime())?;
    assert_eq!(blurred, [90, 30, 30, 10]);
    assert_eq!(saxpy_of_text::program()?.buffers().len(), 3);
    Ok(())
}

#[test]
fn two_runtimes_load_a_kernel_each() -> Result<(), BackendError> {
    let other = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    let mut y = [0.0f32; 2];
    for runtime in [runtime(), &other, &other.clone()] {
        saxpy(1.0, &[1.0, 2.0], &mut y).run(runtime)?;
    }
    assert_eq!(y, [3.0, 6.0]);
    let foreign = other.resident(&[0.0f32; 2]);
    let refused = saxpy(1.0, &foreign, &mut y).run(runtime()).expect_err("it is of another runtime");
    assert!(refused.to_string().contains("belongs to another runtime"), "{refused}");
    Ok(())
}
