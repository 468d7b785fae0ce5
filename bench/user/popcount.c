/* Arrays: words, bits, counts. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t words = *(const uint32_t *)data[0];
    const uint32_t *restrict bits = data[1];
    uint32_t *restrict counts = data[2];
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < count[2]; row++) {
        const uint32_t *restrict r = bits + row * words;
        uint64_t ones = 0;
        size_t k = 0;
        for (; k + 2 <= words; k += 2) {
            uint64_t both;
            memcpy(&both, r + k, sizeof both);
            ones += (uint64_t)__builtin_popcountll(both);
        }
        if (k < words) ones += (uint64_t)__builtin_popcount(r[k]);
        counts[row] = (uint32_t)ones;
    }
}
