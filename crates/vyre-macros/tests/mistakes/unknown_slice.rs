#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    y[vyre::index()] = w[0];
}

fn main() {}
