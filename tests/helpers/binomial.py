"""What so many trials give by chance, for simulations of any size."""

import math


def binomial_quantile(share, draws, chance):
    """The least number of successes that this share of all series of so many trials does not exceed."""
    total = 0.0
    for k in range(draws + 1):
        ways = math.lgamma(draws + 1) - math.lgamma(k + 1) - math.lgamma(draws - k + 1)
        total += math.exp(ways + k * math.log(chance) + (draws - k) * math.log1p(-chance))
        if total >= share:
            return k
    return draws
