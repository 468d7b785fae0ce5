#[vyre::kernel]
fn scale(a: f32, y: &mut [f32]) {
    y[vyre::index()] *= a;
}

fn main() {
    let mut y = vec![1.0f64; 4];
    let _ = scale(2.0, &mut y);
    let _ = scale(2u32, &mut [1.0]);
    let _ = scale(2.0, &[1.0]);
}
