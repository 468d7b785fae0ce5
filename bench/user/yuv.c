/* Arrays: rgb, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict rgb = data[0];
    uint8_t *restrict out = data[1];
#define CLAMP(v) (uint8_t)((v) < 0 ? 0 : (v) > 255 ? 255 : (v))
#pragma omp parallel for schedule(static)
    for (size_t p = 0; p < count[0] / 3; p++) {
        const size_t i = 3 * p;
        const int r = rgb[i], g = rgb[i + 1], b = rgb[i + 2];
        const int y = ((66 * r + 129 * g + 25 * b + 128) >> 8) + 16;
        const int u = ((-38 * r - 74 * g + 112 * b + 128) >> 8) + 128;
        const int v = ((112 * r - 94 * g - 18 * b + 128) >> 8) + 128;
        out[i] = CLAMP(y);
        out[i + 1] = CLAMP(u);
        out[i + 2] = CLAMP(v);
    }
}
