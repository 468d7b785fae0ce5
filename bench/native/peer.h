/* A native peer: what a careful engineer writes by hand in an hour, in plain C.
 *
 * Built as `cc -O3 -march=native -ffp-contract=off -fopenmp -shared -fPIC`: strict floats, as vyre's are. `run` gets the
 * workload's arrays in the order in which its row lists them, and how many elements each has. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void run(void *const *data, const size_t *count);
