/* Arrays: taps, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict taps = data[0], *restrict x = data[1];
    float *restrict y = data[2];
    const size_t n = count[1], length = count[0];
    enum { BLOCK = 64 };
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += BLOCK) {
        if (first + BLOCK + length <= n) {
            float sum[BLOCK] = {0};
            for (size_t k = 0; k < length; k++) {
                for (size_t i = 0; i < BLOCK; i++) sum[i] += taps[k] * x[first + i + k];
            }
            memcpy(y + first, sum, sizeof sum);
        } else {
            for (size_t i = first; i < first + BLOCK && i < n; i++) {
                float sum = 0;
                for (size_t k = 0; k < length && i + k < n; k++) sum += taps[k] * x[i + k];
                y[i] = sum;
            }
        }
    }
}
