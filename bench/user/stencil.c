/* Arrays: n, a, b. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const float *restrict a = data[1];
    float *restrict b = data[2];
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < n; y++) {
        if (y == 0 || y + 1 == n) {
            memcpy(b + y * n, a + y * n, n * sizeof *b);
            continue;
        }
        b[y * n] = a[y * n];
        for (size_t x = 1; x + 1 < n; x++) {
            const size_t c = y * n + x;
            b[c] = 0.2f * (a[c] + a[c - 1] + a[c + 1] + a[c - n] + a[c + n]);
        }
        b[y * n + n - 1] = a[y * n + n - 1];
    }
}
