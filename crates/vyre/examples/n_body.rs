//! Gravity between masses in space, in three forms: a Rust function, a file, and a program built in
//! Rust.

use vyre::prelude::*;

#[vyre::kernel(over = x)]
#[rustfmt::skip]
fn n_body(
    softening: f32, mass: &[f32], x: &[f32], y: &[f32], z: &[f32],
    #[output(len_of = x)] ax: &mut [f32], #[output(len_of = x)] ay: &mut [f32], #[output(len_of = x)] az: &mut [f32],
) {
    let i = vyre::index();
    let (px, py, pz) = (x[i], y[i], z[i]);
    let (mut sx, mut sy, mut sz) = (0.0, 0.0, 0.0);
    for k in 0..x.len() {
        let (dx, dy, dz) = (x[k] - px, y[k] - py, z[k] - pz);
        let square = dx * dx + dy * dy + dz * dz + softening;
        let pull = mass[k] / (square * square.sqrt());
        sx += pull * dx;
        sy += pull * dy;
        sz += pull * dz;
    }
    ax[i] = sx;
    ay[i] = sy;
    az[i] = sz;
}

vyre::include_kernel!("../../../examples/n_body.vyre" as n_body_of_file);

fn built() -> Program {
    let mut kernel = ProgramBuilder::new("n_body.built");
    let softening = kernel.uniform("softening", DataType::F32);
    let mass = kernel.read("mass", DataType::F32);
    let places = ["x", "y", "z"].map(|name| kernel.read(name, DataType::F32));
    let pulls = ["ax", "ay", "az"].map(|name| kernel.output(name, DataType::F32));
    kernel.over(&places[0]);
    kernel.region("n_body", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        let here = [0, 1, 2].map(|axis| body.bind(format!("p{axis}"), places[axis].at(&i)));
        let sums = [0, 1, 2].map(|axis| body.bind(format!("s{axis}"), Expr::f32(0.0)));
        body.count("k", Expr::u32(0), places[0].len(), |body, k| {
            let d =
                [0, 1, 2].map(|axis| body.bind(format!("d{axis}"), places[axis].at(&k) - here[axis].clone()));
            let [x, y, z] = [0, 1, 2].map(|axis: usize| d[axis].clone() * d[axis].clone());
            let square = body.bind("square", x + y + z + softening.value());
            let pull = body.bind("pull", mass.at(k) / (square.clone() * square.sqrt()));
            for axis in 0..3 {
                body.assign(format!("s{axis}"), sums[axis].clone() + pull.clone() * d[axis].clone());
            }
        });
        for axis in 0..3 {
            body.store(&pulls[axis], &i, sums[axis].clone());
        }
    });
    kernel.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let count = 500;
    let spread = |seed: u32| -> Vec<f32> {
        (0..count).map(|i: u32| (i.wrapping_mul(seed) >> 8) as f32 / (1 << 24) as f32).collect()
    };
    let (mass, x, y, z) = (spread(2654435761), spread(2246822519), spread(3266489917), spread(668265263));
    let forms: [[Vec<f32>; 3]; 4] = Default::default();
    let [mut typed, mut of_file, mut of_built, mut on_host] =
        forms.map(|axes| axes.map(|_| vec![0.0f32; count as usize]));

    let [ax, ay, az] = &mut typed;
    println!("{}", n_body(0.01, &mass, &x, &y, &z, ax, ay, az).run(&runtime)?);
    let [ax, ay, az] = &mut of_file;
    n_body_of_file(0.01, &mass, &x, &y, &z, ax, ay, az).run(&runtime)?;
    let [ax, ay, az] = &mut of_built;
    let loaded = runtime.load(built())?;
    let call = loaded
        .call()
        .bind("softening", 0.01f32)
        .bind("mass", &mass)
        .bind("x", &x)
        .bind("y", &y)
        .bind("z", &z);
    call.bind("ax", ax).bind("ay", ay).bind("az", az).run()?;
    let [ax, ay, az] = &mut on_host;
    n_body::on_host(0.01, &mass, &x, &y, &z, ax, ay, az);
    assert!(typed == of_file && typed == of_built && typed == on_host);
    println!("{} {} {}", typed[0][0], typed[1][0], typed[2][0]);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
