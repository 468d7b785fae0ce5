#[vyre::kernel]
fn kernel(x: &[String], y: &mut [f32]) {
    y[0] = 1.0;
}

fn main() {}
