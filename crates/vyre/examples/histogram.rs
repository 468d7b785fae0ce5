//! A histogram with atomics and workgroup memory in three forms: a Rust function, a file, and a
//! program built in Rust.

use vyre::ir::BufferDecl;
use vyre::prelude::*;

#[vyre::kernel(over = x, workgroup = 16)]
fn histogram(x: &[u8], bins: &mut [u32; 8], #[workgroup] own: &mut [u32; 8]) {
    let (i, k) = (vyre::index(), vyre::local_index());
    if i < x.len() {
        vyre::atomic_add(&mut own[(x[i] % 8) as usize], 1);
    }
    vyre::barrier();
    if k < 8 {
        vyre::atomic_add(&mut bins[k], own[k]);
    }
}

vyre::include_kernel!("../../../examples/histogram.vyre" as histogram_of_file);

fn built() -> Program {
    let mut histogram = ProgramBuilder::new("histogram.built").workgroup([16, 1, 1]);
    let x = histogram.read("x", DataType::U8);
    let bins = histogram.declare(BufferDecl::read_write("bins", 1, DataType::U32).with_count(8));
    let own = histogram.shared("own", 8, DataType::U32);
    histogram.over(&x);
    histogram.region("histogram", |body| {
        let (i, k) = (body.bind("i", Expr::invocation_id(0)), body.bind("k", Expr::local_id(0)));
        body.when(i.clone().lt(x.len()), |body| {
            body.push(Node::Eval(Expr::atomic_add(&own, x.at(i) % Expr::u32(8), Expr::u32(1))));
        });
        body.barrier();
        body.when(k.clone().lt(Expr::u32(8)), |body| {
            body.push(Node::Eval(Expr::atomic_add(&bins, k.clone(), own.at(k))));
        });
    });
    histogram.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let x: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) % 251) as u8).collect();
    let (mut bins, mut of_file, mut of_built) = ([0u32; 8], [0u32; 8], [0u32; 8]);
    println!("{}", histogram(&x, &mut bins).run(&runtime)?);
    histogram_of_file(&x, &mut of_file).run(&runtime)?;
    runtime.load(built())?.call().bind("x", &x).bind("bins", &mut of_built).run()?;
    assert!(bins == of_file && bins == of_built);
    assert_eq!(bins.iter().sum::<u32>(), 100_000);
    println!("{bins:?}");
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
