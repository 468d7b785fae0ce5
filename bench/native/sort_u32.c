/* A stable radix sort, eight bits at a time; each thread counts and moves its own chunk.
 * Arrays: keys, spare. */
#include "peer.h"
#include <omp.h>

void run(void *const *data, const size_t *count) {
    uint32_t *from = data[0], *to = data[1];
    const size_t n = count[0];
    static size_t places[1024][256];
    for (int shift = 0; shift < 32; shift += 8) {
#pragma omp parallel
        {
            const size_t threads = omp_get_num_threads(), own = omp_get_thread_num();
            const size_t first = n * own / threads, last = n * (own + 1) / threads;
            size_t *place = places[own];
            memset(place, 0, 256 * sizeof *place);
            for (size_t i = first; i < last; i++) place[from[i] >> shift & 255]++;
#pragma omp barrier
#pragma omp single
            {
                size_t total = 0;
                for (int digit = 0; digit < 256; digit++) {
                    for (size_t t = 0; t < threads; t++) {
                        const size_t here = places[t][digit];
                        places[t][digit] = total;
                        total += here;
                    }
                }
            }
            for (size_t i = first; i < last; i++) to[place[from[i] >> shift & 255]++] = from[i];
        }
        uint32_t *swapped = from;
        from = to;
        to = swapped;
    }
}
