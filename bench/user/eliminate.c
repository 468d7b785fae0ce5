/* Arrays: n, p, a. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0], p = *(const uint32_t *)data[1];
    float *restrict a = data[2];
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t i = p + 1; i < n; i++) {
        const float factor = a[i * n + p] / a[p * n + p];
        for (size_t j = p + 1; j < n; j++) a[i * n + j] -= factor * a[p * n + j];
    }
}
