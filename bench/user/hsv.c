/* Arrays: rgb, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict rgb = data[0];
    uint8_t *restrict out = data[1];
#pragma omp parallel for schedule(static)
    for (size_t pixel = 0; pixel < count[0] / 3; pixel++) {
        const int r = rgb[3 * pixel], g = rgb[3 * pixel + 1], b = rgb[3 * pixel + 2];
        const int value = r > g ? (r > b ? r : b) : (g > b ? g : b);
        const int least = r < g ? (r < b ? r : b) : (g < b ? g : b), range = value - least;
        int hue = 0, saturation = 0;
        if (range > 0) {
            saturation = 255 * range / value;
            if (value == r) hue = 43 * (g - b) / range;
            else if (value == g) hue = 85 + 43 * (b - r) / range;
            else hue = 171 + 43 * (r - g) / range;
        }
        out[3 * pixel] = (uint8_t)hue;
        out[3 * pixel + 1] = (uint8_t)saturation;
        out[3 * pixel + 2] = (uint8_t)value;
    }
}
