//! A two-dimensional image blur in three forms: a Rust function, a file, and a program built in
//! Rust.

use vyre::prelude::*;

#[vyre::kernel(over = [width, height], workgroup = [16, 4])]
fn blur(width: u32, height: u32, picture: &[u8], #[output(len = width * height)] blurred: &mut [u8]) {
    let (x, y) = (vyre::index() as u32, vyre::index_y() as u32);
    let mut sum = 0;
    for dy in 0..3 {
        for dx in 0..3u32 {
            // Pixels outside the image repeat the border.
            let column = ((x + dx).max(1) - 1).min(width - 1);
            let row = ((y + dy).max(1) - 1).min(height - 1);
            // Weights 1 2 1, 2 4 2, 1 2 1: sixteen in all.
            let weight = (2 - dx.abs_diff(1)) * (2 - dy.abs_diff(1));
            sum += weight * picture[(row * width + column) as usize] as u32;
        }
    }
    blurred[(y * width + x) as usize] = ((sum + 8) / 16) as u8;
}

vyre::include_kernel!("../../../examples/blur.vyre" as blur_of_file);

fn built() -> Program {
    let one = || Expr::u32(1);
    let mut blur = ProgramBuilder::new("blur.built").workgroup([16, 4, 1]);
    let (width, height) = (blur.uniform("width", DataType::U32), blur.uniform("height", DataType::U32));
    let picture = blur.read("picture", DataType::U8);
    let blurred = blur.output_of("blurred", DataType::U8, width.value() * height.value());
    blur.over_axes([width.value(), height.value(), one()]);
    blur.region("blur", |body| {
        let sum = body.bind("sum", Expr::u32(0));
        body.count("dy", Expr::u32(0), Expr::u32(3), |body, dy| {
            body.count("dx", Expr::u32(0), Expr::u32(3), |body, dx| {
                let clamped = |axis: u8, step: &Expr, size: Expr| {
                    ((Expr::invocation_id(axis) + step).max(one()) - one()).min(size - one())
                };
                let at = clamped(1, &dy, height.value()) * width.value() + clamped(0, &dx, width.value());
                let weight = |step: Expr| Expr::u32(2) - step.abs_diff(one());
                body.assign("sum", sum.clone() + weight(dx) * weight(dy) * picture.at(at));
            });
        });
        let at = Expr::invocation_id(1) * width.value() + Expr::invocation_id(0);
        body.store(&blurred, at, (sum + Expr::u32(8)) / Expr::u32(16));
    });
    blur.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let (width, height) = (320u32, 200u32);
    let picture: Vec<u8> = (0..width * height).map(|i| ((i * i) >> 7) as u8).collect();
    let mut blurred = vec![0u8; picture.len()];
    let (mut of_file, mut of_built, mut on_host) = (blurred.clone(), blurred.clone(), blurred.clone());
    println!("{}", blur(width, height, &picture, &mut blurred).run(&runtime)?);
    blur_of_file(width, height, &picture, &mut of_file).run(&runtime)?;
    let call = runtime.load(built())?;
    let call = call.call().bind("width", width).bind("height", height);
    call.bind("picture", &picture).bind("blurred", &mut of_built).run()?;
    blur::on_host(width, height, &picture, &mut on_host);
    assert!(blurred == of_file && blurred == of_built && blurred == on_host);
    println!("{:?} became {:?}", &picture[1000..1008], &blurred[1000..1008]);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
