#[vyre::kernel]
fn axpy<T: Copy>(y: &mut [T]) {
    y[0] = y[1];
}

fn main() {}
