/* Arrays: width, height, picture, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t width = *(const uint32_t *)data[0], height = *(const uint32_t *)data[1];
    const uint8_t *restrict picture = data[2];
    uint8_t *restrict out = data[3];
    (void)count;
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < height; y++) {
        const uint8_t *row = picture + y * width;
        uint8_t *to = out + y * width;
        if (y < 2 || y + 2 >= height) {
            memcpy(to, row, width);
            continue;
        }
        const uint8_t *a = row - 2 * width, *b = row - width, *d = row + width, *e = row + 2 * width;
        for (size_t x = 0; x < width; x++) to[x] = (uint8_t)((a[x] + 4 * b[x] + 6 * row[x] + 4 * d[x] + e[x] + 8) / 16);
    }
}
