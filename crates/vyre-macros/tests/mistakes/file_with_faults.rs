vyre::include_kernel!("faults.vyre");

fn main() {}
