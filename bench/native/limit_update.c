/* The machine's limit: updating memory in place. Arrays: values. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    uint32_t *restrict values = data[0];
    const size_t n = count[0];
#pragma omp parallel for simd schedule(static) if (n > 1 << 16)
    for (size_t i = 0; i < n; i++) values[i] += 1;
}
