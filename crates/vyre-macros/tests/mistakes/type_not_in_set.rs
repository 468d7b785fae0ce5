#[vyre::kernel]
fn axpy<T: vyre::Float>(a: T, y: &mut [T]) {
    y[vyre::index()] *= a;
}

fn main() {
    let _ = axpy(2u32, &mut [1u32]);
}
