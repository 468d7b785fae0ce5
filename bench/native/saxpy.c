/* y = a * x + y. Arrays: a, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float a = *(const float *)data[0];
    const float *restrict x = data[1];
    float *restrict y = data[2];
    const size_t n = count[2];
#pragma omp parallel for schedule(static) if (n > 32768)
    for (size_t i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}
