#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let i = vyre::index() as u32;
    y[i] = x[i];
}

fn main() {}
