/* Arrays: starts, columns, values, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t *restrict starts = data[0], *restrict columns = data[1];
    const float *restrict values = data[2], *restrict x = data[3];
    float *restrict y = data[4];
    const uint32_t length = (uint32_t)count[3];
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < count[4]; row++) {
        float sum = 0;
        for (uint32_t k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k] % length];
        y[row] = sum;
    }
}
