/* The price of a European call for each spot price.
   Arrays: strike, rate, volatility, years, spot, price. */
#include "peer.h"
#include <math.h>

static float normal_below(float x) { return 0.5f + 0.5f * erff(x * 0.70710678f); }

void run(void *const *data, const size_t *count) {
    const float strike = *(const float *)data[0], rate = *(const float *)data[1];
    const float volatility = *(const float *)data[2], years = *(const float *)data[3];
    const float *restrict spot = data[4];
    float *restrict price = data[5];
    const float spread = volatility * sqrtf(years);
    const float discounted = strike * expf(-rate * years);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[4]; i++) {
        const float s = spot[i];
        const float d1 = (logf(s / strike) + (rate + 0.5f * volatility * volatility) * years) / spread;
        price[i] = s * normal_below(d1) - discounted * normal_below(d1 - spread);
    }
}
