/* Arrays: a, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict a = data[0], *restrict x = data[1];
    float *restrict y = data[2];
    const size_t n = count[1], rows = count[2];
    /* Eight rows at a time: each sum is a chain of additions, and the chains are independent. */
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < rows; first += 8) {
        if (first + 8 <= rows) {
            const float *r = a + first * n;
            float s[8] = {0};
            for (size_t k = 0; k < n; k++) {
                s[0] += r[k] * x[k];
                s[1] += r[n + k] * x[k];
                s[2] += r[2 * n + k] * x[k];
                s[3] += r[3 * n + k] * x[k];
                s[4] += r[4 * n + k] * x[k];
                s[5] += r[5 * n + k] * x[k];
                s[6] += r[6 * n + k] * x[k];
                s[7] += r[7 * n + k] * x[k];
            }
            memcpy(y + first, s, sizeof s);
        } else {
            for (size_t row = first; row < rows; row++) {
                float sum = 0;
                for (size_t k = 0; k < n; k++) sum += a[row * n + k] * x[k];
                y[row] = sum;
            }
        }
    }
}
