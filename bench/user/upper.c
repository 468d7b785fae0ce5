/* Arrays: text, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict text = data[0];
    uint8_t *restrict out = data[1];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[1]; i++) {
        const uint8_t c = text[i];
        out[i] = c >= 'a' && c <= 'z' ? (uint8_t)(c - 32) : c;
    }
}
