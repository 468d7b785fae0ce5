/* Arrays: softening, x, y, z, mass, ax, ay, az. */
#include "peer.h"
#include <math.h>

void run(void *const *data, const size_t *count) {
    const float softening = *(const float *)data[0];
    const float *restrict x = data[1], *restrict y = data[2], *restrict z = data[3], *restrict mass = data[4];
    float *restrict ax = data[5], *restrict ay = data[6], *restrict az = data[7];
    const size_t n = count[1];
    /* Eight bodies at a time: each sum stays in order, and the compiler can still vectorise. */
    enum { LANES = 8 };
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += LANES) {
        /* The last group overlaps earlier bodies if eight does not divide their number. */
        const size_t at = first + LANES <= n ? first : n - LANES;
        float sx[LANES] = {0}, sy[LANES] = {0}, sz[LANES] = {0};
        for (size_t j = 0; j < n; j++) {
#pragma omp simd
            for (size_t k = 0; k < LANES; k++) {
                const float dx = x[j] - x[at + k], dy = y[j] - y[at + k], dz = z[j] - z[at + k];
                const float r2 = dx * dx + dy * dy + dz * dz + softening;
                const float pull = mass[j] / (r2 * sqrtf(r2));
                sx[k] += dx * pull;
                sy[k] += dy * pull;
                sz[k] += dz * pull;
            }
        }
        memcpy(ax + at, sx, sizeof sx);
        memcpy(ay + at, sy, sizeof sy);
        memcpy(az + at, sz, sizeof sz);
    }
}
