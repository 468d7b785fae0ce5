#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    x[vyre::index()] = 1.0;
}

fn main() {}
