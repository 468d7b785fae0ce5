//! A kernel from text, called on slices, and why it ran where it ran.

use vyre::prelude::*;

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let saxpy = runtime.load(
        "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) {
           let i = invocation.x
           y[i] = a * x[i] + y[i]
         }",
    )?;
    let x: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
    let mut y = vec![1.0f32; x.len()];
    for _ in 0..10 {
        let report = saxpy.call().bind("a", 0.5f32).bind("x", &x).bind("y", &mut y).run()?;
        println!("{report}");
    }
    assert_eq!(y[1000], 1.0 + 10.0 * 500.0);
    println!("\n{}", saxpy.explain(x.len() as u64));
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
