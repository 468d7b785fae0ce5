/* Arrays: a, b, c. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict a = data[0], *restrict b = data[1];
    float *restrict c = data[2];
#pragma omp parallel for schedule(static)
    for (size_t number = 0; number < count[0] / 16; number++) {
        const size_t first = 16 * number;
        for (size_t i = 0; i < 4; i++) {
            float sum[4] = {0};
            for (size_t k = 0; k < 4; k++) {
                for (size_t j = 0; j < 4; j++) sum[j] += a[first + 4 * i + k] * b[first + 4 * k + j];
            }
            memcpy(c + first + 4 * i, sum, sizeof sum);
        }
    }
}
