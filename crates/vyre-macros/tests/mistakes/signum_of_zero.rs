#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    y[vyre::index()] = x[0].signum();
}

fn main() {}
