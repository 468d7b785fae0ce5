/* Arrays: x, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict x = data[0];
    uint16_t *restrict out = data[1];
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < count[1]; block++) {
        const uint8_t *from = x + 512 * block;
        unsigned length = 1, longest = 1;
        for (size_t k = 1; k < 512; k++) {
            length = from[k] == from[k - 1] ? length + 1 : 1;
            longest = length > longest ? length : longest;
        }
        out[block] = (uint16_t)longest;
    }
}
