/* Runs a peer in a separate process. Standard input holds the arrays (their number; then for each
 * its length, the size of an element, whether every run starts from the original contents, and the
 * contents), then commands: `r` with a number runs that often and answers with the nanoseconds
 * taken, `o` with a number answers with that array's contents. All numbers are 64 bits in native
 * byte order. */
#include "peer.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t number(void) {
    uint64_t value;
    if (fread(&value, sizeof value, 1, stdin) != 1) exit(0);
    return value;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(void) {
    enum { MOST = 16 };
    void *data[MOST], *original[MOST] = {0};
    size_t count[MOST], bytes[MOST];
    const uint64_t arrays = number();
    if (arrays > MOST) return 2;
    int restores = 0;
    for (uint64_t k = 0; k < arrays; k++) {
        count[k] = number();
        bytes[k] = count[k] * number();
        const uint64_t restored = number();
        data[k] = aligned_alloc(64, (bytes[k] + 64) / 64 * 64);
        if (!data[k] || (bytes[k] > 0 && fread(data[k], bytes[k], 1, stdin) != 1)) return 2;
        if (restored) {
            original[k] = malloc(bytes[k] + 1);
            if (!original[k]) return 2;
            memcpy(original[k], data[k], bytes[k]);
            restores = 1;
        }
    }
    for (;;) {
        const int command = getchar();
        if (command == EOF) return 0;
        const uint64_t argument = number();
        if (command == 'r') {
            uint64_t taken = 0, start = now();
            for (uint64_t k = 0; k < argument; k++) {
                for (uint64_t a = 0; restores && a < arrays; a++) {
                    if (original[a]) memcpy(data[a], original[a], bytes[a]);
                }
                if (restores) start = now();
                run(data, count);
                if (restores) taken += now() - start;
            }
            if (!restores) taken = now() - start;
            fwrite(&taken, sizeof taken, 1, stdout);
        } else if (command == 'o' && argument < arrays) {
            fwrite(data[argument], 1, bytes[argument], stdout);
        } else {
            return 2;
        }
        fflush(stdout);
    }
}
