#[vyre::kernel]
fn kernel(y: &mut [bool]) {
    y[0] = true;
}

fn main() {}
