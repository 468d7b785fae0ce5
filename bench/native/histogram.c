/* Histogram of the bytes of x. Arrays: x, bins (256). Each thread counts into four tables, so that
 * equal neighbours do not form a dependency chain. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint8_t *restrict x = data[0];
    uint32_t *restrict bins = data[1];
    const size_t n = count[0];
    memset(bins, 0, 256 * sizeof *bins);
#pragma omp parallel
    {
        uint32_t own[4][256] = {{0}};
#pragma omp for schedule(static)
        for (size_t i = 0; i < n / 4; i++) {
            own[0][x[4 * i]]++;
            own[1][x[4 * i + 1]]++;
            own[2][x[4 * i + 2]]++;
            own[3][x[4 * i + 3]]++;
        }
#pragma omp critical
        for (int b = 0; b < 256; b++) bins[b] += own[0][b] + own[1][b] + own[2][b] + own[3][b];
    }
    for (size_t i = n / 4 * 4; i < n; i++) bins[x[i]]++;
}
