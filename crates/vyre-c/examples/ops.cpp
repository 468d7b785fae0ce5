// Kernels, device arrays and ready ops from C++17.
#include "vyre.hpp"

#include <iostream>
#include <vector>

int main() try {
    vyre::runtime runtime;

    vyre::routine doubled = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }");
    vyre::device_array<float> x = runtime.array(std::vector<float>{1, 2, 3});
    for (int k = 0; k < 3; ++k) doubled.run(vyre::on_device("x", x));
    if (x.read() != std::vector<float>{8, 16, 24}) return 1;

    std::vector<int> keys = {3, -7, 12, 0, -1}, sorted(keys.size());
    runtime.run_op("sort.keys", vyre::in("keys", keys), vyre::out("sorted", sorted));
    if (sorted != std::vector<int>{-7, -1, 0, 3, 12}) return 2;

    vyre::routine scale = runtime.load(
        "kernel scale(a: f64 uniform, y: read_write f64[]) { y[invocation.x] = a * y[invocation.x] }");
    std::vector<double> y = {1, 2};
    vyre::report report = scale.reported(nullptr, vyre::value("a", 0.5), vyre::out("y", y));
    std::cout << report.text() << '\n';
    if (y != std::vector<double>{0.5, 1} || report.measures().elements != 2) return 3;

    vyre::routine add = runtime.load(
        "const BY: u32 = 1\nkernel add(x: read u32[], y: output u32[] len_of x) { y[invocation.x] = x[invocation.x] + BY }",
        {{"BY", "5"}});
    unsigned before[] = {1, 2, 3}, after[3];
    add.run(vyre::in("x", before), vyre::out("y", after));
    if (after[2] != 8) return 6;

    try {
        scale.run(vyre::value("a", 0.5f), vyre::out("y", y));
        return 4;
    } catch (const vyre::error &error) {
        std::cout << "as expected: " << error.what() << '\n';
        return error.status() == VYRE_INVALID_PROGRAM ? 0 : 5;
    }
} catch (const vyre::error &error) {
    std::cerr << error.what() << '\n';
    return 9;
}
