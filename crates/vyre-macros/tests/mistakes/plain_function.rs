fn twice(x: f32) -> f32 {
    2.0 * x
}

#[vyre::kernel]
fn kernel(y: &mut [f32]) {
    y[0] = twice(y[0]);
}

fn main() {}
