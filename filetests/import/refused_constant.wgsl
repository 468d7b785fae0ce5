// test validate
override WIDTH: u32;
@compute @workgroup_size(WIDTH)
fn main() {}

// error S004 the override `WIDTH` has no value
