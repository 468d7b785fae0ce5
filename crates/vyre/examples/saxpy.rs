//! `y = a x + y` in three forms: a Rust function, a file, and a program built in Rust. All give the
//! same bits.

use vyre::prelude::*;

#[vyre::kernel]
fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    y[i] = a * x[i] + y[i];
}

vyre::include_kernel!("../../../examples/saxpy.vyre" as saxpy_of_file);

fn built() -> Program {
    let mut saxpy = ProgramBuilder::new("saxpy.built");
    let a = saxpy.uniform("a", DataType::F32);
    let (x, y) = (saxpy.read("x", DataType::F32), saxpy.read_write("y", DataType::F32));
    saxpy.region("saxpy", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        body.store(&y, &i, a.value() * x.at(&i) + y.at(&i));
    });
    saxpy.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let x: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
    let mut y = vec![1.0f32; x.len()];
    for _ in 0..10 {
        let report = saxpy(0.5, &x, &mut y).run(&runtime)?;
        println!("{report}");
    }
    assert_eq!(y[1000], 1.0 + 10.0 * 500.0);

    let (mut of_file, mut of_built, mut on_host) = (y.clone(), y.clone(), y.clone());
    saxpy(0.1, &x, &mut y).run(&runtime)?;
    saxpy_of_file(0.1, &x, &mut of_file).run(&runtime)?;
    let loaded = runtime.load(built())?;
    loaded.call().bind("a", 0.1f32).bind("x", &x).bind("y", &mut of_built).run()?;
    saxpy::on_host(0.1, &x, &mut on_host);
    assert!(y == of_file && y == of_built && y == on_host);
    println!("\n{}", loaded.explain(x.len()));
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
