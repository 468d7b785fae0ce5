/* A five-point step on a square grid; the border is unchanged. Arrays: width, a, b. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const float *restrict a = data[1];
    float *restrict b = data[2];
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < n; y++) {
        if (y == 0 || y == n - 1) {
            memcpy(b + y * n, a + y * n, n * sizeof *b);
            continue;
        }
        const float *row = a + y * n;
        float *out = b + y * n;
        out[0] = row[0];
        for (size_t x = 1; x < n - 1; x++) {
            out[x] = 0.25f * (((row[x - 1] + row[x + 1]) + row[x - n]) + row[x + n]);
        }
        out[n - 1] = row[n - 1];
    }
    (void)count;
}
