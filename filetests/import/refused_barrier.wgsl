// test validate
// Drivers hang or crash on this; here the position in the shader is reported.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&y)) { return; }
    y[id.x] += 1u;
    workgroupBarrier();
}

// error V015 8:5 not every invocation of the workgroup reaches this point, but a barrier needs all: control flow depends on the invocation since 6:5
