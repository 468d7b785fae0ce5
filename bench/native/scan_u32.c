/* The inclusive prefix sums of x: chunk sums, then each chunk from its start.
   Arrays: x, totals, y. */
#include "peer.h"
#include <omp.h>

void run(void *const *data, const size_t *count) {
    const uint32_t *restrict x = data[0];
    uint32_t *restrict y = data[2];
    const size_t n = count[0];
    uint32_t sums[1025] = {0};
#pragma omp parallel
    {
        const size_t threads = omp_get_num_threads(), own = omp_get_thread_num();
        const size_t from = n * own / threads, to = n * (own + 1) / threads;
        uint32_t total = 0;
        for (size_t i = from; i < to; i++) total += x[i];
        sums[own + 1] = total;
#pragma omp barrier
        uint32_t running = 0;
        for (size_t t = 0; t <= own; t++) running += sums[t];
        for (size_t i = from; i < to; i++) {
            running += x[i];
            y[i] = running;
        }
    }
}
