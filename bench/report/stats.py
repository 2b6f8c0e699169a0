"""Order statistics of measurements and their confidence intervals. Values are lists of floats; a range is a pair (low, high)."""
import functools
import math

RESAMPLES = 4000
SEED = 0x9e3779b97f4a7c15
MASK = (1 << 64) - 1


def ratio(over, under):
	return over / under if under > 0 else 0.0


def quantile(v, q):
	"""Returns quantile q (0 to 1) of sorted values; 0 if there are none."""
	return v[min(int(q * (len(v) - 1) + 0.5), len(v) - 1)] if v else 0.0


def binomial(n, k, p):
	"""Returns the probability of k successes out of n."""
	return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p))


@functools.lru_cache(maxsize=None)
def interval_ranks(n, q, confidence):
	"""Returns the ranks of the ends of a quantile's interval among n values, 1 to n; 0 or n: that side has no bound.

	With X values below the quantile, X binomial: v[k] <= quantile unless X <= k, so the lower end is the largest k with
	P(X <= k) <= tail, and the upper end the smallest k with P(X >= k) <= tail."""
	tail = (1 - confidence) / 2
	low, total = 0, binomial(n, 0, q)
	while low < n and total <= tail:
		low += 1
		total += binomial(n, low, q)
	high, total = n, binomial(n, n, q)
	while high > 0 and total <= tail:
		high -= 1
		total += binomial(n, high, q)
	return low, high


def quantile_interval(v, q, confidence):
	"""Computes the interval that contains the quantile of the population with at least that confidence, whatever its distribution
	(order statistics: ranks from the binomial distribution), for independent values. v is sorted. Returns the interval, and False
	if the values are too few to bound a side: that side is then the smallest or largest value."""
	n = len(v)
	if not n:
		return (0.0, 0.0), False
	low, high = interval_ranks(n, q, confidence)
	return (v[max(low - 1, 0)], v[min(high, n - 1)]), low > 0 and high < n


def mean(v):
	return sum(v) / len(v) if v else 0.0


def variance(v):
	"""Returns the variance of the sample (n - 1); 0 below two values."""
	m = mean(v)
	return sum((x - m) * (x - m) for x in v) / (len(v) - 1) if len(v) > 1 else 0.0


def extremes(v):
	return (min(v), max(v)) if v else (0.0, 0.0)


def randoms(state):
	"""xorshift64*: the same numbers on every machine. state is not 0."""
	while True:
		state ^= state >> 12
		state ^= state << 25 & MASK
		state ^= state >> 27
		yield state * 0x2545f4914f6cdd1d & MASK


@functools.lru_cache(maxsize=None)
def draws(n, count):
	"""Returns count samples with replacement of the indices below n, from a fixed seed."""
	random = randoms(SEED)
	return [[(next(random) >> 33) % n for _ in range(n)] for _ in range(count)]


def percentiles(v, confidence):
	v, tail = sorted(v), (1 - confidence) / 2
	return quantile(v, tail), quantile(v, 1 - tail)


def bootstrap_ratio(over, under, confidence):
	"""Percentile bootstrap of the ratio of two sums; pairs are drawn together."""
	if not over:
		return 0.0, 0.0
	sums = ((sum(over[i] for i in at), sum(under[i] for i in at)) for at in draws(len(over), RESAMPLES))
	return percentiles([a / b if b else 0.0 for a, b in sums], confidence)


def bootstrap_mean(v, confidence):
	"""Percentile bootstrap of the mean: for few repeats, each of which is one value."""
	return bootstrap_ratio(v, [1.0] * len(v), confidence)
