/* Arrays: level, picture, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t level = *(const uint32_t *)data[0];
    const uint8_t *restrict picture = data[1];
    uint8_t *restrict out = data[2];
    if (level > 255) {
        memset(out, 0, count[2]);
        return;
    }
    const uint8_t limit = (uint8_t)level;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) out[i] = picture[i] > limit ? 255 : 0;
}
