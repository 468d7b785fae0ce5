/* Arrays: a, b, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t *restrict a = data[0], *restrict b = data[1];
    uint32_t *restrict out = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        uint32_t x = a[i], y = b[i];
        while (y != 0) {
            const uint32_t rest = x % y;
            x = y;
            y = rest;
        }
        out[i] = x;
    }
}
