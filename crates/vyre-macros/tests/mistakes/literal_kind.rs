#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    y[vyre::index()] = 1;
}

fn main() {}
