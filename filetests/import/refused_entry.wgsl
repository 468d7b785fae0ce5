// test validate
// entry blur
@compute @workgroup_size(1)
fn sharpen() {}

// error S003 the shader has no compute entry point `blur`
