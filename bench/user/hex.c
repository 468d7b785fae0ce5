/* Arrays: bytes, text. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict bytes = data[0];
    uint8_t *restrict text = data[1];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[0]; i++) {
        const unsigned b = bytes[i], high = b >> 4, low = b & 15;
        text[2 * i] = (uint8_t)(high < 10 ? high + '0' : high - 10 + 'a');
        text[2 * i + 1] = (uint8_t)(low < 10 ? low + '0' : low - 10 + 'a');
    }
}
