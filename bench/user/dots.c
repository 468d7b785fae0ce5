/* Arrays: n, a, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const uint32_t *restrict a = data[1], *restrict x = data[2];
    uint32_t *restrict y = data[3];
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < count[3]; row++) {
        uint32_t sum = 0;
        for (size_t k = 0; k < n; k++) sum += a[row * n + k] * x[k];
        y[row] = sum;
    }
}
