/* The machine's limit: f32 multiply-adds, in enough independent vectors to fill the units. Arrays:
 * rounds, operations (the number performed; a multiply-add counts as two), sink. */
#include "peer.h"
#include <omp.h>

enum { VECTORS = 12, LANES = 8 };
typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

void run(void *const *data, const size_t *count) {
    const uint64_t rounds = *(const uint64_t *)data[0];
    uint64_t threads = 1;
#pragma omp parallel
    {
#pragma omp single
        threads = (uint64_t)omp_get_num_threads();
        vector sums[VECTORS], factor, addend;
        for (int l = 0; l < LANES; l++) factor[l] = 0.999f, addend[l] = 0.001f * (float)(l + 1 + omp_get_thread_num());
        for (int v = 0; v < VECTORS; v++) sums[v] = factor;
        for (uint64_t k = 0; k < rounds; k++) {
#pragma GCC unroll 12
            for (int v = 0; v < VECTORS; v++) {
#ifdef __FMA__
                for (int l = 0; l < LANES; l++) sums[v][l] = __builtin_fmaf(sums[v][l], factor[l], addend[l]);
#else
                sums[v] = sums[v] * factor + addend;
#endif
            }
        }
        float total = 0;
        for (int v = 0; v < VECTORS; v++)
            for (int l = 0; l < LANES; l++) total += sums[v][l];
        if (total == 12345.0f) *(float *)data[2] = total;
    }
    *(uint64_t *)data[1] = threads * rounds * VECTORS * LANES * 2;
    (void)count;
}
