/* The machine's limit: copying. Arrays: from, to. */
#include "peer.h"
#include <omp.h>

void run(void *const *data, const size_t *count) {
    const size_t n = count[0];
#pragma omp parallel if (n > 1 << 18)
    {
        const size_t threads = omp_get_num_threads(), own = omp_get_thread_num();
        const size_t from = n * own / threads, to = n * (own + 1) / threads;
        memcpy((char *)data[1] + from, (const char *)data[0] + from, to - from);
    }
}
