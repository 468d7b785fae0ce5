/* Arrays: b, d, x. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const float *restrict b = data[0], *restrict d = data[1];
    float *restrict x = data[2];
#pragma omp parallel for schedule(static)
    for (size_t system = 0; system < count[0] / 64; system++) {
        const size_t first = 64 * system;
        float upper[64], right[64], u = 0, r = 0, last = 0;
        for (size_t k = 0; k < 64; k++) {
            const float pivot = 1.0f / (b[first + k] + 3.0f - u);
            u = pivot;
            r = (d[first + k] - r) * pivot;
            upper[k] = u;
            right[k] = r;
        }
        for (size_t k = 64; k-- > 0;) {
            last = right[k] - upper[k] * last;
            x[first + k] = last;
        }
    }
}
