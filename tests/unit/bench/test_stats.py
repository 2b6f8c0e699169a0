"""Order statistics and intervals against known answers."""
import itertools
import unittest

import stats


def row(n):
	return [float(i + 1) for i in range(n)]


class Stats(unittest.TestCase):
	def test_quantiles_of_a_row(self):
		v = row(101)
		self.assertEqual([stats.quantile(v, q) for q in (0, 0.5, 0.99, 1)], [1, 51, 100, 101])
		self.assertEqual(stats.quantile([], 0.5), 0)

	def test_interval_of_a_median(self):
		"""Ranks of the classical 95 % interval of a median: 10 values: 2 and 9; 25: 8 and 18; 100: 40 and 61 (Conover, Practical
		Nonparametric Statistics, table of the sign test)."""
		for n, low, high in (10, 2, 9), (25, 8, 18), (100, 40, 61):
			self.assertEqual(stats.quantile_interval(row(n), 0.5, 0.95), ((low, high), True))

	def test_too_few_values_bound_one_side_only(self):
		self.assertEqual(stats.quantile_interval(row(5), 0.5, 0.95), ((1, 5), False))
		(low, high), sure = stats.quantile_interval(row(100), 0.99, 0.95)
		self.assertFalse(sure)
		self.assertEqual(high, 100)  # 63 % of samples of 100 reach their P99 at all
		self.assertTrue(96 <= low <= 97)
		self.assertFalse(stats.quantile_interval([], 0.5, 0.95)[1])

	def test_interval_covers(self):
		"""In 400 samples of 200 the interval of P90 contains it in at least 95 %, about, and is not merely wide."""
		random, held = stats.randoms(7), 0
		for _ in range(400):
			v = sorted((x >> 40) / 16777216 for x in itertools.islice(random, 200))
			(low, high), sure = stats.quantile_interval(v, 0.9, 0.95)
			self.assertTrue(sure and high - low < 0.15)
			held += low <= 0.9 <= high
		self.assertTrue(376 <= held <= 400)

	def test_many_values(self):
		(low, high), sure = stats.quantile_interval(row(100000), 0.999, 0.95)
		# 99900 +- 1.96 * sqrt(n * 0.999 * 0.001) = 19.6
		self.assertTrue(sure and abs(low - 99880.4) < 3 and abs(high - 99919.6) < 3)

	def test_variance(self):
		v = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
		self.assertEqual(stats.mean(v), 5)
		self.assertAlmostEqual(stats.variance(v), 32 / 7, delta=1e-12)
		self.assertEqual(stats.variance(v[:1]), 0)

	def test_extremes(self):
		self.assertEqual(stats.extremes([3.0, 1.0, 2.0]), (1, 3))

	def test_bootstrap(self):
		"""Means of two values drawn from 0 and 1: 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4."""
		self.assertEqual(stats.bootstrap_mean([0.0, 1.0], 0.95), (0, 1))
		self.assertEqual(stats.bootstrap_mean([0.0, 1.0], 0.4), (0.5, 0.5))  # tails of 30 %: both ends are 1/2
		self.assertEqual(stats.bootstrap_mean([3.0, 3.0, 3.0], 0.95), (3, 3))
		self.assertEqual(stats.bootstrap_ratio([10.0, 30.0], [20.0, 60.0], 0.95), (0.5, 0.5))
		self.assertEqual(stats.bootstrap_mean([], 0.95), (0, 0))

	def test_random_numbers_are_those_of_the_clients(self):
		"""xorshift64* as in bench/common/statistics.c."""
		self.assertEqual(list(itertools.islice(stats.randoms(1), 2)), [0x47e4ce4b896cdd1d, 0xabcfa6a8e079651d])


unittest.main()
