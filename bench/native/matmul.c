/* c = a b, square matrices of side n. Arrays: n, a, b, c. Accumulates rows of c from rows of b, in
 * tiles of b that stay in the cache. */
#include "peer.h"

enum { K_TILE = 64, J_TILE = 256 };

void run(void *const *data, const size_t *count) {
    const size_t n = *(const uint32_t *)data[0];
    const float *restrict a = data[1];
    const float *restrict b = data[2];
    float *restrict c = data[3];
#pragma omp parallel for schedule(static)
    for (size_t i0 = 0; i0 < n; i0 += 16) {
        const size_t i_end = i0 + 16 < n ? i0 + 16 : n;
        memset(c + i0 * n, 0, (i_end - i0) * n * sizeof *c);
        for (size_t j0 = 0; j0 < n; j0 += J_TILE) {
            const size_t j_end = j0 + J_TILE < n ? j0 + J_TILE : n;
            for (size_t k0 = 0; k0 < n; k0 += K_TILE) {
                const size_t k_end = k0 + K_TILE < n ? k0 + K_TILE : n;
                for (size_t i = i0; i < i_end; i++) {
                    for (size_t k = k0; k < k_end; k++) {
                        const float left = a[i * n + k];
                        for (size_t j = j0; j < j_end; j++) c[i * n + j] += left * b[k * n + j];
                    }
                }
            }
        }
    }
    (void)count;
}
