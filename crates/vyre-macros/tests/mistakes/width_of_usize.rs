#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let n = vyre::index().leading_zeros();
    y[0] = n as f32;
}

fn main() {}
