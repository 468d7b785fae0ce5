/* Arrays: words, query, rows, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t words = *(const uint32_t *)data[0];
    const uint64_t *restrict query = data[1], *restrict rows = data[2];
    uint32_t *restrict out = data[3];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[3]; i++) {
        uint32_t distance = 0;
        for (size_t k = 0; k < words; k++) distance += (uint32_t)__builtin_popcountll(query[k] ^ rows[i * words + k]);
        out[i] = distance;
    }
}
