/* A native peer: plain C that a careful engineer writes in an hour.
 *
 * Built as `cc -O3 -march=native -ffp-contract=off -fopenmp -shared -fPIC`: strict floats, like
 * vyre's.
 * `run` gets the workload's arrays in the order in which its row lists them, and their lengths. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void run(void *const *data, const size_t *count);
