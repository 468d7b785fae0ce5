//! Result and duration of opening the backend on this machine: `cargo run --release -p vyre-cuda
//! --example opening`.

use std::time::Instant;
use vyre_cuda::{BACKEND_ID, Cuda};
use vyre_driver::registry;

fn main() {
    let began = Instant::now();
    let opened = Cuda::new();
    let took = began.elapsed();
    match opened {
        Ok(_) => println!("{BACKEND_ID} opens in {took:?}"),
        Err(reason) => println!("{reason}\nrefused in {took:?}"),
    }
    // A runtime checks whether the driver is one that it knows.
    let began = Instant::now();
    let stamp = registry::driver_stamp(BACKEND_ID);
    println!("the driver's stamp, {} characters, in {:?}", stamp.len(), began.elapsed());
}
