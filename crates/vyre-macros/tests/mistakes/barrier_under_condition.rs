#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    let i = vyre::index();
    if x[i] > 0.0 {
        vyre::barrier();
    }
    y[i] = 0.0;
}

fn main() {}
