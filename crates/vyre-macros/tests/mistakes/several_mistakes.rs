#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    y[i] = x[i].round();
    let v: u32 = x[i];
    y[i] = unknown;
}

fn main() {}
