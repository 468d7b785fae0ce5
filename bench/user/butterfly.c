/* Arrays: half, re, im, cosines, sines. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t half = *(const uint32_t *)data[0];
    float *restrict re = data[1], *restrict im = data[2];
    const float *restrict cosines = data[3], *restrict sines = data[4];
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < count[1] / (2 * half); block++) {
        for (size_t k = 0; k < half; k++) {
            const size_t i = 2 * half * block + k, j = i + half;
            const float tr = re[j] * cosines[k] - im[j] * sines[k];
            const float ti = re[j] * sines[k] + im[j] * cosines[k];
            const float r = re[i], m = im[i];
            re[j] = r - tr;
            im[j] = m - ti;
            re[i] = r + tr;
            im[i] = m + ti;
        }
    }
}
