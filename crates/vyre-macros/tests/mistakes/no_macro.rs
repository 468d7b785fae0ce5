#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    println!("{}", x[0]);
    y[0] = 0.0;
}

fn main() {}
