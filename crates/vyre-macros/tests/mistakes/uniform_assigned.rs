#[vyre::kernel]
fn kernel(a: f32, y: &mut [f32]) {
    a = 2.0;
    y[0] = a;
}

fn main() {}
