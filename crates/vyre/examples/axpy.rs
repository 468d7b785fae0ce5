//! One generic kernel for `f32` and `f64`, alongside a file and a program built in Rust. All give
//! the same bits.

use vyre::prelude::*;

#[vyre::kernel]
fn axpy<T: vyre::Float>(a: T, x: &[T], y: &mut [T]) {
    let i = vyre::index();
    y[i] = a * x[i] + y[i];
}

vyre::include_kernel!("../../../examples/axpy.vyre" as axpy_of_file);

fn built(element: DataType) -> Program {
    let mut axpy = ProgramBuilder::new("axpy.built");
    let a = axpy.uniform("a", element);
    let (x, y) = (axpy.read("x", element), axpy.read_write("y", element));
    axpy.region("axpy", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        body.store(&y, &i, a.value() * x.at(&i) + y.at(&i));
    });
    axpy.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let x: Vec<f64> = (0..10_000).map(|i| f64::from(i).sqrt()).collect();
    let mut y = vec![1.0 / 3.0; x.len()];
    let (mut of_file, mut of_built, mut on_host) = (y.clone(), y.clone(), y.clone());
    println!("{}", axpy(0.1, &x, &mut y).run(&runtime)?);
    axpy_of_file(0.1, &x, &mut of_file).run(&runtime)?;
    let loaded = runtime.load(built(DataType::F64))?;
    loaded.call().bind("a", 0.1f64).bind("x", &x).bind("y", &mut of_built).run()?;
    axpy::on_host(0.1, &x, &mut on_host);
    assert!(y == of_file && y == of_built && y == on_host);

    // The same function at another type.
    let x: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let mut y = vec![1.0f32 / 3.0; x.len()];
    let mut of_built = y.clone();
    println!("{}", axpy(0.1, &x, &mut y).run(&runtime)?);
    let loaded = runtime.load(built(DataType::F32))?;
    loaded.call().bind("a", 0.1f32).bind("x", &x).bind("y", &mut of_built).run()?;
    assert!(y == of_built);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
