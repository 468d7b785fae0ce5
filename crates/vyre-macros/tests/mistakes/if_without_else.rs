#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let v = if x[0] > 0.0 { 1.0 };
    y[0] = v;
}

fn main() {}
