#[vyre::kernel]
fn kernel(x: &[f32], y: &mut [f32]) {
    'outer: loop {
        break 'outer;
    }
}

fn main() {}
