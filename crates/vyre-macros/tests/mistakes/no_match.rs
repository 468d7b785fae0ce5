#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    y[0] = match vyre::index() {
        0 => 1.0,
        _ => 2.0,
    };
}

fn main() {}
