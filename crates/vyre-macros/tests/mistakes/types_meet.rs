#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    y[i] = x[i] + i;
}

fn main() {}
