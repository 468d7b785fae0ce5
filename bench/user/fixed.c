/* Arrays: taps, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const int16_t *restrict taps = data[0], *restrict x = data[1];
    int16_t *restrict y = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        uint32_t sum = 16384;
        for (size_t k = 0; k < 16; k++) sum += (uint32_t)(taps[k] * x[i + k]);
        const int32_t scaled = (int32_t)sum >> 15;
        y[i] = (int16_t)(scaled < -32768 ? -32768 : scaled > 32767 ? 32767 : scaled);
    }
}
