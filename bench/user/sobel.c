/* Arrays: width, height, picture, out. */
#include "peer.h"
#include <stdlib.h>

static inline uint8_t edge(const uint8_t *up, const uint8_t *here, const uint8_t *down, size_t l, size_t x, size_t r) {
    const int gx = up[r] + 2 * here[r] + down[r] - up[l] - 2 * here[l] - down[l];
    const int gy = down[l] + 2 * down[x] + down[r] - up[l] - 2 * up[x] - up[r];
    const int strength = abs(gx) + abs(gy);
    return (uint8_t)(strength < 255 ? strength : 255);
}

void run(void *const *data, const size_t *count) {
    const size_t width = *(const uint32_t *)data[0], height = *(const uint32_t *)data[1];
    const uint8_t *restrict in = data[2];
    uint8_t *restrict out = data[3];
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < height; y++) {
        const uint8_t *here = in + y * width;
        const uint8_t *up = y > 0 ? here - width : here, *down = y + 1 < height ? here + width : here;
        uint8_t *to = out + y * width;
        to[0] = edge(up, here, down, 0, 0, width > 1 ? 1 : 0);
        for (size_t x = 1; x + 1 < width; x++) to[x] = edge(up, here, down, x - 1, x, x + 1);
        if (width > 1) to[width - 1] = edge(up, here, down, width - 2, width - 1, width - 1);
    }
}
