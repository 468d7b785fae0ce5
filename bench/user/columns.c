/* Arrays: n, a, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const float *restrict a = data[1], *restrict x = data[2];
    float *restrict y = data[3];
    enum { AT_ONCE = 64 };
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += AT_ONCE) {
        const size_t columns = n - first < AT_ONCE ? n - first : AT_ONCE;
        float sums[AT_ONCE] = {0};
        for (size_t k = 0; k < n; k++) {
            for (size_t j = 0; j < columns; j++) sums[j] += a[k * n + first + j] * x[k];
        }
        memcpy(y + first, sums, columns * sizeof *sums);
    }
}
