/* Prices of European call and put options.
   Arrays: rate, volatility, spot, strike, years, call, put. */
#include "peer.h"
#include <math.h>

static float normal(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }

void run(void *const *data, const size_t *count) {
    const float rate = *(const float *)data[0], volatility = *(const float *)data[1];
    const float *restrict spot = data[2], *restrict strike = data[3], *restrict years = data[4];
    float *restrict call = data[5], *restrict put = data[6];
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[2]; i++) {
        const float s = spot[i], k = strike[i], t = years[i];
        const float spread = volatility * sqrtf(t);
        const float d1 = (logf(s / k) + (rate + 0.5f * volatility * volatility) * t) / spread;
        const float discounted = k * expf(-(rate * t));
        const float n1 = normal(d1), n2 = normal(d1 - spread);
        call[i] = s * n1 - discounted * n2;
        put[i] = discounted * (1.0f - n2) - s * (1.0f - n1);
    }
}
