//! The MurmurHash3 finaliser in three forms: a Rust function, a file, and a program built in Rust.

use vyre::prelude::*;

#[vyre::kernel]
fn hash(x: &[u32], #[output(len_of = x)] y: &mut [u32]) {
    let i = vyre::index();
    let mut h = x[i];
    h ^= h >> 16;
    h = h.wrapping_mul(0x85ebca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2ae35);
    h ^= h >> 16;
    y[i] = h;
}

vyre::include_kernel!("../../../examples/hash.vyre" as hash_of_file);

fn built() -> Program {
    let mut hash = ProgramBuilder::new("hash.built");
    let (x, y) = (hash.read("x", DataType::U32), hash.output("y", DataType::U32));
    hash.region("hash", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        let mut h = body.bind("h0", x.at(&i));
        for (step, (shift, factor)) in [(16, 0x85ebca6b), (13, 0xc2b2ae35), (16, 1)].into_iter().enumerate() {
            let spread = (h.clone() ^ (h >> Expr::u32(shift))) * Expr::u32(factor);
            h = body.bind(format!("h{}", step + 1), spread);
        }
        body.store(&y, &i, h);
    });
    hash.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let x: Vec<u32> = (0..100_000).collect();
    let mut y = vec![0u32; x.len()];
    let (mut of_file, mut of_built, mut on_host) = (y.clone(), y.clone(), y.clone());
    println!("{}", hash(&x, &mut y).run(&runtime)?);
    hash_of_file(&x, &mut of_file).run(&runtime)?;
    runtime.load(built())?.call().bind("x", &x).bind("y", &mut of_built).run()?;
    hash::on_host(&x, &mut on_host);
    assert!(y == of_file && y == of_built && y == on_host);
    println!("{:08x} {:08x} {:08x} …", y[1], y[2], y[3]);
    assert_eq!(y[1], 0x514e28b7);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
