/* Threads that load, run and free at once, one routine shared by all of them and freed
   while they use it. */
#include "vyre.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 200, COUNT = 300 };

static const char *TEXT = "kernel add(by: u32 uniform, y: read_write u32[]) over y { y[invocation.x] += by }";

static vyre_runtime runtime;
static vyre_routine shared;

/* Gives the number of wrong results, or -1. */
static void *work(void *number) {
    uint32_t by = (uint32_t)(uintptr_t)number + 1, y[COUNT];
    intptr_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        vyre_routine own;
        if (vyre_load(runtime, TEXT, &own) != VYRE_OK) return (void *)(intptr_t)-1;
        memset(y, 0, sizeof y);
        vyre_argument arguments[] = {vyre_in("by", &by, 1, VYRE_U32), vyre_out("y", y, COUNT, VYRE_U32)};
        if (vyre_run(own, arguments, 2, NULL, NULL) != VYRE_OK) return (void *)(intptr_t)-1;
        vyre_status status = vyre_run(shared, arguments, 2, NULL, NULL);
        uint32_t expected = status == VYRE_OK ? 2 * by : by;
        if (status != VYRE_OK && status != VYRE_HANDLE) wrong++;
        for (int i = 0; i < COUNT; i++) wrong += y[i] != expected;
        if (vyre_routine_free(own) != VYRE_OK) wrong++;
        if (round == ROUNDS / 2 && by == 1) vyre_routine_free(shared);
    }
    /* The text of a failure is the thread's own. */
    char name[16];
    snprintf(name, sizeof name, "op%u", by);
    vyre_run_op(runtime, name, NULL, 0, NULL, NULL);
    wrong += strstr(vyre_error_text(), name) == NULL;
    return (void *)wrong;
}

int main(void) {
    vyre_runtime_options options = {0};
    options.backends = "cpu";
    options.without_tables = 1;
    if (vyre_runtime_new(&options, &runtime) != VYRE_OK || vyre_load(runtime, TEXT, &shared) != VYRE_OK) return 1;
    pthread_t threads[THREADS];
    for (uintptr_t k = 0; k < THREADS; k++) pthread_create(&threads[k], NULL, work, (void *)k);
    intptr_t wrong = 0;
    for (int k = 0; k < THREADS; k++) {
        void *found;
        pthread_join(threads[k], &found);
        wrong |= (intptr_t)found;
    }
    wrong |= vyre_routine_free(shared) != VYRE_HANDLE;
    wrong |= vyre_runtime_free(runtime) != VYRE_OK;
    if (wrong != 0) printf("wrong: %ld\n", (long)wrong);
    return wrong != 0;
}
