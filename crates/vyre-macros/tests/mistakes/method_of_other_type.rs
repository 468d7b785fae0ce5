#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let n = x.len();
    y[0] = (n as u32).sqrt();
}

fn main() {}
