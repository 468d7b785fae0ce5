/* Arrays: text, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict text = data[0];
    uint32_t *restrict out = data[1];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[1]; i++) {
        uint32_t number = 0;
        for (size_t k = 0; k < 8; k++) {
            const uint8_t c = text[8 * i + k];
            if (c >= '0' && c <= '9') number = number * 10 + c - '0';
        }
        out[i] = number;
    }
}
