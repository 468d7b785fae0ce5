#[vyre::kernel]
fn kernel(x: &[u8], y: &mut [u8]) {
    let i = vyre::index();
    y[i] = x[i] + 1;
}

fn main() {}
