#[vyre::function]
fn twice(x: f32) -> f32 {
    2.0 * x
}

#[vyre::kernel]
fn kernel(n: &[u32], y: &mut [f32]) {
    y[0] = twice(n[0]);
}

fn main() {}
