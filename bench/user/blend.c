/* Arrays: over, under, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict over = data[0], *restrict under = data[1];
    uint8_t *restrict out = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[0] / 4; i++) {
        const unsigned alpha = over[4 * i + 3];
        for (size_t c = 0; c < 3; c++) {
            const unsigned mixed = over[4 * i + c] * alpha + under[4 * i + c] * (255 - alpha) + 128;
            out[4 * i + c] = (uint8_t)((mixed + (mixed >> 8)) >> 8);
        }
        out[4 * i + 3] = alpha > under[4 * i + 3] ? (uint8_t)alpha : under[4 * i + 3];
    }
}
