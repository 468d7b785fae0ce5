/* Arrays: n, a, b, c. */
#include "peer.h"
#include <stdlib.h>

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const float *restrict a = data[1], *restrict b = data[2];
    float *restrict c = data[3];
    (void)count;
    /* Transposes b first: rows can then be added to one another in order. */
    float *across = malloc(n * n * sizeof(float));
    for (size_t x = 0; x < n; x++)
        for (size_t k = 0; k < n; k++) across[k * n + x] = b[x * n + k];
#pragma omp parallel for schedule(static)
    for (size_t y = 0; y < n; y++) {
        float *restrict row = c + y * n;
        memset(row, 0, n * sizeof(float));
        for (size_t k = 0; k < n; k++)
            for (size_t x = 0; x < n; x++) row[x] += a[y * n + k] * across[k * n + x];
    }
    free(across);
}
