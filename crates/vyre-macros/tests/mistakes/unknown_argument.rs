#[vyre::kernel(group = 64)]
fn kernel(x: &[f32], y: &mut [f32]) {
    y[0] = 1.0;
}

fn main() {}
