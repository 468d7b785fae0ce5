/* Arrays: width, height, cells, next. */
#include "peer.h"

static inline uint8_t fate(const uint8_t *up, const uint8_t *here, const uint8_t *down, size_t l, size_t x, size_t r) {
    const uint8_t sum = (uint8_t)((up[l] & 1) + (up[x] & 1) + (up[r] & 1) + (here[l] & 1) + (here[r] & 1) +
                                  (down[l] & 1) + (down[x] & 1) + (down[r] & 1));
    return (uint8_t)((sum == 3) | ((here[x] & 1) & (sum == 2)));
}

void run(void *const *data, const size_t *count) {
    const size_t width = *(const uint32_t *)data[0], height = *(const uint32_t *)data[1];
    const uint8_t *restrict cells = data[2];
    uint8_t *restrict next = data[3];
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < height; y++) {
        const uint8_t *here = cells + y * width;
        const uint8_t *up = cells + (y + height - 1) % height * width, *down = cells + (y + 1) % height * width;
        uint8_t *to = next + y * width;
        to[0] = fate(up, here, down, width - 1, 0, width > 1 ? 1 : 0);
        for (size_t x = 1; x + 1 < width; x++) to[x] = fate(up, here, down, x - 1, x, x + 1);
        if (width > 1) to[width - 1] = fate(up, here, down, width - 2, width - 1, 0);
    }
}
