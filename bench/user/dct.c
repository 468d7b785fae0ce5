/* Arrays: cosines, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict cosines = data[0];
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < count[1] / 64; block++) {
        const float *restrict x = (const float *)data[1] + 64 * block;
        float *restrict y = (float *)data[2] + 64 * block;
        float rows[64];
        for (size_t r = 0; r < 8; r++) {
            for (size_t u = 0; u < 8; u++) {
                float sum = 0;
                for (size_t k = 0; k < 8; k++) sum += x[8 * r + k] * cosines[8 * u + k];
                rows[8 * r + u] = sum;
            }
        }
        for (size_t u = 0; u < 8; u++) {
            for (size_t v = 0; v < 8; v++) {
                float sum = 0;
                for (size_t k = 0; k < 8; k++) sum += rows[8 * k + u] * cosines[8 * v + k];
                y[8 * v + u] = sum;
            }
        }
    }
}
