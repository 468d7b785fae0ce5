/* Arrays: line, text, words. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t line = *(const uint32_t *)data[0];
    const uint8_t *restrict text = data[1];
    uint32_t *restrict words = data[2];
    static uint8_t is_letter[256];
    for (unsigned byte = 0; byte < 256; byte++) is_letter[byte] = (uint8_t)((byte | 32) - 97u < 26);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        unsigned inside = 0, found = 0;
        for (size_t k = 0; k < line; k++) {
            const unsigned letter = is_letter[text[i * line + k]];
            found += letter & ~inside;
            inside = letter;
        }
        words[i] = found;
    }
}
