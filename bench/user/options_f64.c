/* Arrays: strike, rate, volatility, years, moneyness, price. */
#include "peer.h"
#include <math.h>

static double normal_below(double x) { return 0.5 + 0.5 * erf(x * 0.7071067811865476); }

void run(void *const *data, const size_t *count) {
    const double strike = *(const double *)data[0], rate = *(const double *)data[1];
    const double volatility = *(const double *)data[2], years = *(const double *)data[3];
    const double *restrict moneyness = data[4];
    double *restrict price = data[5];
    const double spread = volatility * sqrt(years), discounted = strike * exp(-rate * years);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count[4]; i++) {
        const double s = strike * (1.5 + moneyness[i]);
        const double d1 = (log(s / strike) + (rate + 0.5 * volatility * volatility) * years) / spread;
        price[i] = s * normal_below(d1) - discounted * normal_below(d1 - spread);
    }
}
