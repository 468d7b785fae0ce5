/* Arrays: re, im. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    float *restrict re = data[0], *restrict im = data[1];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[0] / 4; i++) {
        float *r = re + 4 * i, *m = im + 4 * i;
        const float a = r[0] + r[2], b = r[0] - r[2], c = r[1] + r[3], d = r[1] - r[3];
        const float e = m[0] + m[2], f = m[0] - m[2], g = m[1] + m[3], h = m[1] - m[3];
        r[0] = a + c;
        m[0] = e + g;
        r[1] = b + h;
        m[1] = f - d;
        r[2] = a - c;
        m[2] = e - g;
        r[3] = b - h;
        m[3] = f + d;
    }
}
