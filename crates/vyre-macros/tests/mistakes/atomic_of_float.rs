#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    vyre::atomic_add(&mut y[0], 1.0);
}

fn main() {}
