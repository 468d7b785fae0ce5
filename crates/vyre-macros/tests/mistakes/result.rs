#[vyre::kernel]
fn kernel(x: &[f32]) -> f32 {
    x[0]
}

fn main() {}
