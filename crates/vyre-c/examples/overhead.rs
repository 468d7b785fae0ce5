//! What the C interface adds to a call: `cargo run --release -p vyre-c --example overhead`.
//!
//! The same saxpy over 64 elements through `vyre_run` and through `Routine::call`, in turns; the median of the
//! differences of neighbouring rounds is printed.

#![allow(unsafe_code)] // It calls the interface as C does.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Instant;
use vyre::prelude::*;
use vyre_c::argument::{VYRE_F32, VYRE_READ, VYRE_WRITE, vyre_argument};
use vyre_c::array::vyre_array;
use vyre_c::routine::{vyre_load, vyre_routine, vyre_run};
use vyre_c::runtime::{VYRE_ABI_VERSION, vyre_runtime, vyre_runtime_open, vyre_runtime_options};

const TEXT: &std::ffi::CStr =
    c"kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y { y[invocation.x] = a * x[invocation.x] + y[invocation.x] }";
const ROUNDS: usize = 301;
const CALLS: u32 = 10_000;

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    let routine = runtime.load(TEXT.to_str().unwrap_or_default())?;
    let from_c = load_from_c();
    let (a, x, mut y, mut z) = (2.0_f32, [1.0_f32; 64], [0.5_f32; 64], [0.5_f32; 64]);
    let argument = |name: &'static std::ffi::CStr, data: *const f32, count, access| vyre_argument {
        name: name.as_ptr(),
        data: data.cast_mut().cast::<c_void>(),
        count,
        type_: VYRE_F32,
        access,
        array: vyre_array(null_mut()),
    };
    let arguments = [
        argument(c"a", &a, 1, VYRE_READ),
        argument(c"x", x.as_ptr(), 64, VYRE_READ),
        argument(c"y", y.as_mut_ptr(), 64, VYRE_WRITE),
    ];
    // SAFETY: the arguments name memory of this function.
    let mut by_c = || assert_eq!(unsafe { vyre_run(from_c, arguments.as_ptr(), 3, null(), null_mut()) }, 0);
    let mut by_rust = || {
        let call = routine.call().bind("a", a).bind("x", &x).bind("y", &mut z);
        call.run().map(drop).unwrap_or_else(|error| panic!("{error}"));
    };
    // Both are verified, tuned and compiled anew by then.
    (0..200_000).for_each(|_| {
        by_c();
        by_rust();
    });
    let (mut rust, mut added) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (c, own) = (time(&mut by_c), time(&mut by_rust));
        rust.push(own);
        added.push(c - own);
    }
    println!("a call in Rust {:.1} ns; the C interface adds {:.1} ns", median(rust), median(added));
    Ok(())
}

fn load_from_c() -> vyre_routine {
    let options = vyre_runtime_options {
        backends: c"cpu".as_ptr(),
        tables: null(),
        without_tables: 1,
        frozen: 0,
        print: None,
        context: null_mut(),
    };
    let (mut runtime, mut routine) = (vyre_runtime(null_mut()), vyre_routine(null_mut()));
    // SAFETY: all pointers are to what is here.
    unsafe {
        assert_eq!(vyre_runtime_open(VYRE_ABI_VERSION, &options, &mut runtime), 0);
        assert_eq!(vyre_load(runtime, TEXT.as_ptr(), &mut routine), 0);
    }
    routine
}

fn time(call: &mut impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..CALLS).for_each(|_| call());
    began.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
