/* Arrays: rgb, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict rgb = data[0];
    uint8_t *restrict out = data[1];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[1]; i++) {
        out[i] = (uint8_t)((77 * rgb[3 * i] + 150 * rgb[3 * i + 1] + 29 * rgb[3 * i + 2] + 128) >> 8);
    }
}
