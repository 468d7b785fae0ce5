#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    for v in x.iter() {
        y[0] = 1.0;
    }
}

fn main() {}
