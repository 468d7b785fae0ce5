/* Arrays: n, x, bins. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const uint8_t *restrict x = data[1];
    uint32_t *restrict bins = data[2];
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < count[1] / n; row++) {
        uint32_t counts[16] = {0};
        for (size_t k = 0; k < n; k++) counts[x[row * n + k] >> 4]++;
        memcpy(bins + row * 16, counts, sizeof counts);
    }
}
