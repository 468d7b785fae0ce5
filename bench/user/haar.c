/* Arrays: x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict x = data[0];
    float *restrict y = data[1];
    const size_t half = count[0] / 2;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[i] = (a + b) * 0.70710677f;
        y[half + i] = (a - b) * 0.70710677f;
    }
}
