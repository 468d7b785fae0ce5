#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let twice = |v: f32| v * 2.0;
    y[0] = 1.0;
}

fn main() {}
