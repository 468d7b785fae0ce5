/* Arrays: samples, b0, b1, b2, a1, a2, x, y. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t samples = *(const uint32_t *)data[0];
    const float b0 = *(const float *)data[1], b1 = *(const float *)data[2], b2 = *(const float *)data[3];
    const float a1 = *(const float *)data[4], a2 = *(const float *)data[5];
    const float *restrict x = data[6];
    float *restrict y = data[7];
    const size_t channels = count[6] / samples;
    enum { AT_ONCE = 4 };
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < channels; first += AT_ONCE) {
        const size_t lanes = channels - first < AT_ONCE ? channels - first : AT_ONCE;
        float z1[AT_ONCE] = {0}, z2[AT_ONCE] = {0};
        if (lanes == AT_ONCE) {
            for (size_t k = 0; k < samples; k++) {
                for (size_t c = 0; c < AT_ONCE; c++) {
                    const float in = x[(first + c) * samples + k], out = b0 * in + z1[c];
                    z1[c] = b1 * in - a1 * out + z2[c];
                    z2[c] = b2 * in - a2 * out;
                    y[(first + c) * samples + k] = out;
                }
            }
        } else {
            for (size_t c = 0; c < lanes; c++) {
                for (size_t k = 0; k < samples; k++) {
                    const float in = x[(first + c) * samples + k], out = b0 * in + z1[c];
                    z1[c] = b1 * in - a1 * out + z2[c];
                    z2[c] = b2 * in - a2 * out;
                    y[(first + c) * samples + k] = out;
                }
            }
        }
    }
}
