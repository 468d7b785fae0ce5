/* Arrays: width, height, to_width, to_height, picture, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t width = *(const uint32_t *)data[0], height = *(const uint32_t *)data[1];
    const uint32_t to_width = *(const uint32_t *)data[2], to_height = *(const uint32_t *)data[3];
    const uint8_t *restrict picture = data[4];
    uint8_t *restrict out = data[5];
    const uint32_t step_x = (width - 1) * 256 / to_width, step_y = (height - 1) * 256 / to_height;
    (void)count;
#pragma omp parallel for schedule(static)
    for (uint32_t row = 0; row < to_height; row++) {
        const uint32_t sy = row * step_y, fy = sy & 255;
        const uint8_t *upper = picture + (size_t)(sy >> 8) * width, *lower = upper + width;
        for (uint32_t column = 0; column < to_width; column++) {
            const uint32_t sx = column * step_x, x = sx >> 8, fx = sx & 255;
            const uint32_t top = upper[x] * (256 - fx) + upper[x + 1] * fx;
            const uint32_t bottom = lower[x] * (256 - fx) + lower[x + 1] * fx;
            out[(size_t)row * to_width + column] = (uint8_t)((top * (256 - fy) + bottom * fy + 32768) >> 16);
        }
    }
}
