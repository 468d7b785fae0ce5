/* Arrays: coefficients, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict coefficients = data[0], *restrict x = data[1];
    float *restrict y = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        const float t = x[i];
        float sum = 0;
        for (size_t k = 0; k < 12; k++) sum = sum * t + coefficients[11 - k];
        y[i] = sum;
    }
}
