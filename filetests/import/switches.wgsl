// test interpret
// test run
// Switches: several values, a default in the middle, breaks out of branches, `continue` and
// `return` inside.
@group(0) @binding(0) var<storage, read_write> y: array<i32>;

fn pick(x: i32) -> i32 {
    switch x {
        case 0: { return 10; }
        default: { if (x > 5) { break; } return 20 + x; }
        case 2, 3: { if (x == 2) { break; } return 30; }
    }
    return 40;
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0;
    for (var i = 0; i < 8; i++) {
        switch i {
            case 1: { continue; }
            case 4, 5: { if (i == 5) { break; } sum += 100; }
            case 6: { sum += 1000; if (sum > 2000) { continue; } sum += 5000; }
            default: { sum += i; }
        }
        sum += 10000;
    }
    y[id.x] = sum + pick(i32(id.x)) * 1000000;
}
// input y: i32 = [0, 0, 0, 0, 0, 0, 0]
// output y: i32 = [10061112, 21061112, 40061112, 30061112, 24061112, 25061112, 40061112]
