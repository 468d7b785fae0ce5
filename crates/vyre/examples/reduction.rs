//! One sum per workgroup, as a tree in workgroup memory, in three forms: a Rust function, a file,
//! and a program built in Rust.

use vyre::ir::BufferDecl;
use vyre::prelude::*;

#[vyre::kernel(over = x, workgroup = 8)]
fn reduce(x: &[i32], #[output] sums: &mut [i32; 3], #[workgroup] tile: &mut [i32; 8]) {
    let (at, i) = (vyre::index(), vyre::local_index());
    tile[i] = if at < x.len() { x[at] } else { 0 };
    vyre::barrier();
    for level in 0..3 {
        let half = 4usize >> level;
        if i < half {
            tile[i] = tile[i].wrapping_add(tile[i + half]);
        }
        vyre::barrier();
    }
    if i == 0 {
        sums[vyre::workgroup_index()] = tile[0];
    }
}

vyre::include_kernel!("../../../examples/reduce.vyre" as reduce_of_file);

fn built() -> Program {
    let mut reduce = ProgramBuilder::new("reduce.built").workgroup([8, 1, 1]);
    let x = reduce.read("x", DataType::I32);
    let sums = reduce.declare(BufferDecl::output("sums", 1, DataType::I32).with_count(3));
    let tile = reduce.shared("tile", 8, DataType::I32);
    reduce.over(&x);
    reduce.region("reduce", |body| {
        let i = body.bind("i", Expr::local_id(0));
        body.store(&tile, &i, x.at(Expr::invocation_id(0)));
        body.barrier();
        body.count("level", Expr::u32(0), Expr::u32(3), |body, level| {
            let half = body.bind("half", Expr::u32(4) >> level);
            body.when(i.clone().lt(&half), |body| {
                body.store(&tile, &i, tile.at(&i) + tile.at(i.clone() + &half));
            });
            body.barrier();
        });
        body.when(i.clone().equals(Expr::u32(0)), |body| {
            body.store(&sums, Expr::workgroup_id(0), tile.at(Expr::u32(0)));
        });
    });
    reduce.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let x: Vec<i32> = (0..20).map(|i| i * i * i - 900).collect();
    let (mut sums, mut of_file, mut of_built) = ([0i32; 3], [0i32; 3], [0i32; 3]);
    println!("{}", reduce(&x, &mut sums).run(&runtime)?);
    reduce_of_file(&x, &mut of_file).run(&runtime)?;
    runtime.load(built())?.call().bind("x", &x).bind("sums", &mut of_built).run()?;
    assert!(sums == of_file && sums == of_built);
    assert_eq!(sums.iter().sum::<i32>(), x.iter().sum::<i32>());
    println!("{sums:?}");
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
