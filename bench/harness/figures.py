"""Order statistics and their intervals. The standard library alone."""

import random
import statistics

BOOTSTRAP_ROUNDS = 2000


def quantile(ordered, q):
    """Nearest rank of a sorted list."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def median_with_interval(values, seed=1):
    """Median and its 95 % bootstrap interval (percentile method)."""
    if not values:
        return None
    lo, hi = interval(values, statistics.median, seed=seed)
    return {
        "median": round(statistics.median(values), 4),
        "lo": round(lo, 4),
        "hi": round(hi, 4),
        "n": len(values),
    }


def interval(values, statistic, rounds=BOOTSTRAP_ROUNDS, seed=1):
    """The 95 % bootstrap interval (percentile method) of any statistic of a list."""
    draw = random.Random(seed)
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(rounds))
    return quantile(drawn, 0.025), quantile(drawn, 0.975)
