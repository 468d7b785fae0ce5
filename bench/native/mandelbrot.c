/* Rounds until a point leaves the circle of radius 2, at most 256.
   Arrays: width, rounds (width squared). */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t n = *(const uint32_t *)data[0];
    uint32_t *restrict rounds = data[1];
#pragma omp parallel for schedule(dynamic, 8)
    for (uint32_t py = 0; py < n; py++) {
        for (uint32_t px = 0; px < n; px++) {
            const float cx = (float)px / (float)n * 3.0f - 2.25f;
            const float cy = (float)py / (float)n * 2.5f - 1.25f;
            float x = 0, y = 0;
            uint32_t k = 0;
            while (k < 256 && x * x + y * y <= 4.0f) {
                const float next = x * x - y * y + cx;
                y = 2.0f * x * y + cy;
                x = next;
                k++;
            }
            rounds[(size_t)py * n + px] = k;
        }
    }
    (void)count;
}
