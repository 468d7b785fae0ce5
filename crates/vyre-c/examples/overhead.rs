//! Cost that the C interface adds to a call: `cargo run --release -p vyre-c --example overhead`.
//!
//! Alternates the same saxpy over 64 elements through `Routine::call`, through `vyre_run` of the
//! shared library, loaded as a C program loads it, and through statically linked `vyre_run`. Prints
//! the medians of the differences between neighbouring rounds.

#![allow(unsafe_code)] // Calls the C interface.

use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::time::Instant;
use vyre::prelude::*;
use vyre_c::argument::{VYRE_F32, VYRE_READ, VYRE_WRITE, vyre_argument};
use vyre_c::array::vyre_array;
use vyre_c::report::vyre_report;
use vyre_c::routine::{vyre_load, vyre_options, vyre_routine, vyre_run};
use vyre_c::runtime::{VYRE_ABI_VERSION, vyre_runtime, vyre_runtime_open, vyre_runtime_options};
use vyre_c::status::vyre_status;

const TEXT: &CStr =
    c"kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y { y[invocation.x] = a * x[invocation.x] + y[invocation.x] }";
const ROUNDS: usize = 301;
const CALLS: u32 = 10_000;

type Open = unsafe extern "C" fn(u32, *const vyre_runtime_options, *mut vyre_runtime) -> vyre_status;
type Load = unsafe extern "C" fn(vyre_runtime, *const std::ffi::c_char, *mut vyre_routine) -> vyre_status;
type Run = unsafe extern "C" fn(
    vyre_routine,
    *const vyre_argument,
    usize,
    *const vyre_options,
    *mut vyre_report,
) -> vyre_status;

/// The functions that a call needs.
struct Interface {
    open: Open,
    load: Load,
    run: Run,
}

fn main() -> Result<(), Box<dyn Error>> {
    let library = shared_library()?;
    // SAFETY: the library is from this build, so its functions match those of this crate.
    let shared = unsafe {
        Interface {
            open: *library.get(b"vyre_runtime_open")?,
            load: *library.get(b"vyre_load")?,
            run: *library.get(b"vyre_run")?,
        }
    };
    let linked = Interface { open: vyre_runtime_open, load: vyre_load, run: vyre_run };
    let (mut by_shared, mut by_linked) = (caller(&shared), caller(&linked));

    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    let routine = runtime.load(TEXT.to_str()?)?;
    let (a, x, mut y) = (2.0_f32, [1.0_f32; 64], [0.5_f32; 64]);
    let mut by_rust = || {
        let call = routine.call().bind("a", a).bind("x", &x).bind("y", &mut y);
        call.run().map(drop).unwrap_or_else(|error| panic!("{error}"));
    };
    // By then all are verified, tuned and recompiled.
    (0..200_000).for_each(|_| {
        by_shared();
        by_linked();
        by_rust();
    });
    let (mut rust, mut over_shared, mut over_linked) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (c, own, inside) = (time(&mut by_shared), time(&mut by_rust), time(&mut by_linked));
        rust.push(own);
        over_shared.push(c - own);
        over_linked.push(inside - own);
    }
    println!(
        "a call in Rust {:.1} ns; the C interface adds {:.1} ns, linked statically {:.1} ns",
        median(rust),
        median(over_shared),
        median(over_linked)
    );
    Ok(())
}

/// The shared library that cargo built with this example.
fn shared_library() -> Result<Library, Box<dyn Error>> {
    let example = std::env::current_exe()?;
    let folder = example.parent().and_then(|examples| examples.parent()).ok_or("where is this example?")?;
    let name = libloading::library_filename("vyre_c");
    // SAFETY: loading the library runs only the initialisers of any Rust library.
    Ok(unsafe { Library::new(folder.join("deps").join(name)) }?)
}

/// Makes the call through these functions, on its own memory.
fn caller(interface: &Interface) -> impl FnMut() {
    let options = vyre_runtime_options {
        backends: c"cpu".as_ptr(),
        tables: null(),
        without_tables: 1,
        frozen: 0,
        print: None,
        context: null_mut(),
    };
    let (mut runtime, mut routine) = (vyre_runtime(null_mut()), vyre_routine(null_mut()));
    // SAFETY: all pointers are to live local values.
    unsafe {
        assert_eq!((interface.open)(VYRE_ABI_VERSION, &options, &mut runtime), 0);
        assert_eq!((interface.load)(runtime, TEXT.as_ptr(), &mut routine), 0);
    }
    let memory = Box::leak(Box::new((2.0_f32, [1.0_f32; 64], [0.5_f32; 64])));
    let argument = |name: &'static CStr, data: *const f32, count, access| vyre_argument {
        name: name.as_ptr(),
        data: data.cast_mut().cast::<c_void>(),
        count,
        type_: VYRE_F32,
        access,
        array: vyre_array(null_mut()),
    };
    let arguments = [
        argument(c"a", &memory.0, 1, VYRE_READ),
        argument(c"x", memory.1.as_ptr(), 64, VYRE_READ),
        argument(c"y", memory.2.as_mut_ptr(), 64, VYRE_WRITE),
    ];
    let run = interface.run;
    // SAFETY: the arguments name memory that is never freed and that nothing else uses.
    move || assert_eq!(unsafe { run(routine, arguments.as_ptr(), 3, null(), null_mut()) }, 0)
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
