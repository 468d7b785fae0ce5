// test interpret
// test run
// Private arrays: of structs, of arrays, copied, cleared, and a large indexed constant.
struct Pair { a: f32, b: i32 }
const primes = array<u32, 20>(2u, 3u, 5u, 7u, 11u, 13u, 17u, 19u, 23u, 29u, 31u, 37u, 41u, 43u, 47u, 53u, 59u, 61u, 67u, 71u);
var<private> history: array<u32, 4>;
var<private> start: array<u32, 3> = array<u32, 3>(5u, 6u, 7u);
@group(0) @binding(0) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var pairs: array<Pair, 3>;
    var grid: array<array<f32, 4>, 3>;
    for (var i = 0u; i < 3u; i++) {
        pairs[i] = Pair(f32(i) * 0.5, i32(i) - 1);
        for (var j = 0u; j < 4u; j++) { grid[i][j] = f32(i * 4u + j); }
        history[i] = primes[i * 3u + id.x] + start[i];
    }
    var copy = grid;
    grid = array<array<f32, 4>, 3>();
    copy[id.x % 3u][3] += grid[1][2];
    let small = array<f32, 3>(10.0, 20.0, 30.0);
    y[id.x] = copy[id.x % 3u][3] + pairs[id.x % 3u].a * f32(pairs[2].b) + f32(history[id.x % 4u]) * 100.0 + small[id.x % 3u] * 0.001;
}
// input y: f32 = [0, 0, 0, 0]
// output y: f32 = [703.01, 1707.52, 3012.03, 3.01]
