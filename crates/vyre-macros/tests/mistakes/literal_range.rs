#[vyre::kernel]
fn kernel(y: &mut [u8]) {
    y[vyre::index()] = 300;
}

fn main() {}
