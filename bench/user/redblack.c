/* Arrays: width, height, colour, u, f. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t width = *(const uint32_t *)data[0], height = *(const uint32_t *)data[1];
    const size_t colour = *(const uint32_t *)data[2];
    float *restrict u = data[3];
    const float *restrict f = data[4];
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t y = 1; y < height - 1; y++) {
        for (size_t x = 1 + (y + 1 + colour) % 2; x + 1 < width; x += 2) {
            const size_t i = y * width + x;
            u[i] = 0.25f * (u[i - 1] + u[i + 1] + u[i - width] + u[i + width] - f[i]);
        }
    }
}
