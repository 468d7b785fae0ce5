#[vyre::kernel]
fn kernel(y: &mut [f32], #[workgroup] tile: &mut [f32]) {
    tile[0] = 0.0;
    y[0] = 0.0;
}

fn main() {}
