/* Softmax of each row. Arrays: columns, x, y. */
#include "peer.h"
#include <math.h>

void run(void *const *data, const size_t *count) {
    const size_t columns = *(const uint32_t *)data[0];
    const float *restrict x = data[1];
    float *restrict y = data[2];
    const size_t rows = count[1] / columns;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * columns;
        float *restrict out = y + r * columns;
        float largest = in[0], total = 0;
        for (size_t c = 1; c < columns; c++) largest = in[c] > largest ? in[c] : largest;
        for (size_t c = 0; c < columns; c++) {
            out[c] = expf(in[c] - largest);
            total += out[c];
        }
        for (size_t c = 0; c < columns; c++) out[c] /= total;
    }
}
