/* Arrays: n, a, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const float *restrict a = data[1];
    uint32_t *restrict out = data[2];
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < count[2]; row++) {
        const float *from = a + row * n;
        float least = from[0];
        uint32_t at = 0;
        for (uint32_t k = 1; k < n; k++) {
            if (from[k] < least) {
                least = from[k];
                at = k;
            }
        }
        out[row] = at;
    }
}
