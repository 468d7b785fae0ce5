/* Arrays: columns, a, g. */
#include "peer.h"

void run(void *const *data, const size_t *count) {
    const size_t columns = *(const uint32_t *)data[0];
    const float *restrict a = data[1];
    float *restrict g = data[2];
    const size_t rows = columns ? count[1] / columns : 0;
    enum { WIDTH = 16, HEIGHT = 4 };
    /* Tiles of four by sixteen, so that the sums stay in registers. */
#pragma omp parallel for schedule(static)
    for (size_t y0 = 0; y0 < columns; y0 += HEIGHT) {
        for (size_t x0 = 0; x0 < columns; x0 += WIDTH) {
            if (y0 + HEIGHT <= columns && x0 + WIDTH <= columns) {
                float sum[HEIGHT][WIDTH] = {{0}};
                for (size_t row = 0; row < rows; row++) {
                    const float *r = a + row * columns;
                    for (size_t y = 0; y < HEIGHT; y++) {
                        for (size_t x = 0; x < WIDTH; x++) sum[y][x] += r[x0 + x] * r[y0 + y];
                    }
                }
                for (size_t y = 0; y < HEIGHT; y++) memcpy(g + (y0 + y) * columns + x0, sum[y], sizeof sum[y]);
            } else {
                for (size_t y = y0; y < y0 + HEIGHT && y < columns; y++) {
                    for (size_t x = x0; x < x0 + WIDTH && x < columns; x++) {
                        float sum = 0;
                        for (size_t row = 0; row < rows; row++) sum += a[row * columns + x] * a[row * columns + y];
                        g[y * columns + x] = sum;
                    }
                }
            }
        }
    }
}
