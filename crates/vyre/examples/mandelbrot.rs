//! The Mandelbrot set in three forms: a Rust function, a file, and a program built in Rust.

use vyre::prelude::*;

const WIDTH: usize = 1200;
const HEIGHT: usize = 800;
const ROUNDS: u32 = 300;

#[vyre::kernel(over = [WIDTH, HEIGHT], workgroup = [16, 4])]
fn mandelbrot(#[output] shade: &mut [f32]) {
    let (px, py) = (vyre::index(), vyre::index_y());
    let (cx, cy) = ((px as f32 - 790.0) / 350.0, (py as f32 - 399.5) / 350.0);
    let (mut x, mut y) = (0.0, 0.0);
    let mut count = 0u32;
    while count < ROUNDS && x * x + y * y <= 256.0 {
        (x, y) = (x * x - y * y + cx, 2.0 * x * y + cy);
        count += 1;
    }
    if count < ROUNDS {
        // Each round squares the distance; this is the fraction of a round by which the last one
        // overshot.
        let over = ((x * x + y * y).log2() / 8.0).log2();
        shade[py * WIDTH + px] = (count as f32 + 2.0 - over).log2();
    }
}

vyre::include_kernel!("../../../examples/mandelbrot.vyre" as mandelbrot_of_file);

fn built() -> Program {
    let number = Expr::f32;
    let mut kernel = ProgramBuilder::new("mandelbrot.built").workgroup([16, 4, 1]);
    let shade = kernel.output_of("shade", DataType::F32, Expr::u32((WIDTH * HEIGHT) as u32));
    kernel.over_counts([WIDTH as u32, HEIGHT as u32, 1]);
    kernel.region("mandelbrot", |body| {
        let (px, py) = (body.bind("px", Expr::invocation_id(0)), body.bind("py", Expr::invocation_id(1)));
        let to_float = |e: &Expr| e.clone().cast(vyre::ir::ValueType::F32);
        let cx = body.bind("cx", (to_float(&px) - number(790.0)) / number(350.0));
        let cy = body.bind("cy", (to_float(&py) - number(399.5)) / number(350.0));
        let (x, y) = (body.bind("x", number(0.0)), body.bind("y", number(0.0)));
        let count = body.bind("count", Expr::u32(0));
        let square = || x.clone() * x.clone() + y.clone() * y.clone();
        let limit = Expr::u32(ROUNDS);
        body.repeat_while(count.clone().lt(&limit) & square().le(number(256.0)), |body| {
            let next = body.bind("next", x.clone() * x.clone() - y.clone() * y.clone() + cx.clone());
            body.assign("y", number(2.0) * x.clone() * y.clone() + cy.clone());
            body.assign("x", next);
            body.assign("count", count.clone() + Expr::u32(1));
        });
        body.when(count.clone().lt(limit), |body| {
            let over = body.bind("over", (square().log2() / number(8.0)).log2());
            let at = py.clone() * Expr::u32(WIDTH as u32) + px.clone();
            body.store(&shade, at, (to_float(&count) + number(2.0) - over).log2());
        });
    });
    kernel.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let mut shade = vec![0.0f32; WIDTH * HEIGHT];
    let (mut of_file, mut of_built) = (shade.clone(), shade.clone());
    println!("{}", mandelbrot(&mut shade).run(&runtime)?);
    mandelbrot_of_file(&mut of_file).run(&runtime)?;
    runtime.load(built())?.call().bind("shade", &mut of_built).run()?;
    assert!(shade == of_file && shade == of_built);
    for row in shade.chunks(WIDTH).step_by(40) {
        let line = row.iter().step_by(15).map(|&shade| [' ', '.', ':', '*', '#'][(shade as usize).min(4)]);
        println!("{}", line.collect::<String>());
    }
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
