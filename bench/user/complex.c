/* Arrays: a, b, c. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict a = data[0], *restrict b = data[1];
    float *restrict c = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2] / 2; i++) {
        c[2 * i] = a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1];
        c[2 * i + 1] = a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i];
    }
}
