/* The machine's limit: reading. Arrays: values, sum. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const uint64_t *restrict values = data[0];
    const size_t n = count[0];
    uint64_t total = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : total) if (n > 1 << 15)
    for (size_t i = 0; i < n; i++) total += values[i];
    *(uint64_t *)data[1] = total;
}
