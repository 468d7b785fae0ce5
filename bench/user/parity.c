/* Arrays: words, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t words = *(const uint32_t *)data[0];
    const uint32_t *restrict x = data[1];
    uint32_t *restrict y = data[2];
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < count[1] / words; row++) {
        uint32_t seen = 0;
        for (size_t k = row * words; k < (row + 1) * words; k++) {
            seen ^= x[k];
            y[k] = seen;
        }
    }
}
