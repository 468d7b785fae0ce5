/* Arrays: chunk, text, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t chunk = *(const uint32_t *)data[0];
    const uint8_t *restrict text = data[1];
    uint32_t *restrict out = data[2];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        uint32_t characters = 0;
        for (size_t k = 0; k < chunk; k++) characters += (text[i * chunk + k] & 0xc0) != 0x80;
        out[i] = characters;
    }
}
