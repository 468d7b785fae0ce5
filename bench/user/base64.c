/* Arrays: alphabet, bytes, text. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict alphabet = data[0], *restrict bytes = data[1];
    uint8_t *restrict text = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[1] / 3; i++) {
        const uint32_t word = (uint32_t)bytes[3 * i] << 16 | (uint32_t)bytes[3 * i + 1] << 8 | bytes[3 * i + 2];
        text[4 * i] = alphabet[word >> 18];
        text[4 * i + 1] = alphabet[(word >> 12) & 63];
        text[4 * i + 2] = alphabet[(word >> 6) & 63];
        text[4 * i + 3] = alphabet[word & 63];
    }
}
