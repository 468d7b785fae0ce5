/* The MurmurHash3 finaliser. Arrays: x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t *restrict x = data[0];
    uint32_t *restrict y = data[1];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[0]; i++) {
        uint32_t h = x[i];
        h ^= h >> 16;
        h *= 0x85ebca6bu;
        h ^= h >> 13;
        h *= 0xc2b2ae35u;
        h ^= h >> 16;
        y[i] = h;
    }
}
