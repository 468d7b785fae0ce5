/* Arrays: points, centres, out. */
#include "peer.h"
#include <math.h>

void run(void *const *data, const size_t *count) {
    const float *restrict points = data[0], *restrict centres = data[1];
    uint32_t *restrict out = data[2];
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        const float x = points[3 * i], y = points[3 * i + 1], z = points[3 * i + 2];
        uint32_t best = 0;
        float least = INFINITY;
        for (uint32_t c = 0; c < 16; c++) {
            const float dx = x - centres[3 * c], dy = y - centres[3 * c + 1], dz = z - centres[3 * c + 2];
            const float distance = dx * dx + dy * dy + dz * dz;
            best = distance < least ? c : best;
            least = distance < least ? distance : least;
        }
        out[i] = best;
    }
}
