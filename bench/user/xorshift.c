/* Arrays: rounds, seeds, out. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint32_t rounds = *(const uint32_t *)data[0];
    const uint32_t *restrict seeds = data[1];
    uint32_t *restrict out = data[2];
    enum { LANES = 32 };
#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < count[2]; first += LANES) {
        uint32_t x[LANES] = {0};
        const size_t rest = count[2] - first, lanes = rest < LANES ? rest : LANES;
        for (size_t k = 0; k < lanes; k++) x[k] = seeds[first + k] ? seeds[first + k] : 1;
        for (uint32_t round = 0; round < rounds; round++) {
            for (size_t k = 0; k < LANES; k++) {
                x[k] ^= x[k] << 13;
                x[k] ^= x[k] >> 17;
                x[k] ^= x[k] << 5;
            }
        }
        memcpy(out + first, x, lanes * sizeof *x);
    }
}
