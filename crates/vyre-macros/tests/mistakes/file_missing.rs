vyre::include_kernel!("nowhere.vyre");

fn main() {}
