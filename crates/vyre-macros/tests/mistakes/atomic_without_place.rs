#[vyre::kernel]
fn kernel(y: &mut [u32]) {
    let mut v = 1;
    vyre::atomic_add(&mut v, 1);
}

fn main() {}
