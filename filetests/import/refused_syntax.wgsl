// test validate
// naga's message, at its position.
@compute @workgroup_size(1)
fn main() { let x = unknown + 1; }

// error S001 4:21 no definition in scope for identifier: `unknown`: unknown identifier
