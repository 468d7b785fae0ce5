#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let v = 1.0;
    v += x[0];
    y[0] = v;
}

fn main() {}
